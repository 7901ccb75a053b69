//! Opening a connection to somebody else: several addresses, a limit of time, and another try later.
//!
//! ```text
//!   ┌─────────────── a round ───────────────┐
//!   address 1 ──fails──► address 2 ──fails──► pause, twice as long each time ──► the next round
//!       │                    │                  │
//!       └──── connected ─────┴──► callback      └─ no round is left ──► callback: the error of each address
//! ```
//!
//! A pause is drawn at random between half of its length and all of it: a thousand clients that lost the same
//! server at the same moment do not come back at the same moment.

use crate::operations;
use coracle_loop::demux::{Address, Handle, Operation, SocketKind, SocketOption};
use coracle_loop::{Loop, Timer};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// How long one attempt may take, unless [`Connector::timeout`] says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Opens an outgoing stream connection, TCP or Unix.
///
/// ```
/// use coracle_loop::Loop;
/// use coracle_loop::demux::Address;
/// use coracle_net::{Connector, Retry};
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// let lp = Loop::new()?;
/// let listener = lp.listen(&"127.0.0.1:0".parse()?, 16)?;
/// let address = lp.local_address(listener)?;
///
/// Connector::to([address])
///     .timeout(Duration::from_secs(3))
///     .retry(Retry { rounds: 5, ..Retry::default() })
///     .connect(&lp, |lp, connected| {
///         let socket = connected.expect("somebody listens there");
///         println!("connected to {}", lp.peer_address(socket).unwrap());
///         lp.stop();
///     });
/// lp.run()
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    addresses: Vec<Address>,
    timeout: Duration,
    retry: Retry,
}

/// How often to try again, and how long to pause in between.
///
/// ```
/// use coracle_net::Retry;
/// use std::time::Duration;
///
/// // Pauses of up to 1, 2, 4, 8, 8, 8 … seconds, for as long as it takes.
/// let retry = Retry { rounds: u32::MAX, first: Duration::from_secs(1), limit: Duration::from_secs(8) };
/// assert_eq!(Retry::default().rounds, 1); // not at all, unless asked to
/// # drop(retry);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often all addresses are tried; at least once.
    pub rounds: u32,
    /// The pause after the first round. Each further one is twice as long.
    pub first: Duration,
    /// No pause is longer than this.
    pub limit: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { rounds: 1, first: Duration::from_millis(100), limit: Duration::from_secs(10) }
    }
}

impl Connector {
    /// Connects to the first of these addresses that answers; they are tried one after the other, in order.
    ///
    /// Whatever gives addresses will do, `std::net::ToSocketAddrs` for one:
    ///
    /// ```
    /// use coracle_net::Connector;
    /// use std::net::ToSocketAddrs;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let connector = Connector::to("127.0.0.1:7000".to_socket_addrs()?);
    /// # drop(connector);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to(addresses: impl IntoIterator<Item = impl Into<Address>>) -> Connector {
        let addresses = addresses.into_iter().map(Into::into).collect();
        Connector { addresses, timeout: TIMEOUT, retry: Retry::default() }
    }

    /// How long each attempt may take; ten seconds, unless this says otherwise.
    ///
    /// ```
    /// # use coracle_net::Connector;
    /// # let address: std::net::SocketAddr = "127.0.0.1:7000".parse().unwrap();
    /// let connector = Connector::to([address]).timeout(std::time::Duration::from_millis(500));
    /// # drop(connector);
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Connector {
        self.timeout = timeout;
        self
    }

    /// Tries all addresses again when none has answered.
    ///
    /// ```
    /// # use coracle_net::{Connector, Retry};
    /// # let address: std::net::SocketAddr = "127.0.0.1:7000".parse().unwrap();
    /// let connector = Connector::to([address]).retry(Retry { rounds: 3, ..Retry::default() });
    /// # drop(connector);
    /// ```
    pub fn retry(mut self, retry: Retry) -> Connector {
        self.retry = retry;
        self
    }

    /// Begins to connect. `callback` is called exactly once, never from inside this call, with the open socket
    /// (which is the caller's from then on; small packets are sent at once, as `TCP_NODELAY` says), or with the
    /// reason why there is none. Loop thread only.
    ///
    /// The same connector can be used again, for the next connection.
    ///
    /// # Errors
    /// Told to `callback`: the text names each address with what happened there the last time, and how many
    /// attempts there were; the kind is that of the last failure. `ECANCELED` after a
    /// [cancel](Connecting::cancel). `InvalidInput` when there is no address.
    ///
    /// ```
    /// use coracle_loop::Loop;
    /// use coracle_net::Connector;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let lp = Loop::new()?;
    /// let nobody: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
    /// Connector::to([nobody]).connect(&lp, |_, connected| {
    ///     let error = connected.unwrap_err().to_string();
    ///     assert_eq!(error, "cannot connect to 127.0.0.1:1: connection refused (1 attempt)");
    /// });
    /// lp.run_until_idle()
    /// # }
    /// ```
    pub fn connect(
        &self,
        lp: &Loop,
        callback: impl FnOnce(&Loop, io::Result<Handle>) + 'static,
    ) -> Connecting {
        let inner = Rc::new(Inner {
            connector: self.clone(),
            state: RefCell::new(State {
                callback: Some(Box::new(callback)),
                at: 0,
                rounds: 0,
                attempts: 0,
                socket: None,
                pause: None,
                failures: self.addresses.iter().map(|_| None).collect(),
            }),
        });
        if self.addresses.is_empty() {
            let connecting = Rc::clone(&inner);
            lp.defer(move |lp| connecting.end(lp, Err(no_address())));
        } else {
            inner.attempt(lp);
        }
        Connecting { inner }
    }
}

