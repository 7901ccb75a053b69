//! WebSockets on coracle, on one loop: whoever is at `/subscribe` is told what is said at `/publish`.
//!
//! ```text
//! cargo run --release -p coracle-rooms -- --listen 127.0.0.1:8080
//! ```

use std::io;
use std::sync::Arc;

use clap::Parser;
use coracle::http::ws::{self, End, Handle, Message, Peer, Room, Settings};
use coracle::http::{IntoResponse, Request, Server, Status};

/// What a subscriber hears first: it is in the room.
const WELCOME: &[u8] = b"welcome";

#[derive(Parser)]
#[command(about = "A room of WebSockets, on coracle")]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
    /// The backend.
    #[arg(long, default_value = "uring")]
    backend: String,
}

fn main() -> io::Result<()> {
    let Arguments { listen, backend } = Arguments::parse();
    let room = Arc::new(Room::new());
    // Nobody is asked whether it is there: the peers do not ask either.
    let settings = Settings { ping_interval: None, ..Settings::default() };
    let server = Server::bind(listen.as_str())?.loops(1).backend(backend.parse()?);
    server.serve(move |req: &Request<'_>| {
        let room = Arc::clone(&room);
        let upgrade = || ws::upgrade(req).settings(settings.clone());
        match req.path() {
            "/subscribe" => upgrade().handle(Subscriber { room, handle: None }),
            "/publish" => upgrade().handle(Publisher(room)),
            _ => Status::NOT_FOUND.into_response(),
        }
    })
}

struct Subscriber {
    room: Arc<Room>,
    handle: Option<Handle>,
}

impl ws::Handler for Subscriber {
    fn on_open(&mut self, peer: &mut Peer<'_>) -> io::Result<()> {
        self.room.enter(self.handle.insert(peer.handle()));
        peer.send(WELCOME.to_vec())
    }

    fn on_message(&mut self, _: &mut Peer<'_>, _: Message) -> io::Result<()> {
        Ok(())
    }

    fn on_close(&mut self, _: &End) {
        self.handle.iter().for_each(|handle| self.room.leave(handle));
    }
}

struct Publisher(Arc<Room>);

impl ws::Handler for Publisher {
    fn on_message(&mut self, _: &mut Peer<'_>, message: Message) -> io::Result<()> {
        self.0.tell(message);
        Ok(())
    }
}
