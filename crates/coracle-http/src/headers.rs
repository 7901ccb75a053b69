//! Header fields, in the order in which they came or were added.
//!
//! ```text
//!   text    G E T   /   H T T P / 1 . 1 ␍␊ H o s t :   a . b ␍␊ A c c e p t :   * / * ␍␊
//!                                         └─name─┘   └value┘   └──name──┘   └value┘
//!   fields                               [ name, value ]      [ name, value ]          where each is in the text
//! ```
//!
//! The fields of a request are found where they were received: there is one copy of its head, and a list of places
//! in it. Those of a response that a program writes in its source (`"content-type"`) are not copied at all.
//! Messages have a dozen fields, so they are looked for one after the other: that is faster than a hash.

use smallvec::SmallVec;
use std::error::Error;
use std::fmt;

/// The header fields of a message. Names are compared without regard to case.
///
/// ```
/// use coracle_http::Headers;
///
/// let mut headers = Headers::new();
/// headers.insert("Content-Type", "text/plain").unwrap();
/// headers.append("Set-Cookie", "a=1").unwrap();
/// headers.append("Set-Cookie", "b=2").unwrap();
/// assert_eq!(headers.get("content-type"), Some("text/plain"));
/// assert_eq!(headers.get_all("set-cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
///
/// // A line end in a value would be the end of the header, and the rest another one.
/// assert!(headers.insert("Location", "/\r\nSet-Cookie: admin=1").is_err());
/// assert_eq!(headers.get("location"), None);
/// ```
#[derive(Clone, Default)]
pub struct Headers {
    pub(crate) text: Vec<u8>,
    pub(crate) fields: SmallVec<[Field; 3]>,
}

/// Where a name and a value are.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: Text,
    pub(crate) value: Text,
}

/// Something in the source of a program, or in the text.
#[derive(Clone, Copy)]
pub(crate) enum Text {
    Static(&'static str),
    At { start: u32, len: u32 },
}

impl Headers {
    /// No fields.
    pub fn new() -> Headers {
        Headers::default()
    }

    /// The value of the first field of this name, if it is text. A value that is not UTF-8 is only found by
    /// [`get_bytes`](Headers::get_bytes).
    pub fn get(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get_bytes(name)?).ok()
    }

    /// The value of the first field of this name.
    pub fn get_bytes(&self, name: &str) -> Option<&[u8]> {
        let field = self.fields.iter().find(|field| self.is_named(field, name))?;
        Some(self.resolve(field.value))
    }

    /// The values of all fields of this name that are text.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let fields = self.fields.iter().filter(move |field| self.is_named(field, name));
        fields.filter_map(|field| std::str::from_utf8(self.resolve(field.value)).ok())
    }

    /// Whether there is a field of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.fields.iter().any(|field| self.is_named(field, name))
    }

    /// Whether one of the fields of this name is a list with `token` in it, as `Connection: close, upgrade` is.
    ///
    /// ```
    /// # use coracle_http::Headers;
    /// let mut headers = Headers::new();
    /// headers.insert("connection", "keep-alive, Upgrade").unwrap();
    /// assert!(headers.has_token("Connection", "upgrade"));
    /// assert!(!headers.has_token("Connection", "alive"));
    /// ```
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.fields.iter().filter(|field| self.is_named(field, name)).any(|field| {
            let tokens = self.resolve(field.value).split(|&byte| byte == b',');
            tokens.map(<[u8]>::trim_ascii).any(|each| each.eq_ignore_ascii_case(token.as_bytes()))
        })
    }

    /// All fields: name and value.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| {
            let name = std::str::from_utf8(self.resolve(field.name)).unwrap_or_default();
            (name, self.resolve(field.value))
        })
    }

    /// All fields, as bytes: for who sends them on.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.resolve(field.name), self.resolve(field.value)))
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Sets a field: it takes the place of all of that name.
    ///
    /// # Errors
    /// The name is no token, or the value has a line end, a NUL or another control character in it. Then nothing
    /// is changed.
    pub fn insert(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), HeaderError> {
        check(name, value.as_ref())?;
        self.remove(name);
        self.push(name, value.as_ref());
        Ok(())
    }

    /// Adds a field, beside those of that name.
    ///
    /// # Errors
    /// As [`insert`](Headers::insert).
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), HeaderError> {
        check(name, value.as_ref())?;
        self.push(name, value.as_ref());
        Ok(())
    }

    /// [`insert`](Headers::insert) for what is written in the source of a program, without a copy of it.
    ///
    /// # Panics
    /// When the program has a name or a value in its source that cannot be sent.
    pub fn insert_static(&mut self, name: &'static str, value: &'static str) {
        check(name, value.as_bytes()).expect("a header in the source of a program");
        self.remove(name);
        self.push_static(name, value);
    }

    /// Removes all fields of this name; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        if !self.contains(name) {
            return false;
        }
        let mut fields = std::mem::take(&mut self.fields);
        fields.retain(|field| !self.is_named(field, name));
        self.fields = fields;
        true
    }

    /// Without a check: a field whose name is not there, and which can be sent.
    pub(crate) fn push_static(&mut self, name: &'static str, value: &'static str) {
        self.fields.push(Field { name: Text::Static(name), value: Text::Static(value) });
    }

    fn push(&mut self, name: &str, value: &[u8]) {
        let name = self.keep(name.as_bytes());
        let value = self.keep(value.trim_ascii());
        self.fields.push(Field { name, value });
    }

    fn keep(&mut self, bytes: &[u8]) -> Text {
        let start = u32::try_from(self.text.len()).expect("headers are smaller than 4 GiB");
        self.text.extend_from_slice(bytes);
        Text::At { start, len: u32::try_from(bytes.len()).expect("a header is smaller than 4 GiB") }
    }

    /// Forgets all fields, and keeps the memory for the next.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    pub(crate) fn resolve(&self, text: Text) -> &[u8] {
        match text {
            Text::Static(text) => text.as_bytes(),
            Text::At { start, len } => &self.text[start as usize..][..len as usize],
        }
    }

    fn is_named(&self, field: &Field, name: &str) -> bool {
        self.resolve(field.name).eq_ignore_ascii_case(name.as_bytes())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.iter().map(|(name, value)| (name, value.escape_ascii().to_string()));
        f.debug_map().entries(fields).finish()
    }
}

