//! The command line: what it takes, and what it says to what it does not.

use crate::program::{Echo, coracle, echo, expect_echo};
use std::net::TcpListener;

#[test]
fn port_in_use_is_an_error_that_names_address_and_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = coracle().args(["echo", "--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    let expected = format!("coracle: cannot listen on {address}: Address already in use");
    assert!(text.contains(&expected), "{text}");
    assert!(output.stdout.is_empty(), "it never listened");
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
fn what_is_no_address_is_an_error_that_says_how_to_write_one() {
    for listen in ["7000", "localhost:7000", "127.0.0.1", "127.0.0.1:70000", ""] {
        let output = coracle().args(["echo", "--listen", listen]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{listen}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("IP:PORT") && text.contains("unix:PATH"), "{listen}: {text}");
    }
}

#[test]
fn backend_comes_from_the_environment_unless_it_is_given() {
    let mut command = coracle();
    command.args(["echo", "--listen", "127.0.0.1:0"]).env("CORACLE_BACKEND", "poll");
    let server = Echo::run(command);
    assert_eq!(server.backend, "poll");
    expect_echo(&mut server.connect(), b"hello");
    let mut command = echo("epoll");
    command.env("CORACLE_BACKEND", "poll");
    assert_eq!(Echo::run(command).backend, "epoll");
}

#[test]
fn without_arguments_it_echoes_on_port_7000() {
    // The test needs the port; somebody else may have it.
    match TcpListener::bind("127.0.0.1:7000") {
        Ok(listener) => drop(listener),
        Err(error) => {
            eprintln!("SKIPPED: port 7000 is not free: {error}");
            return;
        }
    }
    let server = Echo::run(coracle());
    assert_eq!(server.address, "127.0.0.1:7000");
    expect_echo(&mut server.connect(), b"hello");
    assert!(server.end().status.success());
}

#[test]
fn help_tells_of_echo_and_its_options() {
    let output = coracle().arg("--help").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("echo"));
    let output = coracle().args(["echo", "--help"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("--listen") && text.contains("--backend"), "{text}");
}

#[test]
fn ipv6_address_is_served() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no IPv6");
        return;
    }
    let mut command = coracle();
    command.args(["echo", "--listen", "[::1]:0"]);
    expect_echo(&mut Echo::run(command).connect(), b"hello");
}
