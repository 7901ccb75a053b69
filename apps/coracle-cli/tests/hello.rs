//! `coracle hello` as a black box: on every backend, in every style, to curl and to plain sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// No case takes longer than this, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test; killed when dropped.
struct Hello {
    child: Child,
    address: String,
    /// It has more to say.
    _output: BufReader<ChildStdout>,
}

impl Hello {
    fn start(arguments: &[&str]) -> Hello {
        let mut child = Command::new(env!("CARGO_BIN_EXE_coracle"))
            .args(["hello", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("it was piped"));
        output.read_line(&mut line).expect("it says where it listens");
        let address = line.split("listening on ").nth(1).and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Hello { child, address, _output: output }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream
    }

    /// Sends a request that ends the connection, and gives the whole answer.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer, and the end");
        answer
    }

    /// Asks it to end, and waits until it has.
    fn stop(mut self) {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return assert!(status.success(), "{status}");
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Hello {
    /// The memory that is its alone, in bytes.
    fn private_bytes(&self) -> usize {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("a size");
        number.trim().parse::<usize>().expect("a number") << 10
    }
}

impl Drop for Hello {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn r2_hello_says_thirteen_bytes_on_every_backend_in_every_style() {
    for backend in ["uring", "epoll", "poll", "select"] {
        for style in ["coroutine", "callback", "async"] {
            let hello = Hello::start(&["--backend", backend, "--style", style, "--threads", "2"]);
            let answer = hello.ask("GET / HTTP/1.0\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{backend} {style}: {answer}");
            assert!(answer.contains("\r\ncontent-length: 13\r\n"), "{backend} {style}: {answer}");
            assert!(answer.ends_with("\r\n\r\nHello, World!"), "{backend} {style}: {answer}");
            let five = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(4)
                + "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            assert_eq!(hello.ask(&five).matches("Hello, World!").count(), 5, "{backend} {style}");
            let head = hello.ask("HEAD / HTTP/1.0\r\n\r\n");
            assert!(head.ends_with("\r\n\r\n") && head.contains("content-length: 13"), "{head}");
            assert!(
                hello.ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 Bad Request\r\n")
            );
            hello.stop();
        }
    }
}

/// What `ab` does without `-k`, which the seeds' server needed four seconds for.
#[test]
fn j1_old_clients_do_not_wait() {
    let hello = Hello::start(&[]);
    let begin = Instant::now();
    for _ in 0..100 {
        assert!(hello.ask("GET / HTTP/1.0\r\n\r\n").ends_with("Hello, World!"));
    }
    // Far more than it takes, and far less than a hundred idle times.
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    hello.stop();
}

#[test]
fn j1_curl_is_content() {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "curl is missing");
        return;
    }
    let hello = Hello::start(&[]);
    let url = format!("http://{}/", hello.address);
    let body = "x".repeat(500_000);
    let file = std::env::temp_dir().join(format!("coracle-hello-{}", std::process::id()));
    std::fs::write(&file, &body).expect("a file");
    let upload = format!("@{}", file.display());
    for arguments in [
        vec!["--http1.0", &url],
        vec!["--http1.1", &url],
        vec!["--http1.1", &url, &url, &url],
        vec!["--data-binary", &upload, &url], // curl expects 100 Continue
        vec!["-H", "Transfer-Encoding: chunked", "--data-binary", &upload, &url],
        vec!["-X", "DELETE", &url],
    ] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "30"]).args(&arguments);
        let output = curl.output().expect("curl runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let answers = arguments.iter().filter(|argument| **argument == url).count();
        assert_eq!(text, "Hello, World!".repeat(answers), "{arguments:?}");
    }
    std::fs::remove_file(&file).expect("it was there");
    hello.stop();
}

/// Asks on a connection that stays.
fn ask_on(stream: &mut TcpStream) {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(REQUEST).expect("it is sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"Hello, World!") {
        let mut space = [0; 512];
        let count = stream.read(&mut space).expect("an answer");
        assert_ne!(count, 0, "it has closed the connection");
        answer.extend_from_slice(&space[..count]);
    }
}

#[test]
fn q5_no_privileges_can_be_gained_and_no_core_files_are_written() {
    // Else there may be none only because there were none before.
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Core);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Core, limit).unwrap();
    for backend in ["uring", "epoll", "poll", "select"] {
        let hello = Hello::start(&["--backend", backend, "--threads", "2"]);
        let pid = hello.child.id();
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            assert!(status.contains("\nNoNewPrivs:\t1\n"), "{backend}: {status}");
        }
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
        assert_eq!(core.unwrap().split_whitespace().next(), Some("0"), "{backend}: {limits}");
    }
}

/// What a connection costs that has asked something and is silent now: its structs, and no stack and no buffer.
/// How much that is to the byte is for a benchmark, on a machine that does nothing else (`bench w8`).
#[test]
fn t6_idle_connection_holds_its_structs_only() {
    const CONNECTIONS: usize = 3000;
    const BATCHES: usize = 5;
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    if limit.maximum.is_some_and(|maximum| maximum < CONNECTIONS as u64 + 200) {
        assert!(std::env::var_os("CI").is_none(), "too few descriptors: {:?}", limit.maximum);
        return println!("left out: there may be {:?} descriptors only", limit.maximum);
    }
    for backend in ["uring", "epoll"] {
        for style in ["coroutine", "callback"] {
            let hello = Hello::start(&["--backend", backend, "--style", style, "--threads", "1"]);
            // What the first ones need is for all: buffers of the loop, a stack, a page of the date.
            let mut first = hello.connect();
            (0..600).for_each(|_| ask_on(&mut first));
            // What the program does beside, at its start for example, is in one of the batches.
            let mut all = Vec::new();
            let mut batches: Vec<f64> = (0..BATCHES)
                .map(|_| {
                    let before = hello.private_bytes();
                    for _ in 0..CONNECTIONS / BATCHES {
                        let mut stream = hello.connect();
                        ask_on(&mut stream);
                        all.push(stream);
                    }
                    let grown = hello.private_bytes() as f64 - before as f64;
                    grown / (CONNECTIONS / BATCHES) as f64
                })
                .collect();
            drop(all);
            batches.sort_by(f64::total_cmp);
            let each = batches[BATCHES / 2];
            println!("{backend} {style}: {each:.0} bytes");
            assert!(each <= 1000.0, "{backend} {style}: {each:.0} bytes a connection");
            assert!(each > 100.0, "{backend} {style}: that is not measured: {each:.0} bytes");
        }
    }
}
