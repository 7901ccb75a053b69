//! What goes to a script, and what comes from it.

use crate::harness::Harness;
use crate::scripts::{Scripts, eventually, is_gone};
use crate::talking::{
    Answer, PATIENCE, ask, connect, get, pattern, pause, post, rest, serve, talk,
};
use coracle_http::{Request, Router};
use std::io::{Read, Write};

/// More than all pipes and sockets between hold.
const LONG: usize = 12 << 20;

pub(crate) fn o1_bodies_go_both_ways_at_once(h: &Harness) {
    let scripts = Scripts::of("printf 'Content-Type: a/b\\n\\n'; exec cat");
    let cgi = scripts.cgi().limit_body_bytes(LONG as u64);
    serve(h, cgi, |address, _| {
        let body = pattern(LONG);
        let stream = connect(address);
        let mut writer = stream.try_clone().unwrap();
        let sent = body.clone();
        let sending = std::thread::spawn(move || {
            writer.write_all(post("/a", LONG).as_bytes()).unwrap();
            writer.write_all(&sent).unwrap();
        });
        let answer = rest(stream);
        sending.join().unwrap();
        assert!(answer.whole && answer.body == body, "{} bytes came back", answer.body.len());
    });
}

pub(crate) fn o1_script_that_does_not_read_its_input_answers(h: &Harness) {
    let scripts = Scripts::of("printf 'Content-Type: a/b\\n\\nno, thank you'");
    let cgi = scripts.cgi().limit_body_bytes(LONG as u64);
    serve(h, cgi, |address, _| {
        let mut stream = connect(address);
        stream.write_all(post("/a", LONG).as_bytes()).unwrap();
        let _ = stream.write_all(&pattern(1 << 20)); // as much of it as is taken
        let mut answer = Vec::new();
        let mut space = [0; 4096];
        // The connection may be reset behind the answer, since we do not stop.
        while !String::from_utf8_lossy(&answer).contains("no, thank you") {
            match stream.read(&mut space) {
                Ok(count @ 1..) => answer.extend_from_slice(&space[..count]),
                end => panic!("{end:?} after {:?}", String::from_utf8_lossy(&answer)),
            }
        }
    });
}

pub(crate) fn o1_script_that_answers_first_reads_on(h: &Harness) {
    let scripts = Scripts::of("printf 'Content-Type: a/b\\n\\nfirst '; wc -c");
    serve(h, scripts.cgi(), |address, _| {
        let mut stream = connect(address);
        stream.write_all(post("/a", 70_000).as_bytes()).unwrap();
        let mut begin = Vec::new();
        let mut space = [0; 4096];
        while !String::from_utf8_lossy(&begin).contains("first ") {
            let count = stream.read(&mut space).unwrap();
            assert!(count > 0);
            begin.extend_from_slice(&space[..count]);
        }
        stream.write_all(&[b'x'; 70_000]).unwrap(); // only now
        stream.read_to_end(&mut begin).unwrap();
        let answer = Answer::of(&begin);
        assert!(answer.whole);
        assert_eq!(answer.text().trim_end(), "first 70000");
    });
}

pub(crate) fn o1_script_is_not_late_while_its_client_is_waited_for(h: &Harness) {
    let scripts = Scripts::of("printf 'Content-Type: a/b\\n\\n%s' \"$(wc -c)\"");
    let cgi = scripts.cgi().timeout(PATIENCE);
    serve(h, cgi, |address, _| {
        assert_eq!(pause(address, "/a").text().trim(), "30");
    });
}

pub(crate) fn o1_body_in_chunks_has_a_length(h: &Harness) {
    let scripts = Scripts::of("printf 'Content-Type: a/b\\n\\n%s ' \"$CONTENT_LENGTH\"; exec cat");
    serve(h, scripts.cgi(), |address, _| {
        let head = "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = talk(address, format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
        assert_eq!(answer.text(), "5 abcde");
        // What is too long to be kept is refused.
        let mut stream = connect(address);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"200000\r\n").unwrap();
        assert_eq!(rest(stream).status, 413);
        assert_eq!(get(address, "/a").text(), " ", "without a body there is no length");
    });
}

