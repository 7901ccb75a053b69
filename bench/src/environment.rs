//! Under what circumstances numbers were made: the head of every report.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::programs::{BENCH, c_version, output};

/// Crates whose versions matter to the reader.
const CRATES: [&str; 22] = [
    "io-uring",
    "rustix",
    "tokio",
    "tokio-util",
    "hyper",
    "h2",
    "rustls",
    "ring",
    "aws-lc-rs",
    "tokio-tungstenite",
    "tungstenite",
    "may",
    "may_minihttp",
    "actix-web",
    "axum",
    "tower-http",
    "crossbeam-channel",
    "rayon",
    "corosensei",
    "generator",
    "coracle-loop",
    "coracle-stack",
];

/// The list at the top of a report: command, date, machine, versions.
pub fn markdown() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let lines = [
        ("command", format!("`cargo run --release -- {}` in `bench/`", arguments.join(" "))),
        ("date", run("date", &["--utc", "+%Y-%m-%d %H:%M UTC"])),
        ("commit", commit()),
        ("kernel", run("uname", &["--kernel-name", "--kernel-release", "--machine"])),
        ("processor", processor()),
        (
            "compilers",
            format!("{}, cc {}", run("rustc", &["--version"]), run("cc", &["-dumpversion"])),
        ),
        ("crates", crates()),
        ("C libraries", c_libraries()),
        ("programs", programs()),
    ];
    lines.iter().map(|(name, value)| format!("- {name}: {value}\n")).collect()
}

fn run(program: &str, arguments: &[&str]) -> String {
    output(Command::new(program).args(arguments)).unwrap_or_else(|| "unknown".into())
}

/// What was measured, if it was that: with changes beside it, the page says so. Pages themselves do not count.
fn commit() -> String {
    let head = run("git", &["-C", BENCH, "rev-parse", "--short", "HEAD"]);
    let root = format!("{BENCH}/..");
    let changes = ["-C", &root, "status", "--porcelain", "--", ".", ":!docs"];
    match output(Command::new("git").args(changes)) {
        None => head,
        Some(_) => format!("{head}, and changes that are not committed"),
    }
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field =
        |line: &str| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned());
    let models: Vec<String> = info.lines().filter_map(field).collect();
    match models.first() {
        Some(model) => format!("{model}, {} cores", models.len()),
        None => "unknown".into(),
    }
}

fn crates() -> String {
    // What only the program `coracle` has is in the lock file of the repository.
    let locks = ["Cargo.lock", "../Cargo.lock"]
        .map(|path| fs::read_to_string(Path::new(BENCH).join(path)).unwrap_or_default());
    let version = |name: &str| locks.iter().find_map(|lock| locked(lock, name));
    let found = CRATES.iter().filter_map(|name| Some(format!("{name} {}", version(name)?)));
    found.collect::<Vec<_>>().join(", ")
}

/// The version of `name` in the text of a Cargo.lock.
fn locked<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    rest.split_once('"').map(|(version, _)| version)
}

fn c_libraries() -> String {
    let found = ["libevent", "libuv"]
        .iter()
        .filter_map(|library| Some(format!("{library} {}", c_version(library)?)));
    let found: Vec<String> = found.collect();
    if found.is_empty() { "none".into() } else { found.join(", ") }
}

/// The servers of others that are installed.
fn programs() -> String {
    let said = |command: &mut Command| {
        let output = command.output().ok()?;
        // nginx tells it to stderr.
        let text = [output.stdout, output.stderr].concat();
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let first_line = |text: String| text.lines().next().map(str::to_owned);
    let nginx = said(Command::new("/usr/sbin/nginx").arg("-V")).map(|text| {
        let told = |line: &&str| line.contains("nginx version") || line.contains("OpenSSL");
        text.lines().filter(told).collect::<Vec<_>>().join(", ")
    });
    let found = [
        nginx,
        said(Command::new("/usr/sbin/haproxy").arg("-v")).and_then(first_line),
        said(Command::new("h2load").arg("--version")).and_then(first_line),
    ];
    let found: Vec<String> = found.into_iter().flatten().collect();
    if found.is_empty() { "none".into() } else { found.join(", ") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_version_is_found_in_the_lock_file() {
        let lock = "[[package]]\nname = \"may\"\nversion = \"0.3.51\"\nsource = \"x\"\n";
        assert_eq!(super::locked(lock, "may"), Some("0.3.51"));
        assert_eq!(super::locked(lock, "tokio"), None);
    }
}
