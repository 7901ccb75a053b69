//! Handlers that wait, on a thread for each connection: `GET /sleep/MILLISECONDS`, `GET /blpop/MILLISECONDS`.
//!
//! The least that such a server can do: it reads the path and nothing else.
//!
//! ```text
//! cargo run --release -p threads-wait -- --listen 127.0.0.1:8080
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use clap::Parser;
use waiting::Waiting;

/// The stack of a thread: enough for a client of Redis. What is not touched costs nothing.
const STACK_BYTES: usize = 256 * 1024;

#[derive(Parser)]
#[command(about = "Handlers that wait, on threads")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where Redis is: `redis://HOST:PORT/`.
    #[arg(long)]
    redis: Option<String>,
}

fn main() -> io::Result<()> {
    let Arguments { listen, redis } = Arguments::parse();
    let waiting = Arc::new(Waiting::new(redis.as_deref())?);
    for stream in TcpListener::bind(listen)?.incoming() {
        let (stream, waiting) = (stream?, Arc::clone(&waiting));
        // A connection that fails ends; the server goes on.
        let serve = move || serve(&stream, &waiting).ok();
        thread::Builder::new().stack_size(STACK_BYTES).spawn(serve)?;
    }
    Ok(())
}

fn serve(stream: &TcpStream, waiting: &Waiting) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(1024, stream);
    let mut line = String::new();
    loop {
        let mut path = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some(rest) = line.strip_prefix("GET ") {
                rest.split(' ').next().unwrap_or_default().clone_into(&mut path);
            }
        }
        let done = waiting.answer(&path).ok_or(io::ErrorKind::NotFound)?;
        let mut answer: &TcpStream = stream;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", done.len());
        answer.write_all((head + done).as_bytes())?;
    }
}
