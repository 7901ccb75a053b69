//! Files on axum and tower-http's `ServeDir`, on a current-thread runtime; small segments are not delayed.
//!
//! ```text
//! cargo run --release -p axum-files -- --root DIRECTORY --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use clap::Parser;
use tower_http::services::ServeDir;

/// How much of a file is read at a time: measured to be better than the default of 64 KiB for large ones.
const CHUNK_BYTES: usize = 256 * 1024;

#[derive(Parser)]
#[command(about = "Files on axum and tower-http")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// What to serve.
    #[arg(long)]
    root: PathBuf,
}

fn main() -> io::Result<()> {
    let Arguments { listen, root } = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let files = ServeDir::new(root).with_buf_chunk_size(CHUNK_BYTES);
    axum_server::serve(&runtime, listen, Router::new().fallback_service(files))
}
