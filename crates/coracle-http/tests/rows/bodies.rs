//! Rows J2 and J5: bodies, both ways.

use crate::client::Client;
use crate::harness::Harness;
use coracle_http::{
    Body, IntoResponse, Plan, Request, Response, Settings, Status, Trailers, streaming,
};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

fn echo(req: &Request<'_>) -> Vec<u8> {
    req.body().to_vec()
}

pub(crate) fn j2_body_of_a_length(h: &Harness) {
    let client = Client::of(h, echo);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nahoy");
    assert_eq!(client.answer().text(), "ahoy");
    // In a segment of its own, and with the next request behind it.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    h.run_for(Duration::from_millis(1));
    client.send("yo");
    h.run_for(Duration::from_millis(1));
    client.send("hoPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((client.answer().text(), client.answer().text()), ("yoho", ""));
}

pub(crate) fn j2_body_in_chunks_with_trailers(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| {
        let trailer = req.trailers().get("checksum").unwrap_or("none").to_owned();
        assert_eq!(req.header("checksum"), None, "kept apart");
        format!("{} {trailer}", String::from_utf8_lossy(req.body()))
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client
        .send(format!("{head}3;x=y\r\nfoo\r\n3\r\nbar\r\n0\r\nChecksum: 7\r\n\r\n{head}0\r\n\r\n"));
    assert_eq!((client.answer().text(), client.answer().text()), ("foobar 7", " none"));
}

pub(crate) fn j2_large_body_is_whole(h: &Harness) {
    let settings = Settings { limit_body_bytes: 8 << 20, ..Settings::default() };
    let client = Client::with(h, settings, |req: &Request<'_>| {
        let sum: u64 = req.body().iter().map(|&byte| u64::from(byte)).sum();
        format!("{} {sum}", req.body().len())
    });
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let sum: u64 = body.iter().map(|&byte| u64::from(byte)).sum();
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert_eq!(client.answer().text(), format!("{} {sum}", body.len()));
}

pub(crate) fn j2_expected_continue_is_sent_when_the_body_is_wanted(h: &Harness) {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    let client = Client::of(h, echo);
    client.send(head);
    assert_eq!(client.head().status, 100);
    client.send("ahoy");
    assert_eq!(client.answer().text(), "ahoy");
    // Who does not wait for it need not get it.
    client.send(format!("{head}ahoy"));
    assert_eq!(client.answer().status, 200);

    let client = Client::with(h, Settings { limit_body_bytes: 3, ..Settings::default() }, echo);
    client.send(head);
    assert_eq!(client.refusal(), 413, "and no 100 before it");
}

pub(crate) fn j2_head_has_the_length_of_get_and_no_body(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| match req.path() {
        "/made" => Response::new(Status::OK).with_header("content-length", "12345"),
        "/streamed" => Body::stream(|out| out.write_all(b"never")).into_response(),
        _ => "thirteen byte".into_response(),
    });
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("13"));
    client.send("HEAD /made HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("12345"));
    client.send("HEAD /streamed HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("transfer-encoding"), Some("chunked"));
    assert_eq!(client.get("/").text(), "thirteen byte", "the framing is whole");
}

pub(crate) fn j2_some_answers_never_have_a_body(h: &Harness) {
    let client = Client::of(h, |req: &Request<'_>| {
        let status: u16 = req.path()[1..].parse().expect("a number");
        Response::new(Status::from_u16(status).expect("a status")).with_body("a body")
    });
    for status in [204, 304] {
        let answer = client.get(&format!("/{status}"));
        assert_eq!((answer.status, answer.header("content-length")), (status, None));
        assert_eq!(answer.header("transfer-encoding"), None);
    }
    assert_eq!(client.get("/205").body, b"");
    assert_eq!(client.get("/200").text(), "a body", "the framing is whole");
}

