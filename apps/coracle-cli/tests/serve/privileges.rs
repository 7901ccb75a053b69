//! `--user`: listens as root, and serves as somebody else. Only root can tell whether that is so.

use crate::client::{Dir, await_text, command, get, serve_dir};
use crate::program::{Program, coracle, eventually, run_to_the_end, under};
use crate::reload::logging_to;
use crate::tls::{has, make};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// Who has nothing, everywhere.
const NOBODY: u32 = 65534;

/// Whether this can be tested; says so if not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!(
            "SKIPPED: only root can give up its privileges, and this test is not run by root"
        );
    }
    root
}

/// A port that only root may listen on, at an address that no other test has.
fn privileged_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{high}.{low}.{}:777", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The program where nobody can start it: the directories above the one it was built in may be root's.
fn program_in(dir: &Dir) -> PathBuf {
    let program = dir.file("coracle");
    // By another process: a file that this one has open, its children have open for a moment, too, and cannot run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_coracle")).arg(&program).status();
    assert!(copied.expect("cp starts").success());
    program
}

/// Every thread of a process is nobody's, and cannot become anybody's.
fn is_nobody(pid: Pid) {
    for task in fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            line.split_whitespace().map(|number| number.parse().expect("a number")).collect()
        };
        assert_eq!(field("Uid:"), [NOBODY; 4], "{status}");
        assert_eq!(field("Gid:"), [NOBODY; 4], "{status}");
        assert_eq!(field("Groups:"), [NOBODY], "{status}");
        assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
        assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
    }
}

fn files() -> Dir {
    let dir = Dir::with(&[
        ("old/index.html", "old"),
        ("old/secret", "only for root"),
        ("new/index.html", "new"),
        ("log/none", ""),
    ]);
    fs::set_permissions(dir.file("old/secret"), Permissions::from_mode(0o600)).unwrap();
    chown(dir.file("log"), Some(NOBODY), Some(NOBODY)).unwrap();
    dir
}

pub(crate) fn q5_root_listens_and_nobody_serves(backend: &str) {
    if !is_root() {
        return;
    }
    let (dir, listen) = (files(), privileged_address());
    let config = |site: &str| {
        let text = format!(
            "listen = [\"{listen}\"]\nuser = \"nobody\"\n[access_log]\nfile = \"log/access\"\n\
             [site]\ndirectory = \"{site}\"\n"
        );
        dir.write("coracle.toml", text);
    };
    config("old");
    let mut command = coracle();
    command.args(["serve", "--backend", backend, "--threads", "3", "--config"]);
    let server = Program::run({
        command.arg(dir.file("coracle.toml"));
        command
    });
    assert_eq!(server.address, listen);
    is_nobody(server.pid());
    assert_eq!(get(&server, "/").text(), "old");
    assert_ne!(get(&server, "/secret").status, 200, "root is gone");
    // What is done later is done by nobody, too.
    config("new");
    fs::rename(dir.file("log/access"), dir.file("log/older")).unwrap();
    server.signal(Signal::HUP);
    await_text(&server, "/", "new");
    eventually("the log is opened anew", || dir.file("log/access").exists());
    is_nobody(server.pid());
    assert!(server.end().status.success());
}

/// The processes of a supervisor.
fn workers(server: &Program) -> Vec<Pid> {
    let pid = server.pid().as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split(' ').filter_map(|it| Pid::from_raw(it.trim().parse().ok()?)).collect()
}

