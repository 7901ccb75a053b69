//! What is behind a [`Conn`]: the socket, its two directions, and how it comes to its end.
//!
//! ```text
//!                 close: what waits is sent        our side is ended          the peer's is, too
//!      ┌──────┐   ┌─────────┐   nothing waits   ┌──────────┐  end of stream   ┌────────┐
//!      │ Open │──►│ Closing │──────────────────►│ Draining │─────────────────►│ Closed │──► on_close
//!      └──────┘   └─────────┘     (FIN)         └──────────┘   or deadline    └────────┘
//!          └──────────┴─ abort, error, limit, panic ─┴──────────────────────────────▲
//! ```
//!
//! Closing takes as long as something is sent, or is on its way to be. Draining is what keeps an answer from being
//! lost: a socket that is closed with unread input sends a reset, and that may overtake what was sent before it.
//! And one that is closed before the end of our side is out may take some of it along.
//!
//! Callbacks run from [`Link::enter`] and nowhere else, and while one runs, nothing of the link is borrowed. What
//! a callback asks for (write, close, switch) is noted, and done by [`Link::settle`] when it has returned: so
//! there is one send for all its writes, and no callback runs inside another.
//!
//! `receiving.rs` and `sending.rs` are the two directions. Most connections send and receive straight; `layers.rs`
//! and `pacing.rs` are the [detours](State::detour).

mod errand;
mod kept;
mod layers;
mod pacing;
mod passing;
mod receiving;
mod sending;

use crate::guard::{discard, guard};
use crate::hub::{ConnHandle, LinkKey, Service};
use crate::output::Output;
use crate::{Buffer, Conn, Protocol, Reason, operations};
use coracle_loop::demux::{Completion, Finished, Handle, Operation, Outcome, Submitted, Token};
use coracle_loop::{Complete, IdleTimer, Loop, Timer};
use errand::Errands;
use kept::Kept;
use layers::Layers;
use pacing::Pace;
use passing::Passing;
use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::net::Shutdown;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// What a completion is about.
const RECEIVED: u32 = 0;
const SENT: u32 = 1;
const SENT_FILE: u32 = 2;
const SHUT_DOWN: u32 = 3;
const CLOSED: u32 = 4;
const RECEIVED_PIECE: u32 = 5;
const FILE_READ: u32 = 6;

bitflags::bitflags! {
    /// Why a connection is not read.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Pause: u8 {
        /// The protocol said so.
        const USER = 1;
        /// Too much waits to be sent.
        const OUTPUT = 2;
        /// It is faster than it may be.
        const RATE = 4;
        /// What has come already is not shown either.
        const HOLDING = Self::USER.bits() | Self::OUTPUT.bits();
    }
}

/// Takes over a socket, with what was received and not read.
pub(crate) type Hijacker = Box<dyn FnOnce(&Loop, Handle, Buffer)>;

/// A connection, as the loop keeps it. What every message needs is in front, together.
#[repr(C)]
pub(crate) struct Link {
    socket: Handle,
    key: LinkKey,
    service: Rc<Service>,
    /// Absent while one of its callbacks runs or its layers work, and after `on_close`: then nobody reaches the
    /// connection.
    protocol: Cell<Option<Box<dyn Protocol>>>,
    /// Known to be calm: open, nothing unread, nothing unsent, nothing asked for. Then a message needs no look at
    /// `state`. Whoever changes that says so ([`Link::change`]).
    calm: Cell<bool>,
    /// Whether there is a time-out to be put off by every message.
    timed: Cell<bool>,
    idle: Cell<Option<Box<IdleTimer>>>,
    input: Kept,
    state: RefCell<State>,
}

