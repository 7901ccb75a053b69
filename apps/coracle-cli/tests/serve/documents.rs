//! The reference of the configuration has every key there is, and no other.

use crate::client::Dir;
use crate::program::{coracle, run_to_the_end};
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/reference/config.md");

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
