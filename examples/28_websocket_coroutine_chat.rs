//! The chat over WebSocket in coroutines: for everybody a plain function, from the welcome to the end.
//!
//! ```text
//! cargo run -p coracle --example 28_websocket_coroutine_chat -- 127.0.0.1:8080
//! firefox http://127.0.0.1:8080/          (from several windows; /quit leaves)
//! ```
//!
//! It says the same as `27_websocket_chat.rs`, which is written in callbacks.

use coracle::http::ws::{self, Deflate, Room, Settings, WebSocket};
use coracle::http::{Html, IntoResponse, Request, Server, Status};
use std::io;
use std::sync::Arc;

/// One person in the room.
fn chat(ws: &WebSocket, name: &str, room: &Room) -> io::Result<()> {
    ws.send(format!("welcome, {name}"))?;
    room.tell(format!("{name} has come"));
    room.enter(&ws.handle());
    let ended = listen(ws, name, room);
    room.leave(&ws.handle());
    room.tell(format!("{name} has gone"));
    ended
}

fn listen(ws: &WebSocket, name: &str, room: &Room) -> io::Result<()> {
    for message in ws {
        match message?.as_text() {
            Some("/quit") => break,
            Some(text) => room.tell(format!("{name}: {text}")),
            None => ws.send("only words, please")?,
        }
    }
    Ok(())
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
                let upgrade = ws::upgrade(req).settings(settings.clone());
                upgrade.run(move |ws: &WebSocket| chat(ws, &name, &room))
            }
            _ => Status::NOT_FOUND.into_response(),
        })
}
