//! Handlers that wait, on coracle, on one loop: `GET /sleep/MILLISECONDS`, `GET /blpop/MILLISECONDS`.
//!
//! With `--hook` the handler is the one of `rouille-wait`: it calls `std::thread::sleep`, and Redis by a client
//! that blocks, and the hooks park the coroutine in place of the thread. Without, it calls coracle's own `sleep`.
//!
//! ```text
//! cargo run --release -p coracle-wait -- --hook --listen 127.0.0.1:8080
//! ```

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

use clap::Parser;
use coracle::http::{IntoResponse, Request, Response, Server, Status};
use waiting::{DONE, Waiting};

#[derive(Parser)]
#[command(about = "Handlers that wait, on coracle")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
    /// Wait by what blocks threads.
    #[arg(long)]
    hook: bool,
    /// Where Redis is: `redis://HOST:PORT/`.
    #[arg(long)]
    redis: Option<String>,
    /// The backend.
    #[arg(long, default_value = "uring")]
    backend: String,
}

fn main() -> io::Result<()> {
    let Arguments { listen, hook, redis, backend } = Arguments::parse();
    let server = Server::bind(listen.as_str())?.loops(1).backend(backend.parse()?);
    if !hook {
        return server.serve(sleep);
    }
    // SAFETY: nothing here minds that others run while it waits: no lock is held meanwhile.
    unsafe { coracle::hook::enable() };
    let waiting = Waiting::new(redis.as_deref())?;
    server.serve(move |req: &Request<'_>| match waiting.answer(req.path()) {
        Some(done) => done.into_response(),
        None => Status::NOT_FOUND.into_response(),
    })
}

/// By coracle's own.
fn sleep(req: &Request<'_>) -> Response {
    let ["sleep", milliseconds] = req.segments() else { return Status::NOT_FOUND.into_response() };
    let Ok(milliseconds) = milliseconds.parse() else { return Status::BAD_REQUEST.into_response() };
    match coracle::sleep(Duration::from_millis(milliseconds)) {
        Ok(()) => DONE.into_response(),
        Err(_) => Status::SERVICE_UNAVAILABLE.into_response(),
    }
}