struct State {
    phase: Phase,
    paused: Pause,
    /// Our side is to be ended when nothing waits, or was.
    fin: Fin,
    /// The peer has sent everything.
    ended: bool,
    /// The protocol was told so.
    end_told: bool,
    /// Over the high mark, and not yet below the low one.
    full: bool,
    /// It is to end without sending what waits.
    aborted: bool,
    /// A mark is being called, or the answer of an errand: what it writes belongs to what was asked for before,
    /// and is sent though the connection is about to end.
    late: bool,
    /// Bytes do not go straight between socket and protocol: it is aborted, has layers, or a limit of its rate.
    detour: bool,
    /// A piece was received at once, and its turn comes.
    has_piece: bool,
    /// It has sent as much as it may in one go; the next turn goes on with it.
    resting: bool,
    /// How much it has sent since it was last somebody else's turn.
    turn_bytes: u32,
    /// The receive in flight.
    receiving: Option<Token>,
    output: Output,
    /// How many bytes it is counted with in the memory of its service.
    counted: usize,
    rare: Option<Box<Rare>>,
}

/// What most connections do not have most of the time.
#[derive(Default)]
struct Rare {
    /// Why it closes, once that is decided.
    closing: Option<Reason>,
    /// Why it is aborted, perhaps while it closes: this is what is told then.
    aborting: Option<Reason>,
    next_protocol: Option<Box<dyn Protocol>>,
    hijacker: Option<Hijacker>,
    errands: Errands,
    /// When closing takes too long: nothing was sent for a while, or the peer does not end its side.
    deadline: Option<Timer>,
    /// When the peer has taken nothing for too long.
    stalled: Option<Timer>,
    /// More waits than may: whether the last send since then went through whole.
    doubted: Option<bool>,
    layers: Option<Box<Layers>>,
    pace: Option<Box<Pace>>,
    passing: Option<Passing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Closing,
    Draining,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fin {
    No,
    Wanted,
    /// The kernel was asked for it; what was sent before goes out first.
    UnderWay,
    Sent,
}

impl Link {
    /// Takes over an open socket, and tells the protocol. The hub keeps it from now on.
    pub(crate) fn open(
        lp: &Loop,
        service: &Rc<Service>,
        socket: Handle,
        protocol: Box<dyn Protocol>,
    ) -> ConnHandle {
        let hub = service.hub().expect("a loop that runs has its hub");
        let link = hub.insert(|key| {
            Rc::new(Link {
                socket,
                key,
                service: Rc::clone(service),
                protocol: Cell::new(Some(protocol)),
                input: Kept::default(),
                idle: Cell::default(),
                timed: Cell::new(false),
                calm: Cell::new(false),
                state: RefCell::new(State {
                    phase: Phase::Open,
                    paused: Pause::empty(),
                    fin: Fin::No,
                    ended: false,
                    end_told: false,
                    full: false,
                    aborted: false,
                    late: false,
                    detour: false,
                    has_piece: false,
                    resting: false,
                    turn_bytes: 0,
                    receiving: None,
                    output: Output::default(),
                    counted: 0,
                    rare: None,
                }),
            })
        });
        service.opened();
        link.set_idle_timeout(lp, service.settings.idle_timeout);
        link.aside(|| {
            link.call(lp, |protocol, conn| protocol.on_open(conn));
            link.read_on(lp);
        });
        ConnHandle::new(lp.handle(), link.key)
    }

    pub(crate) fn socket(&self) -> Handle {
        self.socket
    }

    pub(crate) fn key(&self) -> LinkKey {
        self.key
    }

    #[inline]
    pub(crate) fn service(&self) -> &Rc<Service> {
        &self.service
    }

    /// The state, to be changed.
    #[inline]
    fn change(&self) -> RefMut<'_, State> {
        self.calm.set(false);
        self.state.borrow_mut()
    }

    /// Whether nothing is to be done but receive, the most frequent state of all.
    #[inline(always)]
    fn is_calm(&self) -> bool {
        self.calm.get() || self.look_if_calm()
    }

    fn look_if_calm(&self) -> bool {
        let state = self.state.borrow();
        let calm = state.phase == Phase::Open
            && state.paused.is_empty()
            && state.fin == Fin::No
            && !state.full
            && !state.aborted
            && state.rare.is_none()
            && state.output.is_empty()
            && self.input.is_empty();
        self.calm.set(calm);
        calm
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.calm.get() || self.state.borrow().phase == Phase::Open
    }

