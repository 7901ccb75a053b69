//! What is compared: a name, a program, and how to start it.

use std::path::PathBuf;

/// A program that serves the work on the address given with `--listen`.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name in tables and plots.
    pub name: &'static str,
    /// What part it plays in the comparison.
    pub kind: Kind,
    /// The program.
    pub program: PathBuf,
    /// Its arguments; `--listen ADDRESS` follows them.
    pub arguments: Vec<&'static str>,
    /// It cannot serve more connections than this (`select` stops at 1,024 descriptors).
    pub limit_connections: u32,
    /// Why the program could not be built, if it could not.
    pub unavailable: Option<String>,
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
        let (arguments, limit_connections) = (Vec::new(), u32::MAX);
        Candidate { name, kind, program, arguments, limit_connections, unavailable: None }
    }

    /// The same program started with `arguments`.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&'static str]) -> Candidate {
        self.arguments = arguments.to_vec();
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

/// Splits off the candidates that cannot take part, and says so for each.
pub fn available(candidates: Vec<Candidate>) -> (Vec<Candidate>, Vec<String>) {
    let mut skipped = Vec::new();
    let mut present = Vec::new();
    for candidate in candidates {
        match candidate.reason_to_skip() {
            Some(reason) => skipped.push(format!("{} skipped: {reason}", candidate.name)),
            None => present.push(candidate),
        }
    }
    (present, skipped)
}
