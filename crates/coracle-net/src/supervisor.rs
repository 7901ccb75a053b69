//! Several processes that serve on the same sockets, and one that looks after them.
//!
//! ```text
//!   supervisor ── binds, serves nobody ──► the sockets and what waits in their queues last as long as it does
//!     │
//!     ├── worker 0   the same program, started again with the sockets
//!     ├── worker 1   dies ──► started again, after a pause
//!     └── worker 2
//!
//!   to the supervisor        what it does
//!   SIGTERM, SIGINT          SIGTERM to all; those that are not gone in time are killed; then it ends
//!   the same once more       ends at once, and all workers with it
//!   SIGHUP                   replaces the workers one by one: the new one serves before the old one has to go;
//!                            one that does not begin to serve in time is killed, and tried again later
//!   SIGUSR1, SIGUSR2         the same to all workers that serve
//!   SIGKILL                  SIGTERM to all, from the kernel
//! ```
//!
//! All workers take connections from the same queue, which is the supervisor's: no connection is refused while
//! a worker is replaced, and none that waits is lost when one crashes. A worker that has no room leaves new
//! connections to the others; when all are full, they wait.

mod backoff;
mod crew;
mod spawn;

use crate::addresses::ToAddresses;
use crate::bind::ListenSocket;
use crate::listen_options::ListenOptions;
use coracle_loop::demux::{Address, Backend};
use coracle_loop::{Builder, Loop};
use crew::{Crew, Times};
use rustix::process::Signal;
use spawn::Recipe;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Something to be called when all workers serve.
type Start = Box<dyn FnOnce(&Loop)>;

/// Starts this program again as workers that serve on its sockets, and starts anew those that die.
///
/// The workers are given the same arguments. They find out what they are by
/// [`Worker::current`](crate::Worker::current); whatever they [bind](crate::Server::bind) is what they have
/// inherited.
///
/// ```no_run
/// use coracle_net::{Buffer, Conn, Server, Worker};
///
/// fn main() -> std::io::Result<()> {
///     let server = Server::bind("127.0.0.1:7000")?;
///     if Worker::current().is_none() {
///         return server.supervise(4).run();
///     }
///     server.loops(1).serve(|_peer| {
///         |conn: &mut Conn<'_>, input: &mut Buffer| {
///             conn.write(input.take_all());
///             Ok(())
///         }
///     })
/// }
/// ```
///
/// # Limits
/// A worker that changes its user loses the kernel's promise to tell it of the supervisor's end (prctl(2),
/// `PR_SET_PDEATHSIG`): drop privileges in the supervisor, after it has bound. A worker that hangs does not hear
/// of that end either, if it is sudden (`SIGKILL`). UDP sockets are not passed on.
pub struct Supervisor {
    processes: usize,
    sockets: Vec<ListenSocket>,
    drain: Duration,
    start_timeout: Duration,
    backend: Option<Backend>,
    start: Option<Start>,
}

impl Supervisor {
    /// A supervisor of so many processes, without sockets yet. [`Server::supervise`](crate::Server::supervise)
    /// makes one from a server.
    pub fn new(processes: usize) -> Supervisor {
        Supervisor {
            processes,
            sockets: Vec::new(),
            drain: Duration::from_secs(10),
            start_timeout: Duration::from_secs(60),
            backend: None,
            start: None,
        }
    }

    /// Listens on `addresses`, for the workers.
    ///
    /// # Errors
    /// The address cannot be listened on; the text says which, why, and what to do.
    pub fn bind(
        mut self,
        addresses: impl ToAddresses,
        options: &ListenOptions,
    ) -> io::Result<Supervisor> {
        self.sockets.extend(ListenSocket::bind_all(addresses, options)?);
        Ok(self)
    }

    /// Passes on a socket that listens already. The file of a Unix socket is removed when the supervisor ends.
    #[must_use]
    pub fn socket(mut self, socket: ListenSocket) -> Supervisor {
        self.sockets.push(socket);
        self
    }

    /// How long workers take at most when they are asked to end: their own [time](crate::Server::drain) for
    /// that. Two seconds later they are killed.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Supervisor {
        self.drain = drain;
        self
    }

    /// How long a worker may take until it [serves](crate::Worker::ready); one that takes longer is killed, and
    /// another is started, as if it had died. Without this, a minute.
    ///
    /// ```
    /// use coracle_net::Supervisor;
    /// use std::time::Duration;
    ///
    /// // Its workers read a large file before they serve.
    /// let supervisor = Supervisor::new(4).start_timeout(Duration::from_secs(600));
    /// # let _ = supervisor;
    /// ```
    #[must_use]
    pub fn start_timeout(mut self, timeout: Duration) -> Supervisor {
        self.start_timeout = timeout;
        self
    }

    /// The backend of the supervisor's own loop. Without this, the best there is.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Supervisor {
        self.backend = Some(backend);
        self
    }

    /// Calls `callback` once, when all workers serve for the first time, with the supervisor's loop.
    #[must_use]
    pub fn on_start(mut self, callback: impl FnOnce(&Loop) + 'static) -> Supervisor {
        self.start = Some(Box::new(callback));
        self
    }

    /// Where the workers listen.
    pub fn local_addresses(&self) -> Vec<Address> {
        self.sockets.iter().map(|socket| socket.local_address().clone()).collect()
    }

    /// Starts the workers, and returns when the process was asked to end and all of them are gone.
    ///
    /// Workers end with the thread that calls this.
    ///
    /// # Errors
    /// There shall be no processes, this process is itself a worker, or the first workers cannot be started.
    /// Then none runs.
    pub fn run(self) -> io::Result<()> {
        let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.processes == 0 {
            return wrong("processes is 0: nobody would serve");
        }
        if crate::Worker::current().is_some() {
            return wrong("a worker has no workers of its own: ask Worker::current() first");
        }
        let builder = self.backend.map_or_else(Builder::new, |it| Builder::new().backend(it));
        let lp = builder.build()?;
        let recipe = Recipe::new(self.sockets)?;
        let times = Times { drain: self.drain, start: self.start_timeout };
        let crew = Crew::new(recipe, self.processes, times, self.start);
        listen(&lp, &crew)?;
        crew.begin(&lp)?;
        lp.run()
    }
}

/// Makes signals known to the crew.
fn listen(lp: &Loop, crew: &Rc<Crew>) -> io::Result<()> {
    let on = Rc::clone(crew);
    lp.on_terminate(move |lp| on.stop(lp))?;
    let on = Rc::clone(crew);
    lp.on_signal(Signal::HUP.as_raw(), move |lp| on.replace_all(lp))?;
    for signal in [Signal::USR1, Signal::USR2] {
        let on = Rc::clone(crew);
        lp.on_signal(signal.as_raw(), move |_| on.pass_on(signal))?;
    }
    Ok(())
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("processes", &self.processes)
            .field("addresses", &self.local_addresses())
            .finish_non_exhaustive()
    }
}
