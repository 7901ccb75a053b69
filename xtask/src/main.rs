//! The repository's own tasks: `cargo xtask tidy`, `bench`, `conformance`, `fuzz`, `full`, `ci`.
//!
//! Whatever a machine does for this repository is a command here that a person can run at home.

mod bench;
mod command;
mod conformance;
mod full;
mod fuzz;
mod tidy;
mod tree;

use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;

/// The repository's own tasks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the style: what can be said as a rule is a test.
    Tidy,
    /// Build everything that is measured, then measure: w2, w6, w7, w13 or all, and their options.
    Bench {
        /// What the benchmark program gets; `--help` lists it.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "all")]
        arguments: Vec<String>,
    },
    /// Programs that are not ours judge our servers, and each verdict is told.
    Conformance(conformance::Settings),
    /// Let the parsers have any input; without a name, all of them.
    Fuzz(fuzz::Settings),
    /// Everything that is too long for continuous integration; writes docs/full-runs/DATE.md.
    Full(full::Settings),
    /// What continuous integration runs: `.ci/run`.
    Ci,
}

fn main() -> ExitCode {
    let root = tree::root();
    let done = match Arguments::parse().task {
        Task::Tidy => tidy::run(&root),
        Task::Bench { arguments } => bench::run(&root, &arguments),
        Task::Conformance(settings) => conformance::run(&root, &settings),
        Task::Fuzz(settings) => fuzz::run(&root, &settings),
        Task::Full(settings) => full::run(&root, &settings),
        Task::Ci => ci(&root),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn ci(root: &Path) -> Result<(), String> {
    command::run(command::new(root, ".ci/run", &[]).current_dir(root))
}
