//! `cargo xtask full`: what is too long for continuous integration, and a dated page about how it went.

use crate::command;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The only target whose sanitizers the recipes were tried with.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The step that needs a toolchain which need not be there.
const OLDEST_COMPILER: &str = "oldest compiler";

/// What can be chosen about a full run.
#[derive(clap::Args)]
pub(crate) struct Settings {
    /// Simulator seeds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// Seeds of the test that cancels under load, on each backend.
    #[arg(long, default_value_t = 100)]
    storms: u64,
    /// How often the contract suite runs.
    #[arg(long, default_value_t = 50)]
    contract: u32,
    /// Seconds for each target of the fuzzers.
    #[arg(long, default_value_t = 600)]
    fuzz: u32,
    /// Only steps whose name contains this; the page is then not written.
    #[arg(long)]
    only: Option<String>,
    /// Without the step of this name (several times); the page says so.
    #[arg(long)]
    without: Vec<String>,
}

/// One thing to be done, so many times.
struct Step {
    name: &'static str,
    command: Command,
    times: u32,
}

/// How it went.
struct Report {
    name: &'static str,
    command: String,
    times: u32,
    passed: bool,
    took: Duration,
    /// The lines of its output worth keeping.
    kept: Vec<String>,
}

pub(crate) fn run(root: &Path, settings: &Settings) -> Result<(), String> {
    let steps = steps(root, settings)?;
    if let Some(name) =
        settings.without.iter().find(|name| !steps.iter().any(|step| step.name == **name))
    {
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        return Err(format!("there is no step {name}: there are {}", names.join(", ")));
    }
    let wanted = |step: &Step| {
        settings.only.as_ref().is_none_or(|only| step.name.contains(only))
            && !settings.without.iter().any(|name| name == step.name)
    };
    let mut reports = Vec::new();
    for step in steps.into_iter().filter(wanted) {
        println!("== {}: {}", step.name, command::text(&step.command));
        reports.push(perform(step)?);
    }
    let mut circumstances = circumstances(root);
    if settings.only.is_none() && !reports.iter().any(|report| report.name == OLDEST_COMPILER) {
        circumstances.push((OLDEST_COMPILER, "not installed, left out".to_owned()));
    }
    if !settings.without.is_empty() {
        circumstances.push(("left out", settings.without.join(", ")));
    }
    let page = page(&circumstances, &reports);
    println!("\n{page}");
    if settings.only.is_none() {
        let folder = root.join("docs/full-runs");
        let file = folder.join(today(root)?).with_extension("md");
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, &page));
        written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    let failed: Vec<&str> =
        reports.iter().filter(|report| !report.passed).map(|report| report.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn steps(root: &Path, settings: &Settings) -> Result<Vec<Step>, String> {
    let once = |name, command| Step { name, command, times: 1 };
    let mut steps = vec![once("tests", command::cargo(root, &["test", "--workspace"]))];

    for (name, package) in
        [("simulation", "coracle-loop"), ("simulation of servers", "coracle-net")]
    {
        let simulation =
            ["test", "--release", "-p", package, "--test", "simulation", "--", "--nocapture"];
        let mut simulation = command::cargo(root, &simulation);
        simulation.env("CORACLE_SEEDS", settings.seeds.to_string());
        steps.push(once(name, simulation));
    }

    let stacks = ["test", "--release", "-p", "coracle-stack", "-p", "coracle-coro", "--tests"];
    let mut stacks = command::cargo(root, &stacks);
    // The ignored ones too: a million coroutines, valgrind, and callgrind.
    stacks.args(["--", "--include-ignored", "--nocapture"]);
    steps.push(once("stacks", stacks));

    let contract = ["test", "--release", "-p", "coracle-demux", "--test", "contract"];
    let contract = command::cargo(root, &contract);
    steps.push(Step { name: "contract", command: contract, times: settings.contract });

    let mut address = sanitized(root, "address", "-Zsanitizer=address");
    address.args(["-p", "coracle-demux", "-p", "coracle-loop"]);
    // Not leaks: LeakSanitizer cannot work in the processes that tests run under strace.
    address.env("ASAN_OPTIONS", "detect_leaks=0");
    steps.push(once("address sanitizer", address));

    let storm = ["test", "--release", "-p", "coracle-coro", "--test", "storm"];
    let mut storm = command::cargo(root, &storm);
    storm.env("CORACLE_SEEDS", settings.storms.to_string());
    steps.push(once("cancelling under load", storm));

    let mut stacks = sanitized(root, "address", "-Zsanitizer=address");
    optimised(&mut stacks).args(["-p", "coracle-stack", "-p", "coracle-coro"]);
    // Not what is said of memory and of frames, since the sanitizer has its own.
    stacks.args(["--", "--skip", "s60_", "--skip", "t5_", "--skip", "memory_falls"]);
    stacks.args(["--skip", "s45_", "--skip", "s49_backtrace", "--skip", "s50_backtrace"]);
    // Variables lie on the stacks, not elsewhere, and faults are handled by us and by std.
    let options = "detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:handle_sigbus=0";
    stacks.env("ASAN_OPTIONS", options);
    steps.push(once("address sanitizer, stacks", stacks));

    // Only where there is unsafe code: elsewhere the compiler rules races out, and what the sanitizer cannot
    // see of std's locks would drown everything.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    let mut thread = sanitized(root, "thread", flags);
    // It holds signals back until the thread next calls libc, which a loop does not.
    thread.args(["-p", "coracle-demux", "--features", "coracle-demux/thread-sanitizer"]);
    thread.args(["--", "--skip", "signal"]);
    // Tests run in the folder of their package.
    thread.env("TSAN_OPTIONS", "suppressions=../../xtask/thread-sanitizer.supp");
    steps.push(once("thread sanitizer", thread));

    // Coroutines, threads and loops that wait for each other, with locks whose order the sanitizer can see
    // (docs/full-runs/README.md says what is left out, and why). One test after the other: what is mapped where
    // another thread's stack was looks like a race.
    let mut waiting = sanitized(root, "thread", flags);
    waiting.args(["-p", "coracle-coro", "--features", "coracle-coro/thread-sanitizer"]);
    waiting.args(["--", "rows::", "elsewhere::", "sockets::", "t4_cancels_under_load"]);
    waiting.args(["--test-threads=1", "--skip", "signal"]);
    waiting.args(["--skip", "s60_", "--skip", "s49_", "--skip", "s50_"]);
    waiting.env("CORACLE_SEEDS", "5"); // each takes half a minute
    waiting.env("TSAN_OPTIONS", "suppressions=../../xtask/thread-sanitizer.supp");
    steps.push(once("thread sanitizer, coroutines", waiting));

    let seconds = settings.fuzz.to_string();
    let fuzz = ["xtask", "fuzz", "--address", "--seed", "0", "--seconds", &seconds];
    steps.push(once("fuzzing", command::cargo(root, &fuzz)));
    // Here nobody may be missing.
    let conformance = ["xtask", "conformance", "--every-judge"];
    steps.push(once("conformance", command::cargo(root, &conformance)));

    let oldest = oldest_compiler(root)?;
    let toolchains = command::output(&mut command::new(root, "rustup", &["toolchain", "list"]));
    if toolchains.is_ok_and(|list| list.lines().any(|line| line.starts_with(&oldest))) {
        // rustup's cargo, not the one that runs this: only it knows `+VERSION`.
        let toolchain = format!("+{oldest}");
        let mut check = command::new(root, "cargo", &[&toolchain, "check", "--workspace"]);
        check
            .args(["--all-targets", "--target-dir", "target/oldest"])
            .env_remove("RUSTUP_TOOLCHAIN");
        steps.push(once(OLDEST_COMPILER, check));
    } else {
        println!("== {OLDEST_COMPILER}: left out, {oldest} is not installed");
    }
    Ok(steps)
}

/// Unit and integration tests with a sanitizer. The standard library is not instrumented.
fn sanitized(root: &Path, name: &str, flags: &str) -> Command {
    let directory = format!("target/{name}-sanitizer");
    let mut command = command::cargo(root, &["test", "--lib", "--tests", "--no-fail-fast"]);
    command.args(["--target", TARGET, "--target-dir", &directory]);
    // `-Z` is for nightly compilers; the variable lets a stable one take it.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    // It is slow, and finds in few seeds what it finds in many.
    command.env("CORACLE_SEEDS", "50");
    command
}

/// Optimised, for what an optimiser makes of aliasing and of thread-locals; but each crate by itself, or every
/// test program would take minutes.
fn optimised(command: &mut Command) -> &mut Command {
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.arg("--release")
}

/// Runs a step, shows what it prints, and keeps what the page wants.
fn perform(mut step: Step) -> Result<Report, String> {
    let command = command::text(&step.command);
    let start = Instant::now();
    let (mut passed, mut kept) = (true, Vec::new());
    for time in 1..=step.times {
        let failed = |error| format!("cannot run {command}: {error}");
        let mut child = step.command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        kept.clear(); // of many runs, the last one speaks for all
        for line in output.lines() {
            let line = line.map_err(failed)?;
            println!("{line}");
            if is_worth_keeping(&line) {
                kept.push(line);
            }
        }
        if !child.wait().map_err(failed)?.success() {
            kept.push(format!("FAILED in run {time} of {}", step.times));
            passed = false;
            break;
        }
    }
    Ok(Report { name: step.name, command, times: step.times, passed, took: start.elapsed(), kept })
}

fn is_worth_keeping(line: &str) -> bool {
    let empty = line.contains(" 0 passed; 0 failed;");
    (line.starts_with("test result:") && !empty)
        || line.contains("FAILED")
        || (line.contains("seed") && !line.starts_with("test "))
        || line.contains("parked coroutines:")
        || line.contains(": nothing found in ")
        || line.starts_with("passed: ")
        || line.starts_with("SKIPPED: ")
}

/// What the results depend on.
fn circumstances(root: &Path) -> Vec<(&'static str, String)> {
    let ask = |program, arguments: &[&str]| {
        command::output(&mut command::new(root, program, arguments))
            .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
    };
    vec![
        ("date", ask("date", &["--utc", "+%Y-%m-%d %H:%M UTC"])),
        ("commit", ask("git", &["rev-parse", "--short", "HEAD"])),
        ("kernel", ask("uname", &["--kernel-name", "--kernel-release", "--machine"])),
        ("compiler", ask("rustc", &["--version"])),
        ("cores", std::thread::available_parallelism().map_or(0, usize::from).to_string()),
    ]
}

fn today(root: &Path) -> Result<String, String> {
    let date = command::output(&mut command::new(root, "date", &["--utc", "+%Y-%m-%d"]))?;
    Ok(date.trim().to_owned())
}

/// `rust-version` of the workspace.
fn oldest_compiler(root: &Path) -> Result<String, String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"));
    let manifest = manifest.map_err(|error| format!("cannot read Cargo.toml: {error}"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.ok_or("Cargo.toml has no rust-version")?;
    Ok(version.trim_matches('"').to_owned())
}

fn page(circumstances: &[(&str, String)], reports: &[Report]) -> String {
    let mut page = "# A full run\n\nMade by `cargo xtask full`.\n\n".to_owned();
    for (name, value) in circumstances {
        page.push_str(&format!("- {name}: {value}\n"));
    }
    page.push_str("\n| step | runs | result | minutes |\n|---|---|---|---|\n");
    for report in reports {
        let result = if report.passed { "passed" } else { "**failed**" };
        let minutes = report.took.as_secs_f64() / 60.0;
        page.push_str(&format!(
            "| {} | {} | {result} | {minutes:.1} |\n",
            report.name, report.times
        ));
    }
    for report in reports {
        let lines = report.kept.join("\n");
        page.push_str(&format!(
            "\n## {}\n\n```text\n$ {}\n{lines}\n```\n",
            report.name, report.command
        ));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_seeds_are_kept_and_the_rest_is_not() {
        assert!(is_worth_keeping("test result: ok. 12 passed; 0 failed; 0 ignored"));
        assert!(is_worth_keeping("10000 seeds, 41 simulated hours"));
        assert!(is_worth_keeping("SKIPPED: wrk: apt-get install wrk"));
        assert!(!is_worth_keeping("test result: ok. 0 passed; 0 failed; 0 ignored"));
        assert!(!is_worth_keeping("test seeds_differ ... ok"));
    }

    #[test]
    fn no_judge_may_be_missing() {
        let (only, without) = (None, Vec::new());
        let settings = Settings { seeds: 1, storms: 1, contract: 1, fuzz: 1, only, without };
        let steps = steps(&crate::tree::root(), &settings).unwrap();
        let step = steps.iter().find(|step| step.name == "conformance").unwrap();
        assert!(command::text(&step.command).ends_with("xtask conformance --every-judge"));
    }

    #[test]
    fn page_tells_command_and_result() {
        let report = Report {
            name: "contract",
            command: "cargo test".to_owned(),
            times: 2,
            passed: false,
            took: Duration::from_secs(90),
            kept: vec!["FAILED in run 2 of 2".to_owned()],
        };
        let page = page(&[("kernel", "Linux".to_owned())], &[report]);
        assert!(page.contains("| contract | 2 | **failed** | 1.5 |"), "{page}");
        assert!(page.contains("$ cargo test\nFAILED in run 2 of 2\n"), "{page}");
    }
}
