//! `ask` at both ends of a proxy: what it asks for at one, it answers at the other.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use harness::load::LoadReport;

/// Ended when the test is, however it ends.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_request_is_answered_behind_a_proxy() {
    let (proxy, behind) = (free_address(), free_address());
    let mut command = Command::new(env!("CARGO_BIN_EXE_raw-epoll-proxy"));
    command.args(["--listen", &proxy.to_string(), "--to", &behind.to_string()]);
    let running = Proxy(command.spawn().unwrap());
    while TcpStream::connect(proxy).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..2 {
        // Again, with connections of the first time that the proxy may still have.
        let report = ask(&running, proxy, behind);
        assert_eq!((report.connections, report.operations, report.errors), (4, 1000, 0));
    }
}

fn ask(proxy: &Proxy, connect: SocketAddr, serve: SocketAddr) -> LoadReport {
    let mut ask = Command::new(env!("CARGO_BIN_EXE_ask"));
    ask.args(["--connect", &connect.to_string(), "--serve", &serve.to_string()]);
    ask.args(["--connections", "4", "--count", "1000", "--body-bytes", "13"]);
    ask.args(["--watch", &proxy.0.id().to_string()]);
    let output = ask.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
