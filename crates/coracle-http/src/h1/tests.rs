//! Each line of docs/reference/http.md that concerns bytes alone. The others are in `tests/`.

use super::head::{Facts, Parsed, parse};
use super::{Framing, Refusal, plain};
use crate::fuzzing::{self, decode};
use crate::settings::Settings;
use crate::{OwnedRequest, Version};
use proptest::prelude::*;

fn head(bytes: &str) -> Result<(Facts, OwnedRequest), u16> {
    head_with(bytes.as_bytes(), &Settings::default())
}

fn head_with(bytes: &[u8], settings: &Settings) -> Result<(Facts, OwnedRequest), u16> {
    fuzzing::compare_with_slow_way(bytes, settings);
    let mut request = OwnedRequest::blank();
    match parse(bytes, settings, &mut request) {
        Ok(Parsed::Whole(facts)) => Ok((facts, request)),
        Ok(Parsed::Partial) => Err(0),
        Err(Refusal { status, .. }) => Err(status.as_u16()),
    }
}

/// The answer to a request with these fields besides its Host.
fn fields(lines: &str) -> u16 {
    head(&format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).err().unwrap_or(200)
}

fn line(first: &str) -> u16 {
    head(&format!("{first}\r\nHost: a\r\n\r\n")).err().unwrap_or(200)
}

#[test]
fn j1_an_ordinary_request_is_found() {
    let text = "GET /a/b?c=d HTTP/1.1\r\nHost: x.y:80\r\nAccept:  text/html \r\nEmpty:\r\n\r\nrest";
    let (facts, request) = head(text).unwrap();
    assert_eq!(facts.len, text.len() - 4);
    assert_eq!((facts.framing, facts.keep_alive, facts.upgrade), (Framing::None, true, false));
    let req = request.request();
    assert_eq!((req.method_name(), req.path(), req.query()), ("GET", "/a/b", Some("c=d")));
    assert_eq!((req.host(), req.version()), (Some("x.y:80"), Version::Http11));
    assert_eq!(req.header("accept"), Some("text/html"));
    assert_eq!(req.header("empty"), Some(""));
    assert_eq!(req.headers().len(), 3);
}

#[test]
fn j1_requests_of_browsers_and_programs_are_plain() {
    let is_plain = |text: &str| {
        let mut request = OwnedRequest::blank();
        plain::read(text.as_bytes(), &Settings::default(), &mut request).is_some()
    };
    assert!(is_plain("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(is_plain(
        "POST /a/b?c=d HTTP/1.1\r\nhost: [::1]:80\r\nUser-Agent: x/1.0 (y; z)\r\naccept:*/*\r\n\
         Cookie: a=b; c=\u{e4}\t\r\ncontent-length: 3\r\nEmpty:\r\n\r\nabc"
    ));
    for text in [
        "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        "BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "GET / HTTP/1.1\r\nHost: a",
        "GET ",
        "",
    ] {
        assert!(!is_plain(text), "{text:?}");
    }
}

