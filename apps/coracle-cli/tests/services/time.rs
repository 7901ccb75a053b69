//! `coracle time`: its answers, its port, and its life as a daemon.

use crate::program::{Kind, Program, coracle, eventually, pattern, service};
use chrono::{DateTime, Local, NaiveDateTime, TimeZone};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

/// `[2026-11-15 20:15:00]server reply: `
const HEADER_BYTES: usize = 35;

/// Reads the time in front of an answer; `None` if that is not what is there.
fn time_of(answer: &[u8]) -> Option<DateTime<Local>> {
    let text = std::str::from_utf8(answer.get(..HEADER_BYTES)?).ok()?;
    let time = text.strip_prefix('[')?.strip_suffix("]server reply: ")?;
    let time = NaiveDateTime::parse_from_str(time, "%Y-%m-%d %H:%M:%S").ok()?;
    Local.from_local_datetime(&time).latest()
}

/// Sends a message, and wants the time and the message.
fn expect_answer(stream: &mut (impl Read + Write), message: &[u8]) {
    let before = Local::now().timestamp();
    stream.write_all(message).unwrap();
    let mut answer = vec![0; HEADER_BYTES + message.len()];
    stream.read_exact(&mut answer).unwrap();
    let after = Local::now().timestamp();
    let text = answer.escape_ascii().to_string();
    let time = time_of(&answer).unwrap_or_else(|| panic!("{text}")).timestamp();
    assert!((before..=after).contains(&time), "{before} to {after}: {text}");
    assert!(&answer[HEADER_BYTES..] == message, "{text}");
}

pub(crate) fn r1_answer_is_the_time_and_the_message(kind: Kind) {
    let server = Program::run_on(kind, service("time", kind));
    let mut stream = server.connect();
    expect_answer(&mut stream, b"hello");
    expect_answer(&mut stream, b"and again\n");
    expect_answer(&mut server.connect(), b"another one");
    drop(stream);
    let output = server.end();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("coracle time: stopped\n"));
}

pub(crate) fn zero_bytes_survive(kind: Kind) {
    let server = Program::run_on(kind, service("time", kind));
    expect_answer(&mut server.connect(), b"\0a\0\0b\0");
}

pub(crate) fn hundred_kilobytes_survive(kind: Kind) {
    let server = Program::run_on(kind, service("time", kind));
    let stream = server.connect();
    // Without a '[', so that what is in front of each part can be told from the message.
    let message: Vec<u8> = pattern(100_000).iter().map(|byte| byte & 0x1f).collect();
    let answer = thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&message).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut answer = Vec::new();
        (&stream).read_to_end(&mut answer).unwrap();
        answer
    });
    // A long message may be answered in parts, each with the time in front of it.
    let (mut rest, mut parts, mut came) = (&answer[..], 0, Vec::new());
    while !rest.is_empty() {
        assert!(time_of(rest).is_some(), "part {parts} does not begin with the time");
        let body = &rest[HEADER_BYTES..];
        let end = body.iter().position(|&byte| byte == b'[').unwrap_or(body.len());
        came.extend_from_slice(&body[..end]);
        rest = &body[end..];
        parts += 1;
    }
    assert!(came == message, "{} bytes in {parts} parts", came.len());
}

#[test]
fn port_is_one_of_every_interface() {
    let mut command = coracle();
    command.args(["time", "-p", "0"]);
    let server = Program::run(command);
    let (host, port) = server.address.rsplit_once(':').unwrap();
    assert!(["[::]", "0.0.0.0"].contains(&host), "{host}");
    assert_ne!(port, "0");
    let stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}"));
    expect_answer(&mut stream.unwrap(), b"over IPv4");
    if host == "[::]" {
        let stream = std::net::TcpStream::connect(format!("[::1]:{port}"));
        expect_answer(&mut stream.unwrap(), b"over IPv6");
    }
}

// --- The daemon ----------------------------------------------------------------------------------------

/// A directory of one test, with what a daemon in it would leave behind if the test fails.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn pid(&self) -> Option<i32> {
        std::fs::read_to_string(self.0.join("pid")).ok()?.strip_suffix('\n')?.parse().ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = self.pid().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The fields of a process behind its name: its state, its parent, its group, its session, its terminal, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

#[test]
fn daemon_detaches_serves_and_cleans_up() {
    let place = Place::new("daemon");
    let started = coracle()
        .args(["time", "-d", "--listen", "unix:socket", "--pid-file", "pid"])
        .current_dir(&place.0) // relative paths stay where they were, though the daemon leaves
        .output()
        .unwrap();
    assert_eq!(started.status.code(), Some(0), "{started:?}");
    eventually("the file has the process id", || place.pid().is_some());
    let pid = place.pid().unwrap();
    let socket = place.0.join("socket");
    expect_answer(&mut UnixStream::connect(&socket).unwrap(), b"to the daemon");

    let fields = stat(pid).expect("it runs");
    let ours = stat(std::process::id() as i32).unwrap();
    assert_ne!(fields[3], ours[3], "it has left our session");
    assert_ne!(fields[3], pid.to_string(), "and leads none, so it cannot get a terminal");
    assert_eq!(fields[4], "0", "it has no terminal");
    let link = |name: &str| std::fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(link("cwd"), Path::new("/"));
    for stream in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(stream), Path::new("/dev/null"));
    }

    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    // Whoever inherited it may leave it unburied.
    eventually("it has ended", || stat(pid).is_none_or(|fields| fields[0] == "Z"));
    assert!(!place.0.join("pid").exists(), "its file is removed");
    assert!(!socket.exists(), "and its socket");
}

#[test]
fn daemon_that_cannot_start_says_so_before_it_detaches() {
    let place = Place::new("no-daemon");
    let socket = format!("unix:{}", place.0.join("socket").display());
    let refused = |arguments: &[&str], cause: &str| {
        let output = coracle().args(["time", "-d"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("coracle: cannot") && text.contains(cause), "{text}");
    };
    let missing = place.0.join("missing/pid");
    let missing = missing.to_str().unwrap();
    refused(&["--listen", &socket, "--pid-file", missing], missing);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["--listen", &address], &address);
}

#[test]
fn reader_of_times_knows_what_is_none() {
    assert!(time_of(b"[2026-11-15 20:15:00]server reply: x").is_some());
    assert!(time_of(b"[2026-13-15 20:15:00]server reply: x").is_none());
    assert!(time_of(b"[2026-11-15 20:15:00]Server reply: x").is_none());
    assert!(time_of(b"hello").is_none());
}
