//! The chat server in coroutines: a reader and a writer for everybody; when one ends, so does the other.
//!
//! ```text
//! cargo run -p coracle --example 19_coroutine_chat -- 127.0.0.1:7000
//! nc 127.0.0.1 7000          (from several terminals; /quit leaves)
//! ```
//!
//! It says the same as `10_chat.rs`, which is written in callbacks. There, the server reaches every connection;
//! here, a message goes into a channel for each person, and whoever has the other end writes it to a socket:
//!
//! ```text
//!   ann's reader ──► the room ──┬──► channel ──► bob's writer
//!                               └──► channel ──► cat's writer
//! ```

use coracle::coro::net::{TcpListener, TcpStream, serve_on};
use coracle::sync::{Receiver, Sender, channel};
use coracle::{Loop, race};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// So many messages may wait for a person to read them, and so long a message. Who is slower is let go.
const LIMIT_UNREAD: usize = 64;
const PATIENCE: Duration = Duration::from_secs(3);

/// A longer line is taken for several.
const LIMIT_LINE_BYTES: u64 = 4096;

/// Everybody who is there. All are on one loop, so that there is no lock: who tells does not wait.
#[derive(Default)]
struct Room {
    people: RefCell<BTreeMap<SocketAddr, Sender<Rc<str>>>>,
}

impl Room {
    /// Where a new person hears what is said, from now on.
    fn enter(&self, name: SocketAddr) -> Receiver<Rc<str>> {
        let (sender, messages) = channel(LIMIT_UNREAD);
        self.people.borrow_mut().insert(name, sender);
        messages
    }

    fn leave(&self, name: SocketAddr) {
        self.people.borrow_mut().remove(&name);
    }

    /// Tells everybody, except the one who says it. Without its sender a channel ends, and with it the writer.
    fn tell(&self, from: SocketAddr, text: String) {
        let text: Rc<str> = text.into();
        let hears = |person: &Sender<Rc<str>>| person.try_send(Rc::clone(&text)).is_ok();
        self.people.borrow_mut().retain(|&name, person| name == from || hears(person));
    }
}

/// One person in the room: a plain function, from the welcome to the end.
fn chat(stream: &TcpStream, room: &Room) -> io::Result<()> {
    let name = stream.peer_addr()?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let messages = room.enter(name);
    room.tell(name, format!("{name} has come\n"));

    let reading = || {
        let mut input = stream.try_clone()?.read_ahead(); // as a `BufReader`, for less memory
        let mut line = Vec::new();
        while Read::by_ref(&mut input).take(LIMIT_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
            match line.trim_ascii_end() {
                b"/quit" => break,
                line => room.tell(name, format!("{name}: {}\n", String::from_utf8_lossy(line))),
            }
            line.clear();
        }
        Ok(())
    };
    let writing = || {
        let mut output = stream;
        output.write_all(format!("welcome, {name}\n").as_bytes())?;
        for message in &messages {
            output.write_all(message.as_bytes())?;
        }
        Ok(())
    };
    let ended = race(reading, writing);

    room.leave(name);
    room.tell(name, format!("{name} has gone\n"));
    ended
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let lp = Loop::new()?;
    lp.on_terminate(Loop::stop)?; // which cancels every coroutine
    coracle::run_on(&lp, move || {
        let listener = TcpListener::bind(address)?;
        println!("chat on {}", listener.local_addr()?);
        let room = Room::default();
        serve_on(listener, move |stream| chat(&stream, &room))
    })
}
