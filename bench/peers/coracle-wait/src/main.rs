//! Handlers that wait, on coracle, on one loop: `GET /sleep/MILLISECONDS`.
//!
//! With `--hook` they call `std::thread::sleep`, as the handlers of `threads-wait` do, and the hooks park the
//! coroutine in place of the thread; without, they call coracle's own.
//!
//! ```text
//! cargo run --release -p coracle-wait -- --hook --listen 127.0.0.1:8080
//! ```

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

use clap::Parser;
use coracle::http::{IntoResponse, Request, Response, Server, Status};

#[derive(Parser)]
#[command(about = "Handlers that wait, on coracle")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
    /// Wait by `std::thread::sleep`.
    #[arg(long)]
    hook: bool,
    /// The backend.
    #[arg(long, default_value = "uring")]
    backend: String,
}

fn main() -> io::Result<()> {
    let Arguments { listen, hook, backend } = Arguments::parse();
    if hook {
        // SAFETY: nothing here minds that others run while it sleeps.
        unsafe { coracle::hook::enable() };
    }
    let server = Server::bind(listen.as_str())?.loops(1).backend(backend.parse()?);
    server.serve(move |req: &Request<'_>| answer(req, hook))
}

fn answer(req: &Request<'_>, hook: bool) -> Response {
    let ["sleep", milliseconds] = req.segments() else { return Status::NOT_FOUND.into_response() };
    let Ok(milliseconds) = milliseconds.parse() else { return Status::BAD_REQUEST.into_response() };
    let time = Duration::from_millis(milliseconds);
    if hook {
        std::thread::sleep(time);
    } else if coracle::sleep(time).is_err() {
        return Status::SERVICE_UNAVAILABLE.into_response();
    }
    "done\n".into_response()
}