impl From<&http::HeaderMap> for Headers {
    fn from(map: &http::HeaderMap) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in map {
            headers.push(name.as_str(), value.as_bytes());
        }
        headers
    }
}

impl Headers {
    /// The same as the crate `http` has it. What is written in the source of a program is not copied.
    #[cfg(feature = "tower")]
    pub(crate) fn to_map(&self) -> http::HeaderMap {
        self.fields.iter().filter_map(|field| self.entry(field)).collect()
    }

    /// A field of it.
    pub(crate) fn entry(&self, field: &Field) -> Option<(http::HeaderName, http::HeaderValue)> {
        let name = match self.resolve(field.name) {
            b"content-type" => http::header::CONTENT_TYPE, // the most frequent of all is not looked for
            name => http::HeaderName::from_bytes(name).ok()?,
        };
        let value = match field.value {
            Text::Static(text) => {
                let bytes = bytes::Bytes::from_static(text.as_bytes());
                http::HeaderValue::from_maybe_shared(bytes).ok()?
            }
            text => http::HeaderValue::from_bytes(self.resolve(text)).ok()?,
        };
        Some((name, value))
    }
}

/// Why a header field is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderError {
    name: String,
    what: &'static str,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot send the header {:?}: {}", self.name, self.what)
    }
}

impl Error for HeaderError {}

fn check(name: &str, value: &[u8]) -> Result<(), HeaderError> {
    let wrong = |what| Err(HeaderError { name: name.to_owned(), what });
    if name.is_empty() || !name.bytes().all(is_token) {
        return wrong("its name is not one: letters, digits and !#$%&'*+-.^_`|~");
    }
    if !value.iter().all(|&byte| is_value(byte)) {
        return wrong("its value has a line end or another control character in it");
    }
    Ok(())
}

/// Whether a byte may be in a token (RFC 9110, 5.6.2): a method, or the name of a field.
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// The same of all bytes.
pub(crate) static TOKEN: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        let other = matches!(byte as u8, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+')
            || matches!(byte as u8, b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        table[byte] = (byte as u8).is_ascii_alphanumeric() || other;
        byte += 1;
    }
    table
};

/// Whether a byte may be in the value of a field (RFC 9110, 5.5).
pub(crate) fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j3_a_response_cannot_be_split_by_a_header() {
        let mut headers = Headers::new();
        for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "a\x7fb", "a\x1bb"] {
            assert!(headers.insert("x", value).is_err(), "{value:?}");
            assert!(headers.append("x", value).is_err(), "{value:?}");
        }
        for name in ["", "a b", "a:", "a\r\n", "\u{e4}", "a\0"] {
            assert!(headers.insert(name, "v").is_err(), "{name:?}");
        }
        assert!(headers.is_empty());
    }

    #[test]
    fn a_field_that_is_set_again_is_there_once() {
        let mut headers = Headers::new();
        headers.append("A", "1").unwrap();
        headers.append("b", "2").unwrap();
        headers.append("a", "3").unwrap();
        headers.insert("a", "4").unwrap();
        assert_eq!(headers.get_all("A").collect::<Vec<_>>(), ["4"]);
        assert_eq!(headers.len(), 2);
        assert!(headers.remove("B") && !headers.remove("B"));
    }
}