    /// Whether a callback of its own runs, or none will any more.
    #[inline]
    pub(crate) fn is_in_callback(&self) -> bool {
        let protocol = self.protocol.take();
        let absent = protocol.is_none();
        std::mem::forget(self.protocol.replace(protocol)); // nobody is in its place
        absent
    }

    // --- Callbacks -------------------------------------------------------------------------------------

    /// Runs a callback of the protocol's, and then does what it asked for.
    fn call(
        self: &Rc<Self>,
        lp: &Loop,
        callback: impl FnOnce(&mut dyn Protocol, &mut Conn<'_>) -> io::Result<()>,
    ) {
        self.enter(lp, callback);
        self.settle(lp);
    }

    /// Runs something that is not the protocol's, in its place.
    pub(crate) fn run(
        self: &Rc<Self>,
        lp: &Loop,
        task: impl FnOnce(&mut Conn<'_>) -> io::Result<()>,
    ) {
        self.call(lp, |_, conn| task(conn));
    }

    /// Runs something for this connection while a callback of another may be running; not while one of its own
    /// does.
    #[inline]
    pub(crate) fn interrupt<T>(
        self: &Rc<Self>,
        lp: &Loop,
        f: impl FnOnce(&mut Conn<'_>) -> T,
    ) -> Option<T> {
        let mut result = None;
        self.aside(|| {
            let entered = self.enter(lp, |_, conn| {
                self.is_calm(); // whoever is only written to would not find out otherwise
                result = Some(f(conn));
                Ok(())
            });
            if entered {
                self.settle(lp);
            }
        });
        result
    }

    /// Does something that may be inside a callback of another connection: what that has written stays its own.
    #[inline]
    fn aside(&self, f: impl FnOnce()) {
        self.service.scratch.aside(f);
    }

    /// Runs a callback. False if one of its own runs, which is not over, or none will any more.
    #[inline(always)]
    fn enter(
        self: &Rc<Self>,
        lp: &Loop,
        callback: impl FnOnce(&mut dyn Protocol, &mut Conn<'_>) -> io::Result<()>,
    ) -> bool {
        let Some(mut protocol) = self.protocol.take() else { return false };
        self.service.scratch.begin(self);
        let mut conn = Conn { lp, link: self };
        let result = guard(|| callback(&mut *protocol, &mut conn));
        // It is as absent as before: nobody is in its place whom that would drop.
        std::mem::forget(self.protocol.replace(Some(protocol)));
        match result {
            Some(Ok(())) => {}
            Some(Err(error)) => self.close(Reason::Refused(error)),
            None => self.note_panic(),
        }
        true
    }

    #[cold]
    fn note_panic(&self) {
        self.service.stats.panics.add(1);
        self.abort(Reason::Panic);
    }

    /// Drops something of the user's, when nothing of the link is borrowed: that may run code of the user's, which
    /// may use the connection, and may panic.
    fn discard<T>(&self, value: T) {
        if !discard(value) {
            self.note_panic();
        }
    }

    fn discard_output(&self, output: Output) {
        output.into_packets().for_each(|packet| self.discard(packet));
    }

    /// Does what a callback asked for.
    #[inline(always)]
    fn settle(self: &Rc<Self>, lp: &Loop) {
        self.flush(lp);
        if !self.calm.get() {
            self.go_on_and_switch(lp);
        }
    }

    #[inline(never)]
    fn go_on_and_switch(self: &Rc<Self>, lp: &Loop) {
        self.go_on(lp);
        self.take_switch(lp);
    }

    /// Puts the protocol in place that a callback has asked for.
    fn take_switch(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.change();
        let Some(next) = state.rare.as_mut().and_then(|rare| rare.next_protocol.take()) else {
            return;
        };
        state.tidy();
        state.end_told = false; // the new one has not been told
        drop(state);
        self.discard(self.protocol.take());
        self.protocol.set(Some(next));
        self.call(lp, |protocol, conn| protocol.on_open(conn));
        self.offer_input(lp);
        self.tell_end(lp);
    }

    // --- What callbacks ask for ------------------------------------------------------------------------

    pub(crate) fn close(&self, reason: Reason) {
        let mut state = self.change();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
            state.rare().closing = Some(reason);
        } else {
            drop(state);
            self.discard(reason);
        }
    }

    pub(crate) fn abort(&self, reason: Reason) {
        self.change().abort(reason);
    }

    pub(crate) fn close_write(&self) {
        let mut state = self.change();
        if state.fin == Fin::No {
            state.fin = Fin::Wanted;
        }
    }

    pub(crate) fn switch(&self, protocol: Box<dyn Protocol>) {
        let before = self.change().rare().next_protocol.replace(protocol);
        drop(before); // when nothing is borrowed, and inside the callback that has asked twice
    }

    pub(crate) fn hijack(&self, hijacker: Hijacker) {
        let mut state = self.change();
        if state.is_layered() {
            drop(state);
            return self.close(Reason::Refused(layers::unsupported(
                "a connection with layers cannot be given away: what it received is theirs",
            )));
        }
        let before = state.rare().hijacker.replace(hijacker);
        drop(state);
        drop(before); // as above
    }

    pub(crate) fn set_idle_timeout(self: &Rc<Self>, lp: &Loop, timeout: Option<Duration>) {
        let link = Rc::downgrade(self);
        let timer = timeout.map(|timeout| {
            Box::new(lp.idle_timer(timeout, move |lp| {
                if let Some(link) = link.upgrade() {
                    link.is_idle_for(lp, timeout);
                }
            }))
        });
        self.timed.set(timer.is_some());
        self.idle.set(timer);
    }

    #[inline]
    pub(crate) fn touch(&self) {
        if self.timed.get() {
            let idle = self.idle.take();
            idle.iter().for_each(|idle| idle.touch());
            self.idle.set(idle);
        }
    }

    fn is_idle_for(self: &Rc<Self>, lp: &Loop, timeout: Duration) {
        if self.is_open() {
            self.set_idle_timeout(lp, Some(timeout)); // the next one, unless the callback says otherwise
            self.call(lp, |protocol, conn| protocol.on_idle(conn));
        }
    }

    /// The server is about to stop.
    pub(crate) fn shut_down_service(self: &Rc<Self>, lp: &Loop) {
        if self.is_open() {
            self.call(lp, |protocol, conn| protocol.on_shutdown(conn));
        }
    }

    /// Ends it from outside a callback.
    pub(crate) fn abort_now(self: &Rc<Self>, lp: &Loop, reason: Reason) {
        self.abort(reason);
        self.go_on(lp);
    }

    // --- Ending ----------------------------------------------------------------------------------------

    /// Does what is to be done next, when no callback runs.
    fn go_on(self: &Rc<Self>, lp: &Loop) {
        if !self.state.borrow().aborted {
            self.pump(lp);
        }
        let mut state = self.change();
        if state.aborted {
            drop(state);
            return self.finish(lp);
        }
        if state.is_layered() {
            drop(state);
            self.give_leftovers();
            self.steer(lp);
            state = self.change();
        }
        let sent = state.is_all_sent();
        match state.phase {
            Phase::Open if sent && state.is_hijacked() => {
                drop(state);
                self.give_away(lp);
            }
            Phase::Open if sent && state.fin == Fin::Wanted && !state.has_errands() => {
                drop(state);
                self.shut_down(lp);
            }
            Phase::Open | Phase::Closing if state.is_lost() => {
                drop(state);
                self.abort_now(lp, Reason::Failed(io::ErrorKind::UnexpectedEof.into()));
            }
            // Both sides have said everything, and all of ours is with the kernel: closing will do.
            Phase::Closing
                if sent && state.ended && !state.has_errands() && !lp.is_carrying(self.socket) =>
            {
                drop(state);
                self.finish(lp);
            }
            Phase::Closing => {
                let drain = self.service.settings.drain;
                self.idle.take();
                let rare = state.rare();
                let deadline = rare.deadline.get_or_insert_with(|| {
                    let link = Rc::downgrade(self);
                    lp.after(drain, move |lp| Link::is_overdue(&link, lp))
                });
                let idle = sent && rare.errands.is_empty();
                if idle {
                    deadline.rearm(drain); // the peer's time begins when it can have everything
                    state.phase = Phase::Draining;
                    let open = matches!(state.fin, Fin::No | Fin::Wanted);
                    drop(state);
                    if open {
                        self.shut_down(lp);
                    }
                    self.read_on(lp);
                    self.go_on(lp);
                }
            }
            // Closing the socket would give up what the kernel, or the seam, still has to send.
            Phase::Draining if state.ended && state.fin == Fin::Sent => {
                drop(state);
                self.finish(lp);
            }
            Phase::Open | Phase::Draining | Phase::Closed => {}
        }
    }

    fn shut_down(self: &Rc<Self>, lp: &Loop) {
        self.change().fin = Fin::UnderWay;
        let operation = Operation::Shutdown { socket: self.socket, how: Shutdown::Write };
        // If it fails the connection is gone, which the receive will tell.
        if let Submitted::Done(_) = lp.submit(operation, self, SHUT_DOWN) {
            self.change().fin = Fin::Sent;
        }
    }

    /// It was closed, or has last sent something, a while ago.
    fn is_overdue(link: &Weak<Link>, lp: &Loop) {
        let Some(link) = link.upgrade() else { return };
        let state = link.state.borrow();
        if state.is_getting_on() {
            return state.put_off_deadline(link.service.settings.drain);
        }
        drop(state);
        link.abort_now(lp, Reason::Deadline);
    }

    /// Closes the socket and tells the protocol, once.
    fn finish(self: &Rc<Self>, lp: &Loop) {
        let Some(reason) = self.leave() else { return };
        self.service.stats.ended_by(&reason);
        let _ = lp.submit(Operation::Close { handle: self.socket }, self, CLOSED);
        self.tell_closed(&reason);
        self.discard(reason);
        self.forget(lp);
    }

    /// Gives the socket to whoever asked for it, once nothing is in flight on it.
    fn give_away(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        if let Some(token) = state.receiving {
            return lp.cancel(token); // comes back here when that has ended
        }
        if state.has_piece {
            return; // the same
        }
        drop(state);
        let hijacker = self.change().rare().hijacker.take();
        if let (Some(hijacker), Some(_)) = (hijacker, self.leave()) {
            self.discard(self.protocol.take());
            let input = self.input.take();
            self.forget(lp);
            if guard(|| hijacker(lp, self.socket, input)).is_none() {
                self.service.stats.panics.add(1);
                operations::close(lp, self.socket);
            }
        }
    }

    /// Ends all that goes on around the socket; gives the reason, once.
    fn leave(&self) -> Option<Reason> {
        let mut state = self.change();
        if state.phase == Phase::Closed {
            return None;
        }
        state.phase = Phase::Closed;
        let output = std::mem::take(&mut state.output);
        self.service.memory.change(std::mem::take(&mut state.counted), 0);
        let rare = state.rare.take();
        drop(state);
        drop(self.idle.take());
        self.discard_output(output);
        let rare = *rare.unwrap_or_default();
        let Rare { closing, aborting, next_protocol, hijacker, errands, .. } = rare;
        let Rare { deadline, stalled, layers, pace, passing, .. } = rare;
        for timer in deadline.into_iter().chain(stalled) {
            timer.cancel();
        }
        if hijacker.is_some() {
            tracing::debug!("a connection ended before it could be handed over");
        }
        self.discard(next_protocol);
        self.discard(hijacker);
        errands.into_answers().for_each(|answer| self.discard(answer));
        layers.into_iter().for_each(|layers| self.discard_layers(*layers));
        drop((pace, passing));
        Some(match (aborting, closing) {
            // A layer has failed, for a reason; that the peer then goes away is a consequence.
            (Some(after), Some(first @ Reason::Failed(_))) => {
                self.discard(after);
                first
            }
            (Some(reason), before) => {
                self.discard(before);
                reason
            }
            (None, reason) => reason.unwrap_or(Reason::Closed),
        })
    }

    fn tell_closed(&self, reason: &Reason) {
        let Some(mut protocol) = self.protocol.take() else { return };
        if guard(|| protocol.on_close(reason)).is_none() {
            self.service.stats.panics.add(1);
        }
        self.discard(protocol);
    }

    /// Leaves the hub, which may have been the last to keep it.
    fn forget(&self, lp: &Loop) {
        self.input.take();
        self.service.closed();
        if let Some(hub) = self.service.hub() {
            hub.remove(lp, self.key);
        }
    }
}

impl State {
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Forgets the rare things if there are none any more.
    fn tidy(&mut self) {
        let vacant = self.rare.as_ref().is_some_and(|rare| {
            rare.closing.is_none()
                && rare.aborting.is_none()
                && rare.next_protocol.is_none()
                && rare.hijacker.is_none()
                && rare.errands.is_empty()
                && rare.deadline.is_none()
                && rare.stalled.is_none()
                && rare.doubted.is_none()
                && rare.layers.is_none()
                && rare.pace.is_none()
                && rare.passing.is_none()
        });
        if vacant {
            self.rare = None;
        }
    }

    fn is_hijacked(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.hijacker.is_some())
    }

    /// Whether somebody else takes over what was received: another protocol, or who was given the socket.
    fn is_handed_over(&self) -> bool {
        let is_switched = self.rare.as_ref().is_some_and(|rare| rare.next_protocol.is_some());
        is_switched || self.is_hijacked()
    }

    fn has_errands(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.errands.is_empty())
    }

    /// Whether what is written will be sent. When our side is about to end, only what comes [late](State::late).
    fn accepts_output(&self) -> bool {
        !self.aborted
            && match (self.phase, self.fin) {
                (Phase::Open, Fin::No) => true,
                (Phase::Open | Phase::Closing, Fin::No | Fin::Wanted) => {
                    self.late && !self.is_cut()
                }
                _ => false,
            }
    }

    /// Whether it closes, and what it still has to send is not held up by the peer; or is, and the peer has
    /// [`write_timeout`](crate::Settings::write_timeout) for it.
    fn is_getting_on(&self) -> bool {
        let is_watched = self.rare.as_ref().is_some_and(|rare| rare.stalled.is_some());
        self.phase == Phase::Closing
            && (is_watched || self.has_errands() || self.waits_to_send() || self.is_reading_file())
    }

    /// Begins the time anew that a connection has that closes.
    fn put_off_deadline(&self, drain: Duration) {
        let deadline = self.rare.as_ref().and_then(|rare| rare.deadline.as_ref());
        deadline.into_iter().for_each(|deadline| _ = deadline.rearm(drain));
    }

    fn abort(&mut self, reason: Reason) {
        if !self.aborted && self.phase != Phase::Closed {
            self.aborted = true;
            self.detour = true;
            self.rare().aborting = Some(reason);
        }
    }
}

impl Complete for Link {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        match completion {
            // The most frequent of all is looked at where it is, and not moved.
            Completion { more: true, result: Ok(Outcome::Lent(bytes)), payload, .. }
                if tag == RECEIVED =>
            {
                std::mem::forget(payload); // a completion that is not the last carries nothing
                self.received(lp, bytes);
            }
            Completion { result, payload, .. } => {
                self.finished(lp, tag, Finished { result, payload })
            }
        }
    }
}

impl Link {
    /// Takes in the end of an operation.
    #[inline(never)]
    fn finished(self: &Rc<Self>, lp: &Loop, tag: u32, finished: Finished) {
        match tag {
            RECEIVED => self.receive_ended(lp, finished.result),
            SENT | SENT_FILE => self.sent(lp, tag, finished),
            RECEIVED_PIECE => self.received_piece(lp, finished),
            FILE_READ => self.file_read(lp, finished),
            SHUT_DOWN => {
                self.change().fin = Fin::Sent;
                self.go_on(lp);
            }
            _ => {} // closed, and this was the last reference
        }
    }
}

impl Drop for Link {
    /// The loop is gone before the connection: its end is told all the same.
    fn drop(&mut self) {
        self.discard(self.leave());
        self.tell_closed(&Reason::Stopped);
        self.service.memory.change(self.state.get_mut().counted, 0);
    }
}
