//! What all works have in common on the command line.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::interleave::Repetitions;
use crate::programs::BENCH;

/// The common options.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Good repetitions of each measurement. With 0, w2 only counts, which takes no quiet machine.
    #[arg(long, global = true, default_value_t = 5)]
    pub repetitions: usize,
    /// Keep repetitions that other processes have spoilt (to try things out, never to publish).
    #[arg(long, global = true)]
    pub keep_noisy: bool,
    /// Where the reports go, instead of the repository's docs/benchmarks/.
    #[arg(long, global = true)]
    out: Option<PathBuf>,
    /// The core of the program under test.
    #[arg(long, global = true, default_value_t = 0)]
    pub server_core: usize,
    /// The core of the load.
    #[arg(long, global = true, default_value_t = 1)]
    pub load_core: usize,
    /// Use the programs as they are; build nothing.
    #[arg(long, global = true)]
    pub no_build: bool,
}

impl Options {
    /// Where the reports go.
    pub fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| Path::new(BENCH).join("../docs/benchmarks"))
    }

    /// How often to measure.
    pub fn repetitions(&self) -> Repetitions {
        Repetitions { wanted: self.repetitions, keep_noisy: self.keep_noisy }
    }
}
