//! `coracle proxy`: the client on one side and the upstream on the other are the test's.

use crate::program::{Kind, PATIENCE, Program, eventually, log_of, pattern, service};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::Signal;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

const MEGABYTES: usize = 1 << 20;

/// A proxy, and the server behind it.
struct Proxied {
    proxy: Program,
    upstream: TcpListener,
}

impl Proxied {
    fn new(kind: Kind) -> Proxied {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = proxy_to(kind, upstream.local_addr().unwrap());
        Proxied { proxy, upstream }
    }

    /// Both ends of a new connection: the client's and the upstream's.
    fn pair(&self) -> (TcpStream, TcpStream) {
        let client = self.proxy.connect();
        let (server, _) = self.upstream.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.set_write_timeout(Some(PATIENCE)).unwrap();
        (client, server)
    }
}

fn proxy_to(kind: Kind, upstream: SocketAddr) -> Program {
    let mut command = service("proxy", kind);
    // With one loop, what is open can be counted.
    command.args(["--threads", "1", "--to", &upstream.to_string()]);
    Program::run_on(kind, command)
}

fn read_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

fn send_all(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
}

fn expect(mut stream: &TcpStream, bytes: &[u8]) {
    let mut came = vec![0; bytes.len()];
    stream.read_exact(&mut came).unwrap();
    assert!(came == bytes, "what arrived is not what was sent");
}

/// A reset instead of an end.
fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

/// Whether a connection is over, in whatever way.
fn is_over(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock && error.kind() != ErrorKind::TimedOut,
    }
}

pub(crate) fn messages_go_both_ways(kind: Kind) {
    let proxied = Proxied::new(kind);
    let pairs: Vec<_> = (0..10).map(|_| proxied.pair()).collect();
    for round in 0..10u8 {
        for (number, (client, server)) in pairs.iter().enumerate() {
            let message = [round, number as u8, 0, 255];
            (&mut &*client).write_all(&message).unwrap();
            expect(server, &message);
            (&mut &*server).write_all(&message).unwrap();
            expect(client, &message);
        }
    }
}

pub(crate) fn client_may_end_first(kind: Kind) {
    let proxied = Proxied::new(kind);
    let (client, server) = proxied.pair();
    send_all(&client, b"a question");
    assert_eq!(read_all(&server), b"a question");
    send_all(&server, b"an answer, after the end of the question");
    assert_eq!(read_all(&client), b"an answer, after the end of the question");
}

pub(crate) fn upstream_may_end_first(kind: Kind) {
    let proxied = Proxied::new(kind);
    let (client, server) = proxied.pair();
    send_all(&server, b"welcome, I have nothing else to say");
    assert_eq!(read_all(&client), b"welcome, I have nothing else to say");
    send_all(&client, b"but I have");
    assert_eq!(read_all(&server), b"but I have");
}

pub(crate) fn ten_megabytes_arrive_intact(kind: Kind) {
    let proxied = Proxied::new(kind);
    let (client, server) = proxied.pair();
    let bytes = pattern(10 * MEGABYTES);
    let came = thread::scope(|scope| {
        scope.spawn(|| {
            io::copy(&mut &server, &mut &server).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
        });
        scope.spawn(|| send_all(&client, &bytes));
        read_all(&client)
    });
    assert_eq!(came.len(), bytes.len());
    assert!(came == bytes, "what arrived is not what was sent");
}

pub(crate) fn directions_do_not_wait_for_each_other(kind: Kind) {
    // A client that sends everything before it reads, to a server that does not wait for that.
    let proxied = Proxied::new(kind);
    let (client, server) = proxied.pair();
    let bytes = pattern(10 * MEGABYTES);
    thread::scope(|scope| {
        scope.spawn(|| send_all(&server, &bytes));
        let heard = scope.spawn(|| read_all(&server));
        send_all(&client, &bytes);
        assert!(heard.join().unwrap() == bytes, "from the client to the server");
        assert!(read_all(&client) == bytes, "from the server to the client");
    });
}

/// An address that refuses connections, as long as the socket is there: bound, so that nobody else gets the port,
/// but not listening.
fn refusing() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    (socket, address)
}

