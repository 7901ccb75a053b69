//! What is wrong in a configuration file, where, and what was perhaps meant.
//!
//! ```text
//!   coracle.toml:3:1: unknown key `lisen`: did you mean `listen`?
//!     3 | lisen = ["127.0.0.1:8080"]
//!       | ^^^^^
//! ```

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A file as it was read, and what was found wrong in it.
#[derive(Debug)]
pub(super) struct Mistakes {
    path: PathBuf,
    text: String,
    found: Vec<Mistake>,
}

#[derive(Debug)]
struct Mistake {
    /// In bytes; none for what is missing.
    span: Option<Range<usize>>,
    what: String,
}

impl Mistakes {
    pub(super) fn new(path: &Path, text: &str) -> Mistakes {
        Mistakes { path: path.to_owned(), text: text.to_owned(), found: Vec::new() }
    }

    pub(super) fn add(&mut self, span: impl Into<Option<Range<usize>>>, what: impl Into<String>) {
        self.found.push(Mistake { span: span.into(), what: what.into() });
        self.found.sort_by_key(|mistake| mistake.span.as_ref().map(|span| span.start));
    }

    /// What the reader says, in the words of this program.
    pub(super) fn add_unread(&mut self, error: &toml::de::Error) {
        self.add(error.span(), reworded(error.message()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// One line for each: where, and what.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.found.iter().map(|mistake| match &mistake.span {
            Some(span) => {
                let (line, column) = self.place(span.start);
                format!("{}:{line}:{column}: {}", self.path.display(), mistake.what)
            }
            None => format!("{}: {}", self.path.display(), mistake.what),
        })
    }

    /// Line and column, from 1 on; columns in characters.
    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.upto(at);
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[begin..].chars().count() + 1)
    }

    /// The text before it.
    fn upto(&self, at: usize) -> &str {
        let at = at.min(self.text.len());
        let at = (0..=at).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0);
        &self.text[..at]
    }

    /// The line it is in, with a mark below.
    fn picture(&self, span: &Range<usize>) -> String {
        let (number, column) = self.place(span.start);
        let line = self.text.lines().nth(number - 1).unwrap_or_default();
        let room = line.chars().count().saturating_sub(column - 1).max(1);
        let marked = self.upto(span.end).chars().count() - self.upto(span.start).chars().count();
        let length = marked.clamp(1, room);
        let margin = " ".repeat(number.to_string().len());
        let (indent, mark) = (" ".repeat(column - 1), "^".repeat(length));
        // A tab is shown as it counts: one column.
        let line = line.replace('\t', " ");
        format!("  {number} | {line}\n  {margin} | {indent}{mark}")
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (line, mistake) in self.lines().zip(&self.found) {
            writeln!(text, "{line}")?;
            if let Some(span) = &mistake.span {
                writeln!(text, "{}", self.picture(span))?;
            }
        }
        f.write_str(text.trim_end())
    }
}

/// The words of serde name fields and variants; a file has keys and values. What is close to one of those that
/// there are was probably meant to be it.
fn reworded(message: &str) -> String {
    let message = message.trim().replace('\n', "; ");
    let kinds = [
        ("unknown field ", "unknown key", "keys"),
        ("unknown variant ", "unknown value", "values"),
    ];
    for (begin, kind, kinds) in kinds {
        let Some(rest) = message.strip_prefix(begin) else { continue };
        let words: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        let [word, known @ ..] = words.as_slice() else { continue };
        let list: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
        return match nearest(word, known) {
            Some(near) => format!("{kind} `{word}`: did you mean `{near}`?"),
            None => format!("{kind} `{word}`: the {kinds} here are {}", list.join(", ")),
        };
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("the key {name} is missing here");
    }
    match message.strip_prefix("invalid type: ").and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            let known = EXPECTED.iter().find(|(told, _)| *told == expected);
            format!("{} is wanted here, not {found}", known.map_or(expected, |(_, known)| known))
        }
        None => message,
    }
}

/// What serde calls the values, and what people do.
const EXPECTED: [(&str, &str); 5] = [
    ("i64", "a whole number"),
    ("a boolean", "`true` or `false`"),
    ("a string", "a text in quotes"),
    ("path string", "a path in quotes"),
    ("a sequence", "a list in brackets"),
];

/// The one that is a slip or two away.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |other: &str| strsim::damerau_levenshtein(word, other);
    let near = known.iter().map(|other| (distance(other), *other)).min()?;
    let slips = if word.chars().count() < 5 { 1 } else { word.chars().count() / 3 };
    (near.0 <= slips).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q1_a_slip_is_told_from_another_word() {
        let known = ["listen", "threads", "site"];
        assert_eq!(nearest("lisen", &known), Some("listen"));
        assert_eq!(nearest("thread", &known), Some("threads"));
        assert_eq!(nearest("sites", &known), Some("site"));
        assert_eq!(nearest("whale", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn q1_places_are_counted_in_characters() {
        let mut mistakes = Mistakes::new(Path::new("f"), "a = 1\n# é\nü = 'ß' x\n");
        let at = mistakes.text.find('x').unwrap();
        mistakes.add(at..at + 1, "what is that?");
        let text = mistakes.to_string();
        assert_eq!(text, "f:3:9: what is that?\n  3 | ü = 'ß' x\n    |         ^");
    }

    #[test]
    fn q1_spans_that_reach_beyond_their_line_or_the_text_are_cut() {
        let mut mistakes = Mistakes::new(Path::new("f"), "[a\nb");
        mistakes.add(0..5, "long");
        mistakes.add(4..4, "the end");
        mistakes.add(None, "nowhere");
        let text = mistakes.to_string();
        assert_eq!(
            text,
            "f: nowhere\nf:1:1: long\n  1 | [a\n    | ^^\nf:2:2: the end\n  2 | b\n    |  ^"
        );
    }
}
