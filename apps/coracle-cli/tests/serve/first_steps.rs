//! What a newcomer does first, and a browser every day.

use crate::client::{Dir, answer_of, ask, ask_on, get, raw, read_answer, serve_dir};
use std::fs::{File, FileTimes};
use std::io::Write;
use std::time::SystemTime;

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";

pub(crate) fn r2_index_is_served(backend: &str) {
    let dir = Dir::with(&[
        ("index.html", "<h1>ahoy</h1>"),
        ("docs/index.html", "docs"),
        ("a b.txt", "text"),
    ]);
    let server = serve_dir(backend, &dir, &[]);
    let top = get(&server, "/");
    assert_eq!((top.status, top.text().as_str()), (200, "<h1>ahoy</h1>"));
    assert_eq!(top.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(top.header("content-length"), Some("13"));
    assert_eq!(top.header("x-content-type-options"), Some("nosniff"));
    assert!(top.header("etag").is_some() && top.header("last-modified").is_some());
    assert_eq!(get(&server, "/docs/").text(), "docs");
    assert_eq!(get(&server, "/a%20b.txt").text(), "text");
    assert_eq!(get(&server, "/a%20b.txt?version=2").text(), "text");
    assert_eq!(get(&server, "/none").status, 404);
    // What is new is there at once.
    dir.write("new.css", "body {}");
    let new = get(&server, "/new.css");
    assert_eq!((new.status, new.header("content-type")), (200, Some("text/css; charset=utf-8")));
    assert!(server.end().status.success());
}

pub(crate) fn r2_welcome_page_shows_what_serves(backend: &str) {
    let dir = Dir::new();
    let server = serve_dir(backend, &dir, &[]);
    let page = get(&server, "/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.text();
    for fact in [&server.backend, &server.loops, concat!("coracle ", env!("CARGO_PKG_VERSION"))] {
        assert!(text.contains(fact), "{fact}");
    }
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none';"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let head = ask(&server, "HEAD", "/", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), page.header("content-length"));
    // It is no answer to anything else.
    assert_eq!(get(&server, "/none").status, 404);
    assert_eq!(ask(&server, "POST", "/", "Content-Length: 0\r\n").status, 405);
    // An index takes its place, as soon as what was found is looked at again.
    dir.write("index.html", "mine");
    crate::client::await_text(&server, "/", "mine");
}

pub(crate) fn n5_listing_is_there_when_it_is_asked_for(backend: &str) {
    let dir = Dir::with(&[("sub/<b>.txt", "1"), ("sub/.hidden", "2"), ("plain.txt", "3")]);
    let server = serve_dir(backend, &dir, &[]);
    assert_eq!(get(&server, "/sub/").status, 404, "without it, nothing is listed");
    drop(server);
    let server = serve_dir(backend, &dir, &["--listing"]);
    let page = get(&server, "/sub/");
    assert_eq!(page.status, 200);
    let text = page.text();
    assert!(
        text.contains("&lt;b&gt;.txt") && !text.contains("<b>") && !text.contains("hidden"),
        "{text}"
    );
    let top = get(&server, "/").text();
    assert!(
        top.contains("plain.txt") && top.contains("sub/"),
        "instead of the welcome page: {top}"
    );
}

pub(crate) fn n5_head_options_and_other_methods(backend: &str) {
    let dir = Dir::with(&[("a.txt", "ahoy")]);
    let server = serve_dir(backend, &dir, &[]);
    let head = ask(&server, "HEAD", "/a.txt", "");
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("4"), 0));
    let options = ask(&server, "OPTIONS", "/a.txt", "");
    assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND"] {
        let answer = ask(&server, method, "/a.txt", "Content-Length: 0\r\n");
        assert_eq!(
            (answer.status, answer.header("allow")),
            (405, Some("GET, HEAD, OPTIONS")),
            "{method}"
        );
    }
    assert_eq!(std::fs::read_to_string(dir.file("a.txt")).unwrap(), "ahoy");
}

pub(crate) fn n4_ranges(backend: &str) {
    let dir = Dir::with(&[("digits", "0123456789")]);
    let server = serve_dir(backend, &dir, &[]);
    for (range, status, content_range, body) in [
        ("bytes=0-3", 206, "bytes 0-3/10", "0123"),
        ("bytes=7-", 206, "bytes 7-9/10", "789"),
        ("bytes=-2", 206, "bytes 8-9/10", "89"),
        ("bytes=8-100", 206, "bytes 8-9/10", "89"),
        ("bytes=10-", 416, "bytes */10", ""),
        ("bytes=-0", 416, "bytes */10", ""),
    ] {
        let answer = ask(&server, "GET", "/digits", &format!("Range: {range}\r\n"));
        assert_eq!(
            (answer.status, answer.header("content-range")),
            (status, Some(content_range)),
            "{range}"
        );
        if status == 206 {
            assert_eq!(answer.text(), body, "{range}");
        }
    }
    for ignored in ["bytes=3-1", "lines=1-2", "bytes=", "bytes=a-b"] {
        let answer = ask(&server, "GET", "/digits", &format!("Range: {ignored}\r\n"));
        assert_eq!((answer.status, answer.text().as_str()), (200, "0123456789"), "{ignored}");
    }
    let several = ask(&server, "GET", "/digits", "Range: bytes=0-1,5-6\r\n");
    assert_eq!(several.status, 206);
    let kind = several.header("content-type").unwrap();
    let boundary =
        kind.strip_prefix("multipart/byteranges; boundary=").expect("parts").trim_matches('"');
    let parts = several.text();
    assert_eq!(parts.matches(&format!("--{boundary}")).count(), 3, "{parts}");
    assert!(parts.contains("\r\n\r\n01\r\n") && parts.contains("\r\n\r\n56\r\n"), "{parts}");
}

