//! The echo server in coroutines: plain blocking code, a coroutine for each connection.
//!
//! ```text
//! cargo run --release -p coracle --example 14_coroutine_echo -- --listen 127.0.0.1:7000 --backend epoll
//! ```
//!
//! Each connection has a coroutine, which reads and writes. `echo` knows nothing of loops: only the type of its
//! socket would have to change for it to run in a thread.

use coracle::Loop;
use coracle::coro::net::{TcpListener, TcpStream, serve_on};
use coracle::demux::Backend;
use std::io::{self, Read, Write};

fn main() -> io::Result<()> {
    let mut builder = Loop::builder();
    let mut address = "127.0.0.1:7000".to_owned();
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--listen" => address = value,
            "--backend" => builder = builder.backend(value.parse::<Backend>()?),
            _ => return Err(io::Error::other(format!("unknown option {name}"))),
        }
    }
    let lp = builder.build()?;
    lp.on_terminate(Loop::stop)?; // which cancels every coroutine
    let backend = lp.backend();
    coracle::run_on(&lp, move || {
        let listener = TcpListener::bind(address)?;
        println!("echo on {}, by {backend}", listener.local_addr()?);
        serve_on(listener, echo)
    })
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?; // echoes are small: send each at once
    let mut space = [0; 4096];
    loop {
        match stream.read(&mut space)? {
            0 => return Ok(()),
            count => stream.write_all(&space[..count])?,
        }
    }
}
