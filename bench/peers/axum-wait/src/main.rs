//! Handlers that wait, on axum and a current-thread runtime: `GET /sleep/MILLISECONDS`.
//!
//! With `--blocking` they block the thread, as somebody's first handler does.
//!
//! ```text
//! cargo run --release -p axum-wait -- --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use axum::serve::ListenerExt;
use clap::Parser;
use tokio::net::TcpSocket;

/// Connections the kernel may hold before the server accepts them.
const BACKLOG: u32 = 4096;

#[derive(Parser)]
#[command(about = "Handlers that wait, on axum")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Wait by `std::thread::sleep`.
    #[arg(long)]
    blocking: bool,
}

fn main() -> io::Result<()> {
    let Arguments { listen, blocking } = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(listen)?;
        let listener = socket.listen(BACKLOG)?.tap_io(|stream| {
            // Refused only when the peer has gone already.
            let _ = stream.set_nodelay(true);
        });
        let wait = async move |Path(milliseconds): Path<u64>| {
            let time = Duration::from_millis(milliseconds);
            if blocking {
                std::thread::sleep(time);
            } else {
                tokio::time::sleep(time).await;
            }
            "done\n"
        };
        axum::serve(listener, Router::new().route("/sleep/{milliseconds}", get(wait))).await
    })
}
