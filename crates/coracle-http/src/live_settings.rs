//! Settings that change while a server runs.
//!
//! ```text
//!   replace ─► LiveSettings ─┬─► number ◄── each loop looks at it when it has a new connection
//!                            ├─► servers of connections: limits and time-outs below HTTP
//!                            └─► seats of addresses
//! ```
//!
//! A connection keeps the settings with which it began.

use crate::Settings;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Limits and time-outs that can be changed while a [`Server`](crate::Server) runs. Clones are the same. Any
/// thread.
///
/// Connections that come later have them; those that are there keep what they have.
///
/// ```
/// use coracle_http::{LiveSettings, Request, Server, Settings};
///
/// # fn main() -> std::io::Result<()> {
/// let live = LiveSettings::new(Settings::default())?;
/// let server = Server::bind("127.0.0.1:0")?.live_settings(&live).loops(1);
/// let running = server.start(|_: &Request<'_>| "ahoy\n")?;
/// live.replace(Settings { limit_headers: 20, ..Settings::default() })?;
/// # running.stop();
/// # running.join()
/// # }
/// ```
///
/// One cannot be changed: [`limit_bodies_bytes`](Settings::limit_bodies_bytes), of which requests have their
/// share. And an address has as many connections more as it had when there was no
/// [limit](Settings::limit_connections_per_address) for it.
#[derive(Clone)]
pub struct LiveSettings(Arc<Inner>);

struct Inner {
    /// How often they were replaced. Loops look at it for every connection, so it is no lock.
    number: AtomicU64,
    state: Mutex<State>,
}

struct State {
    settings: Settings,
    servers: Vec<Weak<dyn Follow>>,
}

/// Who is told of other settings at once.
pub(crate) trait Follow: Send + Sync {
    fn follow(&self, settings: &Settings) -> io::Result<()>;
}

impl LiveSettings {
    /// These, to begin with.
    ///
    /// # Errors
    /// They make no sense.
    pub fn new(settings: Settings) -> io::Result<LiveSettings> {
        settings.check()?;
        Ok(LiveSettings::unchecked(settings))
    }

    pub(crate) fn unchecked(settings: Settings) -> LiveSettings {
        let state = Mutex::new(State { settings, servers: Vec::new() });
        LiveSettings(Arc::new(Inner { number: AtomicU64::new(0), state }))
    }

    /// Those that a new connection has.
    pub fn current(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// From now on these are for new connections. One that comes at this moment may still have the old ones.
    ///
    /// # Errors
    /// `InvalidInput`: they make no sense. `WouldBlock`: a loop of the server has too many jobs waiting to be
    /// told; try again. Either way the old ones stay; a loop that was told before the one that could not be may
    /// have the new ones until it can be told again.
    pub fn replace(&self, settings: Settings) -> io::Result<()> {
        settings.check()?;
        let mut state = self.lock();
        state.servers.retain(|server| server.strong_count() > 0);
        let servers: Vec<_> = state.servers.iter().filter_map(Weak::upgrade).collect();
        if let Err(error) = servers.iter().try_for_each(|server| server.follow(&settings)) {
            for server in servers {
                let _ = server.follow(&state.settings); // as far as that can be
            }
            return Err(error);
        }
        state.settings = settings;
        self.0.number.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Which they are: another number for others.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.0.number.load(Ordering::Acquire)
    }

    /// Both, which belong together.
    pub(crate) fn numbered(&self) -> (u64, Settings) {
        let state = self.lock();
        (self.number(), state.settings.clone())
    }

    /// Tells `server` of those there are and of those that follow.
    pub(crate) fn tell<F: Follow + 'static>(&self, server: &Arc<F>) -> io::Result<()> {
        let mut state = self.lock();
        let server: Arc<dyn Follow> = Arc::<F>::clone(server);
        state.servers.push(Arc::downgrade(&server));
        server.follow(&state.settings)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LiveSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveSettings").field(&self.lock().settings).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose loops can be told of so many headers and no more.
    struct Busy(Mutex<usize>);

    impl Follow for Busy {
        fn follow(&self, settings: &Settings) -> io::Result<()> {
            if settings.limit_headers > 50 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            *self.0.lock().unwrap() = settings.limit_headers;
            Ok(())
        }
    }

    #[test]
    fn q1_settings_that_nobody_can_be_told_of_are_not_taken() {
        let with = |limit_headers| Settings { limit_headers, ..Settings::default() };
        let live = LiveSettings::new(with(20)).unwrap();
        let servers = [Arc::new(Busy(Mutex::new(0))), Arc::new(Busy(Mutex::new(0)))];
        servers.iter().for_each(|server| live.tell(server).unwrap());
        live.replace(with(30)).unwrap();
        let number = live.number();
        assert_eq!(live.replace(with(60)).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!((live.number(), live.current().limit_headers), (number, 30));
        assert!(servers.iter().all(|server| *server.0.lock().unwrap() == 30));
    }
}
