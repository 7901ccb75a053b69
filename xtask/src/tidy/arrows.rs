//! Arrows between crates point one way: a crate uses only crates that ARCHITECTURE.md lists above it.

use crate::tree::File;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let Some(architecture) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md: there is none".to_owned()];
    };
    let order = crates_in_order(&architecture.text);
    let mut problems = Vec::new();
    for file in files {
        let Some(folder) = package_folder(&file.path) else { continue };
        let Some(own) = order.iter().position(|listed| listed == folder) else {
            problems.push(format!("{}: ARCHITECTURE.md has no heading `{folder}`", file.path));
            continue;
        };
        for name in dependencies(&file.text) {
            let used = order.iter().position(|listed| package_name(listed) == name);
            // A crate may name itself, to be tested with its features.
            if used.is_some_and(|used| used > own) {
                problems.push(format!("{}: {name} is not above {folder}", file.path));
            }
        }
    }
    problems
}

/// The headings of the code map that name a package: ``### `crates/coracle-demux`: …``.
fn crates_in_order(architecture: &str) -> Vec<String> {
    let headings = architecture.lines().filter_map(|line| line.strip_prefix("### `"));
    headings.filter_map(|heading| Some(heading.split_once('`')?.0.to_owned())).collect()
}

/// The folder of a package of this workspace, by the path of its manifest.
fn package_folder(manifest: &str) -> Option<&str> {
    match manifest {
        "Cargo.toml" => Some("src"),
        _ => manifest
            .strip_suffix("/Cargo.toml")
            .filter(|folder| !folder.starts_with("bench") && !folder.starts_with("fuzz")),
    }
}

/// A package is called like its folder, but for the facade.
fn package_name(folder: &str) -> &str {
    match folder {
        "src" => "coracle",
        _ => folder.rsplit('/').next().unwrap_or(folder),
    }
}

/// What a manifest depends on, in whatever section.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            // Not `[workspace.dependencies]`, which only says where crates come from.
            inside = section.trim_end_matches(']').ends_with("dependencies")
                && !section.starts_with("workspace");
        } else if inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "### `crates/coracle-demux`: low\n### `crates/coracle-loop`: high\n";

    fn problems(manifest: &str, text: &str) -> Vec<String> {
        check(&[File::new("ARCHITECTURE.md", MAP), File::new(manifest, text)])
    }

    #[test]
    fn arrow_down_is_fine_and_up_is_not() {
        let demux = "[dependencies]\ncoracle-demux.workspace = true\n";
        assert!(problems("crates/coracle-loop/Cargo.toml", demux).is_empty());
        let lp = "[dev-dependencies]\ncoracle-loop = { path = \"../coracle-loop\" }\n";
        let found = problems("crates/coracle-demux/Cargo.toml", lp);
        assert_eq!(
            found,
            ["crates/coracle-demux/Cargo.toml: coracle-loop is not above crates/coracle-demux"]
        );
    }

    #[test]
    fn package_that_is_not_in_the_map_is_found() {
        assert_eq!(problems("crates/coracle-net/Cargo.toml", "").len(), 1);
        assert!(problems("bench/Cargo.toml", "").is_empty());
    }

    #[test]
    fn sections_of_the_workspace_are_not_dependencies() {
        let manifest =
            "[workspace.dependencies]\na = \"1\"\n\n[dependencies]\nb.workspace = true\n";
        assert_eq!(dependencies(manifest), ["b"]);
    }
}
