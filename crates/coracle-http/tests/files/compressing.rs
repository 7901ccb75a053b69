//! Row J11: files that are too large to be in memory are compressed while they are sent.

use crate::client::{Answer, Client};
use crate::harness::Harness;
use crate::site::{Site, pattern};
use coracle_http::middleware::{Compression, Next, around};
use coracle_http::{Request, Response};
use std::fs;
use std::io::Read;
use std::time::Duration;

/// Text of so many bytes, in which nothing is said twice.
fn text(bytes: usize) -> Vec<u8> {
    let mut text: Vec<u8> =
        (0..).flat_map(|n: u64| format!("{n:x} ").into_bytes()).take(bytes).collect();
    text[bytes - 1] = b'!';
    text
}

fn ask(client: &Client<'_>, name: &str) {
    let fields = "Host: a\r\nAccept-Encoding: gzip\r\n";
    client.send(format!("GET /{name} HTTP/1.1\r\n{fields}\r\n"));
}

pub(crate) fn j11_large_file_is_compressed_while_it_is_sent(h: &Harness) {
    let site = Site::new();
    let client = Client::of(h, around(Compression::new(), site.files()));
    for size in [(64 << 10) + 1, 128 << 10, (128 << 10) + 1, 1_000_000] {
        let contents = text(size);
        site.file(&format!("{size}.txt"), &contents);
        ask(&client, &format!("{size}.txt"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("content-encoding")), (200, Some("gzip")));
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
        assert!(answer.header("etag").is_some_and(|tag| tag.starts_with("W/")), "{answer:?}");
        assert!(answer.body.len() < size);
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut plain).expect("gzip");
        assert!(plain == contents, "{size} bytes");
    }
    // Who does not ask for it gets the file, and so does who asks for what is no text.
    let answer = client.get("/1000000.txt");
    assert_eq!((answer.body.len(), answer.header("content-encoding")), (1_000_000, None));
    site.file("image.png", pattern(200_000));
    ask(&client, "image.png");
    let answer = client.answer();
    assert_eq!((answer.body.len(), answer.header("content-encoding")), (200_000, None));
}

pub(crate) fn j11_file_that_the_client_has_is_told_as_if_it_were_sent(h: &Harness) {
    let site = Site::new();
    site.file("short.txt", "ahoy");
    site.file("page.txt", text(1000));
    site.file("large.txt", text(200_000));
    site.file("image.png", pattern(1000));
    site.file("ready.txt", text(1000));
    site.file("ready.txt.gz", "as if it were");
    let client = Client::of(h, around(Compression::new(), site.files()));
    let told = |answer: &Answer| {
        ["etag", "vary", "last-modified"].map(|name| answer.header(name).map(str::to_owned))
    };
    for name in ["short.txt", "page.txt", "large.txt", "image.png", "ready.txt"] {
        for coding in ["gzip", "identity"] {
            let ask = |fields: &str| {
                let fields = format!("Host: a\r\nAccept-Encoding: {coding}\r\n{fields}");
                client.send(format!("GET /{name} HTTP/1.1\r\n{fields}\r\n"));
                client.answer()
            };
            let whole = ask("");
            let tag = whole.header("etag").expect("a tag");
            let compressed = whole.header("content-encoding").is_some() && name != "ready.txt";
            assert_eq!(tag.starts_with("W/"), compressed, "{name} {coding}");
            let modified = whole.header("last-modified").expect("a date");
            for fields in [
                format!("If-None-Match: {tag}\r\n"),
                format!("If-None-Match: {}\r\n", tag.trim_start_matches("W/")),
                format!("If-Modified-Since: {modified}\r\n"),
            ] {
                let kept = ask(&fields);
                assert_eq!((kept.status, kept.body.len()), (304, 0), "{name} {fields}");
                assert_eq!(told(&kept), told(&whole), "{name} {coding} {fields}");
            }
        }
    }
}

pub(crate) fn j11_file_that_is_cut_while_it_is_compressed_cuts_the_connection(h: &Harness) {
    let site = Site::new();
    let path = site.file("shrinking.txt", text(4 << 20));
    let client = Client::of(h, around(Compression::new(), site.files()));
    ask(&client, "shrinking.txt");
    assert_eq!(client.head().header("content-encoding"), Some("gzip"));
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(1 << 20).unwrap();
    let rest = client.rest();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it looks whole");
}

/// What is compressed is a file, in the simulator as elsewhere, and not something that is written.
fn is_file(req: &Request<'_>, next: Next<'_>) -> Response {
    let response = next.run(req);
    assert!(format!("{:?}", response.body()).ends_with(" bytes of a file)"), "{response:?}");
    response
}

pub(crate) fn j11_client_that_does_not_read_has_nothing_compressed_for_it(h: &Harness) {
    let site = Site::new();
    let contents = text(2 << 20);
    let path = site.file("large.txt", &contents);
    let client = Client::of(h, around(Compression::new(), around(is_file, site.files())));
    ask(&client, "large.txt");
    assert_eq!(client.head().header("content-encoding"), Some("gzip"));
    h.run_for(Duration::from_secs(5)); // of simulated time: whatever can be done is done
    let unsent = client.server.with(&h.lp, |conn| conn.unsent_bytes()).unwrap_or(0);
    assert!(unsent > 0 && unsent < 256 << 10, "{unsent} bytes wait");
    // What is behind was not compressed, or it would be what it is now.
    let mut end = contents.clone();
    let from = end.len() - (1 << 20);
    end[from..].fill(b'.');
    std::os::unix::fs::FileExt::write_all_at(
        &fs::OpenOptions::new().write(true).open(path).unwrap(),
        &end[from..],
        from as u64,
    )
    .unwrap();
    let answer = client.chunks();
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&answer[..]).read_to_end(&mut plain).expect("gzip");
    assert!(plain == end, "its end was read when there was room for it");
}
