//! Echo with a thread for each connection, on the standard library alone.
//!
//! Fast settings: small stacks, no delay of small segments.
//!
//! ```text
//! cargo run --release -p threads-echo -- --listen 127.0.0.1:7000
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use clap::Parser;

/// An echo needs its buffer and little more.
const STACK_BYTES: usize = 64 * 1024;
/// The buffer of a connection; the same as the other peers'.
const BUFFER_BYTES: usize = 4096;

#[derive(Parser)]
#[command(about = "Echo with a thread for each connection")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind(Arguments::parse().listen)?;
    loop {
        let (stream, _peer) = listener.accept()?;
        stream.set_nodelay(true)?;
        // A connection that fails ends; the server goes on.
        thread::Builder::new().stack_size(STACK_BYTES).spawn(|| echo(stream).ok())?;
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        let received = stream.read(&mut buffer)?;
        if received == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..received])?;
    }
}
