//! What kind of content it is: `multipart/form-data; boundary="a b"`.

use crate::headers::is_token;

/// A media type and its parameters, where they were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaType<'a> {
    essence: &'a str,
    params: &'a str,
}

impl<'a> MediaType<'a> {
    /// Of the value of a `Content-Type`; none if it is none.
    ///
    /// ```
    /// use coracle_http::MediaType;
    ///
    /// let kind = MediaType::parse(r#"Multipart/Form-Data; charset=utf-8; boundary="a \"b\"""#).unwrap();
    /// assert!(kind.is("multipart/form-data"));
    /// assert_eq!(kind.param("Boundary").as_deref(), Some(r#"a "b""#));
    /// assert_eq!(MediaType::parse("text"), None);
    /// ```
    pub fn parse(value: &'a str) -> Option<MediaType<'a>> {
        let (essence, params) = value.split_once(';').unwrap_or((value, ""));
        let essence = trim(essence);
        let (kind, subtype) = essence.split_once('/')?;
        let is_one = |text: &str| !text.is_empty() && text.bytes().all(is_token);
        (is_one(kind) && is_one(subtype)).then_some(MediaType { essence, params })
    }

    /// Whether it is this type, whatever its parameters are.
    pub fn is(&self, essence: &str) -> bool {
        self.essence.eq_ignore_ascii_case(essence)
    }

    /// Whether it is JSON, or something written in it: `application/json`, `application/problem+json`.
    pub fn is_json(&self) -> bool {
        let suffix = self.essence.len().checked_sub(5).and_then(|at| self.essence.get(at..));
        self.is("application/json")
            || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json"))
    }

    /// The value of a parameter, without its quotes.
    pub fn param(&self, name: &str) -> Option<String> {
        let mut params = Params(self.params);
        params.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Parameters: `name=token; name="quoted \" string"`. Ends where they are no such thing any more.
pub(crate) struct Params<'a>(pub(crate) &'a str);

impl<'a> Iterator for Params<'a> {
    type Item = (&'a str, String);

    fn next(&mut self) -> Option<(&'a str, String)> {
        let text = self.0.trim_start_matches([' ', '\t', ';']);
        self.0 = "";
        let (name, rest) = text.split_once('=')?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return None;
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let (value, rest) = unquote(quoted)?;
            let rest = trim(rest);
            if !rest.is_empty() && !rest.starts_with(';') {
                return None;
            }
            self.0 = rest;
            return Some((name, value));
        }
        let (value, rest) = rest.split_once(';').unwrap_or((rest, ""));
        self.0 = rest;
        Some((name, trim(value).to_owned()))
    }
}

/// What is before the closing quote, and what is behind it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn j8_media_types_are_told_apart() {
        let json = |value| MediaType::parse(value).is_some_and(|kind| kind.is_json());
        assert!(
            json("application/json") && json("Application/JSON; charset=utf-8") && json("a/b+json")
        );
        assert!(
            !json("text/json")
                && !json("application/jsonp")
                && !json("json")
                && !json("")
                && !json("é/+json")
        );
        assert_eq!(MediaType::parse("a b/c"), None);
        assert_eq!(MediaType::parse("/"), None);
    }

    #[test]
    fn j8_parameters_end_where_they_are_none() {
        let params = |text| Params(text).collect::<Vec<_>>();
        assert_eq!(
            params("; a=1;b=\"2;3\" ; c=4"),
            [("a", "1".into()), ("b", "2;3".into()), ("c", "4".into())]
        );
        assert_eq!(params("a=\"1"), []);
        assert_eq!(params("a=\"1\"x; b=2"), []);
        assert_eq!(params("a"), []);
        assert_eq!(params("=1"), []);
        assert_eq!(params("a=\"\\"), []);
    }

    proptest! {
        #[test]
        fn j8_what_was_quoted_is_found_again(
            name in "[a-z]{1,4}",
            value in "[ -~é]{0,12}",
            more in "(; [b-z]=1)?",
        ) {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let text = format!("a/b; {name}=\"{quoted}\"{more}");
            prop_assert_eq!(MediaType::parse(&text).unwrap().param(&name), Some(value));
        }

        #[test]
        fn j8_parameters_end_whatever_they_are(text in "[a=\"\\\\; é]{0,20}") {
            prop_assert!(Params(&text).count() <= text.len());
        }
    }
}
