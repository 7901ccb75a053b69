//! Serving, and everything that gets in the way of it.

use crate::program::{Kind, Program, coracle, echo, eventually, expect_echo, log_of, pattern};
use rustix::net::sockopt;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

// --- Talking -------------------------------------------------------------------------------------------

pub(crate) fn r1_small_messages_come_back(kind: Kind) {
    let server = Program::start(kind);
    let mut stream = server.connect();
    for message in [&b"a"[..], b"hello", b"\0binary\xff\n", &pattern(1000)] {
        expect_echo(&mut stream, message);
    }
}

pub(crate) fn three_megabytes_come_back(kind: Kind) {
    let server = Program::start(kind);
    let stream = server.connect();
    let bytes = pattern(3 << 20);
    let echo = thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut echo = Vec::new();
        (&stream).read_to_end(&mut echo).unwrap();
        echo
    });
    assert_eq!(echo.len(), bytes.len());
    assert!(echo == bytes, "the echo is not what was sent");
}

pub(crate) fn f13_half_close_is_answered_every_time(kind: Kind) {
    // Seed 000 lost 20 of 50 answers like this.
    let server = Program::start(kind);
    for round in 0..50u8 {
        let mut stream = server.connect();
        stream.write_all(&[round; 100]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut echo = Vec::new();
        stream.read_to_end(&mut echo).unwrap();
        assert_eq!(echo, [round; 100], "round {round}");
    }
}

pub(crate) fn two_hundred_connections_at_once(kind: Kind) {
    let server = Program::start(kind);
    let mut streams: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    for round in 0..3u8 {
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&[round, number as u8, 1, 2, 3]).unwrap();
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let mut echo = [0; 5];
            stream.read_exact(&mut echo).unwrap();
            assert_eq!(echo, [round, number as u8, 1, 2, 3]);
        }
    }
}

pub(crate) fn byte_at_a_time(kind: Kind) {
    let server = Program::start(kind);
    let mut stream = server.connect();
    for &byte in &pattern(500) {
        expect_echo(&mut stream, &[byte]);
    }
    // And without waiting for each.
    let bytes = pattern(500);
    for byte in &bytes {
        stream.write_all(std::slice::from_ref(byte)).unwrap();
    }
    let mut echo = vec![0; bytes.len()];
    stream.read_exact(&mut echo).unwrap();
    assert_eq!(echo, bytes);
}

pub(crate) fn unix_socket_by_path_and_by_name(kind: Kind) {
    let path = std::env::temp_dir().join(format!("coracle-{}-{kind}.sock", std::process::id()));
    let listen = format!("unix:{}", path.display());
    let mut command = coracle();
    command.args(["echo", "--listen", &listen]).args(kind.options());
    let server = Program::run(command);
    assert_eq!(server.address, listen);
    expect_echo(&mut UnixStream::connect(&path).unwrap(), b"by path");
    assert!(server.end().status.success());
    assert!(!path.exists(), "the next one could not listen there");

    let name = format!("coracle-{}-{kind}", std::process::id());
    let mut command = coracle();
    command.args(["echo", "--listen", &format!("unix:@{name}")]).args(kind.options());
    let server = Program::run(command);
    let address = UnixAddr::from_abstract_name(&name).unwrap();
    expect_echo(&mut UnixStream::connect_addr(&address).unwrap(), b"by name");
    assert!(server.end().status.success());
}

// --- Trouble -------------------------------------------------------------------------------------------

