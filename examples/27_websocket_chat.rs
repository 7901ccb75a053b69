//! A chat over WebSocket, in callbacks: a page to talk in, and a room that tells everybody, on every loop.
//!
//! ```text
//! cargo run -p coracle --example 27_websocket_chat -- 127.0.0.1:8080
//! firefox http://127.0.0.1:8080/          (from several windows; /quit leaves)
//! ```
//!
//! Whoever says nothing has no stack, and some hundred bytes. What is told to all of them is encoded once. The
//! same in coroutines: `28_websocket_coroutine_chat.rs`.

use coracle::http::ws::{self, CloseCode, Deflate, End, Handle, Message, Peer, Room, Settings};
use coracle::http::{Html, IntoResponse, Request, Server, Status};
use std::io;
use std::sync::Arc;

/// One person in the room.
struct Person {
    name: String,
    room: Arc<Room>,
    handle: Option<Handle>,
}

impl ws::Handler for Person {
    fn on_open(&mut self, peer: &mut Peer<'_>) -> io::Result<()> {
        peer.send(format!("welcome, {}", self.name))?;
        self.room.tell(format!("{} has come", self.name));
        self.room.enter(self.handle.insert(peer.handle()));
        Ok(())
    }

    fn on_message(&mut self, peer: &mut Peer<'_>, message: Message) -> io::Result<()> {
        match message.as_text() {
            Some("/quit") => peer.close(CloseCode::NORMAL),
            Some(text) => self.room.tell(format!("{}: {text}", self.name)),
            None => peer.send("only words, please")?,
        }
        Ok(())
    }

    fn on_close(&mut self, _end: &End) {
        self.handle.iter().for_each(|handle| self.room.leave(handle));
        self.room.tell(format!("{} has gone", self.name));
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let room = Arc::new(Room::new());
    let settings = Settings { deflate: Some(Deflate::default()), ..Settings::default() };
    Server::bind(address.as_str())?
        .on_init(|it| println!("chat on {}", it.local_addresses()[0]))
        .serve(move |req: &Request<'_>| match req.segments() {
            [] => Html(include_str!("chat.html")).into_response(),
            ["ws"] => {
                let (name, room) = (req.peer().to_string(), Arc::clone(&room));
                ws::upgrade(req).settings(settings.clone()).handle(Person {
                    name,
                    room,
                    handle: None,
                })
            }
            _ => Status::NOT_FOUND.into_response(),
        })
}
