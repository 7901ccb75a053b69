//! New connections on one loop, and what to do when there is nothing to serve them with.
//!
//! ```text
//!            ┌──────── accepted: a connection, here or on another loop
//!   accept ──┤
//!            └─ EMFILE ─► close the reserve ─► accept one, close it, and so on ─► pause ─► open the reserve
//! ```
//!
//! A process without descriptors cannot even refuse: whoever connects would hang in the backlog until somebody
//! else leaves. So one descriptor is kept for that moment, and whoever would get the last one is turned away. The
//! pause doubles while it lasts, and there is one line in the log when it begins and one when it is over: that is,
//! when it has not come back for a while, so that a server at the edge of its limit does not fill the log.

use crate::guard::guard;
use crate::hub::{Current, Service};
use crate::link::Link;
use crate::stats::ServiceStats;
use crate::{Buffer, Conn, ListenSocket, Protocol, Settings, Stats, operations};
use coracle_loop::demux::{
    Address, Backend, Completion, Finished, Handle, Interest, Operation, Outcome, SocketKind,
    SocketOption, Submitted, Token,
};
use coracle_loop::{Complete, Loop};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to leave new connections alone when there is nothing to serve them with: at first, and at most.
const PAUSE: Duration = Duration::from_millis(10);
const LIMIT_PAUSE: Duration = Duration::from_secs(1);

/// How many connections may wait to be accepted; the kernel allows fewer where it says so.
const BACKLOG: i32 = 4096;

/// How many connections a server tells at the same time that there is no room; those above are closed without a
/// word.
pub(crate) const LIMIT_TURNING_AWAY: usize = 64;

/// How many connections are turned away between two pauses when there are no descriptors.
const REFUSED_PER_PAUSE: u32 = 64;

const ACCEPTED: u32 = 0;
const CLOSED: u32 = 1;
const REFUSED: u32 = 2;

/// What becomes of an accepted socket.
pub(crate) trait Serve {
    /// Makes a connection of `socket`, or closes it.
    fn serve(&self, lp: &Loop, socket: Handle);

    /// A connection could not be accepted.
    fn turned_away(&self) {}

    /// Whether another connection would be served, and not turned away.
    fn has_room(&self) -> bool;
}

/// A listening socket of one loop. Dropping it changes nothing; [`close`](Listener::close) ends it.
///
/// A [`Server`](crate::Server) has one for each of its loops; use it by itself to serve on a loop of your own.
///
/// ```
/// use coracle_loop::Loop;
/// use coracle_loop::demux::Address;
/// use coracle_net::{Buffer, Conn, Listener, Settings};
///
/// # fn main() -> std::io::Result<()> {
/// let lp = Loop::new()?;
/// let address: Address = "127.0.0.1:0".parse().unwrap();
/// let listener = Listener::bind(&lp, &address, Settings::default(), |_peer| {
///     |conn: &mut Conn<'_>, input: &mut Buffer| {
///         conn.write(input.take_all());
///         Ok(())
///     }
/// })?;
/// println!("listening on {}", listener.local_address(&lp)?);
/// listener.close(&lp);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Listener {
    inner: Rc<Inner>,
}

struct Inner {
    socket: Handle,
    serve: Box<dyn Serve>,
    stats: Arc<ServiceStats>,
    state: RefCell<State>,
}

/// Something to be called when a listener has come to its end.
type Ended = Box<dyn FnOnce(&Loop)>;

struct State {
    accepting: Option<Token>,
    /// The descriptor that is kept for the moment in which there is none.
    reserve: Option<Handle>,
    /// Not accepting, until a timer says so.
    paused: bool,
    /// How long the next pause is.
    pause: Duration,
    /// How many were turned away since the last pause, for want of descriptors.
    refused: u32,
    /// How many of them are being closed: then there is a descriptor again.
    refusing: u32,
    /// When there was last nothing to serve a connection with; until that is told to be over.
    short: Option<Instant>,
    /// Others accept from the same socket, and must not be kept from it by an operation that waits.
    shared: bool,
    /// Other processes accept from it, too, and may have room when this one has none.
    patient: bool,
    closed: bool,
    /// Called when nothing can be accepted any more.
    ended: Option<Ended>,
}

