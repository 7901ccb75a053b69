//! A chat server in forty lines: every line goes to everybody else, whatever loop they live on.
//!
//! ```text
//! cargo run -p coracle --example 10_chat -- 127.0.0.1:7000
//! nc 127.0.0.1 7000          (from several terminals; /quit leaves)
//! ```

use coracle::net::{Buffer, Conn, Protocol, Reason, Server, ServerHandle};
use std::io;
use std::sync::{Arc, OnceLock};

/// One person in the room.
struct Person {
    name: String,
    room: Arc<OnceLock<ServerHandle>>,
}

impl Person {
    /// Tells everybody, except the one who says it, who is not heard again before all were told.
    fn tell(&self, from: Option<&mut Conn<'_>>, text: String) {
        let Some(room) = self.room.get() else { return };
        let speaker = from.map(|conn| {
            conn.pause();
            conn.handle()
        });
        let tell = move |conn: &mut Conn<'_>| {
            conn.write(text.as_str());
            Ok(())
        };
        let go_on = |conn: &mut Conn<'_>| {
            conn.resume();
            Ok(())
        };
        room.each("main", speaker.clone().as_ref(), tell, move |_| {
            speaker.inspect(|speaker| speaker.run(go_on, || ()));
        });
    }
}

impl Protocol for Person {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.write(format!("welcome, {}\n", self.name));
        self.tell(Some(conn), format!("{} has come\n", self.name));
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        let mut said = String::new();
        while let Some(line) = input.take_line() {
            if line == b"/quit" {
                conn.close();
                break; // nobody is told what comes behind it
            }
            said += &format!("{}: {}\n", self.name, String::from_utf8_lossy(line));
        }
        if !said.is_empty() {
            self.tell(Some(conn), said); // what came together is told together
        }
        Ok(())
    }

    fn on_close(&mut self, _reason: &Reason) {
        self.tell(None, format!("{} has gone\n", self.name));
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let room = Arc::new(OnceLock::new());
    let door = Arc::clone(&room);
    Server::bind(address)?
        .on_init(move |handle| {
            println!("chat on {}", handle.local_addresses()[0]);
            room.set(handle.clone()).expect("there is one room");
        })
        .serve(move |peer| Person { name: peer.to_string(), room: Arc::clone(&door) })
}
