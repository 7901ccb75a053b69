//! A short page on may_minihttp: one stackful coroutine per connection, one worker thread.
//!
//! ```text
//! cargo run --release -p may-hello -- --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;

use clap::Parser;
use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Parser)]
#[command(about = "A short page on may_minihttp, one worker")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(&mut self, _: Request<'_, '_, '_>, response: &mut Response<'_>) -> io::Result<()> {
        response.header("Content-Type: text/plain").body("Hello, World!");
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let address = Arguments::parse().listen;
    may::config().set_workers(1);
    let server = HttpServer(Hello).start(address)?;
    server.join().map_err(|_| io::Error::other("the server has panicked"))
}
