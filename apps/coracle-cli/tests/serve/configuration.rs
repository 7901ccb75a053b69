//! Mistakes in a configuration file, and what is said of them.

use crate::client::Dir;
use crate::program::{coracle, run_to_the_end};

/// What `check` says of a file with this text, the name of the file left out; and whether it is fine.
fn check(text: &str) -> (bool, String) {
    let dir = Dir::with(&[("site/index.html", ""), ("lost.html", ""), ("c.toml", text)]);
    let path = dir.file("c.toml");
    let output = run_to_the_end(coracle().args(["check", "--config"]).arg(&path));
    let told = if output.status.success() { &output.stdout } else { &output.stderr };
    let told = String::from_utf8_lossy(told).replace(&format!("{}/", dir.path().display()), "");
    assert!(output.status.success() == output.stderr.is_empty(), "{told}");
    // The server says the same, and does not begin.
    if !output.status.success() {
        let served = run_to_the_end(coracle().args(["serve", "--config"]).arg(&path));
        assert_eq!((served.status.code(), served.stdout.len()), (Some(1), 0));
        assert_eq!(served.stderr, output.stderr);
    }
    (output.status.success(), told)
}

/// The first line of what is said of a mistake.
fn wrong(text: &str) -> String {
    let (is_fine, told) = check(text);
    assert!(!is_fine, "{text}: {told}");
    told.lines().next().unwrap().to_owned()
}

#[test]
fn q1_mistakes_are_told_with_line_column_and_hint() {
    let (_, told) = check("# ahoy\nlisen = [\"127.0.0.1:0\"]\n");
    assert_eq!(
        told,
        "coracle: c.toml:2:1: unknown key `lisen`: did you mean `listen`?\n  \
         2 | lisen = [\"127.0.0.1:0\"]\n    | ^^^^^\n"
    );
    for (text, expected) in [
        ("[site]\nlistin = true", "2:1: unknown key `listin`: did you mean `listing`?"),
        ("[sites]", "1:2: unknown key `sites`: did you mean `site`?"),
        (
            "[timeouts]\nidle = 1",
            "2:1: unknown key `idle`: the keys here are `header_seconds`, `body_seconds`, \
                                  `idle_seconds`, `write_seconds`, `request_seconds`",
        ),
        ("[site]\nsymlinks = \"nevr\"", "2:12: unknown value `nevr`: did you mean `never`?"),
        (
            "[site]\nhidden = \"maybe\"",
            "2:10: unknown value `maybe`: the values here are `hide`, `well-known`, `show`",
        ),
        (
            "[access_log]\nfile = \"-\"\nformat = \"jsn\"",
            "3:10: unknown value `jsn`: did you mean `json`?",
        ),
        ("[access_log]\nformat = \"json\"", "1:1: the key `file` is missing here"),
        ("threads = \"two\"", "1:11: a whole number is wanted here, not string \"two\""),
        ("[site]\nlisting = 1", "2:11: `true` or `false` is wanted here, not integer `1`"),
        (
            "listen = \"127.0.0.1:0\"",
            "1:10: a list in brackets is wanted here, not string \"127.0.0.1:0\"",
        ),
        ("threads 2", "1:9: key with no value, expected `=`"),
        ("threads = 1\nthreads = 2", "2:1: duplicate key"),
        ("threads = 0", "1:11: 0 is too small: 1 is the least"),
        ("processes = 5000", "1:13: 5000 is too large: 1024 is the most"),
        (
            "placement = \"round robin\"",
            "1:13: unknown value `round robin`: did you mean `round-robin`?",
        ),
        ("drain_seconds = -1", "1:17: -1 is too small: 0 is the least"),
        (
            "backend = \"kqueue\"",
            "1:11: unknown backend \"kqueue\": use uring, epoll, poll or select",
        ),
        ("[limits]\nheaders = 257", "2:11: 257 is too large: 256 is the most"),
        ("[limits]\nheader_bytes = 10", "2:16: 10 is too small: 64 is the least"),
        ("[limits]\nconnections_per_address = 0", "2:27: 0 is too small: 1 is the least"),
        ("[timeouts]\nidle_seconds = 0", "2:16: 0 is too small: 1 is the least"),
        ("[http2]\nstreams = 0", "2:11: 0 is too small: 1 is the least"),
        ("[http2]\nstream_window_bytes = 1", "2:23: 1 is too small: 65535 is the least"),
        (
            "[site]\ndirectory = \"none\"",
            "2:13: cannot serve the directory none: No such file or directory (os error 2)",
        ),
        (
            "[site]\ndirectory = \"lost.html\"",
            "2:13: cannot serve the directory lost.html: Not a directory (os error 20)",
        ),
        ("[site]\nindex = [\"a/b\"]", "2:10: an index is the name of a file, without slashes"),
        (
            "[site]\ncache_control = \"a\\nb\"",
            "2:17: cannot send the header \"cache-control\": its value has a line end \
                                             or another control character in it",
        ),
        (
            "[site]\nnames = [\"a\"]",
            "2:9: `names` belongs to a host: write `[[host]]` in the place of `[site]`",
        ),
        (
            "[site.error_pages]\n200 = \"lost.html\"",
            "2:1: this is no status of an error: those are 400 to 599",
        ),
        (
            "[site.error_pages]\n404 = \"none.html\"",
            "2:7: cannot read the error page none.html: No such file or \
                                                   directory (os error 2)",
        ),
        ("[[site.redirect]]\nfrom = \"old\"\nto = \"/new\"", "2:8: a path begins with a slash"),
        (
            "[[site.redirect]]\nfrom = \"/old\"\nto = \"javascript:1\"",
            "3:6: write a path, `/new`, or a URL, \
                                                                    `https://example.org/new`",
        ),
        ("[[site.redirect]]\nfrom = \"/old\"", "1:1: the key `to` is missing here"),
        (
            "[[site.redirect]]\nfrom = \"/a\"\nto = \"/b\"\nstatus = 200",
            "4:10: 200 is no status of a redirect: use 301, \
                                                                      302, 303, 307 or 308",
        ),
        ("[[host]]\ndirectory = \"site\"", "1:1: a host needs `names`: names = [\"example.org\"]"),
        ("[[host]]\nnames = [\"a\"]", "1:1: a host needs a `directory`"),
        (
            "[[host]]\nnames = [\"a:80\"]\ndirectory = \"site\"",
            "2:10: this is no name of a host: write `example.org` or \
                                                            `*.example.org`, without a port",
        ),
        (
            "[[host]]\nnames = [\"a\", \"A\"]\ndirectory = \"site\"",
            "2:15: there are two hosts of the name `a`",
        ),
        (
            "[access_log]\nfile = \"none/a.log\"",
            "2:8: cannot write the access log to none/a.log: there is no directory none",
        ),
    ] {
        assert_eq!(wrong(text), format!("coracle: c.toml:{expected}"), "{text}");
    }
    let no_address = wrong("listen = [\"127.0.0.1\"]");
    assert!(
        no_address.starts_with("coracle: c.toml:1:11: cannot read \"127.0.0.1\" as an address: "),
        "{no_address}"
    );
}

