//! From the path of a request to a path below a directory, or the reason why there is none.
//!
//! ```text
//!   /docs/a%20b.html ──► split at '/' ──► each segment decoded once ──► checked ──► docs/a b.html
//! ```
//!
//! One strict rule for each trick, and nothing is repaired: a path that would have to be made safe is refused.
//! What is left is a list of plain names, so it is below the directory whatever it is joined to; that it stays
//! there in spite of symbolic links is the business of [`open`](super::open).

use std::borrow::Cow;
use std::fmt;

/// The longest name of a file that Linux has (`NAME_MAX`).
const NAME_BYTES: usize = 255;

/// What becomes of names that begin with a dot.
///
/// ```
/// use coracle_http::files::{DotFiles, SitePath};
///
/// assert!(SitePath::parse("/.git/config", DotFiles::Hide).is_err());
/// assert!(SitePath::parse("/.git/config", DotFiles::Show).is_ok());
/// assert!(SitePath::parse("/.well-known/security.txt", DotFiles::WellKnown).is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DotFiles {
    /// They are not there, and neither is what is below them: 404.
    #[default]
    Hide,
    /// The same, but for `/.well-known/` at the top (RFC 8615): what others must find there.
    WellKnown,
    /// They are served like others.
    Show,
}

/// A path of a request that leads below a directory: names without tricks.
///
/// ```
/// use coracle_http::files::{DotFiles, SitePath};
///
/// let path = SitePath::parse("/docs/a%20b.html", DotFiles::Hide).unwrap();
/// assert_eq!(path.relative(), "docs/a b.html");
/// assert!(!path.is_directory());
///
/// for bad in ["../secret", "/../secret", "/%2e%2e/secret", "/a%2fb", "/a%5c..", "/a%00.html"] {
///     assert!(SitePath::parse(bad, DotFiles::Show).is_err());
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitePath<'a> {
    /// Decoded, without the slash in front, with the one behind.
    text: Cow<'a, str>,
}

impl<'a> SitePath<'a> {
    /// Takes apart the path of a request: what comes before `?`, as it was sent.
    ///
    /// # Errors
    /// [`PathError`], which says why, and which status answers it.
    pub fn parse(path: &'a str, dot_files: DotFiles) -> Result<SitePath<'a>, PathError> {
        let below = path.strip_prefix('/').ok_or(PathError::NoSlash)?;
        if !below.is_empty() {
            let names = below.strip_suffix('/').unwrap_or(below).split('/');
            for (number, name) in names.enumerate() {
                check(&decode(name)?, number == 0, dot_files)?;
            }
        }
        // No name has a slash in it, encoded or not, so that decoding all of it gives the same.
        Ok(SitePath { text: decode(below)? })
    }

    /// The path below the directory: names with `/` between them, none before and none behind. Empty for the
    /// directory itself.
    ///
    /// ```
    /// # use coracle_http::files::{DotFiles, SitePath};
    /// assert_eq!(SitePath::parse("/", DotFiles::Hide).unwrap().relative(), "");
    /// assert_eq!(SitePath::parse("/a/b/", DotFiles::Hide).unwrap().relative(), "a/b");
    /// ```
    pub fn relative(&self) -> &str {
        self.text.strip_suffix('/').unwrap_or(&self.text)
    }

    /// Whether it ends in a slash: it asks for a directory.
    ///
    /// ```
    /// # use coracle_http::files::{DotFiles, SitePath};
    /// assert!(SitePath::parse("/a/b/", DotFiles::Hide).unwrap().is_directory());
    /// ```
    pub fn is_directory(&self) -> bool {
        self.text.is_empty() || self.text.ends_with('/')
    }

    /// What tells one path from another.
    pub(super) fn key(&self) -> &str {
        &self.text
    }

    /// The path whose key this is.
    pub(super) fn of_key(key: &str) -> SitePath<'_> {
        SitePath { text: Cow::Borrowed(key) }
    }
}

/// Why a path of a request leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// It does not begin with a slash.
    NoSlash,
    /// A name is empty: two slashes in a row.
    EmptyName,
    /// A name is `.` or `..`, encoded or not. Clients take them out before they ask.
    DotSegment,
    /// A name has a slash in it (`%2f`), or a backslash.
    SlashInName,
    /// A name has a NUL or another control character in it.
    ControlCharacter,
    /// A `%` without two hexadecimal digits.
    BadEncoding,
    /// What it decodes to is not UTF-8; an overlong encoding is not.
    NotUtf8,
    /// A name is longer than a file's can be.
    LongName,
    /// A name begins with a dot, and such are hidden.
    Hidden,
}