impl Listener {
    /// Listens on `address`, and serves each connection with what `make` returns for its peer. Loop thread only.
    ///
    /// # Errors
    /// When the settings make no sense, or the address cannot be listened on; the text says why.
    pub fn bind<P: Protocol>(
        lp: &Loop,
        address: &Address,
        settings: Settings,
        make: impl Fn(&Address) -> P + 'static,
    ) -> io::Result<Listener> {
        settings.check()?;
        let socket = lp.listen(address, BACKLOG)?;
        // Answers go out when they are written; connections inherit it. Unix sockets have no such option.
        let _ = lp.set_option(socket, SocketOption::NoDelay(true));
        Ok(Listener::serve_on(lp, socket, address, settings, make))
    }

    /// Serves on a socket that listens already: with [options](crate::ListenOptions) of its own, or inherited. As
    /// [`bind`](Listener::bind) otherwise. Keep the [file](ListenSocket::file) of a Unix socket to have it removed
    /// in the end.
    ///
    /// ```
    /// use coracle_loop::Loop;
    /// use coracle_net::{Buffer, Conn, ListenOptions, ListenSocket, Listener, Settings};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let lp = Loop::new()?;
    /// let options = ListenOptions::new().backlog(16);
    /// let socket = ListenSocket::bind(&"127.0.0.1:0".parse().unwrap(), &options)?;
    /// let listener = Listener::from_socket(&lp, socket, Settings::default(), |_peer| {
    ///     |_: &mut Conn<'_>, _: &mut Buffer| Ok(())
    /// })?;
    /// listener.close(&lp);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the settings make no sense, or the loop's kernel is simulated.
    pub fn from_socket<P: Protocol>(
        lp: &Loop,
        socket: ListenSocket,
        settings: Settings,
        make: impl Fn(&Address) -> P + 'static,
    ) -> io::Result<Listener> {
        settings.check()?;
        let address = socket.local_address().clone();
        let socket = lp.adopt(socket.into_fd())?;
        Ok(Listener::serve_on(lp, socket, &address, settings, make))
    }

    fn serve_on<P: Protocol>(
        lp: &Loop,
        socket: Handle,
        address: &Address,
        settings: Settings,
        make: impl Fn(&Address) -> P + 'static,
    ) -> Listener {
        let stats = Arc::new(ServiceStats::default());
        let service = Service::new(lp, address.to_string(), settings, Arc::clone(&stats), None);
        let make = Box::new(move |peer: &Address| Box::new(make(peer)) as Box<dyn Protocol>);
        Listener::on(lp, socket, stats, Local { service: Current::new(service), make })
    }

    /// Accepts from a socket that listens already.
    pub(crate) fn on(
        lp: &Loop,
        socket: Handle,
        stats: Arc<ServiceStats>,
        serve: impl Serve + 'static,
    ) -> Listener {
        let state = State {
            accepting: None,
            reserve: None,
            paused: false,
            pause: PAUSE,
            refused: 0,
            refusing: 0,
            short: None,
            shared: false,
            patient: false,
            closed: false,
            ended: None,
        };
        let inner = Inner { socket, serve: Box::new(serve), stats, state: RefCell::new(state) };
        let inner = Rc::new(inner);
        let _ = inner.keep_reserve(lp); // or with the first that is accepted
        inner.accept(lp);
        Listener { inner }
    }

    /// Where it listens: the port that was chosen, when zero was asked for.
    ///
    /// # Errors
    /// When it is closed.
    pub fn local_address(&self, lp: &Loop) -> io::Result<Address> {
        lp.local_address(self.inner.socket)
    }

