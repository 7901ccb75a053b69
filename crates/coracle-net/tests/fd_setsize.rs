//! Row I8: a server on select is full before its descriptors are beyond what select can wait for.
//!
//! In a file of its own, because it takes a process with nothing else in it: the server is this program, started
//! again.

use coracle_loop::demux::Backend;
use coracle_net::{Buffer, Conn, Server, Settings, raise_descriptor_limit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const CASE: &str = "i8_server_on_select_is_full_before_its_descriptors_are_too_large";
const CHILD: &str = "CORACLE_FD_SETSIZE_CHILD";

/// What an `fd_set` has room for.
const FD_SETSIZE: usize = 1024;

/// Ends what hangs; decides nothing.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn i8_server_on_select_is_full_before_its_descriptors_are_too_large() {
    if std::env::var_os(CHILD).is_some() {
        return serve();
    }
    raise_descriptor_limit().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", CASE, "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(server.stdout.take().unwrap());
    let mut lines = output.lines().map(|line| line.unwrap());
    let address =
        lines.find_map(|line| line.strip_prefix("serving on ").map(str::to_owned)).unwrap();
    let mut served = Vec::new();
    let mut busy = 0;
    for number in 0..FD_SETSIZE + 100 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A connection that is turned away may be gone before this is sent.
        let _ = stream.write_all(b"ahoy");
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap_or_else(|error| panic!("{number}: {error}"));
        match &answer {
            b"ahoy" => served.push(stream),
            b"busy" => busy += 1,
            other => panic!("{number}: {other:?}"),
        }
    }
    assert!(busy > 100 && served.len() > 800, "{} served, {busy} not", served.len());
    for stream in &mut served {
        stream.write_all(b"more").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).expect("those who are in are served");
    }
    drop(server.stdin.take());
    drop(served);
    assert!(server.wait().unwrap().success());
}

/// Serves until its standard input ends.
fn serve() {
    let settings = Settings { busy_message: "busy".into(), ..Settings::default() };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).backend(Backend::Select);
    let running = server
        .settings(settings)
        .start(|_| {
            |conn: &mut Conn<'_>, input: &mut Buffer| {
                conn.write(input.take_all());
                Ok(())
            }
        })
        .unwrap();
    println!("\nserving on {}", running.local_addresses()[0]);
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    running.handle().stop();
    running.join().unwrap();
}