#[test]
fn j1_keep_alive_is_the_default_of_1_1_and_asked_for_in_1_0() {
    let keeps = |version, lines: &str| {
        head(&format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n")).unwrap().0.keep_alive
    };
    assert!(keeps("1.1", ""));
    assert!(!keeps("1.1", "Connection: close\r\n"));
    assert!(!keeps("1.1", "Connection: Upgrade, CLOSE\r\n"));
    assert!(!keeps("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn j3_length_and_coding_together_are_refused() {
    assert_eq!(fields("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400);
    assert_eq!(fields("Transfer-Encoding: chunked\r\ncontent-length: 0\r\n"), 400);
}

#[test]
fn j3_length_is_one_number() {
    let length = |value: &str| fields(&format!("Content-Length:{value}\r\n"));
    assert_eq!(length(" 3"), 200);
    assert_eq!(length("3"), 200);
    assert_eq!(length(" 9223372036854775807"), 200);
    for value in [
        " +3",
        " -1",
        " 0x3",
        " 3 ",
        " 3\t",
        "",
        " ",
        " 3,3",
        " 3, 4",
        " 3 3",
        " 9223372036854775808",
        " 18446744073709551616",
        " 1_0",
        " ３",
        " 3;",
        " \"3\"",
        " 3.0",
        " 1e3",
    ] {
        assert_eq!(length(value), 400, "{value:?}");
    }
    assert_eq!(fields("Content-Length: 3\r\nContent-Length: 4\r\n"), 400);
    assert_eq!(fields("Content-Length: 3\r\nContent-Length: 3\r\n"), 400);
}

#[test]
fn j3_coding_is_chunked_and_nothing_else() {
    let coding = |value: &str| fields(&format!("Transfer-Encoding: {value}\r\n"));
    assert_eq!(coding("chunked"), 200);
    assert_eq!(coding("Chunked"), 200);
    for value in ["chunked, chunked", "chunked, gzip", "chunked,", "chunked, identity"] {
        assert_eq!(coding(value), 400, "{value:?}");
    }
    for value in ["gzip, chunked", "gzip", "xchunked", "\"chunked\"", "chunked;q=1", "identity", ""]
    {
        assert_eq!(coding(value), 501, "{value:?}");
    }
    assert_eq!(fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
    assert_eq!(fields("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), 501);
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(head(old).err(), Some(400));
}

#[test]
fn j3_lines_end_in_crlf() {
    for text in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nb: c\nd: e\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nb: c\rd: e\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(head(text).err(), Some(400), "{text:?}");
    }
    assert!(head("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok(), "one empty line is let pass");
}

#[test]
fn j3_control_characters_are_refused() {
    for byte in (0..32).chain([127]).filter(|byte| ![b'\t', b'\r', b'\n'].contains(byte)) {
        let at = |text: &str| text.replace('@', &char::from(byte).to_string());
        assert_eq!(fields(&at("x: a@b\r\n")), 400, "{byte} in a value");
        assert_eq!(fields(&at("x@y: b\r\n")), 400, "{byte} in a name");
        assert_eq!(line(&at("GET /a@b HTTP/1.1")), 400, "{byte} in a target");
        assert_eq!(line(&at("G@T / HTTP/1.1")), 400, "{byte} in a method");
    }
    assert_eq!(fields("x: a\tb\r\n"), 200);
    let latin = b"GET / HTTP/1.1\r\nHost: a\r\nx: \xe4\r\n\r\n";
    let (_, request) = head_with(latin, &Settings::default()).unwrap();
    assert_eq!(request.request().header("x"), None, "it is not UTF-8");
    assert_eq!(request.request().headers().get_bytes("x"), Some(&b"\xe4"[..]));
}

#[test]
fn j3_field_lines_have_a_name_and_a_colon_and_are_not_folded() {
    for lines in [
        "a: b\r\n c\r\n",
        "a: b\r\n\tc\r\n",
        "a : b\r\n",
        "a\t: b\r\n",
        ": b\r\n",
        "a\r\n",
        "a b: c\r\n",
        "a(: b\r\n",
        "\u{e4}: b\r\n",
        "a;b: c\r\n",
        "a[]: b\r\n",
    ] {
        assert_eq!(fields(lines), 400, "{lines:?}");
    }
    assert_eq!(head("GET / HTTP/1.1\r\n Host: a\r\n\r\n").err(), Some(400));
}

#[test]
fn j3_first_line_has_three_parts_and_two_spaces() {
    for first in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "\tGET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/1.10",
        "GET / HTTP/1.",
        "GET /",
        "GET / HTTP/11",
        "GET",
        "/ HTTP/1.1",
        "GET / a HTTP/1.1",
        "GET / HTTP/x.y",
        "GET HTTP/1.1",
        "GET / HTTP/+1.1",
    ] {
        assert_eq!(line(first), 400, "{first:?}");
    }
    for first in ["GET / HTTP/2.0", "GET / HTTP/0.9", "GET / HTTP/1.2", "PRI * HTTP/2.0"] {
        assert_eq!(line(first), 505, "{first:?}");
        for end in 1..first.len() {
            let part =
                parse(&first.as_bytes()[..end], &Settings::default(), &mut OwnedRequest::blank());
            assert_eq!(part.ok(), Some(Parsed::Partial), "{:?}", &first[..end]); // whatever comes first of it
        }
    }
}

#[test]
fn j3_methods_are_tokens() {
    assert_eq!(line("BREW / HTTP/1.1"), 200);
    assert_eq!(line("m-search / HTTP/1.1"), 200);
    assert_eq!(line("GE(T / HTTP/1.1"), 400);
    assert_eq!(line("GET: / HTTP/1.1"), 400);
    assert_eq!(line(&format!("{} / HTTP/1.1", "A".repeat(33))), 501);
    let endless = "A".repeat(10_000);
    assert_eq!(head(&endless).err(), Some(501));
}

#[test]
fn j3_targets_are_ascii_without_a_fragment() {
    for target in ["/#a", "/\u{e4}", "a", "*", "a:80", "ftp://a/", "//\u{7f}", "http://u@a/"] {
        assert_eq!(line(&format!("GET {target} HTTP/1.1")), 400, "{target:?}");
    }
    assert_eq!(line("GET //a/../%00?%zz|{}^ HTTP/1.1"), 200); // whoever opens files looks again
    let (_, request) = head("GET http://B.c:1/d?e HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let req = request.request();
    assert_eq!((req.host(), req.path(), req.query()), (Some("B.c:1"), "/d", Some("e")));
    let (_, request) = head("GET http://b?e HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!((request.request().path(), request.request().query()), ("/", Some("e")));
    let (_, request) = head("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(request.request().path(), "*");
}

#[test]
fn j3_there_is_one_host() {
    assert_eq!(head("GET / HTTP/1.1\r\n\r\n").err(), Some(400));
    assert_eq!(head("GET http://a/ HTTP/1.1\r\n\r\n").err(), Some(400));
    assert_eq!(fields("Host: a\r\n"), 400, "two of them");
    for host in ["a/b", "u@a", "a b", "a:x", "a:99999", "", "[::1", "a,b\u{e4}"] {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(head(&text).err(), Some(400), "{host:?}");
    }
    assert!(head("GET / HTTP/1.0\r\n\r\n").is_ok(), "HTTP/1.0 had none");
}

#[test]
fn j4_limits_of_the_head_have_their_answers() {
    let settings = Settings {
        limit_header_bytes: 1000,
        limit_headers: 10,
        limit_target_bytes: 100,
        ..Settings::default()
    };
    let answer = |text: &str| head_with(text.as_bytes(), &settings).err().unwrap_or(200);
    let target = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(len - 1));
    assert_eq!((answer(&target(100)), answer(&target(101))), (200, 414));
    assert_eq!(answer(&format!("GET /{}", "a".repeat(200))), 414, "it is not awaited");
    let count = |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "b: c\r\n".repeat(n - 1));
    assert_eq!((answer(&count(10)), answer(&count(11))), (200, 431));
    let frame = "GET / HTTP/1.1\r\nHost: a\r\nb: \r\n\r\n".len();
    let size =
        |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nb: {}\r\n\r\n", "c".repeat(n - frame));
    assert_eq!((answer(&size(1000)), answer(&size(1001))), (200, 431));
    assert_eq!(answer(&size(1010)[..1005]), 431, "it is not awaited");
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(8000));
    assert!(head(&long).is_ok(), "RFC 9112 wants 8,000 bytes at least");
}

#[test]
fn j2_expectations_other_than_continue_are_refused() {
    let expects = |lines: &str| {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n{lines}\r\n");
        head(&text).map(|(facts, _)| facts.expects_continue)
    };
    assert_eq!(expects("Expect: 100-Continue\r\n").ok(), Some(true));
    assert_eq!(expects("").ok(), Some(false));
    assert_eq!(expects("Expect: 200-ok\r\n").err(), Some(417));
    let old = "POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n";
    assert!(!head(old).unwrap().0.expects_continue, "HTTP/1.0 does not know it");
}

#[test]
fn j3_a_head_in_pieces_is_the_same_head() {
    let text = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    for end in 0..text.len() {
        assert_eq!(head(&text[..end]).err(), Some(0), "{end}");
    }
    assert_eq!(head(text).unwrap().0.framing, Framing::Length(3));
}

// --- Chunks --------------------------------------------------------------------------------------------

#[test]
fn j2_chunks_are_joined_and_trailers_kept_apart() {
    let body = b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n000\r\nX: y\r\nz:\r\n\r\nGET";
    for step in 1..=body.len() {
        let (data, trailers, rest) = decode(body, step, &Settings::default()).unwrap();
        assert_eq!(data, b"abc0123456789");
        assert_eq!(
            (trailers.get("x"), trailers.get("z"), trailers.len()),
            (Some("y"), Some(""), 2)
        );
        assert_eq!(rest, b"GET");
    }
}

#[test]
fn j3_chunks_are_as_they_should_be_or_refused() {
    let answer = |body: &str| decode(body.as_bytes(), 7, &Settings::default()).err().unwrap_or(200);
    assert_eq!(answer("0\r\n\r\n"), 200);
    for body in [
        "\r\n",
        ";a\r\n",
        "+3\r\nabc\r\n",
        "-1\r\n",
        "0x3\r\nabc\r\n",
        " 3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "3\t\r\nabc\r\n",
        "g\r\n",
        "00000000000000003\r\nabc\r\n",
        "3\nabc\r\n",
        "3\rabc",
        "3\r\nabc\n0\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3;a\nb\r\nabc\r\n",
        "3;a\rb\r\nabc\r\n",
        "3;\0\r\nabc\r\n",
        "0\r\n\n",
        "0\r\na: b\n\r\n",
        "0\r\na b: c\r\n\r\n",
        "0\r\na\r\n\r\n",
        "0\r\n b: c\r\n\r\n",
        "0\r\nContent-Length: 3\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nhost: a\r\n\r\n",
        "0\r\nConnection: close\r\n\r\n",
        "1_0\r\n",
    ] {
        assert_eq!(answer(body), 400, "{body:?}");
    }
    assert_eq!(answer("FFFFFFFFFFFFFFFF\r\n"), 413);
    assert_eq!(answer("100001\r\n"), 413, "it is not awaited");
    assert_eq!(answer("8\r\nabcdefgh\r\nFFFFFFFFFFFFFFF8\r\n"), 413, "a sum that would not fit");
}

#[test]
fn j4_extensions_and_trailers_have_limits() {
    let settings = Settings {
        limit_chunk_extension_bytes: 10,
        limit_chunk_extensions_bytes: 25,
        limit_trailer_bytes: 40,
        limit_trailers: 3,
        ..Settings::default()
    };
    let answer = |body: &str| decode(body.as_bytes(), 3, &settings).err().unwrap_or(200);
    let extended = |len: usize, times: usize| {
        format!("{}0\r\n\r\n", format!("1;{}\r\na\r\n", "x".repeat(len - 1)).repeat(times))
    };
    assert_eq!((answer(&extended(10, 1)), answer(&extended(11, 1))), (200, 400));
    assert_eq!((answer(&extended(8, 3)), answer(&extended(9, 3))), (200, 400));
    assert_eq!(answer(&format!("1;{}", "x".repeat(100))), 400, "it is not awaited");
    assert_eq!(answer("0\r\na:b\r\nc:d\r\ne:f\r\n\r\n"), 200);
    assert_eq!(answer("0\r\na:b\r\nc:d\r\ne:f\r\ng:h\r\n\r\n"), 400);
    assert_eq!(answer(&format!("0\r\na: {}\r\n\r\n", "x".repeat(40))), 400);
    assert_eq!(answer(&format!("0\r\na: {}", "x".repeat(60))), 400, "it is not awaited");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Bodies that are almost right: the decoder and its slow twin agree, however the bytes come.
    #[test]
    fn j3_chunks_are_decoded_as_by_the_grammar(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "3", "\r\n", "abc", "0", ";", "x=y", "\r", "\n", "A", "0123456789", "a: b", "Host: c", " ", "1",
                "3\r\nabc\r\n", "0\r\n", "0\r\n\r\n", "a;\t\r\n0123456789\r\n", ":", "\u{e4}", "00", "f",
                "te: x\r\n",
            ]),
            0..12,
        ),
        step in 1usize..9,
    ) {
        fuzzing::chunks(parts.concat().as_bytes(), step);
    }

    /// Heads that are plain, or almost: both ways take them for the same, if they do.
    #[test]
    fn j3_plain_heads_are_taken_as_by_the_slow_way(
        first in prop::sample::select(vec![
            "GET / ", "GET /#a ", "PUT /a?b# ", "HEAD /a?b ", "POST /\u{e4} ", "PATCH // ",
        ]),
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "Host: a\r\n", "x: y\r\n", "Content-Length: 3\r\n", "content-length:3 \r\n", "a-long-name:\t  ",
                "a long value, and longer\r\n", "\r\n", "\n", "\r", "\t", " ", ":", "\0", "\u{7f}", "\u{e4}", "b",
                "Connection: close\r\n", "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "/: y\r\n",
            ]),
            0..8,
        ),
    ) {
        fuzzing::head(format!("{first}HTTP/1.1\r\nHost: a\r\n{}\r\n", parts.concat()).as_bytes());
        fuzzing::head(format!("{first}HTTP/1.1\r\nHost: {}\r\n", parts.concat()).as_bytes());
    }

    /// Whatever bytes come: no panic, and what is taken has one framing, in the terms of a reader that only looks
    /// at lines.
    #[test]
    fn j3_heads_that_are_taken_are_plain_to_a_line_reader(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "GET ", "POST ", "/", " HTTP/1.1\r\n", " HTTP/1.0\r\n", "Host: a\r\n", "Content-Length: 3\r\n",
                "Transfer-Encoding: chunked\r\n", "content-length:", "5", "\r\n", "\n", "\r", " ", "\t", ":", "a",
                "Connection: close\r\n", "x: y\r\n", "\0", "\u{e4}", ",", "chunked", "Transfer-Encoding: ",
            ]),
            0..14,
        ),
    ) {
        fuzzing::head(format!("{}\r\n\r\n", parts.concat()).as_bytes());
    }
}
