//! A chat server of plain `std::net`, with a thread for everybody; and the same with a coroutine for everybody.
//!
//! ```text
//! cargo run -p coracle --features hook --example 23_hooked_chat -- 127.0.0.1:7000
//! cargo run -p coracle --features hook --example 23_hooked_chat -- 127.0.0.1:7000 --threads
//! nc 127.0.0.1 7000          (from several terminals; /quit leaves)
//! ```
//!
//! Everything below `chat` knows nothing of coracle. The two servers differ in one word: `thread::spawn` there,
//! `coracle::spawn` here. With the hooks, `accept`, `read` and `write` of std park the coroutine that calls
//! them, and the thread goes on with the others.
#![allow(unsafe_code)]

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

fn with_threads(listener: &TcpListener) -> io::Result<()> {
    let room = Room::default();
    for stream in listener.incoming() {
        let (stream, room) = (stream?, room.clone());
        thread::spawn(move || chat(stream, &room));
    }
    Ok(())
}

fn with_coroutines(listener: &TcpListener) -> io::Result<()> {
    let room = Room::default();
    for stream in listener.incoming() {
        let (stream, room) = (stream?, room.clone());
        coracle::spawn(move || chat(stream, &room));
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let threads = arguments.next().is_some_and(|argument| argument == "--threads");
    let listener = TcpListener::bind(address)?;
    let how = if threads { "threads" } else { "coroutines" };
    println!("chat on {}, in {how}", listener.local_addr()?);
    if threads {
        return with_threads(&listener);
    }
    // SAFETY: a call that waits may now run other coroutines of this thread. Nothing here relies on the
    // opposite: the only lock is not held over a call that waits.
    unsafe { coracle::hook::enable() };
    coracle::run(move || with_coroutines(&listener))
}

/// Everybody who is there.
#[derive(Clone, Default)]
struct Room(Arc<Mutex<Vec<Arc<TcpStream>>>>);

impl Room {
    /// Tells everybody, except the one who says it.
    fn tell(&self, from: &Arc<TcpStream>, text: &str) {
        // A copy of the list, because a write may wait: a lock of std's is not to be held then. (In threads,
        // whoever came or left meanwhile would wait, too.)
        let people = self.0.lock().expect("nobody panics with it").clone();
        for person in people.iter().filter(|person| !Arc::ptr_eq(person, from)) {
            let _ = (&**person).write_all(text.as_bytes()); // who is gone is told nothing
        }
    }
}

/// One person in the room: a plain function, from the welcome to the end.
fn chat(stream: TcpStream, room: &Room) -> io::Result<()> {
    let name = stream.peer_addr()?;
    let stream = Arc::new(stream);
    room.0.lock().expect("nobody panics with it").push(Arc::clone(&stream));
    (&*stream).write_all(format!("welcome, {name}\n").as_bytes())?;
    room.tell(&stream, &format!("{name} has come\n"));
    for line in BufReader::new(&*stream).lines() {
        match line {
            Ok(line) if line != "/quit" => room.tell(&stream, &format!("{name}: {line}\n")),
            _ => break,
        }
    }
    room.0.lock().expect("nobody panics with it").retain(|person| !Arc::ptr_eq(person, &stream));
    room.tell(&stream, &format!("{name} has gone\n"));
    Ok(())
}
