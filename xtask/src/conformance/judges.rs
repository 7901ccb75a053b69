//! The judges: how each is asked, and what it must have said.

use super::Verdict;
use super::secure;
use super::server::{Programs, Server};
use crate::command;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A program that is not ours, and what it has to say about a server.
pub(super) struct Judge {
    pub(super) name: &'static str,
    /// Succeeds when it is there.
    pub(super) present: &'static [&'static str],
    /// Debian's package.
    pub(super) package: &'static str,
    /// Whether it takes seconds.
    pub(super) quick: bool,
    /// On how many backends, the first of those that are asked for: fewer, where it says the same of all of them.
    pub(super) backends: usize,
    pub(super) run: fn(&Path, &Programs, &str) -> Verdict,
}

/// On every backend.
const EVERY: usize = usize::MAX;

/// All of them.
pub(super) const JUDGES: &[Judge] = &[
    Judge {
        name: "curl",
        present: &["curl", "--version"],
        package: "curl",
        quick: true,
        backends: EVERY,
        run: curl,
    },
    Judge {
        name: "h11",
        present: &[PYTHON, "-c", "import h11"],
        package: "python3-h11",
        quick: true,
        backends: EVERY,
        run: h11,
    },
    Judge {
        name: "h2",
        present: &[PYTHON, "-c", "import h2"],
        package: "python3-h2",
        quick: true,
        backends: EVERY,
        run: h2,
    },
    Judge {
        name: "grpc",
        present: &[PYTHON, "-c", "import grpc"],
        package: "python3-grpcio",
        quick: true,
        backends: 1,
        run: grpc,
    },
    Judge {
        name: "nghttp2",
        present: &["nghttp", "--version"],
        package: "nghttp2-client",
        quick: true,
        backends: EVERY,
        run: nghttp2,
    },
    Judge {
        name: "websocket",
        present: &[PYTHON, "-c", "import websockets, wsproto"],
        package: "python3-websockets python3-wsproto",
        quick: true,
        backends: 1,
        run: websocket,
    },
    Judge {
        name: "autobahn",
        present: &[PYTHON, "-c", "import websockets, wsproto"],
        package: "python3-websockets python3-wsproto",
        quick: true,
        backends: 2,
        run: autobahn,
    },
    Judge {
        name: "autobahn-long",
        present: &[PYTHON, "-c", "import websockets, wsproto"],
        package: "python3-websockets python3-wsproto",
        quick: false,
        backends: EVERY,
        run: autobahn_long,
    },
    Judge {
        name: "ab",
        present: &["ab", "-V"],
        package: "apache2-utils",
        quick: true,
        backends: EVERY,
        run: ab,
    },
    Judge {
        name: "wrk",
        present: &["which", "wrk"],
        package: "wrk",
        quick: true,
        backends: EVERY,
        run: wrk,
    },
    Judge {
        name: "slowhttptest",
        present: &["which", "slowhttptest"],
        package: "slowhttptest",
        quick: false,
        backends: EVERY,
        run: slowhttptest,
    },
    Judge {
        name: "chromium",
        present: &["chromium", "--version"],
        package: "chromium",
        quick: false,
        backends: 1,
        run: chromium,
    },
    Judge {
        name: "curl-tls",
        present: &["curl", "--version"],
        package: "curl",
        quick: true,
        backends: EVERY,
        run: secure::curl,
    },
    Judge {
        name: "nghttp2-tls",
        present: &["nghttp", "--version"],
        package: "nghttp2-client",
        quick: true,
        backends: EVERY,
        run: secure::nghttp2,
    },
    Judge {
        name: "sslscan",
        present: &["sslscan", "--version"],
        package: "sslscan",
        quick: true,
        backends: 1,
        run: secure::sslscan,
    },
    Judge {
        name: "testssl",
        present: &["testssl", "--version"],
        package: "testssl.sh",
        quick: false,
        backends: 1,
        run: secure::testssl,
    },
    Judge {
        name: "sslyze",
        present: &["sslyze", "--help"],
        package: "pipx && pipx install sslyze==6.3.1",
        quick: false,
        backends: 1,
        run: secure::sslyze,
    },
    Judge {
        name: "chromium-tls",
        present: &["chromium", "--version"],
        package: "chromium",
        quick: false,
        backends: 1,
        run: secure::chromium,
    },
];