impl Retry {
    /// The pause after so many rounds.
    fn pause(&self, rounds: u32, random: u64) -> Duration {
        let factor = 1u32.checked_shl(rounds.saturating_sub(1)).unwrap_or(u32::MAX);
        let half = self.first.saturating_mul(factor).min(self.limit) / 2;
        let fraction = (random >> 11) as f64 / (1u64 << 53) as f64; // 0 or more, less than 1
        half + half.mul_f64(fraction)
    }
}

/// A connection that is being opened. Dropping it changes nothing.
///
/// ```
/// use coracle_loop::Loop;
/// use coracle_net::Connector;
///
/// # fn main() -> std::io::Result<()> {
/// let lp = Loop::new()?;
/// let somebody: std::net::SocketAddr = "127.0.0.1:7000".parse().unwrap();
/// let connecting = Connector::to([somebody]).connect(&lp, |_, connected| {
///     assert_eq!(connected.unwrap_err().raw_os_error(), Some(125)); // ECANCELED
/// });
/// connecting.cancel(&lp);
/// lp.run_until_idle()
/// # }
/// ```
#[derive(Clone)]
pub struct Connecting {
    inner: Rc<Inner>,
}

impl Connecting {
    /// Gives up: what is open is closed, and the callback hears of `ECANCELED`, later and never from inside this
    /// call. A connection that is established by then is closed, too. Once the callback has been called this
    /// does nothing. Loop thread only.
    pub fn cancel(&self, lp: &Loop) {
        let mut state = self.inner.state.borrow_mut();
        let Some(callback) = state.callback.take() else { return };
        let (socket, pause) = (state.socket.take(), state.pause.take());
        drop(state);
        if let Some(pause) = pause {
            pause.cancel();
        }
        if let Some(socket) = socket {
            operations::close(lp, socket);
        }
        lp.defer(move |lp| callback(lp, Err(Errno::CANCELED.into())));
    }

    /// How many attempts have been made, the current one included.
    ///
    /// ```
    /// # let lp = coracle_loop::Loop::new().unwrap();
    /// # let somebody: std::net::SocketAddr = "127.0.0.1:7000".parse().unwrap();
    /// let connecting = coracle_net::Connector::to([somebody]).connect(&lp, |_, _| ());
    /// assert_eq!(connecting.attempts(), 1);
    /// ```
    pub fn attempts(&self) -> u32 {
        self.inner.state.borrow().attempts
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting")
            .field("to", &self.inner.connector.addresses)
            .field("attempts", &self.attempts())
            .finish()
    }
}

type Callback = Box<dyn FnOnce(&Loop, io::Result<Handle>)>;

struct Inner {
    connector: Connector,
    state: RefCell<State>,
}

struct State {
    /// `None` when it is over: connected, failed or cancelled.
    callback: Option<Callback>,
    /// Which address is being tried.
    at: usize,
    /// Rounds that are over.
    rounds: u32,
    attempts: u32,
    /// The socket of the current attempt.
    socket: Option<Handle>,
    pause: Option<Timer>,
    /// What happened at each address the last time.
    failures: Vec<Option<io::Error>>,
}

impl Inner {
    fn attempt(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        let address = self.connector.addresses[state.at].clone();
        state.attempts = state.attempts.saturating_add(1);
        let connecting = Rc::clone(self);
        match open(lp, &address) {
            Ok(socket) => {
                state.socket = Some(socket);
                let connect = Operation::Connect { socket, address };
                lp.operate_within(self.connector.timeout, connect, move |lp, finished| {
                    connecting.attempted(lp, socket, finished.result.map(drop));
                });
            }
            Err(error) => lp.defer(move |lp| connecting.failed(lp, error)),
        }
    }

