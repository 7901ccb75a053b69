//! `steps` counts the same again, however long anything takes: a server that answers one message at a time
//! executes the same instructions for each.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use harness::single_step::StepsReport;

/// Ended when the test is, however it ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_counts_of_the_same_are_equal() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_raw-epoll"));
    let server = Server(command.args(["--listen", &address.to_string()]).spawn().unwrap());
    while TcpStream::connect(address).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    let first = count(&server, address, 10);
    let second = count(&server, address, 10);
    let twice_as_many = count(&server, address, 20);
    assert!(first.instructions > 0);
    assert_eq!(first.instructions, second.instructions);
    assert_eq!(2 * first.instructions, twice_as_many.instructions);
}

fn count(server: &Server, address: SocketAddr, messages: u64) -> StepsReport {
    let mut steps = Command::new(env!("CARGO_BIN_EXE_steps"));
    steps.args(["--pid", &server.0.id().to_string(), "--connect", &address.to_string()]);
    steps.args(["--connections", "1", "--warmup", "5", "--count", &messages.to_string()]);
    steps.args(["--load-core", "0"]); // there is one everywhere
    let output = steps.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}
