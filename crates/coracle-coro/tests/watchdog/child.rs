//! A process to look at: this program, which plays a part.

use crate::PATIENCE;
use coracle_coro::seeing::{Watchdog, dump_on_sigquit};
use coracle_coro::{Builder, park, run, sleep};
use std::hint::black_box;
use std::io::{self, BufRead, BufReader};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PART: &str = "CORACLE_TEST_PART";

/// In a child, plays its part, and ends.
pub(crate) fn play() {
    let Ok(part) = std::env::var(PART) else { return };
    match part.as_str() {
        "patient" => be_patient(),
        "hog" => hold(),
        "breakpoint" => run_to_the_breakpoint(),
        other => panic!("there is no part {other:?}"),
    }
    std::process::exit(0);
}

/// The command that starts a child.
pub(crate) fn command(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(PART, part).env_remove("RUST_BACKTRACE");
    command
}

/// A child that writes to a pipe. Killed when dropped.
pub(crate) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    pub(crate) fn start(part: &str) -> Child {
        let mut process = command(part).stderr(Stdio::piped()).spawn().unwrap();
        let stderr: ChildStderr = process.stderr.take().unwrap();
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let child = Child { process, lines };
        child.read_to("ready");
        child
    }

    pub(crate) fn send_sigquit(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
    }

    /// What it writes, up to a line that contains `end`.
    pub(crate) fn read_to(&self, end: &str) -> String {
        let mut text = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{end:?} does not come after\n{text}"));
            text += &format!("{line}\n");
            if line.contains(end) {
                return text;
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[inline(never)]
fn place_where_it_waits() -> io::Result<()> {
    black_box(park())
}

/// One loop, with one that waits; the last in the list.
fn be_patient() {
    dump_on_sigquit().unwrap();
    let ended = run(|| {
        Builder::new().name("patient").spawn(place_where_it_waits)?;
        let last = Builder::new().name("last").spawn(|| {
            eprintln!("ready");
            sleep(2 * PATIENCE)
        })?;
        last.join().unwrap()
    });
    ended.expect_err("it is killed before");
}

#[inline(never)]
fn place_where_it_calculates() {
    let begin = Instant::now();
    while black_box(begin.elapsed()) < 2 * PATIENCE {}
}

/// Two loops, of which one is held.
fn hold() {
    std::mem::forget(Watchdog::new().limit(Duration::from_secs(3600)).dump_on_sigquit().start());
    std::thread::spawn(|| {
        run(|| {
            Builder::new().name("hog").spawn(|| {
                eprintln!("ready");
                place_where_it_calculates();
            })?;
            Ok(())
        })
    });
    run(place_where_it_waits).expect_err("it is killed before");
}

#[inline(never)]
fn place_of_the_breakpoint() {
    black_box(std::process::id());
}

/// The line in it.
pub(crate) const BREAKPOINT: u32 = line!() - 4;

fn run_to_the_breakpoint() {
    let ended = run(|| {
        coracle_coro::spawn(place_of_the_breakpoint).join().unwrap();
        Ok(())
    });
    ended.unwrap();
}