pub(crate) fn o1_body_that_breaks_off_ends_the_script(h: &Harness) {
    let scripts = Scripts::of("echo $$ > \"$BESIDE/pid\"; cat > /dev/null; sleep 1000");
    let pid = serve(h, scripts.cgi(), {
        let beside = scripts.beside().to_owned();
        move |address, _| {
            let mut stream = connect(address);
            stream.write_all(post("/a", 100).as_bytes()).unwrap();
            stream.write_all(b"half").unwrap();
            let path = beside.join("pid");
            eventually("it runs", || {
                std::fs::read_to_string(&path).is_ok_and(|it| it.ends_with('\n'))
            });
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(rest(stream).status, 400);
            let pid = std::fs::read_to_string(path).unwrap().trim().parse().unwrap();
            eventually("it is gone", || is_gone(pid));
            pid
        }
    });
    assert!(is_gone(pid));
}

pub(crate) fn o1_status_location_and_length(h: &Harness) {
    let scripts = Scripts::new();
    scripts.sh(
        "status",
        "printf 'Status: 404 Nothing\\r\\nContent-Type: a/b\\r\\nX-Own: 1\\r\\n\\r\\ngone'",
    );
    scripts.sh("only", "printf 'Status: 204\\n\\n'");
    scripts.sh("away", "printf 'Location: http://example.org/x\\n\\n'");
    scripts.sh("moved", "printf 'Status: 301\\nLocation: /x\\nContent-Type: a/b\\n\\nmoved'");
    scripts.sh("length", "printf 'Content-Type: a/b\\nContent-Length: 4\\n\\nabcd'");
    scripts.sh("more", "printf 'Content-Type: a/b\\nContent-Length: 4\\n\\nabcdefgh'");
    scripts.sh("less", "printf 'Content-Type: a/b\\nContent-Length: 9\\n\\nabcd'");
    scripts.sh(
        "hop",
        "printf 'Content-Type: a/b\\nTransfer-Encoding: chunked\\nConnection: x\\n\\nhop'",
    );
    serve(h, scripts.cgi(), |address, _| {
        let answer = get(address, "/status");
        assert_eq!(
            (answer.status, answer.text(), answer.header("x-own")),
            (404, "gone", Some("1"))
        );
        assert_eq!(answer.header("status"), None);
        assert_eq!(get(address, "/only").status, 204);
        let answer = get(address, "/away");
        assert_eq!((answer.status, answer.header("location")), (302, Some("http://example.org/x")));
        let answer = get(address, "/moved");
        assert_eq!((answer.status, answer.header("location")), (301, Some("/x")));
        for target in ["/length", "/more"] {
            let answer = get(address, target);
            assert_eq!((answer.header("content-length"), answer.text()), (Some("4"), "abcd"));
        }
        assert!(!get(address, "/less").whole, "it has promised more");
        let answer = get(address, "/hop");
        assert_eq!((answer.text(), answer.header("connection")), ("hop", Some("close")));
    });
}

pub(crate) fn o1_local_redirect_is_answered_by_the_whole_app(h: &Harness) {
    let scripts = Scripts::new();
    scripts.sh("away", "printf 'Location: /page?from=script\\n\\n'");
    scripts.sh("round", "printf 'Location: /cgi/round\\n\\n'");
    let app = Router::new(())
        .mount("/cgi", scripts.cgi())
        .get("/page", |(), req: &Request<'_>| format!("{} {:?}", req.path(), req.query()));
    serve(h, app, |address, journal| {
        let answer = talk(address, post("/cgi/away", 3) + "abc");
        assert_eq!((answer.status, answer.text()), (200, "/page Some(\"from=script\")"));
        assert_eq!(get(address, "/cgi/round").status, 502);
        assert!(journal.text().contains("again and again"));
    });
}

pub(crate) fn o1_answers_that_are_none_are_502(h: &Harness) {
    let scripts = Scripts::new();
    let cases = [
        ("nothing", "", "without an answer"),
        ("exit", "exit 3", "exit status: 3"),
        ("text", "echo hello", "an empty line is missing"),
        ("lines", "printf 'hello\\n\\n'", "no `Name: value`"),
        ("foreign", "printf 'X-A: b\\n\\n'", "no Content-Type"),
        ("folded", "printf 'Content-Type: a\\n b\\n\\n'", "Name: value"),
        ("long", "yes 'X-A: b' | head -c 100000", "64 KiB"),
        ("control", "printf 'Content-Type: a\\001b\\n\\n'", "control character"),
        ("killed", "kill -9 $$", "signal: 9"),
    ];
    for (name, script, _) in cases {
        scripts.sh(name, script);
    }
    serve(h, scripts.cgi(), move |address, journal| {
        for (name, _, why) in cases {
            let answer = get(address, &format!("/{name}"));
            assert_eq!(answer.status, 502, "{name}");
            assert!(!answer.text().contains(why), "the client need not know");
            let said = journal.text();
            assert!(
                said.lines().any(|line| line.contains(name) && line.contains(why)),
                "{name}: {said}"
            );
        }
    });
}

pub(crate) fn o1_head_and_no_content_have_no_body(h: &Harness) {
    let scripts = Scripts::of(
        "printf 'Content-Type: a/b\\nContent-Length: 5\\n\\nhello'; echo $REQUEST_METHOD >&2",
    );
    serve(h, scripts.cgi(), |address, journal| {
        let answer = ask(address, "HEAD", "/a", "");
        assert_eq!((answer.header("content-length"), &*answer.body), (Some("5"), &b""[..]));
        assert!(journal.text().contains("HEAD"), "the script knows");
        // And the connection goes on.
        let request = "HEAD /a HTTP/1.1\r\nHost: a\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut stream = connect(address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut both = Vec::new();
        stream.read_to_end(&mut both).unwrap();
        let both = String::from_utf8(both).unwrap();
        assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2, "{both}");
        assert!(both.ends_with("\r\n\r\nhello"), "{both}");
    });
}

