//! HTTP/2 behind TLS: agreed upon by ALPN, and then the same as without.

use crate::http2_frames::{END_HEADERS, END_STREAM, Frame, fields, frame, hello, kind, next, rest};
use crate::{BACKENDS, PATIENCE, address, identity, pattern, server, settings, socket, stop};
use coracle_http::tls::{ClientSettings, ClientTls, Identity, Roots, ServerTls, TlsStream};
use coracle_http::{self as http, Request, Response, Running, Settings, Status, streaming};
use coracle_loop::demux::Backend;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What curl gets of a server; `None` where it is not installed, which continuous integration does not forgive.
fn curl(running: &Running, path: &str, arguments: &[&str]) -> Option<String> {
    let port = address(running).port();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--noproxy", "*", "--max-time", "250"]);
    curl.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
    curl.args(arguments).arg(format!("https://localhost:{port}{path}"));
    match curl.output() {
        Ok(output) => {
            let (told, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{curl:?}: {errors}");
            Some(String::from_utf8(told).expect("text"))
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "curl: {error}");
            println!("left out: curl: {error}");
            None
        }
    }
}

/// A client that speaks these protocols.
fn speaking(identity: &Identity, alpn: &[&str]) -> ClientTls {
    let alpn = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let trusting = ClientSettings::trusting(Roots::identity(identity).unwrap());
    ClientTls::new(ClientSettings { alpn, ..trusting }).unwrap()
}

fn connect(running: &Running, tls: &ClientTls) -> TlsStream<TcpStream> {
    tls.connect("localhost", socket(address(running))).expect("hands are shaken")
}

fn get(stream: u32, authority: &str) -> Vec<u8> {
    let block = fields(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", authority),
    ]);
    frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// All frames until the end, which has to be said.
fn frames(stream: &mut impl Read) -> Vec<Frame> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("a clean end");
    let mut left = &all[..];
    let mut take = |count: usize| {
        let taken;
        (taken, left) = left.split_at(count.min(left.len()));
        taken.to_vec()
    };
    std::iter::from_fn(|| next(&mut take)).collect()
}

#[test]
fn j13_curl_gets_the_version_that_it_asks_for_by_alpn() {
    for backend in BACKENDS {
        let tls = ServerTls::new(settings(&identity())).unwrap();
        let http2 = http::Http2Settings { prior_knowledge: false, ..Default::default() };
        let running = server(backend, &tls)
            .settings(Settings { http2, ..Settings::default() })
            .start(|req: &Request<'_>| {
                let tls = req.tls().expect("it came by TLS");
                let alpn = tls.alpn().map(String::from_utf8_lossy);
                format!("{:?} {:?} {:?} ", req.version(), alpn, tls.server_name())
            })
            .unwrap();
        let told = ["--write-out", "%{http_version} %{response_code}"];
        for (option, expected) in [
            ("--http2", r#"Http2 Some("h2") Some("localhost") 2 200"#),
            ("--http1.1", r#"Http11 Some("http/1.1") Some("localhost") 1.1 200"#),
            ("--no-alpn", r#"Http11 None Some("localhost") 1.1 200"#),
        ] {
            let Some(text) = curl(&running, "/", &[&told[..], &[option]].concat()) else { return };
            assert_eq!(text, expected, "{option}");
        }
        // Of another server: RFC 9110, 15.5.20.
        for version in ["--http2", "--http1.1"] {
            let host = ["--header", "Host: b.example", "--output", "/dev/null", version];
            let text = curl(&running, "/", &[&told[..], &host].concat()).expect("it was there");
            assert!(text.ends_with(" 421"), "{version}: {text}");
        }
        stop(running);
    }
}

#[test]
fn j13_much_comes_whole_both_ways_behind_tls() {
    const PIECE: usize = 251 * 261;
    let path = std::env::temp_dir().join(format!("coracle-https-h2-{}", std::process::id()));
    let back = path.with_extension("back");
    for backend in BACKENDS {
        // The adaptor is the same for all but io_uring.
        let pieces = match backend {
            Backend::Uring | Backend::Epoll => (32 << 20) / PIECE,
            _ => (4 << 20) / PIECE,
        };
        let content = pattern(0, PIECE).repeat(pieces);
        std::fs::write(&path, &content).unwrap();
        let tls = ServerTls::new(settings(&identity())).unwrap();
        let settings = Settings { limit_body_bytes: 64 << 20, ..Settings::default() };
        let app = streaming(move |req: &Request<'_>| -> io::Result<Response> {
            assert_eq!(req.version(), http::Version::Http2);
            let (mut hash, mut reader) = (DefaultHasher::new(), req.body_reader());
            let mut piece = vec![0; 100_000];
            loop {
                match reader.read(&mut piece)? {
                    0 => break,
                    count => hash.write(&piece[..count]),
                }
            }
            let body = http::Body::stream(move |writer| {
                let piece = pattern(0, PIECE);
                (0..pieces).try_for_each(|_| writer.write_all(&piece))
            });
            let told = format!("{:x}", hash.finish());
            Ok(Response::new(Status::OK).with_body(body).with_header("x-hash", &told))
        });
        let running = server(backend, &tls).settings(settings).start(app).unwrap();
        let from = format!("@{}", path.display());
        let options = ["--http2", "--data-binary", &from, "--dump-header", "-", "--output"];
        let told = curl(&running, "/", &[&options[..], &[back.to_str().unwrap()]].concat());
        let Some(told) = told else { return };
        let mut hash = DefaultHasher::new();
        hash.write(&content);
        assert!(told.contains(&format!("x-hash: {:x}\r\n", hash.finish())), "{told}");
        assert!(std::fs::read(&back).unwrap() == content, "it comes back whole");
        stop(running);
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&back).unwrap();
}

#[test]
fn j13_who_speaks_another_version_than_was_agreed_upon_is_not_answered_in_it() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let running = server(backend, &tls).start(|_: &Request<'_>| "ahoy").unwrap();
        // It has agreed on HTTP/1.1.
        let mut stream = connect(&running, &speaking(&identity, &["http/1.1"]));
        stream.write_all(&hello()).unwrap();
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("a clean end");
        assert!(told.starts_with("HTTP/1.1 505 "), "{told}");
        // It has agreed on HTTP/2.
        drop(stream);
        let mut stream = connect(&running, &speaking(&identity, &["h2"]));
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let told = frames(&mut stream);
        let answered = told.iter().any(|it| matches!(it.kind, kind::HEADERS | kind::DATA));
        assert!(!answered, "{told:?}");
        // It has agreed on nothing, and knows.
        drop(stream);
        let mut stream = connect(&running, &speaking(&identity, &[]));
        stream.write_all(&[hello(), get(1, "localhost")].concat()).unwrap();
        stream.write_all(&frame(kind::GOAWAY, 0, 0, &[0; 8])).unwrap();
        stream.close().unwrap();
        let told = frames(&mut stream);
        assert!(told.iter().any(|it| it.kind == kind::DATA && it.payload == b"ahoy"), "{told:?}");
        assert_eq!(running.stats().requests, 1);
        drop(stream);
        stop(running);
    }
}

