//! The parser against a slow twin, and what uploads come to.

use super::parser::{Parser, Refused};
use super::*;
use crate::OwnedRequest;
use crate::fuzzing::{multipart, parts as parse};
use proptest::prelude::*;
use std::fs;

fn head(name: &str) -> String {
    format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n")
}

proptest! {
    #[test]
    fn j8_parts_are_those_of_the_twin_however_they_come(
        pieces in proptest::collection::vec(prop_oneof![
            3 => Just(b"--b".to_vec()), 3 => Just(b"\r\n--b".to_vec()), 3 => Just(b"\r\n".to_vec()),
            2 => Just(b"--".to_vec()), 4 => Just(head("n").into_bytes()), 1 => Just(b"\r".to_vec()),
            1 => Just(b"-".to_vec()), 2 => proptest::collection::vec(any::<u8>(), 0..5),
        ], 0..14),
        sizes in proptest::collection::vec(1_usize..9, 1..6),
    ) {
        let body = [&b"--b\r\n"[..], &pieces.concat()].concat();
        for body in [&body[..], &body[5..]] {
            multipart(body, &sizes);
        }
    }

    #[test]
    fn j8_what_was_sent_comes_out_again(
        parts in proptest::collection::vec(("[a-zé ]{1,6}", proptest::collection::vec(any::<u8>(), 0..200)), 0..5),
        sizes in proptest::collection::vec(1_usize..50, 1..6),
    ) {
        let mut body = Vec::new();
        for (name, data) in &parts {
            body.extend_from_slice(b"--b\r\n");
            body.extend_from_slice(head(name).as_bytes());
            body.extend_from_slice(data);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--b--\r\n");
        prop_assume!(!parts.iter().any(|(_, data)| data.windows(5).any(|window| window == b"\r\n--b")));
        let parsed = parse(&body, MultipartLimits::default(), &sizes).unwrap();
        let parsed: Vec<(String, Vec<u8>)> = parsed.into_iter().map(|(head, data)| (head.name, data)).collect();
        prop_assert_eq!(parsed, parts);
    }
}

#[test]
fn j8_what_is_no_multipart_is_refused() {
    let ok = |body: &str| parse(body.as_bytes(), MultipartLimits::default(), &[3]);
    let disposition = head("n");
    assert_eq!(ok("--b--").unwrap(), []);
    let no_data = ok(&format!("--b\r\n{disposition}--b\r\n{disposition}x\r\n--b--")).unwrap();
    assert_eq!(no_data.iter().map(|(_, data)| &data[..]).collect::<Vec<_>>(), [&b""[..], b"x"]);
    for (body, why) in [
        ("".into(), Refused::Truncated),
        ("--b".into(), Refused::Truncated),
        ("--b-".into(), Refused::Truncated),
        ("--b\r\n".into(), Refused::Truncated),
        (format!("--b\r\n{disposition}data"), Refused::Truncated),
        (format!("--b\r\n{disposition}data\r\n--b"), Refused::Truncated),
        (format!("--b\r\n{disposition}data\r\n--bx"), Refused::Delimiter),
        (format!("--b \r\n{disposition}\r\n--b--"), Refused::Delimiter),
        ("--bb\r\n".into(), Refused::Delimiter),
        ("--b\n".into(), Refused::Delimiter),
        ("hello\r\n--b--".into(), Refused::Preamble),
        ("--c\r\n\r\n".into(), Refused::Preamble),
        ("--b\r\n\r\ndata\r\n--b--".into(), Refused::NoName),
        ("--b\r\nContent-Type: text/plain\r\n\r\n\r\n--b--".into(), Refused::NoName),
        ("--b\r\nContent-Disposition: form-data\r\n\r\n\r\n--b--".into(), Refused::NoName),
        ("--b\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--b--".into(), Refused::Head),
        ("--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n\r\n--b--".into(), Refused::Head),
        ("--b\r\nContent-Disposition : form-data; name=a\r\n\r\n\r\n--b--".into(), Refused::Head),
        ("--b\r\n folded: form-data; name=a\r\n\r\n\r\n--b--".into(), Refused::Head),
        (
            "--b\r\nContent-Disposition: form-data; name=a\nx: y\r\n\r\n\r\n--b--".into(),
            Refused::Head,
        ),
        (
            "--b\r\nContent-Disposition: form-data; name=\"a\0\"\r\n\r\n\r\n--b--".into(),
            Refused::Head,
        ),
        (
            format!("--b\r\n{}{disposition}\r\n--b--", &disposition[..disposition.len() - 2]),
            Refused::Head,
        ),
    ] {
        let body: String = body;
        assert_eq!(ok(&body), Err(why), "{body:?}");
    }
    for boundary in ["", &"b".repeat(71), "a\"b", "a\r\nb", "é", "a "] {
        assert_eq!(
            Parser::new(boundary, MultipartLimits::default()).err(),
            Some(Refused::Boundary)
        );
    }
}

#[test]
fn j8_names_are_read_as_clients_write_them() {
    let part = |params: &str| {
        let body = format!("--b\r\nContent-Disposition: form-data; {params}\r\n\r\n\r\n--b--");
        parse(body.as_bytes(), MultipartLimits::default(), &[100])
            .map(|mut parts| parts.remove(0).0)
    };
    let read = |params: &str| part(params).map(|head| (head.name, head.file_name)).unwrap();
    assert_eq!(read("name=a"), ("a".into(), None));
    assert_eq!(read("name=\"a;b\"; filename=\"x.txt\""), ("a;b".into(), Some("x.txt".into())));
    assert_eq!(read("name=\"a\" ; filename=\"\""), ("a".into(), Some(String::new())));
    assert_eq!(
        read("Name=\"%22a\\\"\"; FileName=\"C:\\x.txt\""),
        ("\"a\"".into(), Some("C:\\x.txt".into()))
    );
    assert_eq!(read("name=\"ü\"; filename*=utf-8''x"), ("ü".into(), None));
    assert!(part("name=\"a\"x").is_err());
}

#[test]
fn j8_too_much_is_refused_before_it_is_kept() {
    let limits = MultipartLimits {
        limit_parts: 2,
        limit_head_bytes: 64,
        limit_part_bytes: 10,
        ..Default::default()
    };
    let with = |parts: usize, data: usize| {
        let part = format!("--b\r\n{}{}\r\n", head("n"), "x".repeat(data));
        parse(format!("{}--b--", part.repeat(parts)).as_bytes(), limits, &[7])
    };
    assert_eq!(with(2, 10).unwrap().len(), 2);
    assert_eq!(with(3, 1), Err(Refused::TooManyParts));
    assert_eq!(with(1, 11), Err(Refused::PartTooLong));
    // An endless head, and an endless boundary line, are not waited for.
    for beginning in ["--b\r\n", "--b\r\nx: "] {
        let mut parser = Parser::new("b", limits).unwrap();
        parser.push(beginning.as_bytes());
        let refused = (0..100).find_map(|_| {
            parser.push(b"xxxxxxxxxx");
            parser.next().err()
        });
        assert_eq!(refused, Some(Refused::HeadTooLong));
    }
}

fn upload(body: impl Into<Vec<u8>>) -> OwnedRequest {
    let request = OwnedRequest::new("POST", "/");
    let request = request.with_header("content-type", "multipart/form-data; boundary=b").unwrap();
    request.with_body(body.into())
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn count(folder: &std::path::Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

const FILE: &str = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"../../etc/passwd\"\r\n\
                    Content-Type: text/plain\r\n\r\n";

#[test]
fn j8_files_go_to_disk_and_away_again() {
    let folder = folder("upload");
    let data = "x".repeat(200_000);
    let body = format!("--b\r\n{}ahab\r\n{FILE}{data}\r\n--b--\r\n", head("n"));
    let request = upload(body);
    let mut saved = request.request().multipart().unwrap().save(&folder).unwrap();
    assert_eq!(saved.field("n"), Some("ahab"));
    assert_eq!(saved.files().len(), 1);
    let file = &saved.files()[0];
    assert_eq!(
        (file.name(), file.file_name(), file.content_type()),
        ("f", "../../etc/passwd", Some("text/plain"))
    );
    assert_eq!(
        (file.len(), file.path().parent().unwrap()),
        (200_000, &*folder),
        "the name is no path"
    );
    assert_eq!(fs::read_to_string(file.path()).unwrap(), data);
    assert_eq!(count(&folder), 1);

    let kept = folder.join("kept");
    saved.take_files().remove(0).keep(&kept).unwrap();
    drop(saved);
    assert_eq!(fs::read_to_string(&kept).unwrap().len(), 200_000);
    assert_eq!(count(&folder), 1);

    let saved = request.request().multipart().unwrap().save(&folder).unwrap();
    assert_eq!(count(&folder), 2);
    drop(saved);
    assert_eq!(count(&folder), 1, "what nobody keeps is removed");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn j8_an_upload_that_is_refused_leaves_nothing() {
    let folder = folder("refused");
    let save = |body: String, limits| {
        let request = upload(body);
        let result = request.request().multipart().unwrap().limits(limits).save(&folder);
        result.map(drop).unwrap_err().status().as_u16()
    };
    let limits = MultipartLimits::default();
    assert_eq!(save(format!("{FILE}x\r\n{FILE}cut"), limits), 400);
    assert_eq!(save(format!("{FILE}x\r\n--b"), limits), 400);
    let small = MultipartLimits { limit_part_bytes: 100, ..limits };
    assert_eq!(save(format!("{FILE}{}\r\n--b--", "x".repeat(101)), small), 413);
    let small = MultipartLimits { limit_text_bytes: 10, ..limits };
    assert_eq!(save(format!("--b\r\n{}{}\r\n--b--", head("n"), "x".repeat(11)), small), 413);
    let twice = format!("--b\r\n{}123456\r\n", head("n"));
    assert_eq!(save(format!("{twice}{twice}--b--"), small), 413, "of all fields together");
    assert_eq!(count(&folder), 0);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn j8_parts_can_be_read_one_by_one_and_left_out() {
    let body = format!(
        "--b\r\n{}one\r\n--b\r\n{}two\r\n--b\r\n{}three\r\n--b--",
        head("1"),
        head("2"),
        head("3")
    );
    let request = upload(body);
    let req = request.request();
    let mut form = req.multipart().unwrap();
    assert_eq!(form.next_part().unwrap().unwrap().text().unwrap(), "one");
    assert_eq!(form.next_part().unwrap().unwrap().name(), "2"); // not read
    let mut third = form.next_part().unwrap().unwrap();
    let mut text = String::new();
    third.read_to_string(&mut text).unwrap();
    assert_eq!(text, "three");
    assert!(form.next_part().unwrap().is_none());
    assert!(form.next_part().unwrap().is_none());
}

#[test]
fn j8_something_else_is_415_and_a_boundary_is_needed() {
    let status = |kind: &str| {
        let request = OwnedRequest::new("POST", "/").with_header("content-type", kind).unwrap();
        request.request().multipart().map(drop).unwrap_err().status().as_u16()
    };
    assert_eq!(status("application/x-www-form-urlencoded"), 415);
    assert_eq!(status("multipart/mixed; boundary=b"), 415);
    assert_eq!(status("multipart/form-data"), 400);
    assert_eq!(status("multipart/form-data; boundary=\"\""), 400);
}
