//! A real browser, and `--open`.

use crate::client::{Dir, command, serve_dir};
use crate::program::{Program, eventually, run_to_the_end, under};
use crate::reload::logging_to;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn r2_chromium_shows_the_welcome_page() {
    if !has_chromium() {
        return;
    }
    let dir = Dir::new();
    let profile = Dir::new();
    let server = serve_dir("epoll", &dir, &["--access-log"]);
    let url = format!("http://{}/", server.address);
    let mut chromium = Command::new("chromium");
    chromium.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        "--dump-dom",
    ]);
    chromium.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
    let shown = run_to_the_end(&mut chromium);
    let errors = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success(), "{errors}");
    let page = String::from_utf8_lossy(&shown.stdout);
    for text in
        ["<h1>It floats.</h1>", "<dd>epoll<small>", "<dd>2 loops<small>", "aria-label=\"A coracle,"]
    {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(
        !errors.contains("Content Security Policy"),
        "the page does what it forbids itself: {errors}"
    );
    // It asked for the page, and for nothing else: the page needs nothing else.
    let output = server.end();
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    let requests: Vec<&str> =
        log.lines().filter(|line| line.starts_with("127.0.0.1 - - [")).collect();
    assert_eq!(requests.len(), 1, "{log}");
    assert!(requests[0].contains("\"GET / HTTP/1.1\" 200 "), "{log}");
}

fn has_chromium() -> bool {
    if Command::new("chromium")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "chromium is not installed: apt-get install chromium"
    );
    eprintln!("SKIPPED: chromium is not installed");
    false
}

#[test]
fn q1_open_opens_a_browser_with_the_address() {
    let dir = Dir::new();
    let seen = dir.file("seen");
    dir.write("bin/xdg-open", format!("#!/bin/sh\necho \"$@\" > {}\n", seen.display()));
    std::fs::set_permissions(dir.file("bin/xdg-open"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = command("epoll", &[dir.path().to_str().unwrap(), "--open"]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", dir.file("bin").display()));
    let server = Program::run(command);
    let expected = format!("http://{}/\n", server.address);
    eventually("it is opened", || {
        std::fs::read_to_string(&seen).is_ok_and(|text| text == expected)
    });
    assert!(server.end().status.success());
}

#[test]
fn q1_open_without_a_browser_is_told_and_served_all_the_same() {
    let dir = Dir::with(&[("index.html", "ahoy")]);
    let mut command = command("epoll", &[dir.path().to_str().unwrap(), "--open"]);
    command.env("PATH", dir.path());
    let log = dir.file("log");
    let server = Program::run(under(logging_to(&log), &command));
    assert_eq!(crate::client::get(&server, "/").text(), "ahoy");
    let told = format!(
        "no browser was opened: cannot start xdg-open: No such file or directory (os error 2); \
                        open http://{}/ yourself",
        server.address
    );
    eventually("it is told", || std::fs::read_to_string(&log).unwrap().contains(&told));
}
