//! The end, and several places to listen.

use crate::client::{Dir, ask_on, get, serve_dir};
use crate::program::{PATIENCE, Program, coracle, eventually, pattern};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

pub(crate) fn q4_answer_under_way_is_finished(backend: &str) {
    let dir = Dir::with(&[("index.html", "ahoy")]);
    let bytes = pattern(32 << 20);
    dir.write("large.bin", &bytes);
    let server = serve_dir(backend, &dir, &["--drain", "60"]);
    let mut idle = server.connect();
    assert_eq!(ask_on(&mut idle, "/").text(), "ahoy");
    let mut stream = server.connect();
    stream.write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = vec![0; 1000];
    stream.read_exact(&mut answer).unwrap();
    server.signal(Signal::TERM);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "who waits for nothing is told at once");
    let address: SocketAddr = server.address.parse().unwrap();
    eventually("nobody is accepted", || TcpStream::connect(address).is_err());
    stream.read_to_end(&mut answer).unwrap();
    let begin = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(answer[begin..] == bytes, "{} bytes came", answer.len() - begin);
    drop((stream, idle)); // what it waits for
    let output = server.output();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("coracle serve: stopped\n"));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("stopping: 2 connections have up to 60s"), "{log}");
}

pub(crate) fn q1_several_listens(backend: &str) {
    let dir = Dir::with(&[("site/index.html", "ahoy")]);
    let socket = dir.file("socket");
    let unix = format!("unix:{}", socket.display());
    let over_unix = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nahoy"), "{answer}");
    };
    let site = dir.file("site");
    let mut command = coracle();
    command.args(["serve", site.to_str().unwrap(), "--backend", backend]);
    command.args(["--listen", "127.0.0.1:0", "--listen", &unix]);
    let server = Program::run(command);
    assert_eq!(get(&server, "/").text(), "ahoy");
    over_unix();
    let output = server.end();
    assert!(output.status.success());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains(&format!("coracle serve: listening on {unix}, on ")), "{told}");
    assert!(told.contains("curl --unix-socket"), "{told}");
    assert!(!socket.exists());

    // The same, from a file.
    dir.write(
        "coracle.toml",
        format!(
            "listen = [\"127.0.0.1:0\", {unix:?}]\nbackend = {backend:?}\nthreads = 1\n\
             [site]\ndirectory = \"site\"\n"
        ),
    );
    let mut command = coracle();
    command.args(["serve", "--config"]).arg(dir.file("coracle.toml"));
    let server = Program::run(command);
    assert_eq!(server.loops, "1 loop");
    assert_eq!(get(&server, "/").text(), "ahoy");
    over_unix();
    assert!(server.end().status.success());
}

#[test]
fn q1_nobody_has_to_read_what_it_says() {
    let dir = Dir::with(&[("index.html", "ahoy")]);
    let mut command = coracle();
    command.arg("serve").arg(dir.file("")).args(["--listen", "127.0.0.1:0"]);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    drop(said); // as `| head -1` does
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}
