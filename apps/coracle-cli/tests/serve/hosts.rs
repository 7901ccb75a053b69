//! Virtual hosts of the configuration file.

use crate::client::{Dir, answer_of, raw, serve};
use crate::program::Program;

const CONFIG: &str = r#"
[[host]]
names = ["example.org", "www.example.org"]
directory = "one"

[host.error_pages]
404 = "lost.html"

[[host]]
names = ["*.example.org"]
directory = "two"

[[host.redirect]]
from = "/*"
to = "https://example.org/*"
"#;

fn ask(server: &Program, host: &str, path: &str) -> (u16, String) {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
    );
    let answer = answer_of(&raw(server, request.as_bytes()));
    let told = answer.header("location").map(str::to_owned).unwrap_or_else(|| answer.text());
    (answer.status, told)
}

fn site(config: &str) -> Dir {
    Dir::with(&[
        ("one/index.html", "one"),
        ("two/index.html", "two"),
        ("rest/index.html", "rest"),
        ("lost.html", "lost"),
        ("coracle.toml", config),
    ])
}

pub(crate) fn j7_each_host_has_its_own_site(backend: &str) {
    let dir = site(&format!("[site]\ndirectory = \"rest\"\n{CONFIG}"));
    let server = serve(backend, &["--config", dir.file("coracle.toml").to_str().unwrap()]);
    assert_eq!(ask(&server, "example.org", "/"), (200, "one".into()));
    assert_eq!(ask(&server, "WWW.Example.org:8080", "/"), (200, "one".into()));
    assert_eq!(ask(&server, "example.org", "/none"), (404, "lost".into()));
    assert_eq!(ask(&server, "a.example.org", "/b?c"), (307, "https://example.org/b?c".into()));
    assert_eq!(ask(&server, "other.example", "/"), (200, "rest".into()));
    let old = answer_of(&raw(&server, b"GET / HTTP/1.0\r\n\r\n"));
    assert_eq!(old.text(), "rest", "who names no host");
}

pub(crate) fn j7_host_that_nobody_is_for_is_refused(backend: &str) {
    let dir = site(CONFIG);
    let server = serve(backend, &["--config", dir.file("coracle.toml").to_str().unwrap()]);
    assert_eq!(ask(&server, "example.org", "/"), (200, "one".into()));
    let (status, page) = ask(&server, "other.example", "/");
    assert!(status == 421 && page.contains("<h1>421 Misdirected Request</h1>"), "{status} {page}");
}
