//! `cargo xtask conformance`: programs that are not ours judge our servers, and each verdict is told.
//!
//! ```text
//!   judge   (curl, nghttp and h2load, ab, wrk, h11, h2, grpcio, wsproto and websockets, the cases of
//!     │       Autobahn, slowhttptest, Chromium, sslscan, testssl.sh, sslyze)
//!     │ talks to
//!   server  (coracle hello, coracle serve, examples/http_echo), on each backend
//! ```

mod judges;
mod secure;
mod server;

use self::judges::{JUDGES, Judge};
use self::server::Programs;
use crate::command;
use std::path::Path;
use std::process::Command;

/// What can be chosen about it.
#[derive(clap::Args)]
pub(crate) struct Settings {
    /// Only those that are quick: what continuous integration asks.
    #[arg(long)]
    quick: bool,
    /// Only judges of these names.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Servers on these backends.
    #[arg(long, value_delimiter = ',', default_value = "uring,epoll,poll,select")]
    backends: Vec<String>,
    /// A judge that is not there is missed: it is an error.
    #[arg(long)]
    every_judge: bool,
    /// Judge programs that are optimised.
    #[arg(long)]
    release: bool,
    /// Judge the programs as they are; build nothing.
    #[arg(long)]
    no_build: bool,
}

/// What a judge has to say: in a few words what was found to be right, or all that is wrong.
type Verdict = Result<String, String>;

pub(crate) fn run(root: &Path, settings: &Settings) -> Result<(), String> {
    let wanted = |judge: &&Judge| match settings.only.is_empty() {
        true => !settings.quick || judge.quick,
        false => settings.only.iter().any(|name| name == judge.name),
    };
    let judges: Vec<&Judge> = JUDGES.iter().filter(wanted).collect();
    if let Some(unknown) =
        settings.only.iter().find(|name| JUDGES.iter().all(|it| it.name != **name))
    {
        let names: Vec<&str> = JUDGES.iter().map(|judge| judge.name).collect();
        return Err(format!("there is no judge {unknown}; there are {}", names.join(", ")));
    }
    let programs = match settings.no_build {
        true => Programs::find(settings.release)?,
        false => Programs::build(root, settings.release)?,
    };
    let (mut passed, mut failed, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for judge in judges {
        if !is_there(judge) {
            println!("SKIPPED: {}: apt-get install {}", judge.name, judge.package);
            missing.push(judge.name);
            continue;
        }
        for backend in settings.backends.iter().take(judge.backends) {
            match (judge.run)(root, &programs, backend) {
                Ok(words) => println!("passed: {} on {backend}: {words}", judge.name),
                Err(words) => {
                    println!("FAILED: {} on {backend}: {words}", judge.name);
                    failed.push(format!("{} on {backend}", judge.name));
                    continue;
                }
            }
            passed.push(judge.name);
        }
    }
    println!(
        "{} verdicts are good, {} are not, {} judges were not there",
        passed.len(),
        failed.len(),
        missing.len()
    );
    // Where nobody looks at the output, a judge that is not there must be missed, too.
    let every_judge = settings.every_judge || std::env::var_os("CI").is_some();
    outcome(&failed, &missing, every_judge)
}

/// Whether it was good enough.
fn outcome(failed: &[String], missing: &[&str], every_judge: bool) -> Result<(), String> {
    if !failed.is_empty() {
        return Err(format!("failed: {}", failed.join(", ")));
    }
    if every_judge && !missing.is_empty() {
        return Err(format!("not there: {}", missing.join(", ")));
    }
    Ok(())
}

fn is_there(judge: &Judge) -> bool {
    let (program, arguments) = judge.present.split_first().expect("a program");
    command::output(Command::new(program).args(arguments)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_that_is_not_there_is_missed_where_all_must_be() {
        assert_eq!(outcome(&[], &["wrk"], false), Ok(()));
        assert_eq!(outcome(&[], &["wrk", "ab"], true), Err("not there: wrk, ab".to_owned()));
        assert_eq!(outcome(&[], &[], true), Ok(()));
        assert!(outcome(&["curl on epoll".to_owned()], &[], false).is_err());
    }
}
