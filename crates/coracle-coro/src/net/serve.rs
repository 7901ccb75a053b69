//! A server in coroutines: accept, and a coroutine for each connection.

use crate::cancelled::is_cancelled;
use crate::net::addresses::ToSocketAddrs;
use crate::net::tcp::{TcpListener, TcpStream};
use crate::spawn::spawn;
use rustix::io::Errno;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often the log is told that connections cannot be accepted.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Listens on `address`, and runs `handle` for each connection, in a coroutine of its own, until the coroutine
/// that calls this is cancelled. Then it takes no more connections, and returns; those it has go on.
///
/// An error or a panic of one connection is written to the log and ends only that one.
///
/// ```no_run
/// use std::io;
///
/// // An echo server.
/// coracle_coro::run(|| {
///     coracle_coro::net::serve("127.0.0.1:7000", |stream| io::copy(&mut &stream, &mut &stream))
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// It cannot listen on `address`. That there are no descriptors for a while is no error: it waits until there are.
pub fn serve<T, F>(address: impl ToSocketAddrs, handle: F) -> io::Result<()>
where
    T: 'static,
    F: Fn(TcpStream) -> io::Result<T> + 'static,
{
    serve_on(TcpListener::bind(address)?, handle)
}

/// As [`serve`], on a listener of your own: for who wants to know the port, or has one of several
/// [that share an address](TcpListener::bind_shared), each on its loop.
///
/// ```
/// use coracle_coro::net::{TcpListener, TcpStream, serve_on};
/// use std::io::{Read, Write};
///
/// coracle_coro::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let server = coracle_coro::spawn(|| serve_on(listener, |mut stream| stream.write_all(b"ahoy")));
///     let mut heard = String::new();
///     TcpStream::connect(address)?.read_to_string(&mut heard)?;
///     assert_eq!(heard, "ahoy");
///     server.cancel();
///     server.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The listener is closed, or the kernel's side of it broke.
pub fn serve_on<T, F>(listener: TcpListener, handle: F) -> io::Result<()>
where
    T: 'static,
    F: Fn(TcpStream) -> io::Result<T> + 'static,
{
    let handle = Rc::new(handle);
    let mut told: Option<Instant> = None;
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                let handle = Rc::clone(&handle);
                spawn(move || {
                    match handle(stream) {
                        // It was asked to end.
                        Err(error) if is_cancelled(&error) => {
                            tracing::debug!(%peer, "a connection was cancelled");
                        }
                        Err(error) => {
                            tracing::warn!(%peer, %error, "a connection ended with an error");
                        }
                        Ok(_) => {}
                    }
                });
            }
            Err(error) if is_cancelled(&error) => return Ok(()),
            Err(error) if is_shortage(&error) => {
                // `accept` makes whoever tries again wait.
                let now = Instant::now();
                if told.is_none_or(|told| now - told >= TELL_EVERY) {
                    told = Some(now);
                    tracing::warn!(%error, "connections wait, for there is nothing to serve them with");
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether it may be over soon.
fn is_shortage(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}
