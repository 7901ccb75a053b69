//! Rules about tests: every row of the capability table that is built has one, and the contract suite is
//! the same for each backend.

use super::lexer;
use super::sources::{numbered, rust};
use crate::command;
use crate::tree::File;
use std::collections::BTreeMap;
use std::path::Path;

/// The rows that are built, as letter, first and last number.
const ROWS: &[(char, u32, u32)] = &[
    ('a', 1, 11),
    ('b', 1, 12),
    ('c', 1, 6),
    ('d', 1, 3),
    ('d', 5, 6),
    ('e', 1, 12),
    ('f', 1, 13),
    ('g', 1, 9),
    ('h', 1, 4),
    ('i', 1, 9),
    ('j', 1, 15),
    ('k', 1, 6),
    ('m', 1, 5),
    ('n', 1, 7),
    ('o', 1, 2),
    ('p', 1, 1),
    ('p', 6, 6),
    ('q', 1, 1),
    ('q', 4, 5),
    ('r', 1, 2),
    ('r', 4, 4),
    ('s', 1, 38),
    ('s', 41, 45),
    ('s', 47, 57),
    ('s', 59, 60),
    ('t', 1, 6),
    ('t', 9, 10),
    ('t', 12, 12),
];

/// The pages that say which test keeps which bug away, and which shows what is promised.
const NAMING: &[&str] = &[
    "docs/reference/bugs-of-others.md",
    "docs/reference/cgi.md",
    "docs/reference/files.md",
    "docs/reference/http.md",
    "docs/reference/websocket.md",
    "SOUNDNESS.md",
];

/// The backends of the contract suite.
const BACKENDS: [&str; 5] = ["uring", "epoll", "poll", "select", "sim"];

/// A test names its row first: `fn b4_wake_before_the_wait_is_not_lost`.
pub(super) fn check_rows(files: &[File]) -> Vec<String> {
    let tests = rust(files).filter(|file| is_test(file));
    let tests: Vec<String> = tests.map(|file| lexer::code(&file.text)).collect();
    let mut problems = Vec::new();
    for &(letter, first, last) in ROWS {
        for number in first..=last {
            let name = format!("fn {letter}{number}_");
            if !tests.iter().any(|code| code.contains(&name)) {
                let row = letter.to_uppercase();
                problems.push(format!("row {row}{number}: no test is called {letter}{number}_…"));
            }
        }
    }
    problems
}

/// A test that a page names in the last column of a table is there.
pub(super) fn check_named(files: &[File]) -> Vec<String> {
    let tests: Vec<String> =
        rust(files).filter(|file| is_test(file)).map(|file| lexer::code(&file.text)).collect();
    let mut problems = Vec::new();
    for page in files.iter().filter(|file| NAMING.contains(&file.path.as_str())) {
        for (number, line) in numbered(&page.text).filter(|(_, line)| line.starts_with('|')) {
            let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or("");
            for name in last.split('`').skip(1).step_by(2) {
                if !tests.iter().any(|code| code.contains(&format!("fn {name}("))) {
                    problems.push(format!("{}:{number}: no test is called {name}", page.path));
                }
            }
        }
    }
    problems
}

fn is_test(file: &File) -> bool {
    let path = format!("/{}", file.path);
    path.contains("/tests/") || file.stem() == "tests" || file.text.contains("#[cfg(test)]")
}

/// Asks the test program itself, which is built if it is not there.
pub(super) fn check_contract(root: &Path) -> Result<Vec<String>, String> {
    let arguments =
        ["test", "--quiet", "-p", "coracle-demux", "--test", "contract", "--", "--list"];
    let listed = command::output(&mut command::cargo(root, &arguments))?;
    Ok(compare(&count(&listed)))
}

/// How many tests each backend has, from lines like `contract::epoll::rule_05_…: test`.
fn count(listed: &str) -> BTreeMap<&str, usize> {
    let mut counts: BTreeMap<&str, usize> = BACKENDS.iter().map(|name| (*name, 0)).collect();
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    for test in tests.filter_map(|path| path.strip_prefix("contract::")) {
        if let Some((backend, _)) = test.split_once("::") {
            *counts.entry(backend).or_default() += 1;
        }
    }
    counts
}

fn compare(counts: &BTreeMap<&str, usize>) -> Vec<String> {
    let most = counts.values().copied().max().unwrap_or(0);
    let fewer = counts.iter().filter(|(_, count)| **count != most || most == 0);
    fewer
        .map(|(backend, count)| format!("contract::{backend}: {count} tests, others have {most}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_without_a_test_is_found() {
        let found = check_rows(&[File::new("crates/x/tests/rows.rs", "fn a1_epoll_works() {}")]);
        assert!(!found.iter().any(|problem| problem.starts_with("row A1:")));
        assert!(found.iter().any(|problem| problem.starts_with("row A11:")));
        let rows: u32 = ROWS.iter().map(|(_, first, last)| last - first + 1).sum();
        assert_eq!(found.len() as u32, rows - 1);
    }

    #[test]
    fn a_function_that_is_not_a_test_does_not_count() {
        let found = check_rows(&[File::new("crates/x/src/lib.rs", "fn a1_epoll_works() {}")]);
        assert!(found.iter().any(|problem| problem.starts_with("row A1:")));
    }

    #[test]
    fn test_that_is_named_and_not_there_is_found() {
        let page = "| what `it` is | `a1_epoll_works`, `a1_it_flies` |\n";
        let page = File::new(NAMING[0], page);
        let tests = File::new("crates/x/tests/rows.rs", "fn a1_epoll_works() {}");
        let found = check_named(&[page, tests]);
        assert_eq!(found, [format!("{}:1: no test is called a1_it_flies", NAMING[0])]);
    }

    #[test]
    fn backend_with_fewer_tests_is_found() {
        let mut listed = String::new();
        for backend in BACKENDS {
            listed.push_str(&format!("contract::{backend}::one: test\n"));
        }
        assert!(compare(&count(&listed)).is_empty());
        listed.push_str("contract::epoll::two: test\n\n6 tests, 0 benchmarks\n");
        assert_eq!(compare(&count(&listed)).len(), 4);
        assert_eq!(compare(&count("")).len(), 5, "no test at all is no agreement");
    }
}
