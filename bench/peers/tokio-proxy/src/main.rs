//! A proxy on tokio: `copy_bidirectional` for each connection, on the current-thread runtime.
//!
//! Fast settings: no timer driver (nothing here waits for time), no delay of small segments.
//!
//! ```text
//! cargo run --release -p tokio-proxy -- --listen 127.0.0.1:7000 --to 127.0.0.1:7001
//! ```

use std::io;
use std::net::SocketAddr;

use clap::Parser;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpSocket, TcpStream};

/// Connections the kernel may hold before the server accepts them.
const BACKLOG: u32 = 4096;

#[derive(Parser)]
#[command(about = "A proxy on tokio, current-thread")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
    /// Where to connect to.
    #[arg(long, default_value = "127.0.0.1:7001")]
    to: SocketAddr,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(serve(arguments))
}

async fn serve(Arguments { listen, to }: Arguments) -> io::Result<()> {
    let socket = if listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    let listener = socket.listen(BACKLOG)?;
    loop {
        let (client, _peer) = listener.accept().await?;
        // A connection that fails ends; the server goes on.
        tokio::spawn(async move { proxy(client, to).await.ok() });
    }
}

async fn proxy(mut client: TcpStream, to: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