/// Debian's own, for which Debian's packages are.
const PYTHON: &str = "/usr/bin/python3";

/// `ab` without `-k` may need so long for a request: a server that does not close lets it wait for seconds. It was
/// 4 on a quiet machine, and 19 on one with a load of 28.
const LIMIT_AB_MILLISECONDS: f64 = 50.0;

fn curl(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.echo(backend, &[])?;
    let mut asked = 0;
    for version in ["--http1.0", "--http1.1", "--http2-prior-knowledge"] {
        let mut ask = |arguments: &[&str], path: &str| {
            asked += 1;
            let mut curl = Command::new("curl");
            curl.args([
                "--silent",
                "--show-error",
                "--fail",
                "--noproxy",
                "*",
                "--max-time",
                "60",
                version,
            ]);
            command::output(curl.args(arguments).arg(server.url(path)))
        };
        let told = |text: &str, part: &str| match text.contains(part) {
            true => Ok(()),
            false => Err(format!("{version}: {part} is not in {text}")),
        };
        let number = match version {
            "--http1.0" => "Http10",
            "--http1.1" => "Http11",
            _ => "Http2",
        };
        told(
            &ask(&[], "/a?b=c")?,
            &format!("\"path\":\"/a\",\"query\":\"b=c\",\"version\":\"{number}\""),
        )?;
        told(&ask(&["--data", "ahoy"], "/post")?, "\"body\":\"ahoy\"")?;
        told(&ask(&["--request", "BREW"], "/pot")?, "\"method\":\"BREW\"")?;
        told(&ask(&["--head"], "/")?, "content-type: application/json")?;
        told(&ask(&["--form", "a=ahoy"], "/form")?, "ahoy")?;
        let body = "x".repeat(600_000);
        let large = std::env::temp_dir().join(format!("coracle-curl-{}", std::process::id()));
        fs::write(&large, &body).map_err(|why| why.to_string())?;
        let from = format!("@{}", large.display());
        // Of this size, curl expects 100 Continue by itself (of 1.1).
        let uploaded = ask(&["--data-binary", &from, "--header", "Expect: 100-continue"], "/?raw");
        let _ = fs::remove_file(&large);
        if uploaded? != body {
            return Err(format!("{version}: a body of {} bytes came back as another", body.len()));
        }
        if version == "--http1.1" {
            told(
                &ask(&["--data", "ahoy", "--header", "Transfer-Encoding: chunked"], "/")?,
                "\"body\":\"ahoy\"",
            )?;
            // Not in HTTP/2: there curl 7.88 fails at the second (16), whoever the server is.
            let url = server.url("/second");
            let two = ask(&["--write-out", "%{num_connects}", &url], "/first")?;
            told(&two, "/second")?;
            if !two.ends_with('0') {
                return Err(format!("the connection was not used twice: {two}"));
            }
        }
    }
    server.end()?;
    Ok(format!("{asked} requests in HTTP/1.0, 1.1 and 2"))
}

fn h11(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    script(root, "strict_peer.py", programs, backend, &[])
}

fn h2(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    script(root, "http2_peer.py", programs, backend, &[])
}

fn grpc(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    script(root, "grpc_peer.py", programs, backend, &[])
}

/// `nghttp` for one request and what it says of the frames, `h2load` for many.
fn nghttp2(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.echo(backend, &[])?;
    let mut nghttp = Command::new("nghttp");
    nghttp.args(["--verbose", "--no-dep", "--timeout", "60", &server.url("/a")]);
    let text = command::output(&mut nghttp)?;
    if !text.contains(":status: 200") || !text.contains("\"version\":\"Http2\"") {
        return Err(text);
    }
    let mut h2load = Command::new("h2load");
    h2load.args(["--requests", "2000", "--clients", "8", "--max-concurrent-streams", "16"]);
    let text = command::output(h2load.arg(server.url("/")))?;
    server.end()?;
    match text.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout") {
        true => Ok("a request by nghttp, 2000 by h2load".to_owned()),
        false => Err(text),
    }
}

