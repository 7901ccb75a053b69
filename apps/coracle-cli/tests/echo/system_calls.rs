//! What the program asks of the kernel, seen and disturbed by strace: nothing when idle, `EINTR` from any
//! call, io_uring denied.

use crate::program::{
    Kind, Program, coracle, echo, eventually, expect_echo, log_of, pattern, under,
};
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// strace, ready for its options and a program; `None` where it is not installed. Under continuous
/// integration (`CI` is set) its absence is a failure: what is skipped there is never tested anywhere.
fn strace() -> Option<Command> {
    let found =
        Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        let mut strace = Command::new("strace");
        // The tracer is a grandchild: the process we start, signal and await is the program itself.
        strace.args(["-D", "-f", "-q"]);
        return Some(strace);
    }
    assert!(std::env::var_os("CI").is_none(), "strace is not installed");
    eprintln!("SKIPPED: strace is not installed");
    None
}

/// Where strace puts its list.
fn list_file(what: &str, kind: Kind) -> PathBuf {
    std::env::temp_dir().join(format!("coracle-{what}-{}-{kind}", std::process::id()))
}

/// The list of a program that has ended.
fn take(list: &Path) -> String {
    let read = || std::fs::read_to_string(list).expect("strace has written it");
    // The tracer may be a little behind.
    eventually("strace has seen the end", || read().ends_with("+++ exited with 0 +++\n"));
    let lines = read();
    std::fs::remove_file(list).unwrap();
    lines
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

pub(crate) fn b4_idle_program_makes_no_system_call(kind: Kind) {
    let Some(mut strace) = strace() else { return };
    let list = list_file("idle", kind);
    strace.args(["-ttt", "-o"]).arg(&list);
    let server = Program::run(under(strace, &echo(kind)));
    // With connections that have talked, and are silent now.
    let mut streams: Vec<TcpStream> = (0..10).map(|_| server.connect()).collect();
    for stream in &mut streams {
        expect_echo(stream, b"hello");
    }
    thread::sleep(Duration::from_millis(500));
    let begin = now();
    thread::sleep(Duration::from_secs(1));
    let end = now();
    expect_echo(&mut streams[0], b"hello again");
    drop(streams); // or the server waits for them
    assert!(server.end().status.success());
    let lines = take(&list);
    let time =
        |line: &str| line.split_whitespace().nth(1).and_then(|time| time.parse::<f64>().ok());
    let during: Vec<&str> = (lines.lines())
        .filter(|line| time(line).is_some_and(|time| time > begin && time < end))
        .collect();
    assert!(during.is_empty(), "while nothing happened:\n{}", during.join("\n"));
    assert!(lines.lines().any(|line| time(line).is_some_and(|time| time > end)), "is it traced?");
}

pub(crate) fn a10_no_call_names_a_closed_descriptor(kind: Kind) {
    // Seed 000 closed first and deregistered after: EBADF each time, or the wrong connection.
    let Some(mut strace) = strace() else { return };
    let list = list_file("closed", kind);
    strace.arg("-o").arg(&list);
    let server = Program::run(under(strace, &echo(kind)));
    for round in 0..100u8 {
        let mut stream = server.connect();
        expect_echo(&mut stream, &[round; 5]);
        if round % 2 == 0 {
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap(); // a reset
        }
    }
    assert!(server.end().status.success());
    let lines = take(&list);
    let wrong: Vec<&str> = lines.lines().filter(|line| line.contains("EBADF")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub(crate) fn b8_interrupted_calls_change_nothing(kind: Kind) {
    let Some(mut strace) = strace() else { return };
    // Whatever the loop may call on any backend; each of them fails the third time and every third after. The
    // first reads are those of libraries by the dynamic loader, which does not expect it.
    let calls = "epoll_wait,epoll_pwait,epoll_pwait2,io_uring_enter,poll,ppoll,select,pselect6,\
                 accept,accept4,recvfrom,recvmsg,sendto,sendmsg,readv,write,writev";
    let list = list_file("interrupted", kind);
    strace.args(["-e", &format!("trace=read,{calls}"), "-o"]).arg(&list);
    strace.args(["-e", &format!("inject={calls}:error=EINTR:when=3+3")]);
    strace.args(["-e", "inject=read:error=EINTR:when=9+3"]);
    let server = Program::run(under(strace, &echo(kind)));
    let mut streams: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    for round in 0..10u8 {
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&[round, number as u8, 7]).unwrap();
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let mut echo = [0; 3];
            stream.read_exact(&mut echo).unwrap();
            assert_eq!(echo, [round, number as u8, 7]);
        }
    }
    drop(streams);
    expect_echo(&mut server.connect(), &pattern(200_000));
    let output = server.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(log_of(&output), "");
    let injected = take(&list).matches("(INJECTED)").count();
    assert!(injected > 10, "only {injected} calls were interrupted");
}

#[test]
fn a4_io_uring_denied_falls_back_with_one_line() {
    for (error, reason) in [("EPERM", "seccomp"), ("ENOSYS", "")] {
        let asked = echo(Kind { backend: "uring", ..Kind::EPOLL });
        let mut default = coracle();
        default.args(["echo", "--listen", "127.0.0.1:0"]);
        for program in [asked, default] {
            let Some(mut strace) = strace() else { return };
            strace.args(["-o", "/dev/null", "-e", "trace=io_uring_setup"]);
            strace.args(["-e", &format!("inject=io_uring_setup:error={error}")]);
            let server = Program::run(under(strace, &program));
            assert_eq!(server.backend, "epoll");
            expect_echo(&mut server.connect(), b"hello");
            let output = server.end();
            assert!(output.status.success());
            let log = log_of(&output);
            assert_eq!(log.lines().count(), 1, "{log}");
            let told = log.contains("cannot use io_uring: ") && log.contains("; using epoll");
            assert!(told && log.contains(reason), "{log}");
        }
    }
}
