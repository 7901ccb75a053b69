//! Rules about documents: links lead somewhere, quotes are true, the code map is whole.

use super::sources::{numbered, rust};
use crate::tree::File;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// A quote is announced by `<!-- quoted from PATH -->` on the line before its code block.
const ANNOUNCEMENT: (&str, &str) = ("<!-- quoted from ", " -->");

/// The lines of a quote must stand in the file it quotes, one after the other; common indentation aside.
/// Rust in a document is always a quote, for otherwise nobody knows whether it compiles.
pub(super) fn check_quotes(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in markdown(files) {
        let mut before = "";
        for (number, line) in numbered(&page.text) {
            if line.trim_start().starts_with("```rust") && !before.starts_with(ANNOUNCEMENT.0) {
                problems
                    .push(format!("{}:{number}: Rust that is not quoted from a file", page.path));
            }
            before = line.trim_start();
        }
        for (number, source, block) in quotes(&page.text) {
            let place = format!("{}:{number}", page.path);
            match files.iter().find(|file| file.path == source) {
                None => problems.push(format!("{place}: quotes {source}, which is not there")),
                Some(_) if block.is_empty() => {
                    problems.push(format!("{place}: announces a quote of {source} and has none"));
                }
                Some(file) if !contains(&file.text, &block) => {
                    problems.push(format!("{place}: is not what {source} says"));
                }
                Some(_) => {}
            }
        }
    }
    problems
}

/// The quotes of a page: line, source, lines.
fn quotes(text: &str) -> Vec<(usize, &str, Vec<&str>)> {
    let mut quotes = Vec::new();
    let mut lines = numbered(text);
    while let Some((number, line)) = lines.next() {
        let announced = line.trim().strip_prefix(ANNOUNCEMENT.0);
        let Some(source) = announced.and_then(|rest| rest.strip_suffix(ANNOUNCEMENT.1)) else {
            continue;
        };
        let fence = lines.next().is_some_and(|(_, line)| line.starts_with("```"));
        let block = if fence {
            lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| !line.starts_with("```"))
                .collect()
        } else {
            Vec::new()
        };
        quotes.push((number, source, block));
    }
    quotes
}

fn contains(text: &str, block: &[&str]) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(block.len()).any(|window| unindented(window) == unindented(block))
}

fn unindented<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let common = filled.map(indent).min().unwrap_or(0);
    lines.iter().map(|line| line.get(common..).unwrap_or("").trim_end()).collect()
}

/// Relative links name a file or folder of the repository, and a heading of it if they have a `#`.
pub(super) fn check_links(files: &[File]) -> Vec<String> {
    let known: BTreeSet<PathBuf> = files
        .iter()
        .flat_map(|file| Path::new(&file.path).ancestors())
        .map(Path::to_path_buf)
        .collect();
    let mut problems = Vec::new();
    for page in markdown(files) {
        for (number, target) in links(&page.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let resolved = if path.is_empty() {
                Some(PathBuf::from(&page.path))
            } else {
                resolve(Path::new(&page.path).parent().unwrap_or(Path::new("")), path)
            };
            let resolved = resolved.filter(|path| known.contains(path) || is_licence(path));
            let place = format!("{}:{number}", page.path);
            let Some(resolved) = resolved else {
                problems.push(format!("{place}: {target} leads nowhere"));
                continue;
            };
            let file = files.iter().find(|file| Path::new(&file.path) == resolved);
            let headings = file.map(|file| anchors(&file.text)).unwrap_or_default();
            if !anchor.is_empty() && !headings.iter().any(|heading| heading == anchor) {
                problems.push(format!("{place}: {target}: there is no such heading"));
            }
        }
    }
    problems
}

/// The texts of licences have no ending, and are not among the files that are read.
fn is_licence(path: &Path) -> bool {
    path == Path::new("LICENSE-MIT") || path == Path::new("LICENSE-APACHE")
}

/// `path` as seen from `folder`, or `None` if it leaves the repository.
fn resolve(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut resolved = folder.to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if resolved.pop() => {}
            Component::Normal(name) => resolved.push(name),
            _ => return None,
        }
    }
    Some(resolved)
}

