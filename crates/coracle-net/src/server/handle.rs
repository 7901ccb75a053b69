//! A running server, from any thread: stop it, count, and reach every connection.

use super::site::Site;
use crate::hub::{Hub, LinkKey};
use crate::placement::Placement;
use crate::room::Room;
use crate::stats::ServiceStats;
use crate::{Conn, ConnHandle, Settings, Stats, guard};
use coracle_loop::demux::{Address, Backend};
use coracle_loop::{Loop, LoopHandle, PostError};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How many connections a broadcast visits in one turn of a loop, so that it does not hold up the others.
const VISITS_PER_TURN: usize = 256;

/// What the loops of a server and its handles share.
pub(crate) struct Shared {
    names: Vec<Arc<str>>,
    addresses: Vec<Address>,
    /// By loop, then by service.
    stats: Vec<Vec<Arc<ServiceStats>>>,
    loops: OnceLock<Arc<[LoopHandle]>>,
    backend: OnceLock<Backend>,
    room: Arc<Room>,
    drain: Duration,
    stop: Mutex<Stop>,
    /// Those that were set since it was started.
    settings: Mutex<Option<Settings>>,
}

/// Whether a server is to stop.
#[derive(Default)]
struct Stop {
    /// The least time for those who are there that anybody has asked for, if anybody has asked.
    drain: Option<Duration>,
    /// Whom to wake when somebody does.
    watchers: Vec<LoopHandle>,
}

impl Shared {
    pub(super) fn new(
        names: Vec<Arc<str>>,
        addresses: Vec<Address>,
        loops: usize,
        room: Room,
        drain: Duration,
    ) -> Arc<Shared> {
        let per_loop = || names.iter().map(|_| Arc::default()).collect();
        let stats = (0..loops).map(|_| per_loop()).collect();
        Arc::new(Shared {
            stats,
            names,
            addresses,
            loops: OnceLock::new(),
            backend: OnceLock::new(),
            room: Arc::new(room),
            drain,
            stop: Mutex::default(),
            settings: Mutex::default(),
        })
    }

    pub(super) fn stats(&self) -> &[Vec<Arc<ServiceStats>>] {
        &self.stats
    }

    pub(super) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// A loop says on what it runs.
    pub(super) fn note_backend(&self, backend: Backend) {
        let _ = self.backend.set(backend);
    }

    pub(super) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// All loops are there: they begin to accept.
    pub(super) fn begin(self: &Arc<Self>, loops: Vec<LoopHandle>, placement: Placement) {
        let loops: Arc<[LoopHandle]> = loops.into();
        let _ = self.loops.set(Arc::clone(&loops));
        let settings = lock(&self.settings).clone();
        if let Some(settings) = settings {
            let _ = self.set_settings(settings); // before anybody is accepted: they were set before it began
        }
        // A loop that is gone refuses jobs here and below; it has nothing to do any more.
        for handle in loops.iter() {
            let (loops, shared) = (Arc::clone(&loops), Arc::clone(self));
            let _ = handle.post(move |lp| Site::of(lp).begin(lp, &loops, placement, &shared));
        }
        let drain = self.lock().drain;
        if let Some(drain) = drain {
            self.stop(drain); // it was stopped before it began
        }
    }

    fn stop(&self, drain: Duration) {
        let mut stop = self.lock();
        stop.drain = Some(stop.drain.map_or(drain, |least| least.min(drain)));
        let watchers = std::mem::take(&mut stop.watchers);
        drop(stop);
        for handle in self.loops() {
            let posted = handle.post(move |lp| Site::of(lp).stop(lp, drain));
            if posted == Err(PostError::Full) {
                handle.stop(); // it does not come to its jobs: no time to be graceful
            }
        }
        watchers.iter().for_each(LoopHandle::stop);
    }

    fn set_settings(&self, settings: Settings) -> Result<(), PostError> {
        *lock(&self.settings) = Some(settings.clone());
        let mut told = Ok(());
        for handle in self.loops() {
            let settings = settings.clone();
            let posted = handle.post(move |lp| Site::of(lp).set_settings(&settings));
            if posted == Err(PostError::Full) {
                told = posted; // one that is gone has no use for them
            }
        }
        told
    }

    fn lock(&self) -> MutexGuard<'_, Stop> {
        lock(&self.stop)
    }

    fn loops(&self) -> &[LoopHandle] {
        self.loops.get().map_or(&[], |loops| loops)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("services", &self.names).finish_non_exhaustive()
    }
}

/// Names a running server. Clone it, send it, keep it in a protocol. Any thread.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    shared: Arc<Shared>,
}

impl ServerHandle {
    pub(super) fn new(shared: Arc<Shared>) -> ServerHandle {
        ServerHandle { shared }
    }

    /// Stops the server: it accepts no more, tells every protocol, and ends when the last connection is gone or
    /// the time for that ([`Server::drain`](crate::Server::drain)) is over.
    pub fn stop(&self) {
        self.stop_within(self.shared.drain);
    }

    /// The same, and whoever has asked for it is told for what it takes a while.
    pub(super) fn stop_on_request(&self) {
        match self.stats().open() {
            0 => {}
            1 => tracing::info!("stopping: 1 connection has up to {:?}", self.shared.drain),
            open => {
                tracing::info!("stopping: {open} connections have up to {:?}", self.shared.drain);
            }
        }
        self.stop();
    }

