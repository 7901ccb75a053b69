//! A server that nobody asks anything does nothing.

use crate::client::{Dir, ask_on, serve};
use crate::program::{Program, eventually};
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

/// How often each thread has gone to sleep.
fn sleeps(server: &Program) -> BTreeMap<String, String> {
    let tasks =
        fs::read_dir(format!("/proc/{}/task", server.pid().as_raw_nonzero())).expect("it runs");
    let paths = tasks.map(|task| task.unwrap().path());
    let of = |path: std::path::PathBuf| {
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        (path.display().to_string(), line.unwrap_or_default().to_owned())
    };
    paths.map(of).collect()
}

pub(crate) fn b4_idle_server_sleeps(backend: &str) {
    let dir =
        Dir::with(&[("site/index.html", "ahoy"), ("c.toml", "[site]\ndirectory = \"site\"\n")]);
    let (config, log) = (dir.file("c.toml"), dir.file("log"));
    let arguments = ["--config", config.to_str().unwrap(), "--access-log", log.to_str().unwrap()];
    let server = serve(backend, &arguments);
    let mut stream = server.connect();
    assert_eq!(ask_on(&mut stream, "/").text(), "ahoy");
    // With a connection, an access log, and an ear for SIGHUP. Once what was asked is over, nobody wakes up: a
    // timer that ticked twice a second, or faster, would be seen.
    eventually("everybody sleeps", || {
        let before = sleeps(&server);
        thread::sleep(Duration::from_millis(500));
        before.len() > 3 && before == sleeps(&server)
    });
    assert_eq!(ask_on(&mut stream, "/").text(), "ahoy");
}