/// The links of a page, with the lines they are on. Code is left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            let in_code = line[..at].matches('`').count() % 2 == 1;
            if let Some(end) = rest.find(')').filter(|_| !in_code) {
                links.push((number, &rest[..end]));
            }
        }
    }
    links
}

/// The lines of a page that are not in code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    numbered(text).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// What `#…` may follow the name of a page: its headings as they are usually linked.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// ARCHITECTURE.md has a line for every source file of the crates: `` | `wheel/due.rs` | … ``.
pub(super) fn check_code_map(files: &[File]) -> Vec<String> {
    let Some(map) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    let mut folder = None;
    for (number, line) in prose(&map.text) {
        if line.starts_with('#') {
            let heading = line.strip_prefix("### `").and_then(|rest| rest.split_once('`'));
            folder = heading.map(|(folder, _)| folder);
        }
        let entry = line.strip_prefix("| `").and_then(|rest| rest.split_once('`'));
        if let (Some(folder), Some((names, _))) = (folder, entry) {
            for name in names.split(' ') {
                let path = format!("{folder}/{name}");
                let exists = |file: &File| {
                    file.path == path || (path.ends_with('/') && file.path.starts_with(&path))
                };
                if !files.iter().any(exists) {
                    problems.push(format!("ARCHITECTURE.md:{number}: there is no {path}"));
                }
                listed.insert(path);
            }
        }
    }
    for file in rust(files).filter(|file| is_mapped(&file.path)) {
        let in_folder =
            listed.iter().any(|path| path.ends_with('/') && file.path.starts_with(path));
        if !listed.contains(&file.path) && !in_folder {
            problems
                .push(format!("{}: the code map of ARCHITECTURE.md has no line for it", file.path));
        }
    }
    problems
}

fn is_mapped(path: &str) -> bool {
    ["crates/", "apps/", "xtask/", "src/"].iter().any(|folder| path.starts_with(folder))
}

fn markdown(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.extension() == "md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_equals_its_source_or_is_found() {
        let source = File::new("examples/a.rs", "fn f() {\n    one();\n\n    two();\n}\n");
        let check = |block: &str| {
            let page = format!("<!-- quoted from examples/a.rs -->\n```rust\n{block}\n```\n");
            let files = [File::new("README.md", &page), File::new(&source.path, &source.text)];
            check_quotes(&files).len()
        };
        assert_eq!(check("one();\n\ntwo();"), 0, "indentation aside");
        assert_eq!(check("one();\ntwo();"), 1);
        assert_eq!(check("three();"), 1);
        let unannounced = File::new("README.md", "text\n```rust\nfn f() {}\n```\n");
        assert_eq!(
            check_quotes(&[unannounced]),
            ["README.md:2: Rust that is not quoted from a file"]
        );
        let lonely = File::new("README.md", "<!-- quoted from gone.rs -->\n```\nx\n```\n");
        assert_eq!(check_quotes(&[lonely]).len(), 1);
    }

    #[test]
    fn link_that_leads_nowhere_is_found() {
        let check = |link: &str| {
            let page =
                format!("# Top\n[text]({link})\n```\n[code](gone.md)\n```\n`[x](gone.md)`\n");
            let other = File::new("docs/guides/timers.md", "# Timers\n## Never early: why?\n");
            check_links(&[File::new("docs/README.md", &page), other])
        };
        for good in [
            "guides/timers.md",
            "guides/timers.md#never-early-why",
            "./guides",
            "../docs/README.md",
            "#top",
            "https://example.org/x",
            "../LICENSE-MIT",
        ] {
            assert_eq!(check(good), [""; 0], "{good}");
        }
        for bad in ["guides/gone.md", "guides/timers.md#early", "../../docs/README.md", "#bottom"] {
            assert_eq!(check(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn code_map_names_what_there_is_and_nothing_else() {
        let map = "### `crates/x`: it\n| `src/lib.rs` | all |\n| `src/gone.rs` | none |\n";
        let files = [
            File::new("ARCHITECTURE.md", map),
            File::new("crates/x/src/lib.rs", ""),
            File::new("crates/x/src/new.rs", ""),
        ];
        let found = check_code_map(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("gone.rs") && found[1].contains("new.rs"));
    }
}
