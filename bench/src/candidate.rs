//! What is compared: a name, a program, and how to start it.

use std::path::PathBuf;

use crate::options::Options;
use crate::programs::{build_c, program};

/// A program that serves the work on the address given with `--listen`.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name in tables and plots.
    pub name: &'static str,
    /// What part it plays in the comparison.
    pub kind: Kind,
    /// The program.
    pub program: PathBuf,
    /// Its arguments; where to listen follows them.
    pub arguments: Vec<String>,
    /// Its configuration, if it is told by a file where to listen.
    pub config: Option<Config>,
    /// It cannot serve more connections than this (`select` stops at 1,024 descriptors).
    pub limit_connections: u32,
    /// Why the program could not be built, if it could not.
    pub unavailable: Option<String>,
}

/// A file for a program that takes no `--listen ADDRESS`.
#[derive(Clone, Debug)]
pub struct Config {
    /// What stands before the file's name on the command line.
    pub option: &'static str,
    /// What is in it. `LISTEN` stands for the address, `DIRECTORY` for a directory to write to.
    pub text: String,
}

/// What part a candidate plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The least that work can cost on this kernel.
    Limit,
    /// Ours.
    Coracle,
    /// Somebody else's.
    Peer,
}

impl Candidate {
    /// A candidate without arguments or limits.
    pub fn new(name: &'static str, kind: Kind, program: PathBuf) -> Candidate {
        Candidate {
            name,
            kind,
            program,
            arguments: Vec::new(),
            config: None,
            limit_connections: u32::MAX,
            unavailable: None,
        }
    }

    /// The same program started with `arguments`.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Candidate {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self
    }

    /// The same program, told where to listen by a file whose name follows `option`.
    #[must_use]
    pub fn config(mut self, option: &'static str, text: impl Into<String>) -> Candidate {
        self.config = Some(Config { option, text: text.into() });
        self
    }

    /// The same program, which serves at most `limit` connections.
    #[must_use]
    pub fn limit_connections(mut self, limit: u32) -> Candidate {
        self.limit_connections = limit;
        self
    }

    /// Why this candidate cannot take part, if it cannot.
    pub fn reason_to_skip(&self) -> Option<String> {
        match &self.unavailable {
            Some(reason) => Some(reason.clone()),
            None if !self.program.exists() => Some(format!(
                "the program {} is not built",
                self.program.file_name().unwrap_or_default().to_string_lossy()
            )),
            None => None,
        }
    }
}

impl Kind {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Limit => "limit",
            Kind::Coracle => "coracle",
            Kind::Peer => "peer",
        }
    }
}

/// Keeps the candidates whose name contains one of `only`, if there is any; splits off those that cannot take
/// part, and says so for each.
pub fn available(candidates: Vec<Candidate>, only: &[String]) -> (Vec<Candidate>, Vec<String>) {
    let mut skipped = Vec::new();
    let mut present = Vec::new();
    for candidate in candidates {
        if !only.is_empty() && !only.iter().any(|part| candidate.name.contains(part.as_str())) {
            continue;
        }
        match candidate.reason_to_skip() {
            Some(reason) => skipped.push(format!("{} skipped: {reason}", candidate.name)),
            None => present.push(candidate),
        }
    }
    for line in &skipped {
        eprintln!("{line}");
    }
    (present, skipped)
}

/// A peer written in C, `peers/SOURCE`, built unless the programs are to be used as they are.
pub fn c_peer(
    options: &Options,
    name: &'static str,
    file: &str,
    source: &str,
    library: &str,
    package: &str,
) -> Candidate {
    let mut candidate = Candidate::new(name, Kind::Peer, program(file));
    if !options.no_build {
        candidate.unavailable = build_c(file, source, library, package).err();
    }
    candidate
}

/// A peer that Debian's `package` brings, in `/usr/sbin`.
pub fn debian_peer(name: &'static str, package: &str) -> Candidate {
    let mut candidate = Candidate::new(name, Kind::Peer, PathBuf::from("/usr/sbin").join(package));
    if !candidate.program.exists() {
        candidate.unavailable = Some(format!("{package} is not installed"));
    }
    candidate
}

/// Those that can serve so many connections.
pub fn able(candidates: &[Candidate], connections: u32) -> Vec<&Candidate> {
    candidates.iter().filter(|candidate| connections <= candidate.limit_connections).collect()
}