pub(crate) fn q5_workers_are_nobody_too(backend: &str) {
    if !is_root() {
        return;
    }
    let (dir, listen) = (files(), privileged_address());
    let mut command = Command::new(program_in(&dir));
    command.env_remove("CORACLE_BACKEND").args(["serve", "--listen", &listen, "--processes", "2"]);
    command.args(["--threads", "1", "--backend", backend, "--user", "nobody"]);
    let server = Program::run({
        command.arg(dir.file("old"));
        command
    });
    let serving = |before: &[Pid]| {
        eventually("there are two others", || {
            let now = workers(&server);
            now.len() == 2 && now.iter().all(|pid| !before.contains(pid))
        });
        workers(&server)
    };
    let first = serving(&[]);
    is_nobody(server.pid());
    first.iter().for_each(|&pid| is_nobody(pid));
    assert_eq!(get(&server, "/").text(), "old");
    first.iter().for_each(|&pid| kill_process(pid, Signal::KILL).unwrap());
    let second = serving(&first);
    second.iter().for_each(|&pid| is_nobody(pid));
    assert_eq!(get(&server, "/").text(), "old", "those that were started again serve");
    server.signal(Signal::HUP);
    let third = serving(&second);
    third.iter().for_each(|&pid| is_nobody(pid));
    assert_eq!(get(&server, "/").text(), "old", "and those that took their place");
    assert!(server.end().status.success());
}

