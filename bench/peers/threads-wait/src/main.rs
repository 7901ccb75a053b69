//! Handlers that wait, on a thread for each connection: `GET /sleep/MILLISECONDS`.
//!
//! The least that such a server can do: it reads the path and nothing else.
//!
//! ```text
//! cargo run --release -p threads-wait -- --listen 127.0.0.1:8080
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use clap::Parser;

/// The stack of a thread: the least that std's own code is happy with.
const STACK_BYTES: usize = 64 * 1024;

#[derive(Parser)]
#[command(about = "Handlers that wait, on threads")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind(Arguments::parse().listen)?;
    for stream in listener.incoming() {
        let stream = stream?;
        // A connection that fails ends; the server goes on.
        thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(&stream).ok())?;
    }
    Ok(())
}

fn serve(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(1024, stream);
    let mut line = String::new();
    loop {
        let mut milliseconds = None;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(rest) = line.strip_prefix("GET /sleep/") {
                milliseconds = rest.split(' ').next().and_then(|number| number.parse().ok());
            }
        }
        thread::sleep(Duration::from_millis(milliseconds.unwrap_or(0)));
        let mut answer: &TcpStream = stream;
        answer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ndone\n")?;
    }
}
