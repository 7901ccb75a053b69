//! WebSockets on axum and a current-thread runtime: whoever is at `/subscribe` is told what is said at `/publish`,
//! by tokio's broadcast channel.
//!
//! Fast settings: a message is not copied (its bytes are shared), and a task that finds several messages sends
//! them together; small segments are not delayed.
//!
//! ```text
//! cargo run --release -p axum-rooms -- --listen 127.0.0.1:8080
//! ```

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::routing::get;
use clap::Parser;
use futures_util::SinkExt;
use tokio::sync::broadcast::{self, Receiver, Sender};

/// What a subscriber hears first: it is in the room.
const WELCOME: &[u8] = b"welcome";
/// Messages that wait for a subscriber that is slow, before it misses some.
const LIMIT_BACKLOG: usize = 1024;

#[derive(Parser)]
#[command(about = "A room of WebSockets, on axum")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

fn main() -> io::Result<()> {
    let Arguments { listen } = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (room, _) = broadcast::channel::<Bytes>(LIMIT_BACKLOG);
    let subscriber = async |State(room): State<Sender<Bytes>>, upgrade: WebSocketUpgrade| {
        upgrade.on_upgrade(move |socket| subscribe(socket, room.subscribe()))
    };
    let publisher = async |State(room): State<Sender<Bytes>>, upgrade: WebSocketUpgrade| {
        upgrade.on_upgrade(move |socket| publish(socket, room))
    };
    let router = Router::new()
        .route("/subscribe", get(subscriber))
        .route("/publish", get(publisher))
        .with_state(room);
    axum_server::serve(&runtime, listen, router)
}

/// Tells a subscriber everything, until it goes, or has missed something.
async fn subscribe(mut socket: WebSocket, mut room: Receiver<Bytes>) {
    let welcome = Message::Binary(Bytes::from_static(WELCOME));
    let mut sent = socket.send(welcome).await;
    while sent.is_ok() {
        tokio::select! {
            told = room.recv() => {
                let Ok(message) = told else { return };
                sent = socket.feed(Message::Binary(message)).await;
                while let (Ok(()), Ok(message)) = (&sent, room.try_recv()) {
                    sent = socket.feed(Message::Binary(message)).await;
                }
                if sent.is_ok() {
                    sent = socket.flush().await;
                }
            }
            // Its pings are answered by this, and its close.
            said = socket.recv() => if !matches!(said, Some(Ok(_))) { return },
        }
    }
}

/// Tells the room what is said.
async fn publish(mut socket: WebSocket, room: Sender<Bytes>) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Binary(bytes) = message {
            // There may be nobody.
            let _ = room.send(bytes);
        }
    }
}
