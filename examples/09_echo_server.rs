//! An echo server in ten lines: one value per connection, and the loops call it.
//!
//! ```text
//! cargo run -p coracle --example 09_echo_server -- 127.0.0.1:7000
//! nc 127.0.0.1 7000          (type something; Ctrl-C stops the server)
//! ```
//!
//! One loop per core; what cannot be sent at once waits, within limits; a client that does not read is not read
//! either.

use coracle::net::{Buffer, Conn, Protocol, Server};
use std::io;

struct Echo;

impl Protocol for Echo {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        conn.write(input.take_all());
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let server = Server::bind(address)?;
    println!("echo on {}", server.local_addresses()[0]);
    server.serve(|_peer| Echo)
}
