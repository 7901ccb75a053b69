//! Row J3: what fuzzers start with and what they have found, tried again; and every target is in the table.

use coracle_http::fuzzing::ENTRIES;
use std::fs;
use std::path::{Path, PathBuf};

fn fuzz(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(folder)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn j3_inputs_of_the_fuzzers_hold() {
    for (target, entry) in ENTRIES {
        let folder = fuzz("inputs").join(target);
        let inputs = names(&folder);
        assert!(!inputs.is_empty(), "{target} has nothing to start with");
        for input in inputs {
            let bytes = fs::read(folder.join(&input)).unwrap();
            println!("{target}/{input}");
            entry(&bytes);
        }
    }
}

#[test]
fn j3_every_target_of_the_fuzzers_has_its_entry() {
    let targets: Vec<String> = ENTRIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let programs: Vec<String> = targets.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names(&fuzz("fuzz_targets")), programs);
    assert_eq!(names(&fuzz("inputs")), targets, "and nothing else is kept");
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).unwrap();
    for target in targets {
        assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is never built");
    }
}
