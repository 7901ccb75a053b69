//! Echo on tokio: one task per connection on the current-thread runtime.
//!
//! Fast settings: no timer driver (nothing here waits for time), no delay of small segments, and a read
//! buffer longer than a message, because tokio skips the extra `EAGAIN` read only after a short read.
//!
//! ```text
//! cargo run --release -p tokio-echo -- --listen 127.0.0.1:7000
//! ```

use std::io;
use std::net::SocketAddr;

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Connections the kernel may hold before the server accepts them.
const BACKLOG: u32 = 4096;
/// The read buffer of a connection; the same as the other peers'.
const BUFFER_BYTES: usize = 4096;

#[derive(Parser)]
#[command(about = "Echo on tokio, current-thread")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
}

fn main() -> io::Result<()> {
    let address = Arguments::parse().listen;
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(serve(address))
}

async fn serve(address: SocketAddr) -> io::Result<()> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    loop {
        let (stream, _peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // A connection that fails ends; the server goes on.
        tokio::spawn(async { echo(stream).await.ok() });
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let received = stream.read(&mut buffer).await?;
        if received == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..received]).await?;
    }
}