fn websocket(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    script(root, "websocket_peer.py", programs, backend, &[])
}

/// Every case, with few messages in those that send many.
fn autobahn(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    script(root, "autobahn.py", programs, backend, &["--rounds", "20"])
}

/// With as many as Autobahn sends.
fn autobahn_long(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    script(root, "autobahn.py", programs, backend, &["--rounds", "1000"])
}

/// A judge that is a script: it is told where the echo is, and what else it has to know.
fn script(
    root: &Path,
    name: &str,
    programs: &Programs,
    backend: &str,
    arguments: &[&str],
) -> Verdict {
    let server = programs.echo(backend, &[])?;
    let mut python = Command::new(PYTHON);
    python.arg("-B").arg(root.join("xtask/judges").join(name)); // and nothing is left beside it
    python.args([server.address.ip().to_string(), server.address.port().to_string()]);
    python.args(arguments);
    let output = python.output().map_err(|why| format!("{PYTHON}: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    server.end()?;
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{text}\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn ab(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.hello(backend)?;
    let text =
        command::output(Command::new("ab").args(["-n", "400", "-c", "16", &server.url("/")]))?;
    server.end()?;
    let number = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let word = line.and_then(|line| line[name.len()..].split_whitespace().next());
        word.and_then(|word| word.parse::<f64>().ok()).ok_or(format!("no {name} in {text}"))
    };
    let (complete, failed) = (number("Complete requests:")?, number("Failed requests:")?);
    // The mean of one connection, not of all together.
    let milliseconds = number("Time per request:")?;
    match complete == 400.0 && failed == 0.0 && milliseconds < LIMIT_AB_MILLISECONDS {
        true => Ok(format!("400 requests without -k, {milliseconds} ms each")),
        false => Err(text),
    }
}

fn wrk(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let server = programs.hello(backend)?;
    let mut wrk = Command::new("wrk");
    wrk.args(["--threads", "1", "--connections", "32", "--duration", "1s", &server.url("/")]);
    let text = command::output(&mut wrk)?;
    server.end()?;
    let wrong = ["Socket errors", "Non-2xx"].iter().find(|words| text.contains(**words));
    let requests = text.lines().find_map(|line| line.trim().split_once(" requests in "));
    match (wrong, requests) {
        (None, Some((requests, _))) if requests != "0" => {
            Ok(format!("{requests} requests in a second"))
        }
        _ => Err(text),
    }
}

/// Four kinds of slow clients, all of which have to be gone before the test is over, while others are served.
fn slowhttptest(_: &Path, programs: &Programs, backend: &str) -> Verdict {
    let site = std::env::temp_dir().join(format!("coracle-slow-{}", std::process::id()));
    fs::create_dir_all(&site).map_err(|why| format!("{}: {why}", site.display()))?;
    fs::write(site.join("large.bin"), vec![0; 16 << 20]).map_err(|why| why.to_string())?;
    let limits = ["--header-timeout", "2", "--body-timeout", "2", "--idle-timeout", "2"];
    let verdict = (|| {
        let echo = || programs.echo(backend, &limits);
        attack("header", echo()?, "/", &["-H", "-i", "1", "-l", "30"])?;
        attack("body", echo()?, "/", &["-B", "-i", "1", "-s", "8192", "-l", "30"])?;
        attack("ranges", echo()?, "/", &["-R", "-l", "30"])?;
        // Half of the least rate; a client has half a minute to show that it reads. When it is cut, it goes on
        // reading for a while what its kernel has of the answer.
        let reader = ["-X", "-n", "1", "-w", "512", "-y", "1024", "-z", "256", "-l", "240"];
        attack("reader", programs.serve(backend, &site, &[])?, "/large.bin", &reader)?;
        Ok("200 each with slow headers, bodies, ranges and readers are gone in time".to_owned())
    })();
    let _ = fs::remove_dir_all(&site);
    verdict
}

/// Two hundred clients of one kind, while another asks once a second.
fn attack(name: &str, server: Server, path: &str, options: &[&str]) -> Result<(), String> {
    let mut test = Command::new("slowhttptest");
    test.args(["-c", "200", "-r", "200", "-p", "5", "-x", "10"]).args(options);
    test.args(["-u", &server.url(path)]);
    let text = thread::scope(|scope| {
        let test = scope.spawn(|| command::output(&mut test));
        while !test.is_finished() {
            server_answers(&server)
                .map_err(|why| format!("{name}: others are not served: {why}"))?;
            thread::sleep(Duration::from_secs(1));
        }
        test.join().expect("it does not panic")
    })?;
    server.end()?;
    let text = plain(&text);
    match text.contains("No open connections left") {
        true => Ok(()),
        false => Err(format!("{name}: some were never cut\n{}", last_lines(&text))),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Without colours.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        let end = rest[at..]
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(rest.len(), |end| at + end + 1);
        rest = &rest[end..];
    }
    plain + rest
}

fn server_answers(server: &Server) -> Result<(), String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "60"]);
    command::output(curl.arg(server.url("/"))).map(drop)
}

