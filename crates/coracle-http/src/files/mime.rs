//! What kind of thing a file is, by its name.
//!
//! By the extension and nothing else: contents are never looked at, and browsers are told not to, either
//! (`X-Content-Type-Options: nosniff`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// What is nothing in particular.
const BINARY: &str = "application/octet-stream";

/// What the table that everybody uses has otherwise.
const DIFFERENT: [(&str, &str); 2] =
    [("mjs", "text/javascript; charset=utf-8"), ("map", "application/json")];

/// Types by extension: a table of a thousand, and those that somebody has set.
#[derive(Debug, Clone, Default)]
pub(super) struct Types {
    set: HashMap<String, String>,
}

impl Types {
    /// From now on, files that end in `.extension` are of this type.
    pub(super) fn set(&mut self, extension: &str, content_type: &str) {
        self.set.insert(extension.to_ascii_lowercase(), content_type.to_owned());
    }

    /// The value of `Content-Type` for a file of this name. Text is UTF-8.
    pub(super) fn of(&self, name: &str) -> Cow<'static, str> {
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        let Some(extension) = extension.map(str::to_ascii_lowercase) else { return BINARY.into() };
        if let Some(set) = self.set.get(&extension) {
            return Cow::Owned(set.clone());
        }
        if let Some((_, different)) = DIFFERENT.iter().find(|(other, _)| *other == extension) {
            return (*different).into();
        }
        match mime_guess::from_ext(&extension).first_raw() {
            Some(text) if text.starts_with("text/") => format!("{text}; charset=utf-8").into(),
            Some(other) => other.into(),
            None => BINARY.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_type_is_that_of_the_extension() {
        let types = Types::default();
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b/style.css", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("notes.txt", "text/plain; charset=utf-8"),
            ("PHOTO.JPG", "image/jpeg"),
            ("logo.svg", "image/svg+xml"),
            ("data.json", "application/json"),
            ("app.js.map", "application/json"),
            ("module.wasm", "application/wasm"),
            ("font.woff2", "font/woff2"),
            ("archive.tar.gz", "application/gzip"),
            ("page.xhtml", "application/xhtml+xml"),
        ] {
            assert_eq!(types.of(name), expected, "{name}");
        }
    }

    #[test]
    fn n5_names_without_extension_are_nothing_in_particular() {
        let types = Types::default();
        for name in ["README", "foojs", "xhtml", ".html", "a.js/file", "strange.zzz", "dot.", ""] {
            assert_eq!(types.of(name), BINARY, "{name}");
        }
    }

    #[test]
    fn n5_types_can_be_set() {
        let mut types = Types::default();
        types.set("HTML", "text/html; charset=iso-8859-1");
        assert_eq!(types.of("a.html"), "text/html; charset=iso-8859-1");
        assert_eq!(types.of("a.Html"), "text/html; charset=iso-8859-1");
    }
}
