//! The command line: what it takes, and what it says to what it does not.

use crate::program::{Kind, Program, coracle, echo, expect_echo, run_to_the_end, under};
use coracle::demux::Processors;
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

#[test]
fn port_in_use_is_an_error_that_names_address_and_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = coracle().args(["echo", "--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    let expected = format!(
        "coracle: cannot listen on {address}: address already in use (another program listens there); \
         choose another with --listen"
    );
    assert!(text.contains(&expected), "{text}");
    assert!(output.stdout.is_empty(), "it never listened");
}

#[test]
fn port_alone_is_an_error_that_says_how_to_write_it() {
    let output = coracle().args(["echo", "--listen", "17000"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(":17000 is on every interface"), "{text}");
}

#[test]
fn style_that_is_not_there_is_not_offered() {
    for server in ["time", "proxy", "hello"] {
        let output = coracle().args([server, "--style", "hook"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{server}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("[possible values: callback, coroutine, async]"), "{text}");
        let help = coracle().args([server, "--help"]).output().unwrap().stdout;
        assert!(!String::from_utf8_lossy(&help).contains("hook"), "{server}");
    }
}

#[test]
fn unknown_backend_is_an_error_that_names_the_choices() {
    let output = coracle().args(["echo", "--backend", "kqueue"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("\"kqueue\"") && text.contains("uring, epoll, poll or select"), "{text}");

    let output = coracle()
        .args(["echo", "--listen", "127.0.0.1:0"])
        .env("CORACLE_BACKEND", "kqueue")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("CORACLE_BACKEND: unknown backend \"kqueue\""), "{text}");
}

#[test]
fn second_server_on_the_same_port_is_refused() {
    // With several loops, too: they share the port with each other, and with nobody else.
    let mut command = echo(Kind::EPOLL);
    command.args(["--threads", "2"]);
    let first = Program::run(command);
    assert_eq!(first.loops, "2 loops");
    for threads in ["1", "2"] {
        let mut second = coracle();
        second.args(["echo", "--listen", &first.address, "--threads", threads]);
        let output = run_to_the_end(&mut second);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.to_lowercase().contains("address already in use"), "{text}");
    }
    (0..20).for_each(|_| expect_echo(&mut first.connect(), b"all connections are the first's"));
}

#[test]
fn number_of_loops_is_told_and_cannot_be_zero() {
    for (threads, loops) in [("1", "1 loop"), ("3", "3 loops")] {
        let mut command = echo(Kind::EPOLL);
        command.args(["--threads", threads]);
        let server = Program::run(command);
        assert_eq!(server.loops, loops);
        expect_echo(&mut server.connect(), b"hello");
    }
    for option in ["--threads", "--processes"] {
        let output = coracle().args(["echo", "--listen", "127.0.0.1:0", option, "0"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(option) && text.contains("0 is not in 1..=1024"), "{text}");
    }
}

#[test]
fn what_is_no_address_is_an_error_that_says_how_to_write_one() {
    for listen in ["7000", "127.0.0.1", "127.0.0.1:70000", "::1:7000", ""] {
        let output = coracle().args(["echo", "--listen", listen]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{listen}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("IP:PORT") && text.contains("unix:PATH"), "{listen}: {text}");
        assert!(text.contains(&format!("{listen:?}")), "it names what was given: {text}");
    }
}

#[test]
fn backend_comes_from_the_environment_unless_it_is_given() {
    let mut command = coracle();
    command.args(["echo", "--listen", "127.0.0.1:0"]).env("CORACLE_BACKEND", "poll");
    let server = Program::run(command);
    assert_eq!(server.backend, "poll");
    expect_echo(&mut server.connect(), b"hello");
    let mut command = echo(Kind::EPOLL);
    command.env("CORACLE_BACKEND", "poll");
    assert_eq!(Program::run(command).backend, "epoll");
}

#[test]
fn help_tells_of_every_command_and_its_options() {
    let help = |arguments: &[&str]| {
        let output = coracle().args(arguments).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let general = help(&["--help"]);
    for (command, options) in [
        (
            "echo",
            &[
                "--listen",
                "--backend",
                "--threads",
                "--placement",
                "--drain",
                "--style",
                "coroutine",
            ][..],
        ),
        ("time", &["--listen", "--style", "--port", "--daemon", "--pid-file", "12345"]),
        ("proxy", &["--listen", "--style", "--to"]),
        ("serve", &["--listen", "--config", "[DIR]"]),
        ("check", &["--config"]),
        ("hello", &["--listen", "--style"]),
        ("discard", &["--listen"]),
        ("chargen", &["--listen"]),
        (
            "load",
            &[
                "--connect",
                "--connections",
                "--seconds",
                "--bytes",
                "--rate",
                "--idle",
                "--threads",
                "--backend",
                "--json",
                "--anywhere",
            ],
        ),
    ] {
        assert!(general.contains(&format!("\n  {command} ")), "{general}");
        let text = help(&[command, "--help"]);
        for option in options {
            assert!(text.contains(option), "{command}, {option}: {text}");
        }
    }
}

#[test]
fn version_is_told() {
    let output = coracle().arg("--version").output().unwrap();
    assert!(output.status.success());
    let expected = concat!("coracle ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn ipv6_address_is_served() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no IPv6");
        return;
    }
    let mut command = coracle();
    command.args(["echo", "--listen", "[::1]:0"]);
    expect_echo(&mut Program::run(command).connect(), b"hello");
}

#[test]
fn style_is_told_and_must_be_one_that_is_there() {
    for (style, told) in [
        ("coroutine", "2 loops, in coroutines"),
        ("async", "2 loops, in async"),
        ("hook", "2 loops, in hooked coroutines"),
    ] {
        let mut command = echo(Kind { style, ..Kind::EPOLL });
        command.args(["--threads", "2"]);
        let server = Program::run(command);
        assert_eq!(server.loops, told);
        (0..20).for_each(|_| expect_echo(&mut server.connect(), b"hello"));
    }

    let output = coracle().args(["echo", "--style", "goto"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("goto") && text.contains("[possible values: callback, coroutine, async"),
        "{text}"
    );
}

#[test]
fn option_that_a_style_does_not_have_is_refused() {
    for style in ["coroutine", "async", "hook"] {
        let servers = [&["echo"][..], &["time"], &["proxy", "--to", "127.0.0.1:1"]];
        let servers = &servers[..if style == "hook" { 1 } else { servers.len() }];
        for &arguments in servers {
            let mut command = coracle();
            command.args(arguments).args(["--listen", "127.0.0.1:0", "--style", style]);
            let output = run_to_the_end(command.args(["--processes", "2"]));
            assert_eq!(output.status.code(), Some(1));
            let text = String::from_utf8_lossy(&output.stderr);
            let told = format!("coracle: cannot serve with --processes and --style {style}: ");
            assert!(text.starts_with(&told), "{text}");
            assert!(output.stdout.is_empty(), "it never listened");
        }
        let mut command = coracle();
        command.args(["echo", "--listen", "127.0.0.1:0", "--style", style]);
        let output = run_to_the_end(command.args(["--placement", "round-robin"]));
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stderr);
        let told = format!("coracle: cannot serve with --placement and --style {style}: ");
        assert!(text.starts_with(&told), "{text}");
    }
}

/// What the loops wait for is what their epolls watch: some more than connections.
#[test]
fn g1_connections_are_spread_as_the_command_line_says() {
    for (placement, fewest, most) in [("round-robin", 4..6, 4..6), ("hash", 0..2, 8..10)] {
        let mut command = echo(Kind::EPOLL);
        command.args(["--threads", "2", "--placement", placement]);
        let server = Program::run(command);
        let before = server.watched_by_epolls();
        let mut streams: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(|stream| expect_echo(stream, b"hello"));
        let after = server.watched_by_epolls();
        let mut more: Vec<usize> = after.iter().zip(&before).map(|(now, old)| now - old).collect();
        more.sort_unstable();
        let [.., fewer, more] = more[..] else { panic!("two loops: {more:?}") };
        assert!(fewest.contains(&fewer) && most.contains(&more), "{placement}: {fewer}, {more}");
    }
}

#[test]
fn g4_loops_are_pinned_if_the_command_line_says_so() {
    let cores = Processors::of_this_thread().unwrap().numbers();
    for style in ["callback", "coroutine", "async", "hook"] {
        let mut command = echo(Kind { style, ..Kind::EPOLL });
        command.args(["--threads", "2", "--pin-threads"]);
        let server = Program::run(command);
        expect_echo(&mut server.connect(), b"hello");
        let first_two: BTreeSet<String> = cores.iter().take(2).map(usize::to_string).collect();
        assert_eq!(server.bound_to(), first_two, "{style}");
    }
    if cores.len() > 1 {
        let server = Program::start(Kind::EPOLL);
        assert_eq!(server.bound_to(), BTreeSet::new(), "without being asked, it binds nothing");
    }
}

#[test]
fn second_server_of_another_style_on_the_same_port_is_refused() {
    let coroutines = Kind { style: "coroutine", ..Kind::EPOLL };
    let mut command = echo(coroutines);
    command.args(["--threads", "2"]);
    let first = Program::run(command);
    for style in ["callback", "coroutine", "async", "hook"] {
        let mut second = coracle();
        second.args(["echo", "--listen", &first.address, "--style", style, "--threads", "2"]);
        let output = run_to_the_end(&mut second);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("address already in use (another program listens there)"), "{text}");
    }
    (0..20).for_each(|_| expect_echo(&mut first.connect(), b"all connections are the first's"));
}

#[test]
fn room_for_a_few_connections_only_is_told() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 80; exec \"$@\"", "sh"]);
    let server = Program::run(under(shell, &echo(Kind::EPOLL)));
    expect_echo(&mut server.connect(), b"served all the same");
    let output = server.end();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("room for only 16 connections") && log.contains("ulimit -Hn"), "{log}");
}
