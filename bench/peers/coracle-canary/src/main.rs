//! Handlers that write to SQLite, on coracle, on one loop, beside a clock on the same loop: `GET /write`,
//! `GET /ticks`. What blocks goes to the worker pool by `offload`.
//!
//! ```text
//! cargo run --release -p coracle-canary -- --database /tmp/notes --listen 127.0.0.1:8080
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use canary::{Store, Ticks};
use clap::Parser;
use coracle::Loop;
use coracle::http::{IntoResponse, Request, Response, Server, Status};

#[derive(Parser)]
#[command(about = "Handlers that write to SQLite, on coracle")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
    /// The backend.
    #[arg(long, default_value = "uring")]
    backend: String,
    /// The file of the database, which is not there yet.
    #[arg(long)]
    database: PathBuf,
}

fn main() -> io::Result<()> {
    let Arguments { listen, backend, database } = Arguments::parse();
    let store = Store::open(&database).map_err(io::Error::other)?;
    let ticks = Ticks::new();
    let server = Server::bind(listen.as_str())?.loops(1).backend(backend.parse()?);
    server.serve(move |req: &Request<'_>| match req.path() {
        "/write" => write(&store),
        "/ticks" => ticks.look(begin).into_response(),
        _ => Status::NOT_FOUND.into_response(),
    })
}

fn write(store: &Arc<Store>) -> Response {
    let store = Arc::clone(store);
    match coracle::offload(move || store.write()) {
        Ok(Ok(done)) => done.into_response(),
        _ => Status::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn begin(ticks: Arc<Ticks>) {
    let lp = Loop::current().expect("a handler runs on a loop");
    lp.every(Ticks::EVERY, move |_| ticks.tick());
}
