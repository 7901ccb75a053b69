//! A proxy in coroutines: every connection is continued to another address, by a coroutine for each direction.
//!
//! ```text
//! cargo run -p coracle --example 20_coroutine_proxy -- 127.0.0.1:7001 127.0.0.1:7000
//! nc 127.0.0.1 7001          (with a server on port 7000: 14_coroutine_echo)
//! ```
//!
//! Back-pressure and half-closing need no code: who waits for a slow reader does not read meanwhile, and a half
//! that is dropped tells its peer that no more will come. Compare `proxy.rs` of the program `coracle`, in
//! callbacks.

use coracle::coro::net::{ReadHalf, TcpListener, TcpStream, WriteHalf, serve_on};
use coracle::{Loop, scope, timeout};
use std::io;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Both directions, each until its end. If one fails, the other is cancelled.
fn proxy(client: TcpStream, to: &str) -> io::Result<()> {
    let upstream = timeout(CONNECT_TIMEOUT, || TcpStream::connect(to))?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_upstream, to_upstream) = upstream.into_split();
    scope(|scope| {
        scope.spawn(|| forward(from_client, to_upstream));
        scope.spawn(|| forward(from_upstream, to_client));
        Ok(())
    })
}

/// What comes from one goes to the other, and so does its end: when this returns, `to` is dropped. Reading ahead
/// costs less where messages are small.
fn forward(from: ReadHalf<TcpStream>, mut to: WriteHalf<TcpStream>) -> io::Result<()> {
    io::copy(&mut from.read_ahead(), &mut to).map(|_bytes| ())
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7001".to_owned());
    let to = arguments.next().unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let lp = Loop::new()?;
    lp.on_terminate(Loop::stop)?; // which cancels every coroutine
    coracle::run_on(&lp, move || {
        let listener = TcpListener::bind(address)?;
        println!("proxy on {}, to {to}", listener.local_addr()?);
        serve_on(listener, move |client| proxy(client, &to))
    })
}
