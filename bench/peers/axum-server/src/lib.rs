//! How the peers on axum listen: with a long backlog, and small segments that are not delayed.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

/// Connections the kernel may hold before the server accepts them.
const BACKLOG: u32 = 4096;

/// Serves on `listen`, on this runtime, until it fails.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve(runtime: &Runtime, listen: SocketAddr, router: Router) -> io::Result<()> {
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(listen)?;
        let listener = socket.listen(BACKLOG)?.tap_io(|stream| {
            // Refused only when the peer has gone already.
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await
    })
}
