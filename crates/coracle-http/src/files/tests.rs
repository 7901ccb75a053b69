//! Facts about whole answers, without a server: what is sent to whom.

use super::test_dir::TestDir;
use super::*;
use crate::OwnedRequest;
use crate::body::{BodyWriter, Kind};
use std::os::unix::fs::FileExt;
use std::time::UNIX_EPOCH;

struct Answer {
    status: u16,
    headers: Headers,
    body: Vec<u8>,
    /// Where the body was: in memory, in a file, or made on the way.
    kind: &'static str,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

fn ask(files: &Files, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut request = OwnedRequest::new(method, path);
    for (name, value) in fields {
        request = request.with_header(name, value).unwrap();
    }
    let response = files.call(&request.request());
    let (status, headers, body) = response.into_parts();
    let length = body.len().expect("it is always known");
    let (kind, bytes) = match body.0 {
        Kind::File { file, offset, len } => {
            let mut bytes = vec![0; len as usize];
            file.file().read_exact_at(&mut bytes, offset).unwrap();
            ("file", bytes)
        }
        Kind::Stream { writer, .. } => {
            let mut bytes = Vec::new();
            writer(&mut BodyWriter::new(&mut bytes)).unwrap();
            ("stream", bytes)
        }
        _ => ("memory", body.as_bytes().unwrap().to_vec()),
    };
    assert_eq!(bytes.len() as u64, length);
    Answer { status: status.as_u16(), headers, body: bytes, kind }
}

fn get(files: &Files, path: &str) -> Answer {
    ask(files, "GET", path, &[])
}

fn hundred() -> Vec<u8> {
    (0..100).collect()
}

fn site() -> (TestDir, Files) {
    let dir = TestDir::new();
    dir.file("index.html", "<h1>top</h1>")
        .file("hundred.bin", hundred())
        .file("docs/index.html", "docs")
        .file("docs/a b.txt", "with a space")
        .directory("empty")
        .file("empty.txt", "");
    let files = Files::new(dir.path()).unwrap();
    (dir, files)
}

#[test]
fn n5_file_has_type_length_and_validators() {
    let (_dir, files) = site();
    let answer = get(&files, "/hundred.bin");
    assert_eq!((answer.status, answer.body), (200, hundred()));
    assert_eq!(answer.headers.get("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.headers.get("accept-ranges"), Some("bytes"));
    assert_eq!(answer.headers.get("x-content-type-options"), Some("nosniff"));
    let etag = answer.headers.get("etag").unwrap();
    assert!(etag.starts_with('"') && etag.ends_with('"'));
    assert!(httpdate::parse_http_date(answer.headers.get("last-modified").unwrap()).is_ok());
    let empty = get(&files, "/empty.txt");
    assert_eq!((empty.status, empty.text()), (200, ""));
    assert_eq!(get(&files, "/docs/a%20b.txt").text(), "with a space");
}

#[test]
fn n5_directory_has_an_index_and_a_slash() {
    let (dir, files) = site();
    assert_eq!(get(&files, "/").text(), "<h1>top</h1>");
    assert_eq!(get(&files, "/docs/").text(), "docs");
    let redirect = get(&files, "/docs?q=1&r=%2F");
    assert_eq!((redirect.status, redirect.header("location")), (301, Some("/docs/?q=1&r=%2F")));
    assert_eq!(get(&files, "/empty/").status, 404);
    assert_eq!(get(&files, "/index.html/").status, 404, "a file is not a directory");
    assert_eq!(get(&files, "//docs").status, 404, "never a redirect to another host");
    dir.file("empty/home.htm", "home");
    let files = files.index(["index.html", "home.htm"]);
    assert_eq!(get(&files, "/empty/").text(), "home");
    assert_eq!(get(&files.index([""; 0]), "/docs/").status, 404);
}

#[test]
fn n5_listing_shows_what_would_be_served() {
    let (dir, files) = site();
    dir.file("empty/b<i>.txt", "12345")
        .file("empty/.hidden", "")
        .directory("empty/Zoo")
        .link("empty/out", "../../")
        .link("empty/in", "../index.html");
    assert_eq!(get(&files, "/empty/").status, 404);
    let files = files.listing(true);
    let page = get(&files, "/empty/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let text = page.text();
    assert!(text.contains("href=\"./b%3Ci%3E.txt\">b&lt;i&gt;.txt</a>") && text.contains("5 B"));
    assert!(text.contains("Zoo/</a>") && text.contains("in</a>"));
    assert!(!text.contains("hidden") && !text.contains("out"), "{text}");
    assert!(text.contains("1 directory, 2 files"));
    assert_eq!(get(&files, "/").text(), "<h1>top</h1>", "an index goes before a listing");
    let few = get(&files.limit_listed_names(2), "/empty/");
    assert!(few.text().contains("there are more"));
}

#[test]
fn n5_methods() {
    let (_dir, files) = site();
    let head = ask(&files, "HEAD", "/hundred.bin", &[("Range", "bytes=0-4")]);
    assert_eq!((head.status, head.body.len()), (200, 100), "a server leaves the body out");
    let options = ask(&files, "OPTIONS", "/hundred.bin", &[]);
    assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
    for method in ["POST", "PUT", "DELETE", "PATCH", "get", "BREW"] {
        let refused = ask(&files, method, "/hundred.bin", &[]);
        assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
}

#[test]
fn n2_paths_that_lead_nowhere() {
    let (dir, files) = site();
    dir.file(".env", "secret").link("out", "/etc/passwd");
    for (path, status) in [
        ("/../etc/passwd", 400),
        ("/%2e%2e/etc/passwd", 400),
        ("/docs/..%2f..%2fetc/passwd", 400),
        ("/docs%5c..%5c", 400),
        ("/index.html%00.txt", 400),
        ("/%252e%252e/etc/passwd", 404),
        ("/%c0%ae%c0%ae/etc/passwd", 400),
        ("/.env", 404),
        ("/out", 404),
        ("/nothing", 404),
        ("/index.html/nothing", 404),
    ] {
        assert_eq!(get(&files, path).status, status, "{path}");
    }
}

#[test]
fn n3_what_the_peer_has_is_not_sent_again() {
    let (dir, files) = site();
    let files = files.cache_control("public, max-age=60");
    let first = get(&files, "/hundred.bin");
    let etag = first.header("etag").unwrap();
    let modified = first.header("last-modified").unwrap();
    for fields in [
        &[("If-None-Match", etag)][..],
        &[("If-None-Match", "\"other\""), ("if-none-match", etag)],
        &[("If-Modified-Since", modified)],
        &[("If-None-Match", "*"), ("Range", "bytes=0-1")],
    ] {
        let answer = ask(&files, "GET", "/hundred.bin", fields);
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{fields:?}");
        assert_eq!(answer.header("etag"), Some(etag));
        assert_eq!(answer.header("cache-control"), Some("public, max-age=60"));
        assert_eq!(answer.header("content-type"), None);
    }
    let failed = ask(&files, "GET", "/hundred.bin", &[("If-Match", "\"other\"")]);
    assert_eq!(failed.status, 412);
    let twice = [("If-Modified-Since", modified), ("If-Modified-Since", modified)];
    assert_eq!(ask(&files, "GET", "/hundred.bin", &twice).status, 200, "twice is nothing");

    dir.file("new", hundred());
    std::fs::rename(dir.path().join("new"), dir.path().join("hundred.bin")).unwrap();
    let answer = ask(&files, "GET", "/hundred.bin", &[("If-None-Match", etag)]);
    assert_eq!(answer.status, 200, "another file, of the same length");
}

#[test]
fn n3_if_range_is_the_whole_to_who_has_another_state() {
    let (dir, files) = site();
    let old = std::fs::File::open(dir.path().join("hundred.bin")).unwrap();
    old.set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777)).unwrap();
    let etag = get(&files, "/hundred.bin").header("etag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    for (value, status) in [
        (&*etag, 206),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 206),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200),
        ("\"other\"", 200),
        (&*weak, 200),
    ] {
        let fields = [("Range", "bytes=0-4"), ("If-Range", value)];
        assert_eq!(ask(&files, "GET", "/hundred.bin", &fields).status, status, "{value}");
    }
    let fields = [("Range", "bytes=0-4"), ("If-Range", &etag), ("If-Range", "\"other\"")];
    assert_eq!(ask(&files, "GET", "/hundred.bin", &fields).status, 200, "it cannot be both");
}

/// The table of research on others' servers, on a file of a hundred bytes: in memory, and on the disk.
#[test]
fn n4_ranges_of_a_hundred_bytes() {
    let (_dir, files) = site();
    for files in [files.clone(), files.limit_memory_file_bytes(0)] {
        for (range, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=95-", 95..100),
            ("bytes=-5", 95..100),
            ("bytes=90-500", 90..100),
            ("bytes=0-99", 0..100),
        ] {
            let answer = ask(&files, "GET", "/hundred.bin", &[("Range", range)]);
            assert_eq!((answer.status, &answer.body[..]), (206, &hundred()[expected.clone()]));
            let content_range = format!("bytes {}-{}/100", expected.start, expected.end - 1);
            assert_eq!(answer.header("content-range"), Some(&*content_range));
            assert!(answer.header("etag").is_some() && answer.header("last-modified").is_some());
        }
        let nothing = ask(&files, "GET", "/hundred.bin", &[("Range", "bytes=200-300")]);
        assert_eq!((nothing.status, nothing.header("content-range")), (416, Some("bytes */100")));
        let twice = [("Range", "bytes=0-1"), ("Range", "bytes=2-3")];
        for fields in [&[("Range", "bytes=5-1")][..], &[("Range", "lines=0-1")], &twice] {
            let whole = ask(&files, "GET", "/hundred.bin", fields);
            assert_eq!((whole.status, whole.body.len()), (200, 100));
        }
    }
}

#[test]
fn n4_several_ranges_are_parts_of_one_body() {
    let (_dir, files) = site();
    for (files, kind) in [(files.clone(), "memory"), (files.limit_memory_file_bytes(0), "stream")] {
        let answer = ask(&files, "GET", "/hundred.bin", &[("Range", "bytes=50-54, 0-1,-1")]);
        assert_eq!((answer.status, answer.kind), (206, kind));
        assert_eq!(answer.header("content-range"), None);
        let content_type = answer.header("content-type").unwrap();
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let mut expected = Vec::new();
        for (range, bytes) in
            [("50-54", &[50, 51, 52, 53, 54][..]), ("0-1", &[0, 1]), ("99-99", &[99])]
        {
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                 Content-Range: bytes {range}/100\r\n\r\n"
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(bytes);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert_eq!(answer.body, expected);
        let again = ask(&files, "GET", "/hundred.bin", &[("Range", "bytes=50-54, 0-1")]);
        assert_ne!(again.header("content-type"), Some(content_type), "no boundary comes twice");
    }
}

#[test]
fn n6_siblings_are_sent_to_who_takes_them() {
    let (dir, files) = site();
    dir.file("app.js", "plain").file("app.js.gz", "as gzip").file("app.js.br", "as br");
    let with = |value: &str| ask(&files, "GET", "/app.js", &[("Accept-Encoding", value)]);
    for (accept, coding, body) in [
        ("gzip, deflate, br", Some("br"), "as br"),
        ("gzip", Some("gzip"), "as gzip"),
        ("br;q=0.5, gzip", Some("gzip"), "as gzip"),
        ("zstd", None, "plain"),
        ("gzip;q=0", None, "plain"),
        ("", None, "plain"),
    ] {
        let answer = with(accept);
        assert_eq!((answer.header("content-encoding"), answer.text()), (coding, body), "{accept}");
        assert_eq!(answer.header("vary"), Some("accept-encoding"), "whatever is sent");
        assert_eq!(answer.header("content-type"), Some("text/javascript; charset=utf-8"));
    }
    let (gzip, br) = (with("gzip"), with("br"));
    assert_ne!(gzip.header("etag"), br.header("etag"), "they are different bytes");
    let known = [("Accept-Encoding", "br"), ("If-None-Match", br.header("etag").unwrap())];
    let known = ask(&files, "GET", "/app.js", &known);
    assert_eq!((known.status, known.header("vary")), (304, Some("accept-encoding")));
    let part = [("Accept-Encoding", "br"), ("Range", "bytes=3-")];
    let part = ask(&files, "GET", "/app.js", &part);
    assert_eq!((part.text(), part.header("content-range")), ("br", Some("bytes 3-4/5")));
    assert_eq!(get(&files, "/index.html").header("vary"), None, "it has no siblings");
    let none = files.clone().precompressed([]);
    let answer = ask(&none, "GET", "/app.js", &[("Accept-Encoding", "gzip")]);
    assert_eq!((answer.text(), answer.header("vary")), ("plain", None));
}

#[test]
fn n6_sibling_that_is_older_than_its_file_is_not_sent() {
    let (dir, files) = site();
    dir.file("app.js", "new").file("app.js.gz", "old");
    let sibling = std::fs::File::open(dir.path().join("app.js.gz")).unwrap();
    sibling.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    let gzip = [("Accept-Encoding", "gzip")];
    assert_eq!(ask(&files, "GET", "/app.js", &gzip).text(), "new");
    dir.directory("app.css.gz").file("app.css", "css");
    assert_eq!(ask(&files, "GET", "/app.css", &gzip).text(), "css", "a directory is no sibling");
}

#[test]
fn n1_small_files_are_in_memory_and_large_ones_are_not() {
    let (dir, files) = site();
    dir.file("large", vec![7; 32 * 1024 + 1]).file("small", vec![7; 32 * 1024]);
    assert_eq!(get(&files, "/small").kind, "memory");
    let large = get(&files, "/large");
    assert_eq!((large.kind, large.body.len()), ("file", 32 * 1024 + 1));
    assert_eq!(get(&files.limit_memory_file_bytes(0), "/small").kind, "file");
}

#[test]
fn n5_mounted_below_a_prefix() {
    let (_dir, files) = site();
    let files = files.mounted_at("/static/");
    assert_eq!(get(&files, "/static/").text(), "<h1>top</h1>");
    assert_eq!(get(&files, "/static/docs/").text(), "docs");
    assert_eq!(get(&files, "/static/docs").header("location"), Some("/static/docs/"));
    assert_eq!(get(&files, "/static").header("location"), Some("/static/"));
    for path in ["/", "/docs/", "/staticdocs/", "/static2/index.html", "/stat"] {
        assert_eq!(get(&files, path).status, 404, "{path}");
    }
    assert_eq!(get(&files, "/static/../static/index.html").status, 400);
}

#[test]
fn n5_settings_that_cannot_be_sent_are_refused() {
    let (_dir, files) = site();
    let set = |set: &dyn Fn(Files) -> Files| {
        let files = files.clone();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| set(files))).is_err()
    };
    assert!(set(&|files| files.cache_control("a\r\nb: c")));
    assert!(set(&|files| files.content_type("x", "a\nb")));
    assert!(set(&|files| files.mounted_at("static")));
    let error = Files::new("/nowhere/at/all").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

/// In a coroutine, where things are kept.
fn on_a_loop(check: impl FnOnce(&TestDir, &Files) + 'static) {
    let (dir, files) = site();
    coracle_coro::run(move || {
        check(&dir, &files);
        Ok(())
    })
    .unwrap();
}

#[test]
fn n7_what_was_sent_is_kept() {
    on_a_loop(|_, files| {
        for _ in 0..10 {
            assert_eq!(get(files, "/hundred.bin").body, hundred());
        }
        let stats = files.stats();
        assert_eq!(stats.looked_up, 1);
        assert_eq!(stats.kept + stats.revalidated, 9, "{stats:?}");
        for _ in 0..10 {
            assert_eq!(get(files, "/nothing").status, 404);
        }
        assert_eq!(files.stats().looked_up, 11, "what is not there is not kept");
    });
}

#[test]
fn n7_what_changes_is_noticed() {
    on_a_loop(|dir, files| {
        let files = files.clone().revalidate_after(Duration::ZERO);
        assert_eq!(get(&files, "/docs/").text(), "docs");
        assert_eq!(get(&files, "/docs/").text(), "docs");
        assert_eq!((files.stats().looked_up, files.stats().revalidated), (1, 1));
        dir.file("docs/index.html", "another text");
        assert_eq!(get(&files, "/docs/").text(), "another text");
        assert_eq!(files.stats().looked_up, 2);
        dir.file("docs/index.html.gz", "coded");
        let gzip = [("Accept-Encoding", "gzip")];
        assert_eq!(ask(&files, "GET", "/docs/", &gzip).text(), "coded", "a sibling has come");
        std::fs::remove_file(dir.path().join("docs/index.html")).unwrap();
        assert_eq!(get(&files, "/docs/").status, 404);
    });
}

#[test]
fn n7_bounds_of_what_is_kept() {
    on_a_loop(|_, files| {
        let few = files.clone().limit_cache_files(1);
        for path in ["/hundred.bin", "/", "/hundred.bin", "/"] {
            assert_eq!(get(&few, path).status, 200);
        }
        assert_eq!((few.stats().looked_up, few.stats().evicted), (4, 3));
        let none = files.clone().limit_cache_bytes(99);
        for _ in 0..3 {
            assert_eq!(get(&none, "/hundred.bin").status, 200);
        }
        assert_eq!((none.stats().looked_up, none.stats().evicted), (3, 0));
    });
}

#[test]
fn n7_many_who_ask_at_once_are_one_look() {
    on_a_loop(|_, files| {
        let all: Vec<_> = (0..2000)
            .map(|_| {
                let files = files.clone();
                coracle_coro::spawn(move || get(&files, "/hundred.bin").status)
            })
            .collect();
        assert!(all.into_iter().all(|one| one.join().unwrap() == 200));
        assert_eq!(files.stats().looked_up, 1);
        // More paths than the queue of the pool has room for: they wait, and none is refused.
        let all: Vec<_> = (0..2000)
            .map(|number| {
                let files = files.clone();
                coracle_coro::spawn(move || get(&files, &format!("/nothing-{number}")).status)
            })
            .collect();
        assert!(all.into_iter().all(|one| one.join().unwrap() == 404));
    });
}

#[test]
fn n7_cancelled_look_is_not_everybodys() {
    on_a_loop(|_, files| {
        let ask = |files: &Files| {
            let files = files.clone();
            coracle_coro::spawn(move || get(&files, "/hundred.bin").status)
        };
        for turns in 0..4 {
            let files = files.clone().limit_cache_files(0);
            let (first, second) = (ask(&files), ask(&files));
            for _ in 0..turns {
                coracle_coro::yield_now();
            }
            first.cancel();
            let status = first.join().unwrap();
            assert!(status == 503 || (status == 200 && turns > 0), "{status} after {turns} turns");
            assert_eq!(second.join().unwrap(), 200);
        }
    });
}