#[test]
fn q4_stopping_server_says_so_in_http_2_and_finishes_what_is_under_way() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let running = server(backend, &tls)
            .start(move |_: &Request<'_>| -> io::Result<&'static str> {
                count.fetch_add(1, Ordering::SeqCst);
                coracle_coro::sleep(Duration::from_millis(300))?;
                Ok("ahoy")
            })
            .unwrap();
        let mut stream = connect(&running, &speaking(&identity, &["h2"]));
        stream.write_all(&[hello(), get(1, "localhost")].concat()).unwrap();
        while begun.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        running.stop();
        let told = frames(&mut stream);
        let goaway: Vec<&Frame> = told.iter().filter(|it| it.kind == kind::GOAWAY).collect();
        assert!(!goaway.is_empty(), "{told:?}");
        assert!(goaway.iter().all(|it| it.stream == 0 && it.payload[4..8] == [0; 4]), "{told:?}");
        assert!(told.iter().any(|it| it.kind == kind::DATA && it.payload == b"ahoy"), "{told:?}");
        drop(stream);
        running.join().unwrap();
    }
}

#[test]
fn q4_stopping_server_says_so_in_http_2_to_who_is_shaking_hands() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let (stop_timeout, idle_timeout) = (PATIENCE, 2 * PATIENCE);
        let waiting = Settings { stop_timeout, idle_timeout, ..Settings::default() };
        let server = server(backend, &tls).settings(waiting).drain(PATIENCE);
        let running = server.start(|_: &Request<'_>| "ahoy").unwrap();
        let socket = socket(address(&running));
        while running.handle().stats().opened == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        running.stop();
        thread::sleep(Duration::from_millis(20)); // so that it most likely has begun to
        let mut stream = speaking(&identity, &["h2"]).connect("localhost", socket).unwrap();
        stream.write_all(&[hello(), get(1, "localhost")].concat()).unwrap();
        let told = rest(&mut stream);
        assert!(told.iter().any(|it| it.kind == kind::DATA && it.payload == b"ahoy"), "{told:?}");
        assert!(told.iter().any(|it| it.kind == kind::GOAWAY), "{told:?}");
        drop(stream);
        running.join().unwrap();
    }
}
