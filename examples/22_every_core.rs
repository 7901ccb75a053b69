//! A server in coroutines on every core: a loop each, all listening on one address; SIGTERM ends it gracefully.
//!
//! ```text
//! cargo run --release -p coracle --example 22_every_core -- 127.0.0.1:7000
//! nc 127.0.0.1 7000          (and Ctrl-C, or kill -TERM, for the server)
//! ```
//!
//! The kernel gives each connection to one of the listeners, and there it stays. When the loops are stopped,
//! everybody is told so before the connection is closed.

use coracle::coro::net::{TcpListener, TcpStream, serve_on};
use coracle::{Loop, Runtime, is_cancelled, loops, shield, spawn_on};
use std::io::{self, Write};
use std::time::Duration;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    Runtime::new().run(move || {
        let lp = Loop::current().expect("a coroutine has a loop");
        lp.on_terminate(Loop::stop)?; // which cancels every coroutine of all loops

        let listener = TcpListener::bind_shared(address)?;
        let address = listener.local_addr()?;
        println!("echo on {address}, by {}, {} loops", lp.backend(), loops().len());
        for other in &loops()[1..] {
            spawn_on(other, move || serve_on(TcpListener::bind_shared(address)?, echo))?;
        }
        serve_on(listener, echo) // on the first loop, which is this one
    })
}

fn echo(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match io::copy(&mut &stream, &mut &stream) {
        // From now on every wait fails at once, but in a shield.
        Err(error) if is_cancelled(&error) => {
            shield(Duration::from_secs(1), || (&stream).write_all(b"goodbye\n"))
        }
        ended => ended.map(|_bytes| ()),
    }
}