    fn attempted(self: &Rc<Self>, lp: &Loop, socket: Handle, result: io::Result<()>) {
        let mut state = self.state.borrow_mut();
        if state.socket != Some(socket) {
            return; // cancelled, and closed then
        }
        state.socket = None;
        drop(state);
        match result.and_then(|()| check_peer(lp, socket)) {
            Ok(()) => self.end(lp, Ok(socket)),
            Err(error) => {
                operations::close(lp, socket);
                self.failed(lp, error);
            }
        }
    }

    /// Goes on with the next address, or with the first after a pause, or not at all.
    fn failed(self: &Rc<Self>, lp: &Loop, error: io::Error) {
        let Connector { addresses, retry, .. } = &self.connector;
        let mut state = self.state.borrow_mut();
        if state.callback.is_none() {
            return; // cancelled
        }
        let kind = error.kind();
        let at = state.at;
        state.failures[at] = Some(error);
        state.at = (at + 1) % addresses.len();
        if state.at != 0 {
            drop(state);
            return self.attempt(lp);
        }
        state.rounds += 1;
        if state.rounds >= retry.rounds {
            let error = io::Error::new(kind, describe(addresses, &state));
            drop(state);
            return self.end(lp, Err(error));
        }
        let pause = retry.pause(state.rounds, lp.seed());
        let connecting = Rc::clone(self);
        state.pause = Some(lp.after(pause, move |lp| connecting.attempt(lp)));
    }

    fn end(&self, lp: &Loop, result: io::Result<Handle>) {
        let callback = self.state.borrow_mut().callback.take();
        if let Some(callback) = callback {
            callback(lp, result);
        }
    }
}

/// A socket that is ready to connect to `address`.
fn open(lp: &Loop, address: &Address) -> io::Result<Handle> {
    let socket = lp.socket(SocketKind::stream_for(address))?;
    if address.ip().is_some()
        && let Err(error) = lp.set_option(socket, SocketOption::NoDelay(true))
    {
        operations::close(lp, socket);
        return Err(error);
    }
    Ok(socket)
}

/// Refuses a connection of a socket to itself. TCP allows it: whoever asks for a port of this machine again and
/// again that nobody listens on is one day given that very port as its own.
fn check_peer(lp: &Loop, socket: Handle) -> io::Result<()> {
    match (lp.local_address(socket), lp.peer_address(socket)) {
        (Ok(Address::Ip(own)), Ok(Address::Ip(peer))) if own == peer => {
            Err(Errno::CONNREFUSED.into())
        }
        _ => Ok(()),
    }
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "cannot connect: there is no address to connect to")
}

/// What to say when nobody has answered.
fn describe(addresses: &[Address], state: &State) -> String {
    let failures = addresses.iter().zip(&state.failures);
    let each: Vec<String> = failures
        .filter_map(|(address, failure)| Some(format!("{address}: {}", cause(failure.as_ref()?))))
        .collect();
    let plural = if state.attempts == 1 { "" } else { "s" };
    format!("cannot connect to {} ({} attempt{plural})", each.join("; "), state.attempts)
}

/// An error as part of a sentence: without its number, and without a capital letter.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_lowercase().chain(letters).collect() // "Connection refused (os error 111)"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_are_never_shorter_than_half() {
        let second = Duration::from_secs(1);
        let retry = Retry { rounds: u32::MAX, first: second, limit: 10 * second };
        for (rounds, whole) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (33, 10), (u32::MAX, 10)] {
            let whole = whole * second;
            assert_eq!(retry.pause(rounds, 0), whole / 2);
            let longest = retry.pause(rounds, u64::MAX);
            assert!(longest <= whole && longest > whole * 99 / 100, "{longest:?}");
        }
    }

    #[test]
    fn pauses_without_bounds_do_not_overflow() {
        let retry = Retry { rounds: u32::MAX, first: Duration::MAX, limit: Duration::MAX };
        assert!(retry.pause(u32::MAX, u64::MAX) <= Duration::MAX);
    }

    #[test]
    fn causes_are_parts_of_a_sentence() {
        assert_eq!(cause(&Errno::CONNREFUSED.into()), "connection refused");
        assert_eq!(cause(&io::ErrorKind::TimedOut.into()), "timed out");
        assert_eq!(cause(&io::Error::other("the Moon")), "the Moon");
    }
}
