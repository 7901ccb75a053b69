//! A short page on actix-web: one worker, no middleware.
//!
//! ```text
//! cargo run --release -p actix-hello -- --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;

use actix_web::{App, HttpServer, rt, web};
use clap::Parser;

/// Connections the kernel may hold before the server accepts them.
const BACKLOG: u32 = 4096;
/// At most so many at a time.
const CONNECTIONS: usize = 20_000;

#[derive(Parser)]
#[command(about = "A short page on actix-web, one worker")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

fn main() -> io::Result<()> {
    let address = Arguments::parse().listen;
    let app = || App::new().route("/", web::get().to(async || "Hello, World!"));
    let server = HttpServer::new(app).workers(1).backlog(BACKLOG).max_connections(CONNECTIONS);
    rt::System::new().block_on(server.bind(address)?.run())
}
