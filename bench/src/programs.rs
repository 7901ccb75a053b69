//! Builds the programs that are compared, and finds them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The peers written in Rust: packages, and their programs.
const PEERS: [&str; 8] = [
    "tokio-echo",
    "tokio-proxy",
    "may-echo",
    "hyper-hello",
    "threads-echo",
    "may-hello",
    "actix-hello",
    "axum-files",
];
/// The programs of this package; not `bench`, which is running.
const PROGRAMS: [&str; 19] = [
    "raw-epoll",
    "raw-epoll-called",
    "raw-epoll-proxy",
    "raw-uring",
    "raw-uring-own",
    "raw-uring-proxy",
    "raw-http-epoll",
    "raw-http-epoll-called",
    "raw-http-uring",
    "ping",
    "ask",
    "drip",
    "knock",
    "hold",
    "steps",
    "calls",
    "shake",
    "pour",
    "crowd",
];

/// Where this workspace lives.
pub const BENCH: &str = env!("CARGO_MANIFEST_DIR");

/// The directory that holds this program and the others of the workspace.
///
/// # Panics
/// When the running program has no path.
pub fn directory() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    program.parent().expect("a program lies in a directory").to_path_buf()
}

/// A program of this workspace, built or not.
pub fn program(name: &str) -> PathBuf {
    directory().join(name)
}

/// The program `coracle` of the repository, built or not.
pub fn coracle() -> PathBuf {
    Path::new(BENCH).join("../target/release/coracle")
}

/// The same with its cryptography by aws-lc-rs in the place of ring, built or not.
pub fn coracle_aws_lc() -> PathBuf {
    Path::new(BENCH).join("../target/aws-lc-rs/release/coracle")
}

/// The repository's example that echoes on the loop alone, built or not.
pub fn loop_echo() -> PathBuf {
    Path::new(BENCH).join("../target/release/examples/11_lent_receives")
}

/// Builds the servers and tools of this workspace beside the running program.
///
/// # Errors
/// When cargo fails.
pub fn build_workspace() -> io::Result<()> {
    let mut cargo = cargo_build();
    cargo.args(PEERS.iter().chain(&["coracle-bench"]).flat_map(|package| ["--package", package]));
    cargo.args(PEERS.iter().chain(&PROGRAMS).flat_map(|program| ["--bin", program]));
    run(&mut cargo)
}

/// Builds the blocking clients, which take long, and only one work has them.
///
/// # Errors
/// When cargo fails.
pub fn build_hook_clients() -> io::Result<()> {
    run(cargo_build().args(["--package", "hook-clients"]))
}

fn cargo_build() -> Command {
    let directory = directory();
    let target = directory.parent().expect("programs lie in TARGET/release");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(BENCH).args(["build", "--release", "--quiet", "--target-dir"]).arg(target);
    cargo
}

/// Builds these packages, each with a program of its name, beside the running program.
///
/// # Errors
/// When cargo fails.
pub fn build_packages(packages: &[&str]) -> io::Result<()> {
    let directory = directory();
    let target = directory.parent().expect("programs lie in TARGET/release");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(BENCH).args(["build", "--release", "--quiet", "--target-dir"]).arg(target);
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    run(&mut cargo)
}

/// Builds the program `coracle`, if the repository has it already, and the echo on the loop alone.
///
/// # Errors
/// When cargo fails.
pub fn build_coracle() -> io::Result<()> {
    let root = Path::new(BENCH).join("..");
    if !root.join("apps/coracle-cli/Cargo.toml").exists() {
        return Ok(());
    }
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&root).args(["build", "--release", "--quiet", "--package", "coracle-cli"]);
    run(cargo.args(["--target-dir", "target"]))?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&root).args(["build", "--release", "--quiet", "--package", "coracle"]);
    run(cargo.args(["--example", "11_lent_receives", "--target-dir", "target"]))
}

/// Builds the program `coracle` with its cryptography by aws-lc-rs. In a directory of its own: features of one are
/// features of all that are built beside it.
///
/// # Errors
/// When cargo fails.
pub fn build_coracle_aws_lc() -> io::Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(Path::new(BENCH).join("..")).args(["build", "--release", "--quiet"]);
    cargo.args(["--package", "coracle-cli", "--features", "aws-lc-rs"]);
    run(cargo.args(["--target-dir", "target/aws-lc-rs"]))
}

/// Builds `peers/SOURCE` against the C library `library`, which Debian's `package` brings.
///
/// # Errors
/// The reason in words: the library or a tool is missing, or the compiler fails.
pub fn build_c(name: &str, source: &str, library: &str, package: &str) -> Result<(), String> {
    let flags = pkg_config(&["--cflags", "--libs", library])
        .ok_or_else(|| format!("{package} is not installed"))?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-o"]).arg(program(name));
    cc.arg(Path::new(BENCH).join("peers").join(source)).args(flags.split_whitespace());
    run(&mut cc).map_err(|error| error.to_string())
}

/// The version of an installed C library.
pub fn c_version(library: &str) -> Option<String> {
    pkg_config(&["--modversion", library])
}

fn pkg_config(arguments: &[&str]) -> Option<String> {
    output(Command::new("pkg-config").args(arguments))
}

/// What a command prints, without the line end; nothing when it fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(io::Error::other(format!("{name} failed: {status}"))),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot run {name}: {error}"))),
    }
}