pub(crate) fn o1_script_that_speaks_http_itself(h: &Harness) {
    let scripts = Scripts::new();
    scripts.sh("nph-a", "printf '%s 299 Own\\r\\nX-Own: 1\\r\\n\\r\\nbody' $SERVER_PROTOCOL");
    scripts.sh("nph-b", "printf 'Content-Type: a/b\\n\\n'");
    serve(h, scripts.cgi(), |address, journal| {
        let answer = get(address, "/nph-a");
        assert_eq!(
            (answer.status, answer.header("x-own"), answer.text()),
            (299, Some("1"), "body")
        );
        assert_eq!(get(address, "/nph-b").status, 502);
        assert!(journal.text().contains("status line"));
    });
}

pub(crate) fn o1_requests_of_one_connection_have_their_own_bodies(h: &Harness) {
    let scripts = Scripts::new();
    scripts.sh(
        "cat",
        "printf 'Content-Type: a/b\\nContent-Length: %s\\n\\n' $CONTENT_LENGTH; exec cat",
    );
    scripts.sh("deaf", "printf 'Content-Type: a/b\\nContent-Length: 0\\n\\n'");
    serve(h, scripts.cgi(), |address, _| {
        let mut stream = connect(address);
        let (mut requests, mut bodies) = (Vec::new(), Vec::new());
        for number in 0..12 {
            let body = format!("<body {number}>");
            let script = if number % 3 == 1 { "deaf" } else { "cat" };
            let head = post(&format!("/{script}"), body.len()).replace("Connection: close\r\n", "");
            requests.extend_from_slice(head.as_bytes());
            requests.extend_from_slice(body.as_bytes());
            bodies.push(if script == "cat" { body } else { String::new() });
        }
        let last = "GET /deaf HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        requests.extend_from_slice(last.as_bytes());
        stream.write_all(&requests).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        let answers: Vec<_> = answers.split("HTTP/1.1 200 OK\r\n").skip(1).collect();
        assert_eq!(answers.len(), 13, "{answers:?}");
        for (answer, body) in answers.iter().zip(bodies) {
            assert_eq!(answer.split("\r\n\r\n").nth(1), Some(&*body));
        }
    });
}

pub(crate) fn o1_script_of_python_reads_a_form(h: &Harness) {
    let scripts = Scripts::new();
    scripts.file(
        "form.py",
        "#!/usr/bin/env python3\n\
         import os, sys, urllib.parse\n\
         form = sys.stdin.buffer.read(int(os.environ['CONTENT_LENGTH'])).decode()\n\
         form = urllib.parse.parse_qs(form)\n\
         print('Content-Type: text/plain; charset=utf-8\\r\\n\\r\\n', end='')\n\
         print(form['name'][0], len(form['long'][0]), os.environ['CONTENT_TYPE'])\n",
        0o755,
    );
    serve(h, scripts.cgi(), |address, _| {
        let form = format!("name=J%C3%BCrgen+x&long={}", "x".repeat(200_000));
        let head = post("/form.py", form.len()).replace("Host: a", "Host: a\r\nContent-Type: a/b");
        let answer = talk(address, head + &form);
        assert_eq!(answer.text(), "Jürgen x 200000 a/b\n");
    });
}