pub(crate) fn slow_reader_costs_bounded_memory(kind: Kind) {
    const TOTAL: usize = 64 << 20;
    let server = Program::start(kind);
    let mut stream = server.connect();
    // Sends as much as is taken, and reads nothing.
    let bytes = pattern(64 << 10);
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut full) = (0, 0);
    while sent < TOTAL && full < 50 {
        let start = sent % bytes.len();
        match stream.write(&bytes[start..]) {
            Ok(count) => {
                sent += count;
                full = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1; // it may only be slow: half a second without progress is a no
                thread::sleep(10 * MS);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(server.memory() < 64 << 20, "{} MiB after {sent} bytes", server.memory() >> 20);
    assert!(sent < TOTAL, "somebody keeps 64 MiB for who does not read them");
    // Others are served meanwhile, and what was taken comes back when it is wanted.
    expect_echo(&mut server.connect(), b"meanwhile");
    stream.set_nonblocking(false).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut echo = Vec::new();
    stream.read_to_end(&mut echo).unwrap();
    assert_eq!(echo.len(), sent);
    assert!(echo.iter().zip(bytes.iter().cycle()).all(|(a, b)| a == b), "out of order");
}

/// A server whose descriptors can be counted: with one loop, all it needs is there once somebody was served.
fn with_one_loop(kind: Kind) -> Program {
    let mut command = echo(kind);
    command.args(["--threads", "1"]);
    Program::run_on(kind, command)
}

pub(crate) fn reset_leaves_the_others_alone(kind: Kind) {
    let server = with_one_loop(kind);
    let mut witness = server.connect();
    expect_echo(&mut witness, b"before");
    let before = server.descriptors();
    for _ in 0..20 {
        let mut stream = server.connect();
        stream.write_all(&pattern(100_000)).unwrap_or_default();
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream); // a reset, with the echo under way
    }
    expect_echo(&mut witness, b"after");
    eventually("the connections that were reset are closed", || server.descriptors() <= before);
    expect_echo(&mut server.connect(), b"recycled descriptors start clean");
    drop(witness); // or the server waits for it
    assert!(server.end().status.success());
}

pub(crate) fn b8_stopped_and_continued_process_goes_on(kind: Kind) {
    let server = Program::start(kind);
    let mut stream = server.connect();
    for round in 0..5u8 {
        expect_echo(&mut stream, &[round; 10]);
        server.signal(Signal::STOP);
        stream.write_all(&[round; 20]).unwrap(); // while it cannot know
        thread::sleep(20 * MS);
        server.signal(Signal::CONT);
        let mut echo = [0; 20];
        stream.read_exact(&mut echo).unwrap();
        assert_eq!(echo, [round; 20]);
    }
    expect_echo(&mut server.connect(), b"a new one");
    drop(stream); // or the server waits for it
    let output = server.end();
    assert!(output.status.success());
}

pub(crate) fn f9_descriptors_run_out_without_a_spin_and_come_back(kind: Kind) {
    let mut program = echo(kind);
    program.args(["--threads", "2"]);
    let server = Program::run(program);
    // Fewer than its capacity was made for: what others in the process take, it cannot know of.
    let limit = rustix::process::Rlimit { current: Some(200), maximum: Some(200) };
    let nofile = rustix::process::Resource::Nofile;
    rustix::process::prlimit(Some(server.pid()), nofile, limit).expect("it is ours");
    let mut first = server.connect();
    expect_echo(&mut first, b"served");
    // Those that follow are served while there is room; the others wait to be turned away, one by one.
    let others: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    eventually("there is no descriptor left", || server.descriptors() >= 198);
    let (start, before) = (Instant::now(), server.processor_time());
    thread::sleep(1000 * MS);
    let (passed, used) = (start.elapsed(), server.processor_time() - before);
    assert!(used < passed / 5, "it spins: {used:?} of {passed:?}");
    expect_echo(&mut first, b"still served");
    if kind.backend == "uring" && server.descriptors() > 200 {
        // The kernel notes the limit when an accept is armed: this one was, a moment before the limit was lowered.
        return println!("all are served: the limit that counts is the one before");
    }
    drop(others);
    // As soon as there is room, whoever comes is served.
    eventually("a new one is served", || {
        let mut stream = server.connect();
        let sent = stream.write_all(b"new");
        sent.is_ok() && stream.read_exact(&mut [0; 3]).is_ok()
    });
    expect_echo(&mut first, b"served to the end");
    drop(first);
    let output = server.end();
    assert!(output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("cannot accept") && log.contains("Too many open files"), "{log}");
    assert!(log.lines().count() <= 20 * (passed.as_secs() as usize + 2), "a flood:\n{log}");
}

pub(crate) fn descriptors_are_given_back(kind: Kind) {
    let server = with_one_loop(kind);
    let mut warm = server.connect();
    expect_echo(&mut warm, b"warm");
    let before = server.descriptors() - 1;
    drop(warm);
    for round in 0..500u32 {
        let mut stream = server.connect();
        if round % 3 > 0 {
            expect_echo(&mut stream, &round.to_ne_bytes());
        }
        if round % 3 == 1 {
            stream.shutdown(Shutdown::Write).unwrap();
        }
    }
    eventually("all are closed", || server.descriptors() <= before);
}

pub(crate) fn d2_request_to_end_is_honoured(kind: Kind) {
    for signal in [Signal::TERM, Signal::INT] {
        let server = Program::start(kind);
        let mut stream = server.connect();
        expect_echo(&mut stream, b"hello");
        server.signal(signal);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "our side is ended in order");
        drop(stream); // what it waits for
        let output = server.output();
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.lines().last(), Some("coracle echo: stopped"));
        assert_eq!(log_of(&output), "");
    }
}

