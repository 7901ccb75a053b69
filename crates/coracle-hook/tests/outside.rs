//! Which symbols a program has that is no member of this workspace, where features are unified: with the feature
//! all of them, without it none.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A few of them, from every corner.
const SOME: &[&str] = &[
    "accept4",
    "clock_nanosleep",
    "close",
    "connect",
    "epoll_wait",
    "getaddrinfo",
    "poll",
    "read",
    "recv",
    "recvmsg",
    "select",
    "send",
    "sendmmsg",
    "syscall",
    "waitpid",
    "write",
    "writev",
];

/// The folder of this workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Where cargo has put this test: what it has built is used again.
fn target() -> PathBuf {
    let own = std::env::current_exe().expect("a path"); // target/debug/deps/outside-…
    own.ancestors().nth(3).expect("a target folder").to_owned()
}

/// Builds a program with these features of coracle's, and has it say what it has to say; and the program.
fn build(name: &str, features: &str, main: &str) -> (PathBuf, String) {
    let folder = target().join("outside").join(name);
    fs::create_dir_all(folder.join("src")).expect("a folder");
    let root = root();
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\ncoracle = {{ path = {root:?}, features = [{features}] }}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(folder.join("src/main.rs"), main).expect("a program");
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))
        .expect("the versions of the workspace");
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", target())
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed:\n{told}");
    (target().join("debug").join(name), String::from_utf8(output.stdout).expect("text"))
}

/// The functions that a program defines and others can see.
fn exported(program: &Path) -> BTreeSet<String> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(program).output().expect("nm");
    assert!(output.status.success(), "nm");
    let text = String::from_utf8(output.stdout).expect("text");
    let functions = text.lines().filter_map(|line| line.split_once(" T "));
    functions.map(|(_, name)| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

#[test]
fn s33_program_with_the_feature_has_the_symbols() {
    let main = r#"
        use std::time::{Duration, Instant};
        fn main() -> std::io::Result<()> {
            // SAFETY: it only sleeps.
            unsafe { coracle::hook::enable() };
            let begin = Instant::now();
            coracle::run(|| {
                let all: Vec<_> = (0..100)
                    .map(|_| coracle::spawn(|| std::thread::sleep(Duration::from_secs(1))))
                    .collect();
                all.into_iter().for_each(|one| one.join().unwrap());
                Ok(())
            })?;
            assert!(begin.elapsed() < Duration::from_secs(99), "they slept one after the other");
            println!("{}", coracle::hook::status());
            Ok(())
        }
    "#;
    let (program, said) = build("outside-hooked", "\"hook\"", main);
    assert!(said.starts_with("hooks are enabled, by src/main.rs:5:"), "{said}");
    let exported = exported(&program);
    let missing: Vec<_> = SOME.iter().filter(|name| !exported.contains(**name)).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

#[test]
fn s33_program_without_the_feature_has_none() {
    let main = r#"
        fn main() -> std::io::Result<()> {
            coracle::run(|| coracle::sleep(std::time::Duration::from_millis(1)))?;
            println!("fine");
            Ok(())
        }
    "#;
    let (program, said) = build("outside-plain", "", main);
    assert_eq!(said, "fine\n");
    let exported = exported(&program);
    let unwanted: Vec<_> = SOME.iter().filter(|name| exported.contains(**name)).collect();
    assert!(unwanted.is_empty(), "exported: {unwanted:?}");
}
