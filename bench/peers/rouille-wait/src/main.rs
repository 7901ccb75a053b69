//! Handlers that wait, on rouille: `GET /sleep/MILLISECONDS`, `GET /blpop/MILLISECONDS`. Each has a thread.
//!
//! ```text
//! cargo run --release -p rouille-wait -- --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;

use clap::Parser;
use rouille::{Request, Response, Server};
use waiting::Waiting;

#[derive(Parser)]
#[command(about = "Handlers that wait, on rouille")]
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
    let waiting = Waiting::new(redis.as_deref())?;
    let server = Server::new(listen, move |req: &Request| match waiting.answer(&req.url()) {
        Some(done) => Response::text(done),
        None => Response::empty_404(),
    });
    server.map_err(io::Error::other)?.run();
    Ok(())
}
