//! Handlers that write to SQLite, on axum and a current-thread runtime, beside a clock on the same runtime:
//! `GET /write`, `GET /ticks`.
//!
//! They block the thread, as somebody's first handler does; with `--spawn-blocking`, one of tokio's pool.
//!
//! ```text
//! cargo run --release -p axum-canary -- --database /tmp/notes --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use canary::{Store, Ticks};
use clap::Parser;
use tokio::time::MissedTickBehavior;

#[derive(Parser)]
#[command(about = "Handlers that write to SQLite, on axum")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Write on threads of the pool.
    #[arg(long)]
    spawn_blocking: bool,
    /// The file of the database, which is not there yet.
    #[arg(long)]
    database: PathBuf,
}

fn main() -> io::Result<()> {
    let Arguments { listen, spawn_blocking, database } = Arguments::parse();
    let store = Store::open(&database).map_err(io::Error::other)?;
    let ticks = Ticks::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let write = async move || {
        let store = Arc::clone(&store);
        let written = match spawn_blocking {
            true => tokio::task::spawn_blocking(move || store.write()).await.ok(),
            false => Some(store.write()),
        };
        written.and_then(Result::ok).ok_or(StatusCode::SERVICE_UNAVAILABLE)
    };
    let look = async move || ticks.look(begin);
    let router = Router::new().route("/write", get(write)).route("/ticks", get(look));
    axum_server::serve(&runtime, listen, router)
}

fn begin(ticks: Arc<Ticks>) {
    tokio::spawn(async move {
        let mut clock = tokio::time::interval(Ticks::EVERY);
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            clock.tick().await;
            ticks.tick();
        }
    });
}