    /// What it has counted.
    pub fn stats(&self) -> Stats {
        self.inner.stats.read()
    }

    /// Accepts no more. Connections that are there stay.
    pub fn close(&self, lp: &Loop) {
        self.inner.close(lp);
    }

    /// [Closes](Listener::close), and calls `ended` when the last connection that was accepted before is served.
    pub(crate) fn close_then(&self, lp: &Loop, ended: impl FnOnce(&Loop) + 'static) {
        if self.inner.state.borrow().accepting.is_none() {
            self.inner.close(lp);
            return ended(lp);
        }
        self.inner.state.borrow_mut().ended = Some(Box::new(ended));
        self.inner.close(lp);
    }

    /// Other loops or processes accept from the same socket.
    ///
    /// On io_uring the kernel tells one of those that wait of a new connection, and always the same one for as
    /// long as its operation lasts: it would have them all, and if it hangs, nobody has any. So there they all
    /// wait until the socket is readable, and accept only what is there by then, as the other backends do.
    pub(crate) fn share(&self, lp: &Loop) {
        if lp.backend() == Backend::Uring {
            let mut state = self.inner.state.borrow_mut();
            state.shared = true;
            if let Some(token) = state.accepting {
                lp.cancel(token);
            }
        }
    }

    /// While there is no room, new connections are left in the backlog, where other processes find them. Whoever
    /// is alone turns them away.
    pub(crate) fn be_patient(&self) {
        self.inner.state.borrow_mut().patient = true;
    }
}

impl Inner {
    fn accept(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        if state.closed || state.paused || state.accepting.is_some() {
            return;
        }
        let shared = state.shared;
        drop(state);
        if shared {
            self.submit(lp, Operation::Poll { handle: self.socket, interest: Interest::READ });
        } else {
            self.submit(lp, Operation::Accept { listener: self.socket });
        }
    }

    /// Accepts what is there.
    fn accept_ready(self: &Rc<Self>, lp: &Loop) {
        self.submit(lp, Operation::Accept { listener: self.socket });
        // The kernel looks into the queue before it is told of this.
        if let Some(token) = self.state.borrow().accepting {
            lp.cancel(token);
        }
    }

    fn is_accepting(&self) -> bool {
        let state = self.state.borrow();
        !state.closed && !state.paused
    }

    fn submit(self: &Rc<Self>, lp: &Loop, operation: Operation) {
        match lp.submit(operation, self, ACCEPTED) {
            Submitted::Pending(token) => self.state.borrow_mut().accepting = Some(token),
            Submitted::Done(Finished { result, .. }) => {
                let error = result.err().unwrap_or_else(|| io::ErrorKind::Other.into());
                self.failed(lp, &error);
            }
        }
    }

    fn accepted(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        // Where there is a place for the reserve beside it there are others, too.
        if let Err(error) = self.keep_reserve(lp) {
            self.note_shortage(lp, &error);
            return self.turn_away(lp, socket);
        }
        let mut state = self.state.borrow_mut();
        state.pause = PAUSE;
        let is_past = |at: &mut Instant| lp.now().saturating_duration_since(*at) >= LIMIT_PAUSE;
        if state.short.take_if(is_past).is_some() {
            tracing::info!("accepting connections again");
        }
        drop(state);
        self.serve.serve(lp, socket);
        if self.leaves_it_to_others() {
            tracing::debug!("no room: new connections are left to the other workers");
            self.pause(lp);
        }
    }

    fn leaves_it_to_others(&self) -> bool {
        self.state.borrow().patient && !self.serve.has_room()
    }