impl PathError {
    /// The status that answers it: 400 for what no honest client sends, 404 for what is simply not there.
    ///
    /// ```
    /// # use coracle_http::files::PathError;
    /// assert_eq!((PathError::DotSegment.status(), PathError::Hidden.status()), (400, 404));
    /// ```
    pub fn status(self) -> u16 {
        match self {
            PathError::EmptyName | PathError::LongName | PathError::Hidden => 404,
            _ => 400,
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathError::NoSlash => "the path does not begin with a slash",
            PathError::EmptyName => "the path has two slashes in a row",
            PathError::DotSegment => "the path has a segment . or ..",
            PathError::SlashInName => "the path has an encoded slash or a backslash in it",
            PathError::ControlCharacter => "the path has a control character in it",
            PathError::BadEncoding => "the path has a % without two hexadecimal digits",
            PathError::NotUtf8 => "the path is not UTF-8 when it is decoded",
            PathError::LongName => "the path has a name of more than 255 bytes",
            PathError::Hidden => "the path has a name that begins with a dot",
        })
    }
}

impl std::error::Error for PathError {}

/// Whether such a name may be asked for at all, wherever it is. A listing shows no others.
pub(super) fn check(name: &str, first: bool, dot_files: DotFiles) -> Result<(), PathError> {
    if name.is_empty() {
        return Err(PathError::EmptyName);
    }
    if name == "." || name == ".." {
        return Err(PathError::DotSegment);
    }
    if name.contains(['/', '\\']) {
        return Err(PathError::SlashInName);
    }
    if name.contains(|c: char| c.is_control()) {
        return Err(PathError::ControlCharacter);
    }
    if name.len() > NAME_BYTES {
        return Err(PathError::LongName);
    }
    let shown = match dot_files {
        DotFiles::Show => true,
        DotFiles::WellKnown => first && name == ".well-known",
        DotFiles::Hide => false,
    };
    if name.starts_with('.') && !shown {
        return Err(PathError::Hidden);
    }
    Ok(())
}

/// Decodes `%xx`, once. `+` is a plus: this is a path, not a form.
fn decode(text: &str) -> Result<Cow<'_, str>, PathError> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        if byte == b'%' {
            let [high, low, behind @ ..] = behind else { return Err(PathError::BadEncoding) };
            let (high, low) = (hex(*high)?, hex(*low)?);
            bytes.push(high << 4 | low);
            rest = behind;
        } else {
            bytes.push(byte);
            rest = behind;
        }
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| PathError::NotUtf8)
}

