//! curl, which is not ours, sees what our own client sees.

use crate::client::{Dir, serve_dir};
use crate::program::{Program, pattern};
use std::fs;
use std::process::{Command, Output};

fn has_curl() -> bool {
    if Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "curl is not installed: apt-get install curl");
    eprintln!("SKIPPED: curl is not installed");
    false
}

fn curl(server: &Program, options: &[&str], path: &str) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"]).args(options);
    curl.arg(format!("http://{}{path}", server.address)).output().expect("curl starts")
}

/// What curl prints, when it is content.
fn text(server: &Program, options: &[&str], path: &str) -> String {
    let output = curl(server, options, path);
    assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn n4_curl_gets_files_parts_and_heads(backend: &str) {
    if !has_curl() {
        return;
    }
    let dir = Dir::with(&[("index.html", "<h1>ahoy</h1>"), ("digits", "0123456789")]);
    let server = serve_dir(backend, &dir, &["--compress"]);
    for version in ["--http1.0", "--http1.1"] {
        assert_eq!(text(&server, &[version], "/"), "<h1>ahoy</h1>");
        assert_eq!(text(&server, &[version, "--range", "2-4"], "/digits"), "234");
        assert_eq!(text(&server, &[version, "--range", "-3"], "/digits"), "789");
    }
    let head = text(&server, &["--head"], "/digits");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\ncontent-length: 10\r\n"),
        "{head}"
    );
    let code = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    assert_eq!(text(&server, &code, "/none"), "404");
    assert_eq!(text(&server, &[&code[..], &["--range", "10-"]].concat(), "/digits"), "416");
    assert_eq!(text(&server, &[&code[..], &["--path-as-is"]].concat(), "/../digits"), "400");
    // A connection that is used again.
    let url = format!("http://{}/digits", server.address);
    let twice = text(&server, &["--write-out", "%{num_connects}\n", &url], "/digits");
    assert_eq!(twice, "01234567891\n01234567890\n");
    // An upload is refused, and is not waited for.
    let body = dir.file("body");
    fs::write(&body, vec![b'x'; 4 << 20]).unwrap();
    let from = format!("@{}", body.display());
    assert_eq!(text(&server, &[&code[..], &["--data-binary", &from]].concat(), "/"), "413");
}

pub(crate) fn n4_curl_resumes_a_download(backend: &str) {
    if !has_curl() {
        return;
    }
    let dir = Dir::new();
    let bytes = pattern(3 << 20);
    dir.write("site/large.bin", &bytes);
    let site = dir.file("site");
    let server = crate::client::serve(backend, &[&site]);
    let half = dir.file("half.bin");
    fs::write(&half, &bytes[..1 << 20]).unwrap();
    let output =
        curl(&server, &["--continue-at", "-", "--output", half.to_str().unwrap()], "/large.bin");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read(&half).unwrap() == bytes);
}
