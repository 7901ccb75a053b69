//! SIGHUP.

use crate::client::{Dir, answer_of, ask_on, await_text, command, get, serve};
use crate::program::{PATIENCE, Program, eventually, under};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

const CONFIG: &str = "[site]\ndirectory = \"old\"\n";

fn sites() -> Dir {
    Dir::with(&[("old/index.html", "old"), ("new/index.html", "new"), ("coracle.toml", CONFIG)])
}

fn start(backend: &str, dir: &Dir) -> Program {
    serve(backend, &["--config", dir.file("coracle.toml").to_str().unwrap()])
}

/// Has a program write what it says to a file, where it can be read while it runs.
pub(crate) fn logging_to(log: &Path) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "log=$1; shift; exec \"$@\" 2>\"$log\"", "sh"]).arg(log);
    shell
}

pub(crate) fn q1_sighup_reads_the_configuration_again(backend: &str) {
    let dir = sites();
    let server = start(backend, &dir);
    assert_eq!(get(&server, "/").text(), "old");
    dir.write("coracle.toml", "listen = [\"127.0.0.1:1\"]\n[site]\ndirectory = \"new\"\n");
    server.signal(Signal::HUP);
    await_text(&server, "/", "new");
    // Until every loop has it.
    for _ in 0..20 {
        assert_eq!(get(&server, "/").text(), "new");
    }
    let output = server.end();
    assert!(output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("the configuration was read again"), "{log}");
}

pub(crate) fn q1_wrong_configuration_is_refused_and_the_old_one_stays(backend: &str) {
    let dir = sites();
    let (config, log) = (dir.file("coracle.toml"), dir.file("log"));
    let server = command(backend, &["--config", config.to_str().unwrap()]);
    let server = Program::run(under(logging_to(&log), &server));
    let refusals = || fs::read_to_string(&log).unwrap().matches("the old one stays").count();
    let mut expected = 0;
    for (wrong, why) in [
        (
            "[site]\ndirectory = \"new\"\nlistin = true\n",
            ":3:1: unknown key `listin`: did you mean `listing`?",
        ),
        ("[site]\ndirectory = \"none\"\n", ":2:13: cannot serve the directory "),
        ("[site\n", ":1:6: "),
    ] {
        dir.write("coracle.toml", wrong);
        server.signal(Signal::HUP);
        expected += 1;
        eventually("it is refused", || refusals() == expected);
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains(&format!("{}{why}", config.display())), "{text}");
        assert_eq!(get(&server, "/").text(), "old");
    }
    fs::remove_file(&config).unwrap();
    server.signal(Signal::HUP);
    eventually("it is refused", || refusals() == expected + 1);
    assert_eq!(get(&server, "/").text(), "old");
    dir.write("coracle.toml", "[site]\ndirectory = \"new\"\n");
    server.signal(Signal::HUP);
    await_text(&server, "/", "new");
    assert!(server.end().status.success());
}

pub(crate) fn j14_sighup_opens_the_access_log_again(backend: &str) {
    let dir = sites();
    let log = dir.file("access.log");
    dir.write("coracle.toml", format!("{CONFIG}[access_log]\nfile = \"access.log\"\n"));
    let server = start(backend, &dir);
    assert_eq!(get(&server, "/first").status, 404);
    let has = |name: &str, text: &str| {
        fs::read_to_string(dir.file(name)).is_ok_and(|log| log.contains(text))
    };
    eventually("it is written", || has("access.log", "/first"));
    fs::rename(&log, dir.file("access.log.1")).unwrap();
    server.signal(Signal::HUP);
    eventually("it is opened again", || log.exists());
    assert_eq!(get(&server, "/second").status, 404);
    eventually("it is written", || has("access.log", "/second"));
    assert!(!has("access.log.1", "/second") && !has("access.log", "/first"));
    // Another file, and another format.
    dir.write(
        "coracle.toml",
        format!("{CONFIG}[access_log]\nfile = \"other.log\"\nformat = \"json\"\n"),
    );
    server.signal(Signal::HUP);
    eventually("it is made", || dir.file("other.log").exists());
    // It is there before the app is that writes to it.
    eventually("it is written", || {
        get(&server, "/third");
        has("other.log", "\"/third\"")
    });
    assert!(server.end().status.success());
}