pub(crate) fn j5_body_is_sent_while_it_is_written(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| {
        Body::stream(|out| {
            out.write_all(b"one ")?;
            out.flush()?;
            coracle_coro::sleep(Duration::from_millis(2))?;
            write!(out, "two {}", 3)
        })
    });
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.text(), "one two 3");
    }
    // An old client does not know chunks.
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!((answer.text(), answer.header("connection")), ("one two 3", Some("close")));
}

pub(crate) fn j5_promised_length_is_kept_or_the_connection_is_cut(h: &Harness) {
    let client = |promised: u64| {
        let client = Client::of(h, move |_: &Request<'_>| {
            Body::stream_exact(promised, |out| out.write_all(b"1234"))
        });
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let right = client(4);
    assert_eq!((right.answer().text(), right.answer().text()), ("1234", "1234"));
    for wrong in [3, 5] {
        let rest = client(wrong).rest();
        let text = String::from_utf8_lossy(&rest);
        assert!(text.matches("HTTP/1.1").count() <= 1, "{text}");
        assert!(!text.ends_with("1234") || wrong == 5, "{text}");
    }
}

pub(crate) fn j5_writer_waits_for_a_client_that_does_not_read(h: &Harness) {
    const TOTAL: usize = 32 << 20;
    let written = Rc::new(Cell::new(0));
    let count = Rc::clone(&written);
    let client = Client::of(h, move |_: &Request<'_>| {
        let count = Rc::clone(&count);
        Body::stream(move |out| {
            while count.get() < TOTAL {
                out.write_all(&[b'x'; 4096])?;
                count.set(count.get() + 4096);
            }
            Ok(())
        })
    });
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // Until it gets no further.
    let mut before = usize::MAX;
    while before != written.get() {
        before = written.get();
        h.run_for(Duration::from_millis(50));
    }
    assert!(written.get() < TOTAL, "it has not waited");
    assert!(written.get() > 0);
    let answer = client.answer();
    assert_eq!((answer.body.len(), written.get()), (TOTAL, TOTAL));
}

pub(crate) fn j5_large_answer_is_whole(h: &Harness) {
    let big: Rc<Vec<u8>> = Rc::new((0..20_000_000u32).map(|n| (n % 249) as u8).collect());
    let body = Rc::clone(&big);
    let client = Client::of(h, move |req: &Request<'_>| match req.path() {
        "/big" => body.to_vec(),
        _ => b"small".to_vec(),
    });
    client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.answer().body == *big, "every byte");
    assert_eq!(client.answer().text(), "small");
    client.send("GET /big HTTP/1.0\r\n\r\n");
    assert!(client.answer().body == *big, "every byte, before the end");
    assert_eq!(client.rest(), b"");
}

pub(crate) fn n1_file_is_sent_from_where_it_is(h: &Harness) {
    let path = std::env::temp_dir().join(format!("coracle-http-{}", std::process::id()));
    let path = path.with_extension(h.backend.to_string());
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 247) as u8).collect();
    std::fs::write(&path, &content).expect("a file");
    let name = path.clone();
    let client = Client::of(h, move |req: &Request<'_>| -> io::Result<Body> {
        let file = std::fs::File::open(&name)?;
        Ok(match req.path() {
            "/short" => Body::file(file, 2_999_990, 20), // more than there is
            "/part" => Body::file(file, 1000, 10),
            _ => Body::file(file, 0, 3_000_000),
        })
    });
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(request("/part") + &request("/all") + &request("/part"));
    assert_eq!(client.answer().body, content[1000..1010]);
    assert!(client.answer().body == content, "every byte");
    assert_eq!(client.answer().body, content[1000..1010]);
    client.send("HEAD /all HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().header("content-length"), Some("3000000"));
    client.send(request("/short") + &request("/part"));
    if h.is_simulated() {
        // It passes through the program, which sees what is missing before it has sent anything.
        assert_eq!(client.rest(), b"");
    } else {
        assert_eq!(client.head().header("content-length"), Some("20"));
        assert!(client.rest().len() <= 10, "cut, and never filled up with something else");
    }
    std::fs::remove_file(&path).expect("it was there");
}

