//! `coracle load`: what it counts, and what it finds wrong.

use crate::program::{Kind, Program, coracle, service};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Runs it to its end.
fn load(address: &str, arguments: &[&str]) -> Output {
    coracle().args(["load", "--connect", address]).args(arguments).output().unwrap()
}

/// What it reports, as JSON, when nothing is wrong.
fn report(address: &str, arguments: &[&str]) -> Json {
    let output = load(address, &[arguments, &["--json"]].concat());
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{log}{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(log, "", "no progress without a terminal, no complaint");
    Json(String::from_utf8(output.stdout).unwrap())
}

/// What it reports when something is.
fn complaint(address: &str, arguments: &[&str]) -> (String, String) {
    let output = load(address, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (report, log) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{report}{log}");
    (report, log)
}

/// One line of JSON, and only what is needed of it.
struct Json(String);

impl Json {
    /// What is behind a name.
    fn value(&self, name: &str) -> &str {
        let (_, rest) = self.0.split_once(&format!("\"{name}\":")).unwrap_or_else(|| {
            panic!("there is no {name} in {}", self.0);
        });
        let end = if rest.starts_with('{') {
            rest.find('}').map(|at| at + 1)
        } else {
            rest.find([',', '}'])
        };
        &rest[..end.unwrap()]
    }

    fn number(&self, name: &str) -> f64 {
        self.value(name).parse().unwrap_or_else(|_| panic!("{name} in {}", self.0))
    }

    fn expect_no_errors(&self) {
        for name in ["wrong", "missing", "lost"] {
            assert_eq!(self.value(name), "0", "{}", self.0);
        }
        assert_eq!((self.value("errors"), self.value("connect_failures")), ("{}", "{}"));
    }
}

/// A server of the test's own, which does with each connection what `serve` says.
fn server(serve: impl Fn(TcpStream) + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Echoes until the end; each piece is given to `change` first, with the position of its first byte.
fn echo(mut stream: TcpStream, mut change: impl FnMut(usize, &mut Vec<u8>)) {
    let (mut buffer, mut position) = ([0; 4096], 0);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut piece = buffer[..count].to_vec();
        change(position, &mut piece);
        position += count;
        if stream.write_all(&piece).is_err() {
            return;
        }
    }
}

// --- On every backend ----------------------------------------------------------------------------------

pub(crate) fn r4_every_message_comes_back(kind: Kind) {
    let server = Program::start(kind);
    for threads in ["1", "2"] {
        let json = report(
            &server.address,
            &[
                "--connections",
                "7",
                "--seconds",
                "1",
                "--threads",
                threads,
                "--backend",
                kind.backend,
            ],
        );
        json.expect_no_errors();
        assert_eq!(json.value("backend"), format!("\"{}\"", kind.backend));
        for (name, value) in [("loops", threads), ("opened", "7"), ("open_at_end", "7")] {
            assert_eq!(json.value(name), value, "{name}");
        }
        assert!(json.number("messages") >= 7.0, "{}", json.0);
        assert!(json.number("messages_per_second") > 0.0, "{}", json.0);
        let latencies = ["min", "p50", "p90", "p99", "p99.9", "max"].map(|name| {
            json.0.split_once(&format!("\"{name}\":")).unwrap().1.split([',', '}']).next().unwrap()
        });
        let latencies = latencies.map(|latency| latency.parse::<u64>().unwrap());
        assert!(latencies[0] > 0 && latencies.is_sorted(), "{latencies:?}");
    }
}

pub(crate) fn r4_rate_is_kept(kind: Kind) {
    let server = Program::start(kind);
    let rate = ["--rate", "500", "--connections", "3", "--seconds", "1", "--threads", "2"];
    let json = report(&server.address, &[&rate[..], &["--backend", kind.backend]].concat());
    json.expect_no_errors();
    // One second of 500 a second: those that could not be sent on a busy machine are counted, too.
    assert_eq!(json.number("messages") + json.number("unsent"), 500.0, "{}", json.0);
}

pub(crate) fn r4_idle_connections_are_held(kind: Kind) {
    let server = Program::start(kind);
    let options = ["--idle", "--connections", "300", "--seconds", "1", "--backend", kind.backend];
    let json = report(&server.address, &options);
    json.expect_no_errors();
    for (name, value) in
        [("opened", "300"), ("open_at_end", "300"), ("messages", "0"), ("message_bytes", "null")]
    {
        assert_eq!(json.value(name), value, "{name}");
    }
}

pub(crate) fn large_messages_come_back(kind: Kind) {
    // More than all buffers on the way have room for: who does not read while it writes would hang.
    let server = Program::start(kind);
    let options = ["--bytes", "16000000", "--connections", "2", "--seconds", "1"];
    let json = report(&server.address, &[&options[..], &["--backend", kind.backend]].concat());
    json.expect_no_errors();
    assert!(json.number("messages") >= 2.0, "{}", json.0);
}

pub(crate) fn wrong_server_is_found_out(kind: Kind) {
    let server = Program::run_on(kind, service("time", kind));
    let options = ["--connections", "3", "--seconds", "1", "--backend", kind.backend];
    let (report, log) = complaint(&server.address, &options);
    assert!(report.contains("3 × wrong answer; the first: connection "), "{report}");
    assert!(report.contains("byte 0 of answer 0 is 0x5b, sent was 0x"), "{report}");
    assert!(log.contains("3 wrong answer(s)"), "{log}");
}

// --- Once ----------------------------------------------------------------------------------------------

#[test]
fn report_for_people_has_it_all() {
    let server = Program::start(Kind::EPOLL);
    let output = load(&server.address, &["--seconds", "1", "--connections", "2"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        &server.address,
        "2 of 2 opened in ",
        "2 open at the end",
        "of 64 bytes",
        " per second",
        "min ",
        "p50 ",
        "p90 ",
        "p99 ",
        "p99.9 ",
        "max ",
        "errors:      none",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn one_wrong_byte_is_found_with_its_place() {
    let address = server(|stream| {
        echo(stream, |position, piece| {
            if let Some(byte) = 1000usize.checked_sub(position).and_then(|at| piece.get_mut(at)) {
                *byte ^= 1;
            }
        });
    });
    let (report, log) = complaint(&address.to_string(), &["--connections", "1", "--seconds", "5"]);
    let place = "1 × wrong answer; the first: connection 0 (127.0.0.1:";
    assert!(report.contains(place), "{report}");
    assert!(report.contains("byte 40 of answer 15 is 0x"), "1000 = 15 × 64 + 40: {report}");
    assert!(log.contains("the server did not echo: 1 wrong answer(s)"), "{log}");
}

#[test]
fn more_than_was_sent_is_wrong() {
    let address = server(|stream| echo(stream, |_, piece| piece.push(b'!')));
    let (report, _) = complaint(&address.to_string(), &["--connections", "1", "--seconds", "5"]);
    assert!(report.contains("is 0x21, but no such message was sent"), "{report}");
}

#[test]
fn answers_that_do_not_come_are_missing() {
    let server = Program::run(service("discard", Kind::EPOLL));
    let (report, log) = complaint(&server.address, &["--connections", "4", "--seconds", "1"]);
    assert!(report.contains("4 × missing answer; the first: connection "), "{report}");
    assert!(log.contains("4 missing answer(s)"), "{log}");
}

#[test]
fn connections_that_are_closed_are_lost() {
    let address = server(|mut stream| drop(stream.read(&mut [0; 64]))).to_string();
    let (report, log) = complaint(&address, &["--connections", "3", "--seconds", "60"]);
    assert!(report.contains("3 of 3 opened") && report.contains("0 open at the end"), "{report}");
    assert!(log.contains("3 missing answer(s), 3 connection(s) lost"), "{log}");

    let address = server(drop).to_string();
    let (report, log) = complaint(&address, &["--idle", "--connections", "3", "--seconds", "60"]);
    assert!(report.contains("3 × closed by the server"), "{report}");
    assert!(log.contains("3 connection(s) lost") && !log.contains("missing"), "{log}");
}

#[test]
fn nobody_there_is_told_by_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let options = ["--connections", "3", "--seconds", "60"];
    let (report, log) = complaint(&address.to_string(), &options);
    assert!(report.contains("connect failures: 3"), "{report}");
    let cause = format!("cannot connect to {address}: connection refused (1 attempt)");
    assert!(report.contains(&format!("3 × {cause}")), "{report}");
    assert!(!report.contains("errors:"), "{report}");
    assert!(log.contains(&format!("nothing could be connected: {cause}")), "{log}");
}

#[test]
fn servers_of_others_are_left_alone() {
    // 192.0.2.0/24 and 2001:db8::/32 are nobody's (RFC 5737, RFC 3849).
    for far in ["192.0.2.1:7", "[2001:db8::1]:7"] {
        let (report, log) = complaint(far, &[]);
        assert_eq!(report, "");
        assert!(log.contains(far) && log.contains("--anywhere"), "{log}");
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for wrong in [
        &["--connections", "0"][..],
        &["--seconds", "0"],
        &["--seconds", "3601"],
        &["--bytes", "0"],
        &["--rate", "0"],
        &["--idle", "--rate", "5"],
        &["--idle", "--bytes", "5"],
    ] {
        let output = load("127.0.0.1:1", wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(wrong[0]), "{wrong:?}");
    }
}

#[test]
fn too_few_descriptors_are_told_before_the_first_connection() {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -n 100; exec \"$@\"", "sh"]);
    let mut program = coracle();
    program.args(["load", "--connect", "127.0.0.1:1", "--connections", "1000"]);
    let output = crate::program::under(shell, &program).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        log.contains("1000 connections need 1064 descriptors") && log.contains("ulimit"),
        "{log}"
    );
}

#[test]
fn latency_counts_from_when_a_message_was_due() {
    // A server that stops for half a second: with a hundred messages a second, fifty of a hundred are late for it.
    // Who waits for each answer before it sends the next would see only one.
    const STOP: Duration = Duration::from_millis(500);
    let address = server(|stream| {
        echo(stream, |position, _| {
            if position == 0 {
                thread::sleep(STOP);
            }
        });
    });
    let options = ["--rate", "100", "--connections", "1", "--seconds", "1"];
    let json = report(&address.to_string(), &options);
    json.expect_no_errors();
    let latency = |name: &str| {
        let text = json.0.split_once(&format!("\"{name}\":")).unwrap().1;
        Duration::from_nanos(text.split([',', '}']).next().unwrap().parse().unwrap())
    };
    assert!(latency("max") >= STOP, "{}", json.0);
    assert!(latency("p90") >= STOP / 2, "{}", json.0);
}

#[test]
fn interrupt_ends_it_with_the_report() {
    let (told, hear) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        echo(stream, |_, _| told.send(()).unwrap_or_default());
    });
    let process = coracle()
        .args(["load", "--connect", &address, "--connections", "1", "--seconds", "600", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    hear.recv().unwrap(); // it is under way
    kill_process(Pid::from_raw(process.id() as i32).unwrap(), Signal::INT).unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let json = Json(String::from_utf8(output.stdout).unwrap());
    json.expect_no_errors();
    assert!(json.number("messages") >= 1.0, "{}", json.0);
}
