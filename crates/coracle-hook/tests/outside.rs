//! Which symbols a program has that is no member of this workspace, where features are unified: with the feature
//! all of them, without it none.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// All of them, as the sources have them.
fn symbols() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(sources).expect("sources").map(|file| file.expect("a file").path());
    let texts: Vec<String> =
        files.map(|file| fs::read_to_string(file).expect("a source")).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let name = |line: &str| {
        let by_macro = line.strip_prefix("    park fn ").or(line.strip_prefix("    always fn "));
        let rest = by_macro.or(line.strip_prefix("unsafe extern \"C\" fn "))?;
        rest.split_once('(').map(|(name, _)| name.to_owned())
    };
    lines.filter_map(name).collect()
}

/// The folder of this workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Where cargo has put this test: what it has built is used again.
fn target() -> PathBuf {
    let own = std::env::current_exe().expect("a path"); // target/debug/deps/outside-…
    own.ancestors().nth(3).expect("a target folder").to_owned()
}

/// Makes a package with these features of coracle's, and says where.
fn package(name: &str, features: &str, main: &str) -> PathBuf {
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
    folder
}

/// Has cargo do something with it.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO"))
        .args([arguments[0], "--quiet", "--offline"])
        .args(&arguments[1..])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target())
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Builds a program with these features of coracle's, and has it say what it has to say; and the program.
fn build(name: &str, features: &str, main: &str) -> (PathBuf, String) {
    let output = cargo(&package(name, features, main), &["run"]);
    assert!(output.status.success(), "{name} failed:\n{}", errors(&output));
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
    let (symbols, exported) = (symbols(), exported(&program));
    let missing: Vec<_> = symbols.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    // The program has counted them, too: none is left out here.
    assert!(said.contains(&format!(" {} functions", symbols.len())), "{} of {said}", symbols.len());
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
    let (symbols, exported) = (symbols(), exported(&program));
    let unwanted: Vec<_> = symbols.intersection(&exported).collect();
    assert!(unwanted.is_empty(), "exported: {unwanted:?}");
}

/// A library that brings the hooks with it is loaded by a program that has libc's own already: everybody else was
/// given those. It is told so, by name, and nothing is enabled.
#[test]
fn s33_library_that_is_loaded_cannot_enable_hooks() {
    let main = r#"
        use std::ffi::{CStr, CString, c_char, c_int, c_void};
        unsafe extern "C" {
            fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
            fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
            fn dlerror() -> *const c_char;
        }
        fn main() {
            let name = CString::new(std::env::args().nth(1).unwrap()).unwrap();
            // SAFETY: a library of ours, and a function of this type in it.
            unsafe {
                let library = dlopen(name.as_ptr(), 2);
                assert!(!library.is_null(), "{:?}", CStr::from_ptr(dlerror()));
                let enable = dlsym(library, c"enable_there".as_ptr());
                assert!(!enable.is_null());
                let enable: extern "C" fn() -> c_int = std::mem::transmute(enable);
                std::process::exit(enable());
            }
        }
    "#;
    let folder = package("outside-loading", "\"hook\"", main);
    let library = r#"
        #[unsafe(no_mangle)]
        extern "C" fn enable_there() -> i32 {
            let enabled = std::panic::catch_unwind(|| {
                // SAFETY: nothing else is done.
                unsafe { coracle::hook::enable() }
            });
            assert_eq!(enabled.is_ok(), coracle::hook::status().enabled);
            eprintln!("{}", coracle::hook::status());
            if enabled.is_ok() { 0 } else { 42 }
        }
    "#;
    fs::write(folder.join("src/lib.rs"), library).expect("a library");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    let library = "\n[lib]\nname = \"outside_loaded\"\ncrate-type = [\"cdylib\"]\n";
    fs::write(folder.join("Cargo.toml"), manifest + library).expect("a manifest");
    let built = cargo(&folder, &["build"]);
    assert!(built.status.success(), "{}", errors(&built));
    let folder = target().join("debug");
    let ran = Command::new(folder.join("outside-loading"))
        .arg(folder.join("liboutside_loaded.so"))
        .output()
        .expect("it starts");
    let said = errors(&ran);
    assert_eq!(ran.status.code(), Some(42), "{said}");
    assert!(said.contains("cannot enable coracle's hooks: "), "{said}");
    assert!(said.contains("recv (others are given another one)"), "{said}");
    assert!(said.contains("\nhooks are not in place: "), "{said}");
}

/// Linked statically, there is nothing behind our names. The linker refuses that; and if it is talked into it, the
/// program ends with the first call, which std makes before `main`, and says why.
#[test]
fn s33_static_program_cannot_enable_hooks() {
    let main = "fn main() { unsafe { coracle::hook::enable() } }";
    let folder = package("outside-static", "\"hook\"", main);
    let link = ["rustc", "--", "-C", "target-feature=+crt-static"];
    let built = cargo(&folder, &link);
    assert!(!built.status.success());
    assert!(errors(&built).contains("getaddrinfo"), "{}", errors(&built));
    let talked = [&link[..], &["-C", "link-arg=-Wl,--allow-multiple-definition"]].concat();
    let built = cargo(&folder, &talked);
    assert!(built.status.success(), "{}", errors(&built));
    let ran = Command::new(target().join("debug/outside-static")).output().expect("it starts");
    let said = errors(&ran);
    assert_eq!(ran.status.signal(), Some(6), "{:?} {said}", ran.status); // it has aborted
    assert!(
        said.contains("libc's own cannot be found: aborting; link the program dynamically"),
        "{said}"
    );
}
