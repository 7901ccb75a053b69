//! `cargo xtask fuzz`: builds the targets of `fuzz/` for libFuzzer and lets each run for a while.
//!
//! No cargo-fuzz is needed: the flags that it gives to the compiler are below.

use crate::{command, tree};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// The only target whose instrumentation was tried.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What makes a program tell libFuzzer where it has been.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What can be chosen about it.
#[derive(clap::Args)]
pub(crate) struct Settings {
    /// How long each target runs.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// How many run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Where chance begins: the same inputs again, of the same parsers. 0 is another one each time.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Look for misuse of memory, too: slower, and there is no unsafe code in the parsers.
    #[arg(long)]
    address: bool,
    /// Only build them.
    #[arg(long)]
    no_run: bool,
    /// Only these; all, if there is none.
    targets: Vec<String>,
}

pub(crate) fn run(root: &Path, settings: &Settings) -> Result<(), String> {
    let fuzz = root.join("fuzz");
    let all = targets(&fuzz)?;
    if let Some(unknown) = settings.targets.iter().find(|name| !all.contains(name)) {
        return Err(format!("there is no target {unknown}; there are {}", all.join(", ")));
    }
    let wanted = |name: &String| settings.targets.is_empty() || settings.targets.contains(name);
    let programs = build(&fuzz, settings.address)?;
    if settings.no_run {
        return Ok(());
    }
    let queue: Mutex<VecDeque<String>> = Mutex::new(all.into_iter().filter(wanted).collect());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..settings.jobs.max(1) {
            scope.spawn(|| {
                while let Some(name) = take(&queue) {
                    match try_target(&fuzz, &programs, &name, settings) {
                        Ok(summary) => println!("{name}: nothing found in {summary}"),
                        Err(reason) => {
                            eprintln!("{name}: {reason}");
                            failed.lock().expect("nobody panics").push(name);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panics");
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("something was found: {}", failed.join(", ")))
    }
}

fn take(queue: &Mutex<VecDeque<String>>) -> Option<String> {
    queue.lock().expect("nobody panics").pop_front()
}

/// The names of all targets: a file each.
fn targets(fuzz: &Path) -> Result<Vec<String>, String> {
    let folder = fuzz.join("fuzz_targets");
    let files = fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let names = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// Builds all of them; where they are.
fn build(fuzz: &Path, address: bool) -> Result<PathBuf, String> {
    // Beside everything else that is built, which may be kept from one run to the next.
    let folder = tree::target()?.join(if address { "fuzz/address" } else { "fuzz/plain" });
    let mut flags = FLAGS.to_owned();
    if address {
        flags.push_str(" -Zsanitizer=address");
    }
    let mut cargo = command::cargo(fuzz, &["build", "--release", "--bins", "--target", TARGET]);
    cargo.arg("--target-dir").arg(&folder);
    // `-Z`, and what is under it, is for nightly compilers; the variable lets a stable one take it.
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    command::run(&mut cargo)?;
    Ok(folder.join(TARGET).join("release"))
}

/// Lets one run: how many inputs it tried, or what was wrong with one.
fn try_target(
    fuzz: &Path,
    programs: &Path,
    name: &str,
    settings: &Settings,
) -> Result<String, String> {
    let corpus = fuzz.join("corpus").join(name);
    let artifacts = fuzz.join("artifacts").join(name);
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    }
    let log = artifacts.join("log");
    let mut program = Command::new(programs.join(name));
    program.args([&corpus, &fuzz.join("inputs").join(name)]);
    program.arg(format!("-max_total_time={}", settings.seconds));
    program.arg(format!("-seed={}", settings.seed));
    program.arg(format!("-artifact_prefix={}/", artifacts.display()));
    program.arg(format!("-dict={}", fuzz.join("http.dict").display()));
    program.args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=2048", "-print_final_stats=1"]);
    let errors = File::create(&log).map_err(|why| format!("{}: {why}", log.display()))?;
    let status = program.stderr(errors).status();
    let status = status.map_err(|why| format!("cannot run {}: {why}", command::text(&program)))?;
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    if status.success() {
        return Ok(summary(&text));
    }
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(40)..].join("\n");
    Err(format!(
        "{status}\n{last}\nThe input is in {}. Mend what is wrong, and move it to fuzz/inputs/{name}, \
         where a test tries it from then on.",
        artifacts.display()
    ))
}

/// From libFuzzer's last lines.
fn summary(text: &str) -> String {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("?").trim().to_owned()
    };
    format!("{} inputs", number("stat::number_of_executed_units:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_and_counted() {
        let names = targets(&tree::root().join("fuzz")).unwrap();
        assert!(names.iter().any(|name| name == "http_head"), "{names:?}");
        let log = "Done\nstat::number_of_executed_units: 1234\nstat::peak_rss_mb: 30\n";
        assert_eq!(summary(log), "1234 inputs");
    }
}