pub(crate) fn q1_limits_and_timeouts_are_those_of_new_connections(backend: &str) {
    let dir = sites();
    let (config, log) = (dir.file("coracle.toml"), dir.file("log"));
    let server = command(backend, &["--config", config.to_str().unwrap()]);
    let server = Program::run(under(logging_to(&log), &server));
    let mut old = server.connect();
    assert_eq!(ask_on(&mut old, "/").text(), "old");
    let limits = "[limits]\ntarget_bytes = 3\n[timeouts]\nheader_seconds = 1\n";
    let fixed = "pin_threads = true\nprocesses = 3\nplacement = \"hash\"\n";
    dir.write("coracle.toml", format!("{fixed}{CONFIG}{limits}"));
    server.signal(Signal::HUP);
    eventually("new ones have less room", || get(&server, "/long").status == 414);
    assert_eq!(ask_on(&mut old, "/long").status, 404, "who was there keeps what it had");
    // What does not change is told, in one line.
    let read = || fs::read_to_string(&log).unwrap();
    eventually("it is read", || read().contains("the configuration was read again"));
    let text = read();
    let told: Vec<&str> = text.lines().filter(|line| line.contains("restart")).collect();
    assert!(told.len() == 1 && told[0].contains("pin_threads, processes, placement: "), "{text}");
    assert!(!told[0].contains("limits"), "{text}");
    // Half a head, and its time is over.
    let mut slow = server.connect();
    slow.write_all(b"GET / HT").unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert_eq!(answer_of(&answer).status, 408);
    drop((old, slow)); // or the server waits for them
    assert!(server.end().status.success());
}

pub(crate) fn q1_connections_outlive_a_reload(backend: &str) {
    let dir = sites();
    let server = start(backend, &dir);
    let mut stream = server.connect();
    assert_eq!(ask_on(&mut stream, "/").text(), "old");
    dir.write("coracle.toml", "[site]\ndirectory = \"new\"\n");
    server.signal(Signal::HUP);
    await_text(&server, "/", "new");
    assert_eq!(ask_on(&mut stream, "/").text(), "new");
}

pub(crate) fn q1_reload_under_load_loses_no_request(backend: &str) {
    let dir = sites();
    let server = start(backend, &dir);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut stream = server.connect();
                let mut seen = [0, 0];
                // The patience ends a test that has failed already.
                let deadline = Instant::now() + PATIENCE;
                while !done.load(Ordering::Relaxed) && Instant::now() < deadline {
                    let answer = ask_on(&mut stream, "/");
                    let which = ["old", "new"].iter().position(|text| answer.text() == **text);
                    seen[which.unwrap_or_else(|| panic!("{answer:?}"))] += 1;
                }
                seen
            })
        });
        for _ in 0..5 {
            for site in ["new", "old"] {
                dir.write("next.toml", format!("[site]\ndirectory = {site:?}\n"));
                fs::rename(dir.file("next.toml"), dir.file("coracle.toml")).unwrap();
                server.signal(Signal::HUP);
                await_text(&server, "/", site);
            }
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            let seen = client.join().unwrap();
            assert!(seen[0] > 0, "{seen:?}");
        }
    });
    assert!(server.end().status.success());
}

#[test]
fn q1_workers_are_replaced_unless_the_new_configuration_is_wrong() {
    let dir = sites();
    let config = dir.file("coracle.toml");
    let log = dir.file("log");
    let server = command("epoll", &["--config", config.to_str().unwrap(), "--processes", "2"]);
    let server = Program::run(under(logging_to(&log), &server));
    assert_eq!(server.loops, "2 processes, 2 loops each");
    assert_eq!(get(&server, "/").text(), "old");
    dir.write("coracle.toml", "[site]\ndirectory = \"none\"\n");
    server.signal(Signal::HUP);
    eventually("a new one gives up", || {
        fs::read_to_string(&log).unwrap().contains(":2:13: cannot serve the directory ")
    });
    for _ in 0..20 {
        assert_eq!(get(&server, "/").text(), "old");
    }
    dir.write("coracle.toml", "[site]\ndirectory = \"new\"\n");
    server.signal(Signal::HUP);
    // One after the other is replaced.
    eventually("all have it", || (0..20).all(|_| get(&server, "/").text() == "new"));
    assert!(server.end().status.success());
}

#[test]
fn d2_without_anything_to_reload_sighup_ends_it() {
    // A terminal that is closed says so by SIGHUP.
    let dir = sites();
    let server = serve("epoll", &[dir.file("old")]);
    server.signal(Signal::HUP);
    assert!(!server.output().status.success());
}
