//! Text of others, as it is written in HTML: nothing of it is markup, in elements and in attributes.

/// Adds `text` to a page.
pub(crate) fn push_escaped(page: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            other => page.push(other),
        }
    }
}

/// `text` alone.
pub(crate) fn escaped(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    push_escaped(&mut page, text);
    page
}
