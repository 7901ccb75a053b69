//! Every limit in the code is in the table of docs/reference/limits.md, and what that says of the code is
//! in the code.

use super::lexer;
use super::sources::{numbered, rust};
use crate::tree::File;

const PAGE: &str = "docs/reference/limits.md";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![format!("{PAGE}: there is none")];
    };
    let mut problems = Vec::new();
    for (number, line) in numbered(&page.text).filter(|(_, line)| line.starts_with('|')) {
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

    fn check_with(page: &str, code: &str) -> Vec<String> {
        check(&[File::new(PAGE, page), File::new("crates/x/src/a.rs", code)])
    }

    #[test]
    fn limit_that_is_not_listed_is_found() {
        assert_eq!(check_with("", "const LIMIT_JOBS: usize = 7;").len(), 1);
        assert_eq!(check_with("", "    pub limit_jobs: u16,").len(), 1);
        assert_eq!(check_with("", "    limit_jobs: 1024,").len(), 0);
        let page =
            "| `LIMIT_JOBS` | `LIMIT_JOBS: usize = 7` in [a.rs](../../crates/x/src/a.rs) |\n";
        assert_eq!(check_with(page, "const LIMIT_JOBS: usize = 7;"), [""; 0]);
    }

    #[test]
    fn default_that_has_changed_is_found() {
        let page =
            "| `LIMIT_JOBS` | `LIMIT_JOBS: usize = 7` in [a.rs](../../crates/x/src/a.rs) |\n";
        assert_eq!(check_with(page, "const LIMIT_JOBS: usize = 8;").len(), 1);
    }
}