pub(crate) fn upstream_that_refuses_closes_the_client(kind: Kind) {
    let (_socket, address) = refusing();
    let proxy = proxy_to(kind, address);
    for _ in 0..3 {
        let mut client = proxy.connect();
        let _ = client.write_all(b"anybody there?");
        assert!(is_over(&client));
    }
    let output = proxy.end();
    assert!(output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    let told = format!("cannot connect to {address}: connection refused");
    assert_eq!(log.matches(&told).count(), 3, "{log}");
}

pub(crate) fn p6_log_has_levels(kind: Kind) {
    let (_socket, address) = refusing();
    let log_at = |level: &str| {
        let mut command = service("proxy", kind);
        command.args(["--to", &address.to_string(), "--log", level]);
        let proxy = Program::run_on(kind, command);
        assert!(is_over(&proxy.connect())); // which it warns of
        let output = proxy.end();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let has = |log: &str, level: &str| log.lines().any(|line| line.contains(level));
    let debug = log_at("debug");
    assert!(has(&debug, "DEBUG ") && has(&debug, " WARN cannot connect"), "{debug}");
    let warn = log_at("warn");
    assert!(has(&warn, " WARN cannot connect") && !has(&warn, "DEBUG "), "{warn}");
    assert_eq!(log_at("error"), "", "that nobody answers is no error of the program's");
    assert_eq!(log_at("off"), "");
}

pub(crate) fn upstream_that_dies_takes_the_client_along(kind: Kind) {
    let proxied = Proxied::new(kind);
    let (witness, peer) = proxied.pair();
    (&mut &witness).write_all(b"before").unwrap();
    expect(&peer, b"before");
    let before = proxied.proxy.descriptors();
    for round in 0..20 {
        let (mut client, server) = proxied.pair();
        client.write_all(b"hello").unwrap();
        expect(&server, b"hello");
        if round % 2 == 0 {
            let _ = client.write_all(&pattern(100_000)); // on its way when it happens
        }
        reset(server);
        assert!(is_over(&client), "round {round}");
    }
    eventually("both sides are closed", || proxied.proxy.descriptors() <= before);
    (&mut &peer).write_all(b"after").unwrap();
    expect(&witness, b"after");
}

pub(crate) fn upstream_that_died_unnoticed_takes_the_client_along(kind: Kind) {
    // The proxy learns of it by the bytes it cannot send there any more, in the middle of the client's callback.
    let proxied = Proxied::new(kind);
    for round in 0..10 {
        let (mut client, server) = proxied.pair();
        client.write_all(b"hello").unwrap();
        expect(&server, b"hello");
        proxied.proxy.signal(Signal::STOP);
        client.write_all(b"anybody there?").unwrap();
        reset(server);
        proxied.proxy.signal(Signal::CONT);
        assert!(is_over(&client), "round {round}");
    }
}

pub(crate) fn client_that_dies_takes_the_upstream_along(kind: Kind) {
    let proxied = Proxied::new(kind);
    let (witness, peer) = proxied.pair();
    (&mut &witness).write_all(b"before").unwrap();
    expect(&peer, b"before");
    let before = proxied.proxy.descriptors();
    for round in 0..20 {
        let (mut client, server) = proxied.pair();
        client.write_all(b"hello").unwrap();
        expect(&server, b"hello");
        if round % 2 == 0 {
            let _ = (&mut &server).write_all(&pattern(100_000));
        }
        reset(client);
        assert!(is_over(&server), "round {round}");
    }
    eventually("both sides are closed", || proxied.proxy.descriptors() <= before);
    (&mut &peer).write_all(b"after").unwrap();
    expect(&witness, b"after");
}

pub(crate) fn slow_reader_costs_bounded_memory(kind: Kind) {
    let proxied = Proxied::new(kind);
    let (client, server) = proxied.pair();
    let bytes = pattern(64 * MEGABYTES);
    thread::scope(|scope| {
        scope.spawn(|| send_all(&client, &bytes));
        // Nobody reads: it takes as much as it has room for, and then nothing.
        eventually("it has stopped", || {
            let before = proxied.proxy.processor_time();
            thread::sleep(Duration::from_millis(200));
            proxied.proxy.processor_time() == before
        });
        let memory = proxied.proxy.memory();
        assert!(memory < 48 << 20, "{} MiB for who does not read", memory >> 20);
        assert!(read_all(&server) == bytes, "what arrived is not what was sent");
    });
}

pub(crate) fn d2_request_to_end_is_told_to_both_sides(kind: Kind) {
    let proxied = Proxied::new(kind);
    let (client, server) = proxied.pair();
    (&mut &client).write_all(b"before").unwrap();
    expect(&server, b"before");
    proxied.proxy.signal(Signal::TERM);
    assert_eq!(read_all(&client), b"", "our side is ended in order");
    assert_eq!(read_all(&server), b"", "and the other");
    drop((client, server)); // what it waits for
    let output = proxied.proxy.output();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("coracle proxy: stopped\n"));
    assert_eq!(log_of(&output), "");
}
