//! Row N2: nothing outside of the directory is ever sent, however it is asked for.

use crate::client::Client;
use crate::harness::Harness;
use crate::site::Site;
use coracle_http::files::{DotFiles, Symlinks};
use std::os::unix::net::UnixListener;

pub(crate) fn n2_no_path_leads_out(h: &Harness) {
    let site = Site::new();
    site.file("index.html", "index");
    site.file("docs/page", "page");
    let service = Client::of(h, site.files()).service;
    for (target, statuses) in [
        ("../secret", &[400][..]),
        ("/../secret", &[400]),
        ("/docs/../../secret", &[400]),
        ("/%2e%2e/secret", &[400]),
        ("/%2E%2E%2Fsecret", &[400]),
        ("/.%2e/secret", &[400]),
        ("/..%2fsecret", &[400]),
        ("/..%5csecret", &[400]),
        ("/..\\secret", &[400]),
        ("/%252e%252e/secret", &[404]),
        ("/%252e%252e%252fsecret", &[404]),
        ("/%c0%ae%c0%ae/secret", &[400]),
        ("/%c0%ae%c0%ae%c0%afsecret", &[400]),
        ("/%e0%80%ae%e0%80%ae/secret", &[400]),
        ("//secret", &[404]),
        ("/docs//../../secret", &[400, 404]),
        ("/docs/%00/../../secret", &[400]),
        ("/index.html%00.jpg", &[400]),
        ("/%00", &[400]),
        ("/index.html%0d%0aX:%20y", &[400]),
        ("http://a/../secret", &[400]),
        ("http://a/%2e%2e/secret", &[400]),
        ("file:///etc/passwd", &[400, 404]),
        ("/etc/passwd", &[404]),
        ("//etc/passwd", &[404]),
        ("secret", &[400]),
        ("/%", &[400]),
        ("/%2", &[400]),
        ("/%zz", &[400]),
    ] {
        let client = Client::to(h, &service);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer();
        assert!(statuses.contains(&answer.status), "{target}: {answer:?}");
        assert!(
            !answer.text().contains("TOPSECRET") && !answer.text().contains("root:"),
            "{target}"
        );
    }
    let client = Client::to(h, &service);
    client.send("GET http://a/docs/page HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().text(), "page", "the absolute form is a form");
}

pub(crate) fn n2_links_lead_nowhere_outside(h: &Harness) {
    let site = Site::new();
    site.file("index.html", "index");
    site.directory("docs");
    site.link("inside", "index.html");
    site.link("docs/up", "../index.html");
    site.link("out", "../secret");
    site.link("absolute", "/etc/passwd");
    site.link("top", "/");
    site.link("proc", "/proc/self/root");
    let client = Client::of(h, site.files());
    for path in ["/inside", "/docs/up"] {
        assert_eq!(client.get(path).text(), "index");
    }
    for path in ["/out", "/absolute", "/top/etc/passwd", "/proc/etc/passwd"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    let never = Client::of(h, site.files().symlinks(Symlinks::Never));
    for path in ["/inside", "/docs/up", "/out"] {
        assert_eq!(never.get(path).status, 404, "{path}");
    }
    let anywhere = Client::of(h, site.files().symlinks(Symlinks::Anywhere));
    assert_eq!(anywhere.get("/out").text(), "TOPSECRET", "who asks for it has it");
    assert_eq!(anywhere.get("/proc/etc/passwd").status, 404, "but never through a process");
}

pub(crate) fn n2_what_is_hidden_or_special_is_not_there(h: &Harness) {
    let site = Site::new();
    site.file(".env", "KEY=1");
    site.file(".git/config", "git");
    site.file(".well-known/security.txt", "known");
    let _listener = UnixListener::bind(site.root().join("socket")).expect("a socket");
    let fifo = std::process::Command::new("mkfifo").arg(site.root().join("fifo")).status();
    assert!(fifo.expect("mkfifo(1)").success());
    site.link("null", "/dev/null");
    let client = Client::of(h, site.files());
    for path in
        ["/.env", "/%2eenv", "/.git/config", "/.well-known/security.txt", "/socket", "/fifo"]
    {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    let anywhere = Client::of(h, site.files().symlinks(Symlinks::Anywhere));
    assert_eq!(anywhere.get("/null").status, 404);
    let known = Client::of(h, site.files().dot_files(DotFiles::WellKnown));
    assert_eq!(known.get("/.well-known/security.txt").text(), "known");
    assert_eq!(known.get("/.env").status, 404);
    let shown = Client::of(h, site.files().dot_files(DotFiles::Show));
    assert_eq!(shown.get("/.env").text(), "KEY=1");
}
