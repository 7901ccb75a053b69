//! Servers in coroutines: plain blocking code, a coroutine per connection, on one loop per thread.
//!
//! ```text
//!   loop 0: accept ──► connection, connection, …        SIGTERM: loop 0 is stopped, which cancels every coroutine
//!   loop 1: accept ──► connection, connection, …        of every loop; each finishes what it does, in its time
//! ```

pub(crate) mod echo;
mod hooked;
pub(crate) mod proxy;
mod stop;
mod stream;
pub(crate) mod time;

use crate::listening::{Listening, Socket, is_shortage};
use crate::loops::make_loops;
use crate::options::{ServeOptions, tell};
use crate::space::Space;
use crate::style::Style;
use coracle::coro::Builder;
use coracle::coro::net::{TcpListener, UnixListener};
use coracle::{Loop, Runtime, SpawnOn, loops};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stop::Stop;
use stream::{Listener, Stream};

/// What the coroutine of a connection has at least. It calls nothing deep; a page or two are used.
const STACK_BYTES: usize = 64 << 10;

/// How often each loop tells the log that connections cannot be accepted.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What is done with a connection. Each has its own clone.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    /// The life of one connection, in its coroutine.
    fn serve<S: Stream>(&self, stream: S, stop: &Stop) -> io::Result<()>;
}

/// Serves until the process is asked to end.
pub(crate) fn serve(
    name: &'static str,
    options: &ServeOptions,
    listening: Listening,
    service: impl Service,
) -> io::Result<()> {
    serve_in(Style::Coroutine, name, options, listening, service)
}

/// The same over the sockets of std.
pub(crate) fn serve_hooked(
    name: &'static str,
    options: &ServeOptions,
    listening: Listening,
    service: impl Service,
) -> io::Result<()> {
    hooked::enable();
    serve_in(Style::Hook, name, options, listening, service)
}

fn serve_in(
    style: Style,
    name: &'static str,
    options: &ServeOptions,
    listening: Listening,
    service: impl Service,
) -> io::Result<()> {
    coracle::seeing::dump_on_sigquit()?;
    let count = options.loops();
    let (addresses, _files) = (listening.addresses(), listening.files());
    let sockets = listening.for_loops(count)?;
    let stop = Arc::new(Stop::new(options.drain()));
    let stopping = Arc::clone(&stop);
    let make_loop = make_loops(options.backend, move |lp: &Loop| stopping.begin(&lp.handle()));
    let telling = Arc::clone(&stop);
    let runtime = Runtime::new().loops(count).pin_threads(options.pin_threads);
    runtime.make_loops(make_loop).run(move || {
        for (handle, sockets) in loops().iter().zip(sockets) {
            for socket in sockets {
                let (service, stop) = (service.clone(), Arc::clone(&stop));
                handle.spawn(move || accept_from(style, socket, &service, &stop))?;
            }
        }
        let lp = Loop::current().expect("a coroutine has a loop");
        tell(name, &addresses, lp.backend(), count, style);
        Ok(())
    })?;
    telling.result()
}

/// The life of a coroutine that accepts. If it cannot, nobody serves: that ends all.
fn accept_from(style: Style, socket: Socket, service: &impl Service, stop: &Arc<Stop>) {
    let ended =
        match socket {
            Socket::Tcp(fd) if style == Style::Hook => {
                let listener = std::net::TcpListener::from(fd);
                listener.set_nonblocking(false).and_then(|()| accept(&listener, service, stop))
            }
            Socket::Unix(fd) if style == Style::Hook => {
                let listener = std::os::unix::net::UnixListener::from(fd);
                listener.set_nonblocking(false).and_then(|()| accept(&listener, service, stop))
            }
            Socket::Tcp(fd) => TcpListener::from_std(fd.into())
                .and_then(|listener| accept(&listener, service, stop)),
            Socket::Unix(fd) => UnixListener::from_std(fd.into())
                .and_then(|listener| accept(&listener, service, stop)),
        };
    if let Err(error) = ended {
        stop.fail(error);
    }
}

fn accept<L: Listener>(listener: &L, service: &impl Service, stop: &Arc<Stop>) -> io::Result<()> {
    let mut told: Option<Instant> = None;
    while !stop.has_begun() {
        match listener.accept() {
            Ok(stream) if !stop.has_begun() => {
                let (service, stop) = (service.clone(), Arc::clone(stop));
                Builder::new().stack_size(STACK_BYTES).spawn(move || {
                    if let Err(error) = service.serve(stream, &stop) {
                        tracing::debug!("a connection has ended: {error}");
                    }
                })?;
            }
            Ok(_late) => {}
            Err(error) if stop::is_cancelled(&error) => break,
            Err(error) if is_shortage(&error) => {
                // `accept` makes whoever tries again wait.
                if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                    told = Some(Instant::now());
                    tracing::warn!("cannot accept: {error}; new connections wait");
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