fn count_upload(req: &Request<'_>) -> io::Result<String> {
    let (mut reader, mut space, mut sum, mut count) = (req.body_reader(), [0; 1000], 0u64, 0);
    loop {
        match reader.read(&mut space)? {
            0 => return Ok(format!("{count} {sum}")),
            some => {
                count += some;
                sum += space[..some].iter().map(|&byte| u64::from(byte)).sum::<u64>();
            }
        }
    }
}

struct Upload<F>(F);

impl<F: Fn(&Request<'_>) -> io::Result<String> + 'static> coracle_http::App for Upload<F> {
    fn call(&self, req: &Request<'_>) -> Response {
        (self.0)(req).into_response()
    }

    fn plan(&self, _: &Request<'_>) -> Plan {
        Plan::default().streamed().limit_body_bytes(1 << 30)
    }
}

pub(crate) fn j5_body_is_read_while_it_comes(h: &Harness) {
    let client = Client::of(h, Upload(count_upload));
    let body: Vec<u8> = (0..2_000_000u32).map(|n| (n % 251) as u8).collect();
    let expected =
        format!("{} {}", body.len(), body.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert_eq!(client.answer().text(), expected);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in body.chunks(100_000) {
        client.send(format!("{:x}\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
    }
    client.send("0\r\n\r\nPUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\x07");
    assert_eq!(client.answer().text(), expected);
    assert_eq!(client.answer().text(), "1 7", "the connection goes on");
}

pub(crate) fn j5_continue_is_sent_at_the_first_read(h: &Harness) {
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    let client = Client::of(h, Upload(count_upload));
    client.send(head);
    assert_eq!(client.head().status, 100);
    client.send("\x01\x02\x03\x04");
    assert_eq!(client.answer().text(), "4 10");
    // Whoever does not read it does not ask for it: then there is no way on.
    let client = Client::of(h, Upload(|_: &Request<'_>| Ok("no, thanks".into())));
    client.send(head);
    let answer = client.answer();
    assert_eq!((answer.text(), answer.header("connection")), ("no, thanks", Some("close")));
    assert_eq!(client.rest(), b"");
}

pub(crate) fn j5_client_waits_for_a_reader_that_does_not_read(h: &Harness) {
    const TOTAL: usize = 16 << 20;
    let open = Rc::new(Cell::new(false));
    let gate = Rc::clone(&open);
    let client = Client::of(
        h,
        Upload(move |req: &Request<'_>| {
            while !gate.get() {
                coracle_coro::sleep(Duration::from_millis(1))?;
            }
            count_upload(req)
        }),
    );
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {TOTAL}\r\n\r\n"));
    let sent = Rc::new(Cell::new(0));
    let (lp, socket) = (h.lp.clone(), client.socket);
    pump(&lp, socket, TOTAL, Rc::clone(&sent));
    let mut before = usize::MAX;
    while before != sent.get() {
        before = sent.get();
        h.run_for(Duration::from_millis(50));
    }
    assert!(sent.get() < TOTAL, "it has not waited");
    open.set(true);
    assert_eq!(client.answer().text(), format!("{TOTAL} 0"));
}

/// Sends zeros, as fast as they are taken.
fn pump(
    lp: &coracle_loop::Loop,
    socket: coracle_loop::demux::Handle,
    left: usize,
    sent: Rc<Cell<usize>>,
) {
    if left == 0 {
        return;
    }
    let payload = vec![0; left.min(64 << 10)].into();
    let send = coracle_loop::demux::Operation::Send { socket, payload };
    lp.operate(send, move |lp, done| {
        if let Ok(coracle_loop::demux::Outcome::Count(count)) = done.result {
            sent.set(sent.get() + count);
            pump(lp, socket, left - count, sent);
        }
    });
}

pub(crate) fn j5_upload_that_breaks_off_is_an_error_of_the_read(h: &Harness) {
    for bad in ["zz\r\n", ""] {
        let seen = Rc::new(RefCell::new(None));
        let note = Rc::clone(&seen);
        let client = Client::of(
            h,
            Upload(move |req: &Request<'_>| {
                let result = count_upload(req);
                *note.borrow_mut() = result.as_ref().err().map(io::Error::kind);
                result
            }),
        );
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        h.run_for(Duration::from_millis(1));
        client.send(bad);
        client.end();
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
        let expected = match bad {
            "" => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::InvalidData,
        };
        assert_eq!(*seen.borrow(), Some(expected));
        assert_eq!(client.rest(), b"");
    }
}

pub(crate) fn j5_buffered_body_can_be_read_as_a_stream(h: &Harness) {
    let client = Client::of(h, count_upload);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\x01\x02");
    assert_eq!(client.answer().text(), "2 3");
    let client = Client::of(h, streaming(count_upload));
    assert_eq!(client.get("/").text(), "0 0", "a request without a body");
}

/// A chunked upload, as far as it is sent.
fn send_upload(client: &Client<'_>, chunks: &str) {
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
}

pub(crate) fn j5_refused_upload_has_the_status_of_its_refusal(h: &Harness) {
    fn wrapped(req: &Request<'_>) -> io::Result<String> {
        count_upload(req).map_err(|error| io::Error::other(error.to_string()))
    }
    fn problem(req: &Request<'_>) -> Result<String, coracle_http::Problem> {
        Ok(count_upload(req)?)
    }
    struct Limited<F>(F);
    impl<F: Fn(&Request<'_>) -> Response + 'static> coracle_http::App for Limited<F> {
        fn call(&self, req: &Request<'_>) -> Response {
            (self.0)(req)
        }

        fn plan(&self, _: &Request<'_>) -> Plan {
            Plan::default().streamed().limit_body_bytes(10)
        }
    }
    let short = || Settings {
        body_timeout: Duration::from_millis(40),
        min_body_rate: 1_000_000,
        ..Settings::default()
    };
    for (chunks, expected) in [("3\r\nabcX", 400), ("b\r\nabcdefghijk\r\n", 413), ("3\r\na", 408)] {
        let handlers: [fn(&Request<'_>) -> Response; 3] = [
            |req| count_upload(req).into_response(),
            |req| wrapped(req).into_response(),
            |req| problem(req).into_response(),
        ];
        for handler in handlers {
            let client = Client::with(h, short(), Limited(handler));
            send_upload(&client, chunks);
            assert_eq!(client.refusal(), expected, "{chunks:?}");
        }
    }
}

pub(crate) fn j5_handler_may_answer_otherwise_when_its_upload_is_refused(h: &Harness) {
    let upload = |req: &Request<'_>| match count_upload(req) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok("no, thanks".into()),
        other => other,
    };
    let client = Client::of(h, Upload(upload));
    send_upload(&client, "zz\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (200, "no, thanks"));
    assert_eq!(answer.header("connection"), Some("close"));
    // One that fails for a reason of its own, without having read: that is no mistake of the client.
    let client = Client::of(h, Upload(|_: &Request<'_>| Err(io::Error::other("on purpose"))));
    send_upload(&client, "zz\r\n");
    assert_eq!(client.answer().status, 500);
}

pub(crate) fn j5_upload_that_stops_behind_a_pause_is_late(h: &Harness) {
    let settings = Settings {
        body_timeout: Duration::from_millis(40),
        min_body_rate: 1_000_000,
        ..Settings::default()
    };
    let open = Rc::new(Cell::new(false));
    let gate = Rc::clone(&open);
    let upload = Upload(move |req: &Request<'_>| {
        while !gate.get() {
            coracle_coro::sleep(Duration::from_millis(1))?;
        }
        count_upload(req)
    });
    let client = Client::with(h, settings, upload);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    // More than waits for a reader, and not all.
    client.send(vec![0; 100_000]);
    h.run_for(Duration::from_millis(10));
    open.set(true);
    assert_eq!(client.refusal(), 408);
}

pub(crate) fn j5_upload_is_late_once(h: &Harness) {
    let settings = Settings {
        body_timeout: Duration::from_millis(20),
        min_body_rate: 1_000_000,
        ..Settings::default()
    };
    let upload = Upload(|req: &Request<'_>| {
        let result = count_upload(req);
        coracle_coro::sleep(Duration::from_millis(50))?;
        result
    });
    let client = Client::with(h, settings, upload);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    h.run_until(&client.service, |service| service.stats().timed_out > 0);
    client.send("x");
    assert_eq!(client.refusal(), 408);
    assert_eq!(client.service.stats().timed_out, 1);
}

pub(crate) fn j5_body_of_a_handler_on_the_loop_is_buffered(h: &Harness) {
    struct Both;
    impl coracle_http::App for Both {
        fn call(&self, req: &Request<'_>) -> Response {
            count_upload(req).into_response()
        }

        fn plan(&self, _: &Request<'_>) -> Plan {
            Plan::default().streamed().inline()
        }
    }
    let client = Client::of(h, Both);
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\x01\x02");
    h.run_for(Duration::from_millis(1));
    client.send("\x03");
    assert_eq!(client.answer().text(), "3 6");
}

pub(crate) fn j2_trailers_of_a_stream_are_there_at_its_end(h: &Harness) {
    let client = Client::of(
        h,
        Upload(|req: &Request<'_>| {
            assert!(req.trailers().is_empty(), "not before");
            let count = count_upload(req)?;
            Ok(format!("{count} {}", req.trailers().get("checksum").unwrap_or("none")))
        }),
    );
    for (requests, checksum) in [(1, "7"), (2, "8")] {
        send_upload(&client, "1\r\n\x05\r\n");
        h.run_until(&client.service, move |service| service.stats().requests == requests);
        client.send(format!("0\r\nChecksum: {checksum}\r\n\r\n"));
        assert_eq!(client.answer().text(), format!("1 5 {checksum}"));
    }
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\x05");
    assert_eq!(client.answer().text(), "1 5 none");
}

pub(crate) fn j5_body_that_ends_with_the_connection_is_not_cut_in_silence(h: &Harness) {
    for whole in [true, false] {
        let client = Client::of(h, move |_: &Request<'_>| {
            Body::stream(move |out| {
                out.write_all(b"some")?;
                out.flush()?;
                if whole { Ok(()) } else { Err(io::Error::other("on purpose")) }
            })
        });
        client.send("GET / HTTP/1.0\r\n\r\n");
        let ended = loop {
            let space = vec![0; 1000].into();
            let socket = client.socket;
            let receive = coracle_loop::demux::Operation::Receive { socket, space };
            match h.operate(receive).result {
                Ok(coracle_loop::demux::Outcome::Count(1..)) => {}
                ended => break ended,
            }
        };
        assert_eq!(ended.is_ok(), whole, "{ended:?}");
    }
}

pub(crate) fn j2_trailers_are_sent_to_who_asks_for_them(h: &Harness) {
    let client = Client::of(h, |_: &Request<'_>| {
        let trailers = Trailers::new();
        let later = trailers.clone();
        let body = Body::stream(move |out| {
            out.write_all(b"ahoy")?;
            later.insert("checksum", "7").map_err(io::Error::other)
        });
        Response::new(Status::OK).with_body(body).with_trailers(trailers)
    });
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.take_until("\r\n\r\n"), "4\r\nahoy\r\n0\r\nchecksum: 7\r\n\r\n");
    assert_eq!(client.get("/").text(), "ahoy");
}
