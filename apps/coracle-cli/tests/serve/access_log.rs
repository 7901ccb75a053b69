//! The access log, line by line.

use crate::client::{Dir, answer_of, ask, get, raw, serve};
use crate::program::{Program, eventually};
use std::fs;
use std::path::Path;

/// The lines, when so many are there.
fn lines(file: &Path, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(file).unwrap_or_default();
    eventually("the lines are written", || read().lines().count() >= count);
    let lines: Vec<String> = read().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

fn start(backend: &str, dir: &Dir, format: &str) -> Program {
    let (site, log) = (dir.file("site"), dir.file("access.log"));
    let _ = fs::remove_file(&log);
    let mut arguments = vec![site.to_str().unwrap(), "--access-log", log.to_str().unwrap()];
    arguments.extend(["--access-log-format", format]);
    serve(backend, &arguments)
}

fn site() -> Dir {
    Dir::with(&[("site/index.html", "ahoy")])
}

/// Whether it is a time as `[16/Nov/2026:04:56:43 +0000]`.
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    months.iter().any(|month| shape == format!("[00/{month}/0000:00:00:00 +0000]"))
}

/// A line without what is different each time: `127.0.0.1 - - TIME …`.
fn without_time(line: &str) -> String {
    let (begin, rest) = line.split_at(line.find('[').expect("a time"));
    let (time, rest) = rest.split_at(rest.find(']').expect("its end") + 1);
    assert!(is_time(time), "{time}");
    format!("{begin}TIME{rest}")
}

