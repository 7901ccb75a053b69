//! Paths that other servers answer for.

use crate::client::{Dir, ask, get, serve, serve_dir};
use crate::program::{coracle, run_to_the_end};
use crate::tls::{has, make};

pub(crate) fn j15_what_is_below_a_path_is_handed_on(backend: &str) {
    let behind = Dir::with(&[("index.html", "behind"), ("a/b.txt", "deep")]);
    let upstream = serve_dir(backend, &behind, &[]);
    let dir = Dir::with(&[("index.html", "front"), ("api.txt", "file")]);
    let to = format!("/api=http://{}", upstream.address);
    let front =
        serve_dir(backend, &dir, &["--proxy", &to, "--proxy", "/gone=http://127.0.0.1:1/x"]);
    assert_eq!(get(&front, "/").text(), "front");
    assert_eq!(get(&front, "/api.txt").text(), "file");
    assert_eq!(get(&front, "/api/").text(), "behind");
    assert_eq!(get(&front, "/api").text(), "behind");
    assert_eq!(get(&front, "/api/a/b.txt").text(), "deep");
    assert_eq!(get(&front, "/api/none").status, 404);
    assert_eq!(get(&front, "/api/../index.html").status, 400);
    let part = ask(&front, "GET", "/api/a/b.txt", "Range: bytes=1-2\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "ee"));
    let gone = get(&front, "/gone/");
    assert_eq!(gone.status, 502);
    assert_eq!(gone.text(), "the server behind this one cannot be reached\n");
}

pub(crate) fn j15_proxies_of_the_file_are_used(backend: &str) {
    let behind = Dir::with(&[("base/a.txt", "deep")]);
    let upstream = serve_dir(backend, &behind, &[]);
    let config = format!(
        "proxy_protocol = [\"192.0.2.0/24\"]\n[[proxy]]\npath = \"/\"\nto = [\"http://{}/base\"]\n\
         balance = \"least-connections\"\nhost = \"upstream\"\nhealth = \"/a.txt\"\nhealth_seconds = 60\n",
        upstream.address
    );
    let dir = Dir::with(&[("coracle.toml", &config), ("a.txt", "not this")]);
    let front = serve(backend, &["--config", dir.file("coracle.toml").to_str().unwrap()]);
    assert_eq!(get(&front, "/a.txt").text(), "deep");
}

pub(crate) fn j15_upstreams_by_https_are_who_they_should_be(backend: &str) {
    if !has("openssl") {
        return;
    }
    let behind = Dir::with(&[("site/index.html", "behind")]);
    make(&behind, "a", "localhost");
    make(&behind, "b", "localhost");
    let file = |name: &str| behind.file(name).to_str().unwrap().to_owned();
    let arguments =
        [file("site"), "--tls-cert".into(), file("a.pem"), "--tls-key".into(), file("a.key")];
    let upstream = serve(backend, &arguments);
    let port = upstream.address.rsplit(':').next().unwrap();
    let config = format!(
        "[[proxy]]\npath = \"/\"\nto = [\"https://localhost:{port}\"]\nhost = \"upstream\"\n\
         roots = \"{}\"\n[[proxy]]\npath = \"/other\"\nto = [\"https://localhost:{port}\"]\nroots = \"{}\"\n",
        file("a.pem"),
        file("b.pem")
    );
    let dir = Dir::with(&[("coracle.toml", &config)]);
    let front = serve(backend, &["--config", dir.file("coracle.toml").to_str().unwrap()]);
    assert_eq!(get(&front, "/").text(), "behind");
    let other = get(&front, "/other");
    assert_eq!(other.status, 502);
    assert_eq!(other.text(), "the server behind this one cannot be reached\n");
    let log = String::from_utf8_lossy(&front.end().stderr).into_owned();
    assert!(log.contains("say so by `roots` of the proxy in coracle.toml"), "{log}");
}

#[test]
fn q1_mistakes_about_proxies_are_told() {
    for (text, told) in [
        ("[[proxy]]\npath = \"/a\"", "1:1: the key `to` is missing here"),
        ("[[proxy]]\npath = \"a\"\nto = [\"http://b\"]", "2:8: a path begins with a slash"),
        (
            "[[proxy]]\npath = \"/a\"\nto = []",
            "3:6: a proxy needs a server: to = [\"http://127.0.0.1:9000\"]",
        ),
        (
            "[[proxy]]\npath = \"/a\"\nto = [\"b:80\"]",
            "3:7: \"b:80\": it is no URL: write http://HOST:PORT/PATH or https://HOST/PATH",
        ),
        (
            "[[proxy]]\npath = \"/a\"\nto = [\"http://b\"]\nbalance = \"fair\"",
            "4:11: unknown value `fair`",
        ),
        ("[[proxy]]\npath = \"/a\"\nto = [\"http://b\"]\nhost = \"x y\"", "4:8: host is none"),
        (
            "[[proxy]]\npath = \"/a\"\nto = [\"http://b\"]\nhealth = \"x\"",
            "4:10: the path of the health check is none",
        ),
        (
            "[[proxy]]\npath = \"/a\"\nto = [\"http://b\"]\ntrusted = [\"10/8\"]",
            "4:12: \"10/8\" is no network",
        ),
        ("[[proxy]]\npath = \"/a\"\nto = [\"https://b\"]\nroots = \"c.toml\"", "4:9: "),
        ("proxy_protocol = [\"me\"]", "1:19: \"me\" is no network"),
    ] {
        let dir = Dir::with(&[("c.toml", text)]);
        let output = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(&format!("c.toml:{told}")),
            "{text}\n{said}"
        );
    }
    for (argument, told) in [
        ("/a", "write it as /api=http://127.0.0.1:9000"),
        ("a=http://b", "a path begins with a slash"),
        ("/a=b", "--proxy /a=b: \"b\": it is no URL: write http://HOST:PORT/PATH or https://"),
    ] {
        let output = run_to_the_end(coracle().args(["serve", "--proxy", argument]));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(told), "{argument}\n{said}");
    }
}