pub(crate) fn n3_what_the_client_has_is_not_sent_again(backend: &str) {
    let dir = Dir::with(&[("a.txt", "ahoy")]);
    let past = SystemTime::now() - std::time::Duration::from_secs(1000);
    let file = File::options().append(true).open(dir.file("a.txt")).unwrap();
    file.set_times(FileTimes::new().set_modified(past)).unwrap();
    let server = serve_dir(backend, &dir, &[]);
    let first = get(&server, "/a.txt");
    let tag = first.header("etag").unwrap();
    let date = first.header("last-modified").unwrap();
    for condition in [format!("If-None-Match: {tag}"), format!("If-Modified-Since: {date}")] {
        let again = ask(&server, "GET", "/a.txt", &format!("{condition}\r\n"));
        assert_eq!((again.status, again.body.len()), (304, 0), "{condition}");
        assert_eq!(again.header("etag"), Some(tag));
    }
    let other = ask(&server, "GET", "/a.txt", "If-None-Match: \"other\"\r\n");
    assert_eq!((other.status, other.text().as_str()), (200, "ahoy"));
    let refused = ask(&server, "GET", "/a.txt", "If-Match: \"other\"\r\n");
    assert_eq!(refused.status, 412);
}

pub(crate) fn n6_precompressed_siblings(backend: &str) {
    let dir = Dir::with(&[
        ("app.js", "plain"),
        ("app.js.gz", "not really gzip"),
        ("app.js.br", "nor brotli"),
    ]);
    let server = serve_dir(backend, &dir, &[]);
    for (accepted, coding, body) in [
        ("", None, "plain"),
        ("Accept-Encoding: gzip\r\n", Some("gzip"), "not really gzip"),
        ("Accept-Encoding: gzip, br\r\n", Some("br"), "nor brotli"),
        ("Accept-Encoding: br;q=0\r\n", None, "plain"),
    ] {
        let answer = ask(&server, "GET", "/app.js", accepted);
        assert_eq!(
            (answer.header("content-encoding"), answer.text().as_str()),
            (coding, body),
            "{accepted}"
        );
        assert_eq!(
            answer.header("content-type"),
            Some("text/javascript; charset=utf-8"),
            "{accepted}"
        );
        assert!(answer.header("vary").unwrap().eq_ignore_ascii_case("accept-encoding"));
    }
}

pub(crate) fn n1_large_file_comes_whole(backend: &str) {
    let dir = Dir::new();
    let bytes = crate::program::pattern(5 << 20);
    dir.write("large.bin", &bytes);
    let server = serve_dir(backend, &dir, &[]);
    let answer = get(&server, "/large.bin");
    assert_eq!(answer.status, 200);
    assert!(answer.body == bytes, "{} bytes came", answer.body.len());
    let part = ask(&server, "GET", "/large.bin", "Range: bytes=1000000-3999999\r\n");
    assert!(part.body == bytes[1_000_000..4_000_000], "{} bytes came", part.body.len());
}

pub(crate) fn n5_directory_without_its_slash_is_redirected(backend: &str) {
    let dir = Dir::with(&[("docs/index.html", "docs")]);
    let server = serve_dir(backend, &dir, &[]);
    let answer = get(&server, "/docs?a=1");
    assert_eq!((answer.status, answer.header("location")), (301, Some("/docs/?a=1")));
}

pub(crate) fn j14_error_pages(backend: &str) {
    let dir = Dir::with(&[("site/index.html", "ahoy"), ("lost.html", "<h1>Here be dragons</h1>")]);
    let page = format!("404={}", dir.file("lost.html").display());
    let site = dir.file("site");
    let server = crate::client::serve(backend, &[site.to_str().unwrap(), "--error-page", &page]);
    let answer = ask(&server, "GET", "/none", BROWSER);
    assert_eq!((answer.status, answer.text().as_str()), (404, "<h1>Here be dragons</h1>"));
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    let answer = ask(&server, "GET", "/none", "Accept: application/json\r\n");
    assert_eq!(answer.text(), r#"{"status":404,"error":"404 Not Found"}"#);
    assert_eq!(get(&server, "/none").text(), "404 Not Found\n");
    // The others have the page of the program, and keep what else they say.
    let answer = ask(&server, "POST", "/", &format!("Content-Length: 0\r\n{BROWSER}"));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    assert!(answer.text().contains("<h1>405 Method Not Allowed</h1>"));
}

pub(crate) fn j1_old_clients_and_pipelining(backend: &str) {
    let dir = Dir::with(&[("a", "first"), ("b", "second")]);
    let server = serve_dir(backend, &dir, &[]);
    let old = answer_of(&raw(&server, b"GET /a HTTP/1.0\r\n\r\n"));
    assert_eq!((old.status, old.text().as_str()), (200, "first"));
    let mut stream = server.connect();
    assert_eq!(ask_on(&mut stream, "/a").text(), "first");
    let request = |path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let three = [request("/a"), request("/none"), request("/b")].concat();
    stream.write_all(three.as_bytes()).unwrap();
    let answers: Vec<_> = (0..3).map(|_| read_answer(&mut stream)).collect();
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 404, 200]);
    assert_eq!((answers[0].text(), answers[2].text()), ("first".into(), "second".into()));
}
