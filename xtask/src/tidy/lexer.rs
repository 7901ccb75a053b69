//! What of a Rust file is code: comments and the contents of literals become spaces.
//!
//! Rules that look for words in code would otherwise find them in prose and in their own tests.

/// The text with comments and the insides of literals blanked, line for line the same.
pub(super) fn code(text: &str) -> String {
    let mut lexer = Lexer { rest: text, out: String::with_capacity(text.len()) };
    while let Some(next) = lexer.rest.chars().next() {
        if lexer.rest.starts_with("//") {
            let end = lexer.rest.find('\n').unwrap_or(lexer.rest.len());
            lexer.blank(end);
        } else if lexer.rest.starts_with("/*") {
            let end = end_of_block_comment(lexer.rest);
            lexer.blank(end);
        } else if let Some(hashes) = raw_string(lexer.rest).filter(|_| !lexer.is_in_word()) {
            let open = lexer.rest.find('"').expect("a raw string has a quote") + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            let len = lexer.rest[open..].find(&close).unwrap_or(lexer.rest.len() - open);
            lexer.keep(open);
            lexer.blank(len);
            lexer.keep(close.len().min(lexer.rest.len()));
        } else if next == '"' {
            lexer.keep(1);
            let end = end_of_literal(lexer.rest, '"');
            lexer.blank(end);
            lexer.keep(1.min(lexer.rest.len()));
        } else if next == '\'' && is_character(lexer.rest) {
            lexer.keep(1);
            let end = end_of_literal(lexer.rest, '\'');
            lexer.blank(end);
            lexer.keep(1.min(lexer.rest.len()));
        } else {
            lexer.keep(next.len_utf8());
        }
    }
    lexer.out
}

struct Lexer<'a> {
    rest: &'a str,
    out: String,
}

impl Lexer<'_> {
    fn keep(&mut self, len: usize) {
        self.out.push_str(&self.rest[..len]);
        self.rest = &self.rest[len..];
    }

    fn blank(&mut self, len: usize) {
        let blanks = self.rest[..len].chars().map(|c| if c == '\n' { '\n' } else { ' ' });
        self.out.extend(blanks);
        self.rest = &self.rest[len..];
    }

    /// Whether the last character kept belongs to a word, so that an `r` after it does too.
    fn is_in_word(&self) -> bool {
        self.out.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    }
}

/// The number of hashes if a raw string begins here: `r"`, `br#"`, `cr##"`.
fn raw_string(rest: &str) -> Option<usize> {
    let rest = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// Whether a quote begins a character and not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut after = rest.chars().skip(1);
    match after.next() {
        Some('\\') => true,
        Some(_) => after.next() == Some('\''),
        None => false,
    }
}

fn end_of_literal(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at,
            _ => {}
        }
    }
    rest.len()
}

fn end_of_block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn comments_become_spaces() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(code("a /* b\n c */ d"), "a     \n      d");
    }

    #[test]
    fn insides_of_literals_become_spaces() {
        assert_eq!(code(r#"f("x // y", 1)"#), r#"f("      ", 1)"#);
        assert_eq!(code(r#""a \" b" c"#), r#""      " c"#);
        assert_eq!(code("r#\"a \" b\"# c"), "r#\"     \"# c");
        assert_eq!(code("for\"x\""), "for\" \"");
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code("['\"', '\\'', 'x']"), "[' ', '  ', ' ']");
    }
}