    /// Closes a connection for want of descriptors; others may be turned away with the one that it had.
    fn turn_away(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        self.serve.turned_away();
        let mut state = self.state.borrow_mut();
        state.refused += 1;
        state.refusing += 1;
        let enough = state.refused >= REFUSED_PER_PAUSE;
        drop(state);
        if enough {
            self.pause(lp);
        }
        if let Submitted::Done(_) = lp.submit(Operation::Close { handle: socket }, self, REFUSED) {
            self.state.borrow_mut().refusing -= 1;
        }
    }

    /// Out of descriptors, most likely.
    fn failed(self: &Rc<Self>, lp: &Loop, error: &io::Error) {
        if self.state.borrow().closed {
            return;
        }
        self.note_shortage(lp, error);
        let mut state = self.state.borrow_mut();
        let Some(reserve) = state.reserve.take() else {
            let is_refusing = state.refusing > 0;
            drop(state);
            if !is_refusing {
                self.pause(lp);
            }
            return; // or it goes on when who is turned away is gone
        };
        drop(state);
        // The place is free once this is done; on io_uring that takes a moment.
        let listener = Rc::clone(self);
        lp.operate(Operation::Close { handle: reserve }, move |lp, _| listener.accept(lp));
    }

    fn note_shortage(&self, lp: &Loop, error: &io::Error) {
        if self.state.borrow_mut().short.replace(lp.now()).is_none() {
            tracing::warn!("cannot accept: {error}; turning new connections away");
        }
    }

    /// Leaves them in the backlog for a while.
    fn pause(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        if state.paused {
            return;
        }
        let pause = state.pause;
        state.pause = (pause * 2).min(LIMIT_PAUSE);
        state.paused = true;
        if let Some(token) = state.accepting {
            lp.cancel(token);
        }
        drop(state);
        let listener = Rc::clone(self); // nobody else may keep it meanwhile
        lp.after(pause, move |lp| {
            let mut state = listener.state.borrow_mut();
            if state.closed {
                return;
            }
            (state.paused, state.refused) = (false, 0);
            drop(state);
            if listener.leaves_it_to_others() {
                return listener.pause(lp);
            }
            let _ = listener.keep_reserve(lp); // or with the next that is accepted
            listener.accept(lp); // or when the cancelled one has ended
        });
    }