pub(crate) fn d2_peer_that_stays_is_left_when_its_time_is_up(kind: Kind) {
    let mut command = echo(kind);
    command.args(["--drain", "1"]);
    let server = Program::run_on(kind, command);
    let mut stream = server.connect();
    expect_echo(&mut stream, b"hello");
    let output = server.end(); // with the connection open
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection has ended");
}

pub(crate) fn d2_request_at_the_first_moment_is_honoured(kind: Kind) {
    // As soon as it says where it listens it can be asked to end.
    for _ in 0..10 {
        let output = Program::start(kind).end();
        assert_eq!(output.status.code(), Some(0), "{:?}", output.status);
    }
}

/// SIGQUIT ends nothing: it is answered, on standard error, by every loop.
pub(crate) fn s49_sigquit_writes_what_the_loops_do(kind: Kind) {
    let mut command = echo(kind);
    command.args(["--threads", "2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the program starts");
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap(); // it listens
    let mut errors = process.stderr.take().unwrap();
    let written = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&written);
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = errors.read(&mut piece) {
            collected.lock().unwrap().extend_from_slice(&piece[..count]);
        }
    });
    // The two, and, in callbacks, the one that listens for signals.
    let loops = if kind.style == "callback" { 3 } else { 2 };
    let is_loop = |line: &&str| {
        let has_some = !line.contains("coroutines 0");
        line.starts_with("loop of thread ")
            && has_some == ["coroutine", "hook"].contains(&kind.style)
    };
    let header = format!("coracle, process {}:\n", process.id());
    for _ in 0..2 {
        written.lock().unwrap().clear();
        // Asked again and again: what starts its loops may itself be among the first that are seen.
        eventually("every loop is in one answer", || {
            kill_process(Pid::from_child(&process), Signal::QUIT).unwrap();
            let text = String::from_utf8_lossy(&written.lock().unwrap()).into_owned();
            text.split(&header).any(|answer| answer.lines().filter(is_loop).count() == loops)
        });
    }
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
}

pub(crate) fn d2_stop_with_an_echo_under_way_is_no_reset(kind: Kind) {
    let server = Program::start(kind);
    let mut stream = server.connect();
    // More than all buffers on the way have room for: it waits for us to read.
    let bytes = pattern(64 << 10);
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut full) = (0, 0);
    while full < 10 {
        match stream.write(&bytes[sent % bytes.len()..]) {
            Ok(count) => (sent, full) = (sent + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1;
                thread::sleep(10 * MS);
            }
            Err(error) => panic!("{error}"),
        }
    }
    server.signal(Signal::TERM);
    eventually("nobody is accepted any more", || TcpStream::connect(&server.address).is_err());
    stream.set_nonblocking(false).unwrap();
    let mut echo = Vec::new();
    stream.read_to_end(&mut echo).expect("an end, not a reset");
    assert!(!echo.is_empty() && echo.len() <= sent, "{} of {sent}", echo.len());
    assert!(echo.iter().zip(bytes.iter().cycle()).all(|(a, b)| a == b), "out of order");
    drop(stream);
    assert_eq!(server.output().status.code(), Some(0));
}

pub(crate) fn d2_second_request_ends_it_at_once(kind: Kind) {
    let server = Program::start(kind);
    let mut stream = server.connect();
    expect_echo(&mut stream, b"hello");
    server.signal(Signal::TERM);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it waits for us to end, too");
    server.signal(Signal::INT);
    assert_eq!(server.output().status.code(), Some(128 + Signal::INT.as_raw()));
}
