//! `cargo xtask bench`: builds what is measured, then measures.

use crate::command;
use std::path::Path;

/// The benchmarks are a workspace of their own, with its own target directory; the reports find it there.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let mut program = command::cargo(root, &["build", "--release", "--package", "coracle-cli"]);
    command::run(program.args(["--target-dir", "target"]))?;

    let bench = root.join("bench");
    let mut harness = command::cargo(&bench, &["build", "--release", "--features", "coracle"]);
    command::run(harness.args(["--bin", "bench", "--target-dir", "target"]))?;

    let mut measure = command::new(root, "bench/target/release/bench", &[]);
    command::run(measure.args(arguments))
}