    /// Sees to it that there is a reserve. Fails if there is no descriptor for it; a system that has no such
    /// sockets does without.
    fn keep_reserve(&self, lp: &Loop) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.reserve.is_none() && !state.closed {
            match lp.socket(SocketKind::Tcp4) {
                Ok(reserve) => state.reserve = Some(reserve),
                Err(error) if is_shortage(&error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn close(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        let reserve = state.reserve.take();
        drop(state);
        for handle in reserve.into_iter().chain([self.socket]) {
            let _ = lp.submit(Operation::Close { handle }, self, CLOSED);
        }
    }
}

impl Complete for Inner {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        if tag == REFUSED {
            self.state.borrow_mut().refusing -= 1;
            return self.accept(lp);
        }
        if tag != ACCEPTED {
            return;
        }
        if !completion.more {
            self.state.borrow_mut().accepting = None;
        }
        let last = !completion.more;
        match completion.result {
            Ok(Outcome::Accepted(socket)) => self.accepted(lp, socket),
            Ok(Outcome::Ready(_)) if self.is_accepting() => return self.accept_ready(lp),
            Ok(Outcome::Ready(_)) => {}
            Ok(other) => unreachable!("an accept does not give {other:?}"),
            Err(error) if operations::is_cancelled(&error) => {} // paused, shared, closed
            Err(error) if !self.state.borrow().closed => return self.failed(lp, &error),
            Err(_) => {}
        }
        self.accept(lp);
        let ended = self.state.borrow_mut().ended.take_if(|_| last);
        if let Some(ended) = ended {
            ended(lp);
        }
    }
}

/// Whether an error says that there are too few descriptors, or too little memory.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    shortages.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Makes the protocol of a new connection.
pub(crate) type Make = dyn Fn(&Address) -> Box<dyn Protocol>;

/// Serves on the loop that accepts.
pub(crate) struct Local {
    pub(crate) service: Rc<Current>,
    pub(crate) make: Box<Make>,
}

impl Serve for Local {
    fn serve(&self, lp: &Loop, socket: Handle) {
        serve(lp, &self.service.service(), socket, &*self.make);
    }

    fn turned_away(&self) {
        self.service.service().stats.turned_away.add(1);
    }

    fn has_room(&self) -> bool {
        self.service.service().has_room()
    }
}

/// Makes a connection of an accepted socket, if there is room for one more.
pub(crate) fn serve(
    lp: &Loop,
    service: &Rc<Service>,
    socket: Handle,
    make: impl FnOnce(&Address) -> Box<dyn Protocol>,
) {
    if service.has_room() {
        let peer = lp.peer_address(socket).unwrap_or_else(|_| unknown_peer());
        match guard(|| make(&peer)) {
            Some(protocol) => drop(Link::open(lp, service, socket, protocol)),
            None => {
                // Nobody is there for it; the others are none the worse.
                service.stats.panics.add(1);
                service.stats.unopened.add(1);
                operations::close(lp, socket);
            }
        }
        return;
    }
    match Busy::of(service) {
        Some(busy) => drop(Link::open(lp, service, socket, Box::new(busy))),
        None => {
            service.stats.unopened.add(1);
            operations::close(lp, socket);
        }
    }
}

/// What stands for a peer that was gone before it could be asked for its address.
fn unknown_peer() -> Address {
    Address::Ip(std::net::SocketAddr::from(([0, 0, 0, 0], 0)))
}

/// Tells a peer that there is no room, and closes.
pub(crate) struct Busy(Rc<Service>);

impl Busy {
    /// One more is turned away. `None` if it is not to be told: there is nothing to say, or too many are told.
    pub(crate) fn of(service: &Rc<Service>) -> Option<Busy> {
        service.stats.turned_away.add(1);
        let silent = service.settings.busy_message.is_empty()
            || service.turning_away() >= LIMIT_TURNING_AWAY;
        if silent {
            return None;
        }
        service.begin_turning_away();
        Some(Busy(Rc::clone(service)))
    }
}

impl Protocol for Busy {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.write_busy_message();
        conn.close();
        Ok(())
    }

    fn on_data(&mut self, _conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        Ok(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end_turning_away();
    }
}

/// Serves a socket that somebody else has opened: one of a pair, one that was inherited, or one that a
/// [`Connector`](crate::Connector) gives. Loop thread only.
///
/// # Errors
/// When the settings make no sense; the socket is closed then.
pub fn attach(
    lp: &Loop,
    socket: Handle,
    settings: Settings,
    protocol: impl Protocol,
) -> io::Result<crate::ConnHandle> {
    if let Err(error) = settings.check() {
        operations::close(lp, socket);
        return Err(error);
    }
    let service = Service::new(lp, "attached", settings, Arc::default(), None);
    Ok(Link::open(lp, &service, socket, Box::new(protocol)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn g3_listener_that_is_closed_does_not_go_on_looking_for_room() {
        /// Never has room.
        struct Full(Cell<u32>);
        impl Serve for Full {
            fn serve(&self, lp: &Loop, socket: Handle) {
                operations::close(lp, socket);
            }
            fn has_room(&self) -> bool {
                self.0.set(self.0.get() + 1);
                assert!(self.0.get() < 3, "it is asked for room though it is closed");
                false
            }
        }
        let lp = Loop::new().expect("a loop");
        let socket = lp.listen(&"127.0.0.1:0".parse().unwrap(), 1).expect("it listens");
        let listener = Listener::on(&lp, socket, Arc::default(), Full(Cell::new(0)));
        listener.be_patient();
        listener.inner.pause(&lp);
        listener.close(&lp);
        lp.run_until_idle().expect("nothing is left to do");
    }
}