    /// Stops the server, with a time of your own for the connections that are there. One that is stopping already
    /// has no more time than this from now on, and no more than it was given before.
    pub fn stop_within(&self, drain: Duration) {
        self.shared.stop(drain);
    }

    /// How connections behave that come from now on, of the services that were given no settings of their own
    /// ([`Server::settings`](crate::Server::settings)). Those that are there keep what they have.
    ///
    /// # Errors
    /// `InvalidInput` if the settings make no sense; `WouldBlock` if a loop has too many jobs waiting to be told:
    /// try again.
    pub fn set_settings(&self, settings: Settings) -> io::Result<()> {
        settings.check()?;
        self.shared.set_settings(settings).map_err(|_| {
            let text = "a loop has too many jobs waiting to be told of new settings: try again";
            io::Error::new(io::ErrorKind::WouldBlock, text)
        })
    }

    /// Stops `lp` when this server is stopped.
    pub(super) fn when_stopped(&self, lp: LoopHandle) {
        let mut stop = self.shared.lock();
        match stop.drain {
            Some(_) => lp.stop(),
            None => stop.watchers.push(lp),
        }
    }

    /// Where it listens.
    pub fn local_addresses(&self) -> &[Address] {
        &self.shared.addresses
    }

    /// The backend its loops run on.
    pub fn backend(&self) -> Backend {
        self.shared.backend.get().copied().unwrap_or(Backend::Epoll)
    }

    /// How many loops it has.
    pub fn loops(&self) -> usize {
        self.shared.stats.len()
    }

    /// How many connections a service has; 0 if there is no such service.
    pub fn count(&self, service: &str) -> u64 {
        let of = |index: usize| self.shared.stats.iter().map(move |it| it[index].read().open());
        self.position(service).map_or(0, |index| of(index).sum())
    }

    /// What the whole server has counted.
    pub fn stats(&self) -> Stats {
        (0..self.loops()).fold(Stats::default(), |mut sum, index| {
            sum.add(&self.loop_stats(index));
            sum
        })
    }

    /// What one loop has counted.
    ///
    /// # Panics
    /// When there are not that many loops.
    pub fn loop_stats(&self, index: usize) -> Stats {
        self.shared.stats[index].iter().fold(Stats::default(), |mut sum, service| {
            sum.add(&service.read());
            sum
        })
    }

    fn position(&self, service: &str) -> Option<usize> {
        self.shared.names.iter().position(|name| &**name == service)
    }

    /// Runs `task` with every connection of `service` except one (the originator of a message, say), on the loop
    /// of each; `done` is called once all of them have been visited. Connections that come meanwhile may be
    /// visited or missed. If there is no such service, nobody is.
    ///
    /// `done` is told [`PostError::Full`] when a loop has too many jobs waiting to take this one: then the
    /// connections of that loop were not visited, all others were.
    pub fn each(
        &self,
        service: &str,
        except: Option<&ConnHandle>,
        task: impl Fn(&mut Conn<'_>) -> io::Result<()> + Send + Sync + 'static,
        done: impl FnOnce(Result<(), PostError>) + Send + 'static,
    ) {
        let visit = Arc::new(Visit {
            service: service.into(),
            except: except.cloned(),
            task,
            end: End { done: Mutex::new(Some(Box::new(done))), missed: AtomicBool::new(false) },
        });
        for handle in self.shared.loops() {
            let visitor = Arc::clone(&visit);
            let posted = handle.post(move |lp| {
                let keys = Hub::of(lp).keys(Some(&visitor.service));
                visitor.some(lp, keys);
            });
            if posted == Err(PostError::Full) {
                visit.end.missed.store(true, Ordering::SeqCst); // one that is gone has no connections
            }
        }
    }
}

/// A broadcast. The last loop to drop it is the last that had something to do.
struct Visit<F> {
    service: Arc<str>,
    except: Option<ConnHandle>,
    task: F,
    end: End,
}

impl<F: Fn(&mut Conn<'_>) -> io::Result<()> + Send + Sync + 'static> Visit<F> {
    /// Visits a turn's worth of `keys`, and the rest in the turns that follow.
    fn some(self: Arc<Self>, lp: &Loop, mut keys: Vec<LinkKey>) {
        let hub = Hub::of(lp);
        let except = self.except.as_ref().filter(|except| except.lives_on(lp)).map(|it| it.key);
        for key in keys.split_off(keys.len().saturating_sub(VISITS_PER_TURN)) {
            if Some(key) == except {
                continue;
            }
            if let Some(link) = hub.get(key).filter(|link| link.is_open()) {
                link.run(lp, &self.task);
            }
        }
        if !keys.is_empty() {
            lp.defer(move |lp| self.some(lp, keys));
        }
    }
}

/// Somebody who wants to know how a broadcast went.
type Done = Box<dyn FnOnce(Result<(), PostError>) + Send>;

/// Tells how it went when it is dropped.
struct End {
    done: Mutex<Option<Done>>,
    /// A loop could not be told.
    missed: AtomicBool,
}

impl Drop for End {
    fn drop(&mut self) {
        let done = self.done.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let result = if *self.missed.get_mut() { Err(PostError::Full) } else { Ok(()) };
        if let Some(done) = done {
            guard::call("what follows a broadcast", || done(result));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_panic_of_what_follows_a_broadcast_ends_there() {
        let done = |result| {
            assert_eq!(result, Ok(()));
            std::panic::resume_unwind(Box::new("on purpose"));
        };
        drop(End { done: Mutex::new(Some(Box::new(done))), missed: AtomicBool::new(false) });
    }
}
