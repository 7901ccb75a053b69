//! Every limit in the code is in the table of docs/reference/limits.md, with its answer and its metric, and what
//! that says of the code is in the code.

use super::lexer;
use super::sources::{numbered, rust};
use crate::tree::File;

const PAGE: &str = "docs/reference/limits.md";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![format!("{PAGE}: there is none")];
    };
    let mut problems = Vec::new();
    let code: Vec<String> = rust(files)
        .filter(|file| is_code_of_ours(&file.path))
        .map(|file| lexer::code(&file.text))
        .collect();
    for (number, line) in numbered(&page.text).filter(|(_, line)| line.starts_with('|')) {
        let problem = |what| format!("{PAGE}:{number}: {what}");
        problems.extend(incomplete(line, &code).into_iter().map(problem));
        for (words, path) in claims(line) {
            let file = files.iter().find(|file| file.path == path);
            if !file.is_some_and(|file| file.text.contains(words)) {
                problems.push(format!("{PAGE}:{number}: {path} does not say `{words}`"));
            }
        }
    }
    for file in rust(files).filter(|file| is_code_of_ours(&file.path)) {
        for (number, line) in numbered(&lexer::code(&file.text)) {
            if let Some(name) = limit(line).filter(|name| !page.text.contains(&format!("`{name}")))
            {
                problems.push(format!("{}:{number}: {name} is not in {PAGE}", file.path));
            }
        }
    }
    problems
}

/// What a row lacks: `| limit | default | when it is reached | seen in | in the code |`.
fn incomplete(row: &str, code: &[String]) -> Vec<String> {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    if row.starts_with("|---") {
        return Vec::new();
    }
    let &[name, _, answer, metric, _] = &cells[..] else {
        return vec![format!("{} columns instead of five", cells.len())];
    };
    let mut problems = Vec::new();
    if answer.is_empty() {
        problems.push(format!("{name}: what happens when it is reached?"));
    }
    if metric.is_empty() {
        problems.push(format!("{name}: where is that seen, or why is it not counted?"));
    }
    let names = metric.split('`').skip(1).step_by(2).filter_map(|name| name.split_once("::"));
    for (of, item) in names.filter(|(of, item)| !is_declared(of, item, code)) {
        problems.push(format!("{name}: there is no {of}::{item}"));
    }
    problems
}

/// Whether a file declares the type `of`, and some file a function, field or variant `item`.
fn is_declared(of: &str, item: &str, code: &[String]) -> bool {
    let types = ["struct", "enum", "trait"].map(|kind| format!("pub {kind} {of}"));
    let items = [
        format!("fn {item}("),
        format!("fn {item}<"),
        format!("pub {item}:"),
        format!("    {item},"),
    ];
    let some = |words: &[String]| code.iter().any(|text| words.iter().any(|it| text.contains(it)));
    some(&types) && some(&items)
}

/// What a row says is in which file: `` `limit_lent_buffers: 1024` in [name](../../path) ``.
fn claims(row: &str) -> Vec<(&str, &str)> {
    let mut claims = Vec::new();
    for (at, _) in row.match_indices("` in [") {
        let words = row[..at].rsplit('`').next().unwrap_or("");
        let link = row[at..].split_once("](").and_then(|(_, rest)| rest.split_once(')'));
        if let Some((path, _)) = link {
            claims.push((words, path.trim_start_matches("../")));
        }
    }
    claims
}

/// The name of a limit that a line of code introduces: a constant, a public field, a method of a builder.
fn limit(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
    let constant = line.strip_prefix("const ").filter(|name| name.starts_with("LIMIT_"));
    let field = Some(line).filter(|line| line.starts_with("limit_") && line.contains(": "));
    let method = line.strip_prefix("fn ").filter(|name| name.starts_with("limit_"));
    let rest = constant.or(field).or(method)?;
    // An initialiser (`limit_x: 1`, `limit_x: x.y`) introduces nothing.
    let (name, after) = rest.split_once([':', '('])?;
    let is_type = after.trim_start().starts_with(|c: char| c.is_alphabetic() || c == '&');
    (is_type && !after.contains('.')).then_some(name)
}

fn is_code_of_ours(path: &str) -> bool {
    (path.starts_with("crates/") || path.starts_with("apps/")) && path.contains("/src/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_OF_ONE: &str = "| `LIMIT_JOBS` | 7 | They wait. | not counted: nothing is lost | \
        `LIMIT_JOBS: usize = 7` in [a.rs](../../crates/x/src/a.rs) |\n";

    fn check_with(page: &str, code: &str) -> Vec<String> {
        check(&[File::new(PAGE, page), File::new("crates/x/src/a.rs", code)])
    }

    #[test]
    fn limit_that_is_not_listed_is_found() {
        assert_eq!(check_with("", "const LIMIT_JOBS: usize = 7;").len(), 1);
        assert_eq!(check_with("", "    pub limit_jobs: u16,").len(), 1);
        assert_eq!(check_with("", "    limit_jobs: 1024,").len(), 0);
        assert_eq!(check_with(PAGE_OF_ONE, "const LIMIT_JOBS: usize = 7;"), [""; 0]);
    }

    #[test]
    fn t12_limit_without_an_answer_or_a_metric_is_found() {
        let code = "pub struct Queue {\n    pub dropped: u64,\n}";
        let check = |row: &str| check_with(row, code).len();
        assert_eq!(check("|---|---|---|---|---|\n"), 0);
        assert_eq!(check("| jobs | 7 | They wait. | `Queue::dropped` | (here) |\n"), 0);
        assert_eq!(check("| jobs | 7 | They wait. | not counted: nothing is lost | (here) |\n"), 0);
        assert_eq!(check("| jobs | 7 | They wait. | (here) |\n"), 1, "a column is missing");
        assert_eq!(check("| jobs | 7 |  | `Queue::dropped` | (here) |\n"), 1, "no answer");
        assert_eq!(check("| jobs | 7 | They wait. |  | (here) |\n"), 1, "no metric");
        assert_eq!(
            check("| jobs | 7 | They wait. | `Queue::lost` | (here) |\n"),
            1,
            "no such metric"
        );
    }

    #[test]
    fn default_that_has_changed_is_found() {
        assert_eq!(check_with(PAGE_OF_ONE, "const LIMIT_JOBS: usize = 8;").len(), 1);
    }
}