pub(crate) fn j14_lines_of_every_format(backend: &str) {
    let dir = site();
    let requests = |server: &Program| {
        assert_eq!(get(server, "/?a=1").status, 200);
        assert_eq!(ask(server, "HEAD", "/", "User-Agent: whale/1.0\r\n").status, 200);
        assert_eq!(ask(server, "GET", "/none", "Referer: http://a/\r\n").status, 404);
        assert_eq!(ask(server, "POST", "/", "Content-Length: 2\r\n\r\nhi").status, 405);
    };
    let common = [
        "127.0.0.1 - - TIME \"GET /?a=1 HTTP/1.1\" 200 4",
        "127.0.0.1 - - TIME \"HEAD / HTTP/1.1\" 200 0",
        "127.0.0.1 - - TIME \"GET /none HTTP/1.1\" 404 14",
        "127.0.0.1 - - TIME \"POST / HTTP/1.1\" 405 23",
    ];
    let log = dir.file("access.log");

    let server = start(backend, &dir, "common");
    requests(&server);
    let found: Vec<String> = lines(&log, 4).iter().map(|line| without_time(line)).collect();
    assert_eq!(found, common);
    drop(server);

    let server = start(backend, &dir, "combined");
    requests(&server);
    let ends = ["\"-\" \"-\"", "\"-\" \"whale/1.0\"", "\"http://a/\" \"-\"", "\"-\" \"-\""];
    let found: Vec<String> = lines(&log, 4).iter().map(|line| without_time(line)).collect();
    let combined: Vec<String> =
        common.iter().zip(ends).map(|(line, end)| format!("{line} {end}")).collect();
    assert_eq!(found, combined);
    drop(server);

    let server = start(backend, &dir, "json");
    requests(&server);
    let objects: Vec<serde_json::Value> =
        lines(&log, 4).iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let expected = [
        ("GET", "/?a=1", 200, 4),
        ("HEAD", "/", 200, 0),
        ("GET", "/none", 404, 14),
        ("POST", "/", 405, 23),
    ];
    for (object, (method, target, status, bytes)) in objects.iter().zip(expected) {
        assert_eq!(object["peer"], "127.0.0.1");
        assert_eq!((&object["method"], &object["target"]), (&method.into(), &target.into()));
        assert_eq!(
            (&object["status"], &object["bytes"]),
            (&status.into(), &bytes.into()),
            "{object}"
        );
        assert_eq!((&object["host"], &object["version"]), (&"a".into(), &"HTTP/1.1".into()));
        assert!(object["microseconds"].is_u64() && object["time"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(objects[1]["agent"], "whale/1.0");
    assert_eq!(objects[2]["referer"], "http://a/");
}

pub(crate) fn j14_what_clients_send_cannot_forge_a_line(backend: &str) {
    let dir = site();
    let server = start(backend, &dir, "combined");
    let forged = "x\" 200 0\t\"\\";
    assert_eq!(ask(&server, "GET", "/", &format!("User-Agent: {forged}\r\n")).status, 200);
    assert_eq!(get(&server, "/%0a127.0.0.1%20-%20-").status, 400);
    let lines = lines(&dir.file("access.log"), 2);
    assert!(lines[0].ends_with("\"-\" \"x\\\" 200 0\\x09\\\"\\\\\""), "{}", lines[0]);
    let refused = without_time(&lines[1]);
    assert!(
        refused.starts_with("127.0.0.1 - - TIME \"GET /%0a127.0.0.1%20-%20- HTTP/1.1\" 400 "),
        "{refused}"
    );
}

pub(crate) fn j14_request_ids_are_in_answer_and_log(backend: &str) {
    let dir = site();
    let (site, log) = (dir.file("site"), dir.file("access.log"));
    let arguments =
        [site.to_str().unwrap(), "--request-ids", "--access-log", log.to_str().unwrap()];
    let server = serve(backend, &[&arguments[..], &["--access-log-format", "json"]].concat());
    let answers = [get(&server, "/"), get(&server, "/none")];
    let ids: Vec<&str> =
        answers.iter().map(|answer| answer.header("x-request-id").expect("an id")).collect();
    assert_ne!(ids[0], ids[1]);
    for (line, id) in lines(&log, 2).iter().zip(ids) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["id"], id);
    }
}

#[test]
fn j14_log_on_standard_output_is_whole_at_the_end() {
    let dir = site();
    let site = dir.file("site");
    for arguments in [&["--access-log", "-"][..], &["--access-log"]] {
        let server = serve("epoll", &[&[site.to_str().unwrap()], arguments].concat());
        (0..5).for_each(|_| assert_eq!(get(&server, "/").status, 200));
        let output = server.end();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let requests =
            text.lines().filter(|line| line.contains("\"GET / HTTP/1.1\" 200 4")).count();
        assert_eq!(requests, 5, "{text}");
    }
}

pub(crate) fn j14_refused_requests_are_logged_and_have_their_page(backend: &str) {
    let dir = Dir::with(&[("site/index.html", "ahoy"), ("wrong.html", "<h1>What?</h1>")]);
    let (site, log) = (dir.file("site"), dir.file("access.log"));
    let page = format!("400={}", dir.file("wrong.html").display());
    let (site, log_name) = (site.to_str().unwrap(), log.to_str().unwrap());
    let server = serve(backend, &[site, "--access-log", log_name, "--error-page", &page]);
    let told = |bytes: &[u8]| {
        let answer = answer_of(&raw(&server, bytes));
        (answer.status, answer.text())
    };
    let page = (400, "<h1>What?</h1>".to_owned());
    assert_eq!(told(b"GET /a HTTP/1.1\r\nHost: a\r\nbad name: x\r\n\r\n"), page);
    assert_eq!(told(b"\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n"), page);
    let accepting = b"GET /b HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nHost: b\r\n\r\n";
    assert_eq!(told(accepting), (400, "there is more than one Host\n".into()));
    let plain = told(b"GET /c HTTP/3.0\r\n\r\n");
    assert_eq!(plain, (505, "this server speaks HTTP/1.1\n".into()));
    let found: Vec<String> = lines(&log, 4).iter().map(|line| without_time(line)).collect();
    let expected = [
        "127.0.0.1 - - TIME \"GET /a HTTP/1.1\" 400 14",
        "127.0.0.1 - - TIME \"- - -\" 400 14",
        "127.0.0.1 - - TIME \"GET /b HTTP/1.1\" 400 28",
        "127.0.0.1 - - TIME \"GET /c -\" 505 28",
    ];
    let starts = found.iter().zip(expected).all(|(line, begin)| line.starts_with(begin));
    assert!(starts, "{found:#?}");
}