fn hex(digit: u8) -> Result<u8, PathError> {
    (digit as char).to_digit(16).map(|value| value as u8).ok_or(PathError::BadEncoding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    fn relative(path: &str) -> Result<String, PathError> {
        SitePath::parse(path, DotFiles::Hide).map(|path| path.relative().to_owned())
    }

    #[test]
    fn n2_plain_paths_are_taken_as_they_are() {
        for (path, expected) in [
            ("/", ""),
            ("/index.html", "index.html"),
            ("/a/b/c.txt", "a/b/c.txt"),
            ("/a/b/", "a/b"),
            ("/a%20b/c+d.txt", "a b/c+d.txt"),
            ("/%E2%9C%93", "\u{2713}"),
            ("/%e2%9c%93.txt", "\u{2713}.txt"),
            ("/a..b/c...", "a..b/c..."),
            ("/~user/file;v=1,2", "~user/file;v=1,2"),
        ] {
            assert_eq!(relative(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn n2_dot_dot_is_refused_however_it_is_written() {
        for path in [
            "/..",
            "/../secret",
            "/a/../b",
            "/a/..",
            "/a/../",
            "/%2e%2e/secret",
            "/%2E%2E/secret",
            "/.%2e/secret",
            "/%2e./secret",
            "/.",
            "/./a",
            "/%2e/a",
        ] {
            for dots in [DotFiles::Hide, DotFiles::WellKnown, DotFiles::Show] {
                assert_eq!(SitePath::parse(path, dots), Err(PathError::DotSegment), "{path}");
            }
        }
    }

    #[test]
    fn n2_path_without_leading_slash_is_refused() {
        for path in ["", "../secret", "secret", "*", "http://host/secret", "%2fsecret", "\\secret"]
        {
            assert_eq!(relative(path), Err(PathError::NoSlash), "{path}");
        }
    }

    #[test]
    fn n2_slashes_that_are_hidden_in_names_are_refused() {
        for path in
            ["/a%2fb", "/a%2Fb", "/..%2fsecret", "/%2f", "/a%5cb", "/a\\b", "/..\\secret", "/..%5c"]
        {
            assert_eq!(relative(path), Err(PathError::SlashInName), "{path}");
        }
    }

    #[test]
    fn n2_nul_and_control_characters_are_refused() {
        for path in ["/a%00.html", "/%00", "/a%00/../b", "/a%0ab", "/a%0d", "/a%7f", "/a%c2%80"] {
            assert_eq!(relative(path), Err(PathError::ControlCharacter), "{path}");
        }
    }

    #[test]
    fn n2_double_encoding_is_decoded_once() {
        assert_eq!(relative("/%252e%252e/secret").as_deref(), Ok("%2e%2e/secret"));
        assert_eq!(relative("/a%252fb").as_deref(), Ok("a%2fb"));
        assert_eq!(relative("/a%2500").as_deref(), Ok("a%00"), "five characters, none of them NUL");
    }

    #[test]
    fn n2_overlong_and_broken_utf8_is_refused() {
        for path in ["/%c0%ae%c0%ae/secret", "/%c0%af", "/%e0%80%af", "/%ff", "/%ed%a0%80", "/%80"]
        {
            assert_eq!(relative(path), Err(PathError::NotUtf8), "{path}");
        }
    }

    #[test]
    fn n2_percent_needs_two_digits() {
        for path in ["/%", "/%2", "/a%zz", "/%+1", "/%2g", "/% 41", "/%u002e"] {
            assert_eq!(relative(path), Err(PathError::BadEncoding), "{path}");
        }
    }

    #[test]
    fn n2_empty_names_are_nothing() {
        // A redirect to "//host/" would lead to another host.
        for path in ["//", "//host/", "/a//b", "/a//", "///"] {
            assert_eq!(relative(path), Err(PathError::EmptyName), "{path}");
        }
        assert_eq!(PathError::EmptyName.status(), 404);
    }

    #[test]
    fn n2_dot_files_are_hidden_by_default() {
        for path in ["/.env", "/.git/config", "/a/.htaccess", "/%2egit", "/.well-known/x"] {
            assert_eq!(relative(path), Err(PathError::Hidden), "{path}");
        }
        assert_eq!(PathError::Hidden.status(), 404);
        let known = |path| SitePath::parse(path, DotFiles::WellKnown).is_ok();
        assert!(known("/.well-known/x") && !known("/a/.well-known/x") && !known("/.env"));
        assert!(!known("/.well-known/.env"));
    }

    #[test]
    fn n2_names_longer_than_files_have_are_nothing() {
        let name = "n".repeat(NAME_BYTES);
        assert!(relative(&format!("/{name}")).is_ok());
        assert_eq!(relative(&format!("/{name}n")), Err(PathError::LongName));
    }

    /// The slow twin: decode everything first, then look at it as std does.
    fn twin(path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let mut rest = path.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let digits = [rest.next()?, rest.next()?];
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                let digits = std::str::from_utf8(&digits).ok()?;
                let byte = u8::from_str_radix(digits, 16).ok()?;
                if byte == b'/' {
                    return None;
                }
                bytes.push(byte);
            } else {
                bytes.push(byte);
            }
        }
        let decoded = String::from_utf8(bytes).ok()?;
        let below = decoded.strip_prefix('/')?;
        let below = below.strip_suffix('/').unwrap_or(below);
        let strange = |c: char| c.is_control() || c == '\\';
        if decoded.contains(strange) || decoded.contains("//") {
            return None;
        }
        let names: Vec<_> = Path::new(below).components().collect();
        let plain = names.iter().all(|name| matches!(name, Component::Normal(_)));
        let same = names.iter().collect::<std::path::PathBuf>() == Path::new(below);
        let dots = below.split('/').any(|name| name.starts_with('.') || name.len() > NAME_BYTES);
        (plain && same && !dots).then(|| below.to_owned())
    }

    proptest! {
        #[test]
        fn n2_agrees_with_the_slow_twin(path in "/?([a.%/\\\\\u{e9}\u{0}]|%2[ef5]|%5c|%00|%c3%a9){0,12}") {
            prop_assert_eq!(relative(&path).ok(), twin(&path));
        }

        #[test]
        fn n2_whatever_is_sent_stays_below(path in ".*", show in any::<bool>()) {
            let dots = if show { DotFiles::Show } else { DotFiles::Hide };
            let path = format!("/{path}");
            if let Ok(path) = SitePath::parse(&path, dots) {
                let below = Path::new(path.relative());
                prop_assert!(below.components().all(|it| matches!(it, Component::Normal(_))));
                prop_assert!(!path.relative().contains(['\0', '\\']));
                prop_assert!(Path::new("/root").join(below).starts_with("/root"));
            }
        }
    }
}