fn chromium(root: &Path, programs: &Programs, backend: &str) -> Verdict {
    browse(
        root,
        programs,
        backend,
        &Way { options: &[], page: "http", socket: "ws", agreed: "http/1.1" },
    )
}

/// How a browser comes to a page, and from there to a WebSocket.
pub(super) struct Way {
    /// Of our programs.
    pub(super) options: &'static [&'static str],
    pub(super) page: &'static str,
    pub(super) socket: &'static str,
    /// What the page is got by.
    pub(super) agreed: &'static str,
}

/// A page of ours, and one that talks to the echo over a WebSocket.
pub(super) fn browse(root: &Path, programs: &Programs, backend: &str, way: &Way) -> Verdict {
    let directory = std::env::temp_dir().join(format!("coracle-chromium-{}", std::process::id()));
    let verdict = browse_in(root, programs, backend, way, &directory);
    let _ = fs::remove_dir_all(&directory);
    verdict
}

fn browse_in(
    root: &Path,
    programs: &Programs,
    backend: &str,
    way: &Way,
    directory: &Path,
) -> Verdict {
    let site = directory.join("site");
    fs::create_dir_all(&site).map_err(|why| format!("{}: {why}", site.display()))?;
    let server = programs.serve(backend, &site, way.options)?;
    let echo = programs.echo(backend, way.options)?;
    let show = |path: &str| {
        let mut chromium = Command::new("chromium");
        chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        chromium.arg("--ignore-certificate-errors"); // nobody has signed ours
        chromium.arg(format!("--user-data-dir={}", directory.join("profile").display()));
        let url = format!("{}://{}{path}", way.page, server.address);
        command::output(chromium.arg("--dump-dom").arg(url))
    };
    let page = show("/")?;
    if !page.contains("<h1>It floats.</h1>") {
        return Err(page);
    }
    let talk = root.join("xtask/judges/talk.html");
    let talk = fs::read_to_string(&talk).map_err(|why| format!("{}: {why}", talk.display()))?;
    let talk = talk.replace("ADDRESS", &format!("{}://{}", way.socket, echo.address));
    fs::write(site.join("talk.html"), talk).map_err(|why| why.to_string())?;
    let page = show("/talk.html")?;
    let expected =
        ["<h1>all came back: echo, permessage-deflate</h1>", &format!("<p>{}</p>", way.agreed)];
    if !expected.iter().all(|part| page.contains(part)) {
        return Err(page);
    }
    server.end()?;
    echo.end()?;
    Ok(format!(
        "the welcome page is shown by {}, and a page talks over a WebSocket ({})",
        way.agreed, way.socket
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(plain("\u{1b}[1;32mconnected:\u{1b}[0m 0"), "connected: 0");
    }
}
