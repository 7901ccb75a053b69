//! The other side: directories to serve, requests byte by byte, and answers taken apart.

use crate::program::{PATIENCE, Program, coracle};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of its own for a test, which goes with it.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("coracle-serve-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    /// With these files in it.
    pub(crate) fn with(files: &[(&str, &str)]) -> Dir {
        let dir = Dir::new();
        files.iter().for_each(|(name, text)| dir.write(name, text));
        dir
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `coracle serve` on a free port of this backend, with these arguments.
pub(crate) fn serve<A: AsRef<std::ffi::OsStr>>(backend: &str, arguments: &[A]) -> Program {
    let program = Program::run(command(backend, arguments));
    assert_eq!(program.backend, if backend == "uring" { "io_uring" } else { backend });
    program
}

pub(crate) fn command<A: AsRef<std::ffi::OsStr>>(backend: &str, arguments: &[A]) -> Command {
    let mut command = coracle();
    command.args(["serve", "--listen", "127.0.0.1:0", "--backend", backend, "--threads", "2"]);
    command.args(arguments);
    command
}

/// It serves this directory, with these options behind it.
pub(crate) fn serve_dir(backend: &str, dir: &Dir, options: &[&str]) -> Program {
    let mut arguments = vec![dir.path().to_str().unwrap()];
    arguments.extend(options);
    serve(backend, &arguments)
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }
}

/// Sends these bytes on a connection of their own, and takes what comes until its end.
pub(crate) fn raw(program: &Program, bytes: &[u8]) -> Vec<u8> {
    let mut stream = program.connect();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// Asks by this method for this path, with these further fields, on a connection of its own.
pub(crate) fn ask(program: &Program, method: &str, target: &str, fields: &str) -> Answer {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    answer_of(&raw(program, request.as_bytes()))
}

pub(crate) fn get(program: &Program, target: &str) -> Answer {
    ask(program, "GET", target, "")
}

/// Takes an answer apart that ends with the connection; its length must be what it says.
pub(crate) fn answer_of(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {:?}", bytes.escape_ascii().to_string()));
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a head is text");
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}

/// Asks on a connection that stays.
pub(crate) fn ask_on(stream: &mut TcpStream, target: &str) -> Answer {
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    read_answer(stream)
}

/// Reads an answer whose length is told.
pub(crate) fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        bytes.push(byte[0]);
    }
    let mut answer = answer_of(&bytes);
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body).expect("a body");
    answer
}

/// Waits until asking for it gives this text.
pub(crate) fn await_text(program: &Program, target: &str, text: &str) {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let answer = get(program, target);
        if answer.body == text.as_bytes() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "never {text:?}: {answer:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
