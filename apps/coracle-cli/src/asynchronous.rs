//! Servers in futures: `async` and `await`, a future per connection, on one loop per thread.
//!
//! ```text
//!   loop 0: accept ──► connection, connection, …        SIGTERM: every loop is told, and wakes its connections,
//!   loop 1: accept ──► connection, connection, …        which finish what they do; who takes too long is dropped
//! ```

pub(crate) mod proxy;
mod stop;
pub(crate) mod time;

use crate::listening::{Listening, Socket};
use crate::loops::make_loops;
use crate::options::{ServeOptions, tell};
use crate::space::Space;
use crate::style::Style;
use coracle::future::net::{ReadHalf, TcpListener, UnixListener, WriteHalf};
use coracle::future::{sleep, spawn_future};
use coracle::{Loop, Runtime, SpawnOn, loops};
use futures::AsyncWriteExt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stop::{Stop, Stopping};

/// How long nobody is accepted when there is nothing to serve connections with.
const PAUSE: Duration = Duration::from_millis(100);

/// So many pauses are passed over in the log after each that is told: ten seconds.
const UNTOLD_PAUSES: u32 = 100;

/// What is done with a connection. Each has its own clone.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    /// The life of one connection.
    fn serve(
        &self,
        reader: ReadHalf,
        writer: WriteHalf,
        stop: &Stopping,
    ) -> impl Future<Output = io::Result<()>>;
}

/// Sends back whatever arrives.
#[derive(Clone)]
pub(crate) struct Echo;

impl Service for Echo {
    async fn serve(&self, reader: ReadHalf, writer: WriteHalf, stop: &Stopping) -> io::Result<()> {
        forward(reader, writer, stop).await
    }
}

/// What comes from one goes to the other, and so does its end.
async fn forward(mut from: ReadHalf, mut to: WriteHalf, stop: &Stopping) -> io::Result<()> {
    let mut space = Space::new();
    while let Some(count) = stop.read(&mut from, space.get()).await? {
        to.write_all(&space.get()[..count]).await?;
        space.used(count);
    }
    stop.finish(&mut from, &mut to, &mut space).await
}

/// Serves until the process is asked to end.
pub(crate) fn serve(
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
    let make_loop = make_loops(options.backend, move |_: &Loop| stopping.begin());
    let telling = Arc::clone(&stop);
    let runtime = Runtime::new().loops(count).pin_threads(options.pin_threads);
    runtime.make_loops(make_loop).run(move || {
        stop.know(loops());
        for (handle, sockets) in loops().iter().zip(sockets) {
            for socket in sockets {
                let (service, stop) = (service.clone(), Arc::clone(&stop));
                handle.spawn(move || start(socket, service, stop))?;
            }
        }
        let lp = Loop::current().expect("a coroutine has a loop");
        tell(name, &addresses, lp.backend(), count, Style::Async);
        Ok(())
    })?;
    telling.result()
}

/// Starts to accept, on the loop that this runs on.
fn start(socket: Socket, service: impl Service, stop: Arc<Stop>) {
    spawn_future(async move {
        if let Err(error) = accept(socket, &service).await {
            stop.fail(error);
        }
    });
}

async fn accept(socket: Socket, service: &impl Service) -> io::Result<()> {
    match socket {
        Socket::Tcp(fd) => {
            let listener = TcpListener::from_std(fd.into())?;
            let accept = async || Ok(listener.accept().await?.0.split());
            accept_all(accept, service).await
        }
        Socket::Unix(fd) => {
            let listener = UnixListener::from_std(fd.into())?;
            let accept = async || Ok(listener.accept().await?.split());
            accept_all(accept, service).await
        }
    }
}

async fn accept_all(
    mut accept: impl AsyncFnMut() -> io::Result<(ReadHalf, WriteHalf)>,
    service: &impl Service,
) -> io::Result<()> {
    let stop = Stopping::of_this_loop();
    let mut pauses = 0;
    while let Some(accepted) = stop.unless_begun(accept()).await {
        match accepted {
            Ok((reader, writer)) => {
                pauses = 0;
                let (service, stop) = (service.clone(), Rc::clone(&stop));
                spawn_future(async move {
                    let served = stop.within_time(service.serve(reader, writer, &stop)).await;
                    if let Err(error) = served {
                        tracing::debug!("a connection has ended: {error}");
                    }
                });
            }
            Err(error) if crate::listening::is_shortage(&error) => {
                if pauses % UNTOLD_PAUSES == 0 {
                    tracing::warn!("cannot accept: {error}; new connections wait");
                }
                pauses += 1;
                stop.unless_begun(sleep(PAUSE)).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
