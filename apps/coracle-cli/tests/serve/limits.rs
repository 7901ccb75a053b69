//! Limits of the process and of its clients.

use crate::client::{Dir, answer_of, ask, ask_on, command, get, serve, serve_dir};
use crate::program::{Program, eventually, under};
use std::io::{Read, Write};
use std::process::Command;

fn status_of_a_new_connection(server: &Program) -> u16 {
    let mut stream = server.connect();
    let mut bytes = Vec::new();
    // Who is turned away is told without having asked.
    std::io::Write::write_all(
        &mut stream,
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    )
    .unwrap();
    stream.read_to_end(&mut bytes).unwrap();
    answer_of(&bytes).status
}

pub(crate) fn q5_address_with_too_many_connections_is_turned_away(backend: &str) {
    let dir = Dir::with(&[("index.html", "ahoy")]);
    let server = serve_dir(backend, &dir, &["--limit-connections-per-address", "3"]);
    let mut streams: Vec<_> = (0..3).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(|stream| assert_eq!(ask_on(stream, "/").text(), "ahoy"));
    let mut refused = server.connect();
    let mut bytes = Vec::new();
    refused.read_to_end(&mut bytes).unwrap();
    let answer = answer_of(&bytes);
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")));
    assert!(answer.header("retry-after").is_some());
    // Those who are there go on, and a place that becomes free is given to another.
    assert_eq!(ask_on(&mut streams[0], "/").text(), "ahoy");
    streams.pop();
    eventually("there is room again", || status_of_a_new_connection(&server) == 200);
}

pub(crate) fn q5_limits_of_the_file_are_kept(backend: &str) {
    let dir = Dir::with(&[
        ("site/index.html", "ahoy"),
        (
            "coracle.toml",
            "[site]\ndirectory = \"site\"\n[limits]\nheader_bytes = 512\nheaders = 8\ntarget_bytes = 64\n\
             body_bytes = 10\nrequests_per_connection = 2\n",
        ),
    ]);
    let server = serve(backend, &["--config", dir.file("coracle.toml").to_str().unwrap()]);
    assert_eq!(ask(&server, "GET", "/", &format!("A: {}\r\n", "a".repeat(600))).status, 431);
    assert_eq!(ask(&server, "GET", "/", &"A: a\r\n".repeat(9)).status, 431);
    assert_eq!(get(&server, &format!("/{}", "a".repeat(100))).status, 414);
    assert_eq!(ask(&server, "POST", "/", "Content-Length: 11\r\n").status, 413);
    let mut stream = server.connect();
    assert_eq!(ask_on(&mut stream, "/").header("connection"), None);
    assert_eq!(ask_on(&mut stream, "/").header("connection"), Some("close"));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

pub(crate) fn j13_http2_is_spoken_unless_the_file_says_no(backend: &str) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let dir = Dir::with(&[
        ("index.html", "ahoy"),
        ("no.toml", "[http2]\nprior_knowledge = false\n"),
        ("yes.toml", "[http2]\nstreams = 7\n"),
    ]);
    let begin = |config: &str| {
        let server = serve(backend, &["--config", dir.file(config).to_str().unwrap()]);
        let mut stream = server.connect();
        stream.write_all(PREFACE).unwrap();
        let mut begin = [0; 15];
        stream.read_exact(&mut begin).unwrap();
        begin
    };
    assert!(begin("no.toml").starts_with(b"HTTP/1.1 505"));
    // Settings, of which the first is how many streams there may be.
    let settings = begin("yes.toml");
    assert_eq!((settings[3], &settings[9..]), (4, &[0, 3, 0, 0, 0, 7][..]));
}

pub(crate) fn q5_descriptor_limit_is_raised(backend: &str) {
    let dir = Dir::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 128; exec \"$@\"", "sh"]);
    let server = Program::run(under(shell, &command(backend, &[dir.path()])));
    let pid = server.pid().as_raw_nonzero();
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert!(numbers[0] != "128" || numbers[1] == "128", "{line}");
    // On select, there is no use for more than it can have.
    if backend != "select" {
        assert_eq!(numbers[0], numbers[1], "{line}");
    }
}

pub(crate) fn q5_no_privileges_can_be_gained(backend: &str) {
    let dir = Dir::new();
    let server = serve_dir(backend, &dir, &[]);
    let pid = server.pid().as_raw_nonzero();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
    }
}
