//! `cargo xtask tidy`: style as a test.
//!
//! A rule is a function from the repository's files to its problems, `path:line: what is wrong`. What a
//! compiler or clippy can say is left to them; what is a matter of taste is left to people.

mod arrows;
mod documents;
mod fences;
mod lexer;
mod limits;
mod rows;
mod sources;

use crate::tree::{self, File};
use std::path::Path;

type Rule = fn(&[File]) -> Vec<String>;

/// Every rule, by name.
const RULES: &[(&str, Rule)] = &[
    ("arrows between crates point down", arrows::check),
    ("the code map names every file", documents::check_code_map),
    ("files are named after what is in them", sources::check_names),
    ("files begin with what they are", sources::check_openings),
    ("lines fit", sources::check_columns),
    ("files fit a head", sources::check_lengths),
    ("nothing is left unfinished", sources::check_unfinished),
    ("unsafe code is argued", fences::check_arguments),
    ("unsafe code is fenced", fences::check_fences),
    ("quotes equal what they quote", documents::check_quotes),
    ("links lead somewhere", documents::check_links),
    ("limits are listed, with their defaults", limits::check),
    ("every row has a test", rows::check_rows),
    ("tests that are named are there", rows::check_named),
];

pub(crate) fn run(root: &Path) -> Result<(), String> {
    let files = tree::files(root)?;
    let mut count = 0;
    for (name, rule) in RULES {
        count += report(name, &rule(&files));
    }
    count += report("the contract is the same for all", &rows::check_contract(root)?);
    match count {
        0 => {
            println!("tidy: {} rules, {} files, nothing to say", RULES.len() + 1, files.len());
            Ok(())
        }
        1 => Err("tidy: 1 problem".to_owned()),
        _ => Err(format!("tidy: {count} problems")),
    }
}

fn report(rule: &str, problems: &[String]) -> usize {
    if !problems.is_empty() {
        println!("{rule}:");
        problems.iter().for_each(|problem| println!("  {problem}"));
    }
    problems.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_content_with_nothing_but_itself() {
        // Not that the repository is tidy (that is the command's business), only that rules run on it.
        let files = tree::files(&tree::root()).unwrap();
        assert!(files.iter().any(|file| file.path == "xtask/src/tidy.rs"));
        for (_, rule) in RULES {
            let own = files.iter().filter(|file| file.path.starts_with("xtask/"));
            let own: Vec<File> = own.map(|file| File::new(&file.path, &file.text)).collect();
            let about_own = rule(&own).into_iter().find(|problem| problem.starts_with("xtask/"));
            assert_eq!(about_own, None);
        }
    }
}
