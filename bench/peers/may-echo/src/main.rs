//! Echo on may: one stackful coroutine per connection, one worker thread.
//!
//! Fast settings: as many workers as the server has cores (one), a small stack, no delay of small
//! segments.
//!
//! ```text
//! cargo run --release -p may-echo -- --listen 127.0.0.1:7000
//! ```

#![allow(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use clap::Parser;
use may::net::{TcpListener, TcpStream};

/// The read buffer of a connection; the same as the other peers'.
const BUFFER_BYTES: usize = 4096;
/// A coroutine's stack, in words: the buffer and room to spare.
const STACK_WORDS: usize = 0x1000;

#[derive(Parser)]
#[command(about = "Echo on may, one worker")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
}

fn main() -> io::Result<()> {
    let address = Arguments::parse().listen;
    may::config().set_workers(1).set_stack_size(STACK_WORDS);
    let listener = TcpListener::bind(address)?;
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        // SAFETY: the coroutine uses no thread-local state and stays well inside its stack.
        let _detached = unsafe { may::coroutine::spawn(move || echo(stream).ok()) };
    }
    Ok(())
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let received = stream.read(&mut buffer)?;
        if received == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..received])?;
    }
}