#[test]
fn q5_only_root_may_name_a_user() {
    if !is_root() {
        return;
    }
    let dir = files();
    let program = program_in(&dir);
    let mut command = Command::new(&program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--user", "root"]).arg(dir.file("old"));
    let output = run_to_the_end(command.uid(NOBODY).gid(NOBODY));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot become the user \"root\": only root may"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    // A group is a part of it.
    let mut command = Command::new(&program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--user", "nobody:12345"]);
    let output = run_to_the_end(command.arg(dir.file("old")).uid(NOBODY).gid(NOBODY));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("\"nobody:12345\": only root may change the group"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    // Who is that user already has nothing to give up.
    let mut command = Command::new(&program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--user", "nobody"]).arg(dir.file("old"));
    command.uid(NOBODY).gid(NOBODY);
    let server = Program::run(command);
    assert_eq!(get(&server, "/").text(), "old");
}

#[test]
fn q5_key_that_only_root_may_read_is_told_of_at_the_start() {
    if !is_root() || !has("openssl") {
        return;
    }
    let dir = files();
    make(&dir, "a", "a.example"); // its key is for who has made it
    fs::set_permissions(dir.file("a.key"), Permissions::from_mode(0o600)).unwrap();
    let (program, log) = (program_in(&dir), dir.file("log/err"));
    let serving = |more: &[&str]| {
        let mut command = Command::new(&program);
        command.env_remove("CORACLE_BACKEND").args(["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--threads", "1", "--user", "nobody"]).args(more);
        command.arg("--tls-cert").arg(dir.file("a.pem")).arg("--tls-key").arg(dir.file("a.key"));
        command.arg(dir.file("old"));
        command
    };
    let told = "the user \"nobody\" has to read what root could read: ";
    let why = "a.key cannot be read: Permission denied";
    let server = Program::run(under(logging_to(&log), &serving(&[])));
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("SIGHUP will change nothing") && said.contains(told), "{said}");
    assert!(said.contains(why), "{said}");
    server.signal(Signal::HUP);
    eventually("it is refused", || fs::read_to_string(&log).unwrap().contains("the old one stays"));
    assert!(server.end().status.success(), "it serves all the same");
    // Workers could not begin.
    let output = run_to_the_end(&mut serving(&["--processes", "1"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(told) && said.contains(why), "{said}");
    assert_eq!(output.status.code(), Some(1));
    // What the user may read, it reads again.
    chown(dir.file("a.key"), Some(NOBODY), Some(NOBODY)).unwrap();
    let server = Program::run(under(logging_to(&log), &serving(&[])));
    assert!(!fs::read_to_string(&log).unwrap().contains("SIGHUP"));
    assert!(server.end().status.success());
}

#[test]
fn q5_who_serves_is_who_cannot_enter_what_is_new() {
    if !is_root() {
        return;
    }
    let dir = files();
    let (config, log) = (dir.file("coracle.toml"), dir.file("log/err"));
    let write = |user: &str, site: &str| {
        let text = format!("user = \"{user}\"\n[site]\ndirectory = \"{site}\"\n");
        dir.write("coracle.toml", format!("listen = [\"127.0.0.1:0\"]\n{text}"));
    };
    write("nobody", "old");
    fs::set_permissions(dir.file("new"), Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(program_in(&dir));
    command.env_remove("CORACLE_BACKEND").args(["serve", "--threads", "1", "--config"]).arg(config);
    let server = Program::run(under(logging_to(&log), &command));
    write("daemon", "new");
    server.signal(Signal::HUP);
    let read = || fs::read_to_string(&log).unwrap();
    eventually("it is refused", || read().contains("the old one stays"));
    assert!(read().contains("the user \"nobody\" cannot enter "), "{}", read());
    assert!(server.end().status.success());
}

#[test]
fn q5_directory_that_the_user_cannot_enter_is_refused() {
    if !is_root() {
        return;
    }
    let dir = files();
    let mode = |name: &str, mode| {
        fs::set_permissions(dir.file(name), Permissions::from_mode(mode)).unwrap();
    };
    let config = "listen = [\"127.0.0.1:0\"]\nuser = \"nobody\"\n[site]\ndirectory = \"old\"\n";
    dir.write("coracle.toml", config);
    let (program, config) = (program_in(&dir), dir.file("coracle.toml"));
    let commands: [&[&str]; 3] = [&["check"], &["serve"], &["serve", "--processes", "1"]];
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.env_remove("CORACLE_BACKEND").args(arguments).arg("--config").arg(&config);
        command
    };
    let refused = |told: &str| {
        for arguments in commands {
            let output = run_to_the_end(&mut run(arguments));
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(said.contains(told), "{arguments:?}: {said}");
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        }
    };
    mode("old", 0o700);
    refused("the user \"nobody\" cannot enter ");
    mode("old", 0o711);
    let listing = fs::read_to_string(&config).unwrap() + "listing = true\n";
    dir.write("listing.toml", &listing);
    let mut command = Command::new(&program);
    let output = run_to_the_end(command.args(["check", "--config"]).arg(dir.file("listing.toml")));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the user \"nobody\" cannot list and enter "), "{said}");
    // A page that cannot be read is one of many.
    let warning = "old/index.html: Permission denied";
    for (bits, warned) in [(0o600, true), (0o644, false)] {
        mode("old/index.html", bits);
        let output = run_to_the_end(&mut run(&["check"]));
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success() && said.contains("is fine"), "{said}");
        assert_eq!(said.contains(warning), warned, "{said}");
        let log = dir.file("log/err");
        let server = Program::run(under(logging_to(&log), &run(&["serve"])));
        assert_eq!(get(&server, "/").status == 200, !warned);
        let said = fs::read_to_string(&log).unwrap();
        assert_eq!(said.contains(warning), warned, "{said}");
        // What cannot be served is not taken later, either.
        if !warned {
            mode("new", 0o700);
            dir.write("coracle.toml", listing.replace("old", "new"));
            server.signal(Signal::HUP);
            eventually("it is refused", || {
                let said = fs::read_to_string(&log).unwrap();
                said.contains("the old one stays") && said.contains("cannot list and enter ")
            });
            assert_eq!(get(&server, "/").text(), "old");
        }
        assert!(server.end().status.success());
    }
}

#[test]
fn q5_user_that_is_not_there_is_told() {
    let dir = Dir::with(&[("c.toml", "user = \"no-such-user\"\n")]);
    let check = run_to_the_end(coracle().args(["check", "--config"]).arg(dir.file("c.toml")));
    let text = String::from_utf8_lossy(&check.stderr);
    let told = "c.toml:1:8: cannot serve as the user \"no-such-user\": there is none of that name";
    assert!(text.contains(told), "{text}");
    let output = run_to_the_end(&mut command("epoll", &["--user", "no-such-user"]));
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is none of that name"));
}

/// How large a core file of a process may be.
fn core_limit(pid: Pid) -> String {
    let limits = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
    line.expect("a limit").split_whitespace().next().expect("the soft one").to_owned()
}

pub(crate) fn q5_no_core_files_are_written(backend: &str) {
    // Else it may be so only because it was before.
    let limit = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let dir = Dir::new();
    assert_eq!(core_limit(serve_dir(backend, &dir, &[]).pid()), "0");
}
