//! The reference of the configuration has every key there is, and no other; the guide has every option.

use crate::client::Dir;
use crate::program::{coracle, run_to_the_end};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/reference/config.md");

const GUIDE: &str = include_str!("../../../../docs/guides/serve.md");
const README: &str = include_str!("../../../../README.md");

/// The keys of a table, as the program tells them to who writes one that is not there.
fn keys(table: &str) -> BTreeSet<String> {
    let dir = Dir::with(&[("c.toml", &format!("{table}\nthere_is_no_such_key = 1\n"))]);
    let output = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, list) =
        text.split_once("`: the keys here are ").unwrap_or_else(|| panic!("{table}: {text}"));
    list.lines().next().unwrap().split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

/// The keys of a section of the page: the first column of its tables.
fn documented(heading: &str) -> BTreeSet<String> {
    let (_, section) =
        PAGE.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

#[test]
fn q1_every_key_is_in_the_reference() {
    for (table, heading) in [
        ("", "At the top"),
        ("[access_log]", "`[access_log]`"),
        ("[limits]", "`[limits]`"),
        ("[timeouts]", "`[timeouts]`"),
        ("[site]", "`[site]` and `[[host]]`"),
        ("[[host]]", "`[site]` and `[[host]]`"),
        ("[[proxy]]", "`[[proxy]]`"),
        ("[[site.redirect]]", "`[[site.redirect]]` and `[[host.redirect]]`"),
        ("[[site.cgi]]", "`[[site.cgi]]` and `[[host.cgi]]`"),
        ("[[site.fastcgi]]", "`[[site.fastcgi]]` and `[[host.fastcgi]]`"),
    ] {
        let (keys, documented) = (keys(table), documented(heading));
        assert_eq!(keys, documented, "{table}");
        assert!(!keys.is_empty());
    }
}

#[test]
fn q1_the_example_of_the_reference_is_fine() {
    let (_, text) = PAGE.split_once("```toml\n").expect("an example");
    let text = text.split("```").next().unwrap();
    let dir = Dir::with(&[
        ("c.toml", text),
        ("404.html", ""),
        ("site/a", ""),
        ("blog/a", ""),
        ("logs/a", ""),
    ]);
    let output = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn q1_every_option_of_serve_is_in_the_guide() {
    let output = run_to_the_end(coracle().args(["serve", "--help"]));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(str::trim_start).filter(|line| line.starts_with("--"));
    let options: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(options.len() > 20, "{text}");
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_alphanumeric() || next == '-');
    for option in options {
        let mut places = GUIDE.match_indices(option);
        let is_there = places.any(|(at, _)| !goes_on(&GUIDE[at + option.len()..]));
        assert!(is_there, "docs/guides/serve.md lacks {option}");
    }
}

#[test]
fn q1_every_command_is_in_the_readme() {
    let output = run_to_the_end(coracle().arg("--help"));
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, list) = text.split_once("\nCommands:\n").expect("a list");
    let list = list.split("\n\n").next().unwrap();
    let lines = list.lines().filter_map(|line| line.strip_prefix("  "));
    let commands = lines.filter_map(|line| line.split(' ').next().filter(|name| !name.is_empty()));
    let commands: Vec<&str> = commands.filter(|name| *name != "help").collect();
    assert!(commands.contains(&"serve") && commands.len() > 5, "{text}");
    let (_, program) = README.split_once("- **A program**").expect("the program");
    let program = program.split("\n- ").next().unwrap().split("\n\n").next().unwrap();
    for command in commands {
        assert!(program.contains(&format!("`{command}`")), "README.md lacks {command}");
    }
}
