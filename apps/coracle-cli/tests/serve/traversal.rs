//! Attempts to read what is not to be read, with raw bytes.

use crate::client::{Dir, get, raw, serve};
use std::os::unix::fs::symlink;

pub(crate) fn n2_nothing_outside_is_ever_sent(backend: &str) {
    let dir = Dir::with(&[
        ("site/index.html", "ahoy"),
        ("site/sub/page.html", "page"),
        ("secret.txt", "SECRET"),
        ("site-secret/a.txt", "SECRET"),
        ("site/.env", "SECRET"),
    ]);
    symlink("/etc/passwd", dir.file("site/passwd")).unwrap();
    symlink(dir.file("secret.txt"), dir.file("site/absolute")).unwrap();
    symlink("../secret.txt", dir.file("site/relative")).unwrap();
    symlink("..", dir.file("site/parent")).unwrap();
    let fifo = dir.file("site/fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let server = serve(backend, &[dir.file("site")]);
    let outside = dir.path().to_str().unwrap();
    let targets: Vec<Vec<u8>> = [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/.%2e/secret.txt",
        "/%2E%2E%2Fsecret.txt",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/%252e%252e/secret.txt",
        "/sub/%2e%2e/%2e%2e/secret.txt",
        "/../site-secret/a.txt",
        "/index.html%00.txt",
        "/%00",
        "/.env",
        "/%2eenv",
        "/sub/../.env",
        "/passwd",
        "/absolute",
        "/relative",
        "/parent/secret.txt",
        "/fifo",
        "//etc/passwd",
        "///etc/passwd",
        "/./../secret.txt",
        "/sub/..;/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%e0%80%ae%e0%80%ae/secret.txt",
        "/%",
        "/%2",
        "/%zz",
        "secret.txt",
        "../secret.txt",
        "http://a/../secret.txt",
        "file:///etc/passwd",
        "*",
        "/sub/page.html/../../../secret.txt",
        "/index.html/",
        "/index.html/..",
        "/~root/",
        "/proc/self/environ",
    ]
    .iter()
    .map(|target| target.as_bytes().to_vec())
    .chain([
        b"/\xff\xfe".to_vec(),
        b"/..\x00/secret.txt".to_vec(),
        b"/\xc0\xae\xc0\xae/secret.txt".to_vec(),
        b"/a\x7f".to_vec(),
        b"/a\tb".to_vec(),
        format!("{outside}/secret.txt").into_bytes(),
        [b"/".as_slice(), &b"../".repeat(200), b"etc/passwd"].concat(),
        [b"/".as_slice(), &b"a".repeat(300)].concat(),
        [b"/".as_slice(), &b"a/".repeat(2000)].concat(),
    ])
    .collect();
    for target in &targets {
        let request =
            [b"GET ", &target[..], b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"].concat();
        let bytes = raw(&server, &request);
        let shown = target.escape_ascii().to_string();
        let answer = String::from_utf8_lossy(&bytes).into_owned();
        let status = answer.get(9..12).unwrap_or_default();
        assert!(["400", "404"].contains(&status), "{shown}: {answer}");
        assert!(!answer.contains("SECRET") && !answer.contains("root:"), "{shown}: {answer}");
    }
    assert_eq!(get(&server, "/").text(), "ahoy", "it is none the worse for it");
    assert!(server.end().status.success());
}
