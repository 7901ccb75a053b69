//! How a site is served, as the command line and the configuration say.

use crate::client::{Dir, ask, get, serve, serve_dir};
use std::os::unix::fs::symlink;

pub(crate) fn n2_hidden_files_and_links(backend: &str) {
    let dir = Dir::with(&[
        ("site/.secret", "hidden"),
        ("site/.well-known/security.txt", "contact"),
        ("site/real.txt", "real"),
        ("outside.txt", "outside"),
    ]);
    symlink("real.txt", dir.file("site/inside")).unwrap();
    symlink("../outside.txt", dir.file("site/out")).unwrap();
    let site = dir.file("site");
    let site = site.to_str().unwrap();
    let look = |options: &[&str]| {
        let mut arguments = vec![site];
        arguments.extend(options);
        let server = serve(backend, &arguments);
        ["/.secret", "/.well-known/security.txt", "/inside", "/out"]
            .map(|path| get(&server, path).status)
    };
    assert_eq!(look(&[]), [404, 404, 200, 404]);
    assert_eq!(look(&["--hidden", "well-known", "--symlinks", "never"]), [404, 200, 404, 404]);
    assert_eq!(look(&["--hidden", "show", "--symlinks", "anywhere"]), [200, 200, 200, 200]);
}

pub(crate) fn j11_compression_when_it_is_asked_for(backend: &str) {
    let dir = Dir::new();
    dir.write("long.txt", "ahoy ".repeat(1000));
    let accepted = "Accept-Encoding: gzip\r\n";
    let server = serve_dir(backend, &dir, &[]);
    assert_eq!(ask(&server, "GET", "/long.txt", accepted).header("content-encoding"), None);
    drop(server);
    let server = serve_dir(backend, &dir, &["--compress"]);
    let answer = ask(&server, "GET", "/long.txt", accepted);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert!(
        answer.body.starts_with(b"\x1f\x8b") && answer.body.len() < 500,
        "{}",
        answer.body.len()
    );
    assert_eq!(get(&server, "/long.txt").body.len(), 5000);
}

pub(crate) fn n5_cache_control_and_content_types(backend: &str) {
    let dir = Dir::with(&[
        ("site/a.txt", "a"),
        ("site/a.boat", "b"),
        ("site/home.html", "home"),
        (
            "coracle.toml",
            "[site]\ndirectory = \"site\"\nindex = [\"none.html\", \"home.html\"]\n\
             cache_control = \"public, max-age=60\"\n[site.content_types]\nboat = \"text/x-boat\"\n",
        ),
    ]);
    let config = dir.file("coracle.toml");
    let server = serve(backend, &["--config", config.to_str().unwrap()]);
    assert_eq!(get(&server, "/a.txt").header("cache-control"), Some("public, max-age=60"));
    assert_eq!(get(&server, "/a.boat").header("content-type"), Some("text/x-boat"));
    assert_eq!(get(&server, "/").text(), "home");
    drop(server);
    // The command line counts before the file.
    let arguments = ["--config", config.to_str().unwrap(), "--cache-control", "no-store"];
    let server = serve(backend, &arguments);
    assert_eq!(get(&server, "/a.txt").header("cache-control"), Some("no-store"));
}

pub(crate) fn q1_redirects(backend: &str) {
    let dir = Dir::with(&[
        ("site/new", "here"),
        (
            "coracle.toml",
            r#"
            [site]
            directory = "site"

            [[site.redirect]]
            from = "/old"
            to = "/new"
            status = 301

            [[site.redirect]]
            from = "/blog/*"
            to = "https://blog.example.org/*"

            [[site.redirect]]
            from = "/up/*"
            to = "/*"
            "#,
        ),
    ]);
    let server = serve(backend, &["--config", dir.file("coracle.toml").to_str().unwrap()]);
    for (path, status, location) in [
        ("/old", 301, Some("/new")),
        ("/old?a=1", 301, Some("/new?a=1")),
        ("/blog/2026/ahoy", 307, Some("https://blog.example.org/2026/ahoy")),
        ("/up//evil.example/", 307, Some("/evil.example/")),
        ("/older", 404, None),
        ("/new", 200, None),
    ] {
        let answer = get(&server, path);
        assert_eq!((answer.status, answer.header("location")), (status, location), "{path}");
    }
}