#[test]
fn q1_all_mistakes_are_told_at_once_in_their_order() {
    let (_, told) = check("threads = 0\n[site]\ndirectory = \"none\"\n[limits]\nheaders = 0\n");
    let places: Vec<&str> = told.lines().filter(|line| line.contains("c.toml:")).collect();
    assert_eq!(places.len(), 3, "{told}");
    for (place, expected) in places.iter().zip(["c.toml:1:11: ", "c.toml:3:13: ", "c.toml:5:11: "])
    {
        assert!(place.contains(expected), "{told}");
    }
}

#[test]
fn q1_good_configuration_is_fine() {
    assert_eq!(check(""), (true, "c.toml is fine: it serves on 127.0.0.1:8080\n".into()));
    let all = r#"
        listen = ["127.0.0.1:8080", "unix:/run/coracle.sock"]
        backend = "epoll"
        threads = 2
        pin_threads = true
        processes = 2
        placement = "least-connections"
        drain_seconds = 5
        request_ids = true

        [access_log]
        file = "access.log"
        format = "json"

        [limits]
        connections = 1000
        connections_per_address = 10
        requests_per_connection = 100
        header_bytes = 8192
        headers = 50
        target_bytes = 1024
        body_bytes = 0

        [timeouts]
        header_seconds = 5
        body_seconds = 5
        idle_seconds = 5
        write_seconds = 5
        request_seconds = 60

        [http2]
        prior_knowledge = true
        streams = 10
        resets = 10
        control_frames = 100
        stream_window_bytes = 65535
        connection_window_bytes = 65535
        ping_seconds = 30
        ping_timeout_seconds = 5

        [site]
        directory = "site"
        index = ["index.html", "index.txt"]
        listing = true
        welcome = false
        hidden = "well-known"
        symlinks = "never"
        precompressed = false
        compression = true
        cache_control = "no-cache"
        content_types = { wasm = "application/wasm" }
        error_pages = { 404 = "lost.html" }

        [[site.redirect]]
        from = "/a"
        to = "/b"

        [[host]]
        names = ["example.org", "*.example.org", "[::1]"]
        directory = "site"
    "#;
    let expected = "c.toml is fine: it serves on 127.0.0.1:8080, unix:/run/coracle.sock, 1 host\n";
    assert_eq!(check(all), (true, expected.into()));
}

#[test]
fn q1_configuration_that_cannot_be_read_is_told() {
    let dir = Dir::new();
    for command in ["check", "serve"] {
        let output =
            run_to_the_end(coracle().args([command, "--config"]).arg(dir.file("none.toml")));
        assert_eq!(output.status.code(), Some(1));
        let expected = format!(
            "coracle: cannot read the configuration {}: No such file or directory (os error 2)\n",
            dir.file("none.toml").display()
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    }
}
