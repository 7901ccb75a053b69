//! A server on the loop under test, and a client in plain blocking code on a thread of its own.

use crate::harness::Harness;
use coracle_http::{App, Service, Settings};
use coracle_net::Listener;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An answer, taken apart by rules that are as simple as can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether its end was seen.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// Takes apart what came on a connection until its end.
    pub(crate) fn of(bytes: &[u8]) -> Answer {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
        let mut answer = Answer {
            status: head.strip_prefix("HTTP/1.1 ").expect("a status line")[..3].parse().unwrap(),
            head,
            body: Vec::new(),
            whole: false,
        };
        let mut rest = &bytes[end + 4..];
        if answer.header("transfer-encoding") != Some("chunked") {
            answer.body = rest.to_vec();
            let length = answer.header("content-length").map(|length| length.parse().unwrap());
            answer.whole = length.is_none_or(|length: usize| length == rest.len());
            return answer;
        }
        while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
            let size = std::str::from_utf8(&rest[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).expect("a size");
            answer.whole = size == 0;
            let Some(chunk) = rest.get(end + 2..end + 2 + size) else { break };
            answer.body.extend_from_slice(chunk);
            rest = rest.get(end + 4 + size..).unwrap_or_default();
        }
        answer
    }
}

/// What was written to the log.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<u8>>>);

impl Journal {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Journal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves an app until the client is through; what the log has got by then, at least.
pub(crate) fn serve<T: Send + 'static>(
    h: &Harness,
    app: impl App,
    client: impl FnOnce(SocketAddr, &Journal) -> T + Send + 'static,
) -> T {
    let service = Service::new(app, Settings::default()).expect("the settings make sense");
    let (any, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
    let listener = Listener::bind(&h.lp, &any, settings, move |peer| service.connection(peer));
    let listener = listener.expect("it listens");
    let address = listener.local_address(&h.lp).unwrap().ip().unwrap();
    let (journal, handle) = (Journal::default(), h.lp.handle());
    let thread = std::thread::spawn({
        let journal = journal.clone();
        move || {
            let result = catch_unwind(AssertUnwindSafe(|| client(address, &journal)));
            handle.stop();
            result
        }
    });
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || journal.clone());
    tracing::subscriber::with_default(subscriber.finish(), || h.lp.run().expect("the loop runs"));
    listener.close(&h.lp);
    thread.join().unwrap().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Sends all of a request, and takes all of the answer.
pub(crate) fn talk(address: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut stream = connect(address);
    stream.write_all(request.as_ref()).expect("it is sent");
    rest(stream)
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(240))).unwrap();
    stream
}

/// What comes until the end, however it comes to it.
pub(crate) fn rest(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    Answer::of(&bytes)
}

pub(crate) fn get(address: SocketAddr, target: &str) -> Answer {
    ask(address, "GET", target, "")
}

/// A request without a body, with more fields.
pub(crate) fn ask(address: SocketAddr, method: &str, target: &str, fields: &str) -> Answer {
    talk(
        address,
        format!("{method} {target} HTTP/1.1\r\nHost: a:81\r\nConnection: close\r\n{fields}\r\n"),
    )
}

/// The head of a POST with so many bytes.
pub(crate) fn post(target: &str, length: usize) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// How long a script may say nothing whose client [pauses](pause).
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// Sends half of thirty bytes, nothing for longer than that, and the other half; and takes the answer.
pub(crate) fn pause(address: SocketAddr, target: &str) -> Answer {
    let mut stream = connect(address);
    stream.write_all(post(target, 30).as_bytes()).unwrap();
    stream.write_all(&[b'x'; 15]).unwrap();
    std::thread::sleep(PATIENCE + PATIENCE / 4);
    let _ = stream.write_all(&[b'x'; 15]); // unless it is answered already
    rest(stream)
}

/// Bytes that are not the same everywhere.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
}
