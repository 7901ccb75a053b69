//! Rules about one file at a time: its name, its opening, its size, what is left undone in it.

use super::lexer;
use crate::tree::File;

/// Columns of a line. rustfmt wraps code at 100; comments and strings may go a little further.
const LIMIT_COLUMNS: usize = 115;

/// Lines of a file. Past it, ask whether two ideas share a house.
const LIMIT_LINES: usize = 800;

/// Files that asked and have a reason: path, reason. None has one now.
const LONG: &[(&str, &str)] = &[];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "manager", "impl"];

pub(super) fn check_names(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let folders = file.path.split('/').rev().skip(1);
        for name in folders.chain([file.stem()]) {
            let last = name.rsplit(['_', '-']).next().unwrap_or(name);
            if EMPTY_NAMES.contains(&last) {
                problems.push(format!("{}: {name:?} does not say what is in it", file.path));
            }
        }
    }
    problems
}

pub(super) fn check_openings(files: &[File]) -> Vec<String> {
    rust(files)
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| {
            format!("{}:1: does not begin with `//!`: what lives here, and why?", file.path)
        })
        .collect()
}

pub(super) fn check_columns(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in rust(files) {
        for (number, line) in numbered(&file.text) {
            let columns = line.chars().count();
            if columns > LIMIT_COLUMNS {
                let path = &file.path;
                problems.push(format!("{path}:{number}: {columns} columns, limit {LIMIT_COLUMNS}"));
            }
        }
    }
    problems
}

pub(super) fn check_lengths(files: &[File]) -> Vec<String> {
    check_lengths_except(LONG, files)
}

fn check_lengths_except(long: &[(&str, &str)], files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in rust(files) {
        let lines = file.text.lines().count();
        let excused = long.iter().any(|(path, _)| *path == file.path);
        if lines > LIMIT_LINES && !excused {
            problems.push(format!("{}: {lines} lines, limit {LIMIT_LINES}", file.path));
        } else if lines <= LIMIT_LINES && excused {
            let path = &file.path;
            problems
                .push(format!("{path}: {lines} lines need no excuse: take it off the list LONG"));
        }
    }
    problems
}

pub(super) fn check_unfinished(files: &[File]) -> Vec<String> {
    // Spelt so that this file does not find itself.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let macros = [concat!("todo", "!"), concat!("unimplemented", "!"), concat!("dbg", "!")];
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path != "CHANGELOG.md") {
        for (number, line) in numbered(&file.text) {
            let words = words.iter().filter(|word| has_word(line, word));
            problems.extend(words.map(|word| format!("{}:{number}: {word}", file.path)));
        }
    }
    for file in rust(files) {
        for (number, line) in numbered(&lexer::code(&file.text)) {
            let macros = macros.iter().filter(|name| line.contains(*name));
            problems.extend(macros.map(|name| format!("{}:{number}: {name}", file.path)));
        }
    }
    problems
}

pub(super) fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.extension() == "rs")
}

/// Lines with their numbers, from 1.
pub(super) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// Whether `word` is in `line`, and not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(letter) && !line[at + word.len()..].starts_with(letter)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Vec<File> {
        vec![File::new(path, text)]
    }

    #[test]
    fn empty_names_are_found_in_files_and_folders() {
        assert_eq!(check_names(&one("src/string_utils.rs", "")).len(), 1);
        assert_eq!(check_names(&one("src/common/mod.rs", "")).len(), 1);
        assert_eq!(check_names(&one("src/wheel_impl.rs", "")).len(), 1);
        assert!(check_names(&one("src/commonwealth.rs", "")).is_empty());
    }

    #[test]
    fn file_without_an_opening_is_found() {
        assert_eq!(check_openings(&one("a.rs", "use std::fmt;\n")).len(), 1);
        assert!(check_openings(&one("a.rs", "//! What it is.\n")).is_empty());
        assert!(check_openings(&one("a.md", "text")).is_empty());
    }

    #[test]
    fn columns_are_characters() {
        let wide = "é".repeat(LIMIT_COLUMNS);
        assert!(check_columns(&one("a.rs", &wide)).is_empty());
        let found = check_columns(&one("a.rs", &format!("\n{wide}é")));
        assert_eq!(found, ["a.rs:2: 116 columns, limit 115"]);
    }

    #[test]
    fn long_file_needs_an_excuse_and_a_short_one_none() {
        let long = "\n".repeat(LIMIT_LINES + 1);
        assert_eq!(check_lengths(&one("a.rs", &long)).len(), 1);
        let excuse = [("a.rs", "a table of names")];
        assert!(check_lengths_except(&excuse, &one("a.rs", &long)).is_empty());
        assert_eq!(check_lengths_except(&excuse, &one("a.rs", "")).len(), 1);
    }

    #[test]
    fn unfinished_work_is_found() {
        let word = concat!("// TO", "DO: later");
        assert_eq!(check_unfinished(&one("a.rs", word)).len(), 1);
        assert_eq!(check_unfinished(&one("a.md", word)).len(), 1);
        assert_eq!(check_unfinished(&one("a.rs", concat!("fn f() { todo", "!() }"))).len(), 1);
        assert!(check_unfinished(&one("a.rs", concat!("let text = \"todo", "!\";"))).is_empty());
        assert!(check_unfinished(&one("a.rs", concat!("MASTO", "DON"))).is_empty());
    }
}
