//! A client of the simulation: sends a stretch of bytes, wants the same back, and reports.

use crate::ledger::{Being, Side};
use crate::random::Random;
use coracle_loop::demux::{
    Address, Finished, Handle, Operation, Outcome, SocketKind, SocketOption,
};
use coracle_loop::{Loop, LoopHandle};
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How often a client tries to get a connection before it gives up.
const LIMIT_TRIES: u32 = 100;

/// Where a client reports to when it is done, and where it sees the answer.
pub(crate) struct Office {
    pub(crate) server: LoopHandle,
    pub(crate) answered: Arc<AtomicUsize>,
}

pub(crate) struct Client {
    number: u8,
    address: Address,
    side: Side,
    random: RefCell<Random>,
    /// How many bytes it sends.
    total: usize,
    /// After how many bytes it breaks the connection off.
    reset_after: Option<usize>,
    office: Office,
    tries: Cell<u32>,
    sent: Cell<usize>,
    received: Cell<usize>,
    state: Cell<State>,
    _being: Being,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Talking,
    /// It has got everything back.
    Complete,
    /// It has broken off the connection itself.
    Reset,
    /// The connection broke, or never came about.
    Broken,
}

impl Client {
    pub(crate) fn new(
        number: u8,
        address: Address,
        side: Side,
        mut random: Random,
        office: Office,
    ) -> Rc<Client> {
        let total = random.below(4000) as usize;
        let reset_after = random.chance(0.15).then(|| random.below(total as u64 + 1) as usize);
        let being = side.being();
        Rc::new(Client {
            number,
            address,
            side,
            random: RefCell::new(random),
            total,
            reset_after,
            office,
            tries: Cell::new(0),
            sent: Cell::new(0),
            received: Cell::new(0),
            state: Cell::new(State::Connecting),
            _being: being,
        })
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state.get() == State::Complete
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state.get() == State::Broken
    }

    pub(crate) fn echoed(&self) -> u64 {
        self.received.get() as u64
    }

    /// The byte of this client's stretch at `position`.
    fn byte(&self, position: usize) -> u8 {
        (position as u8)
            .wrapping_mul(31)
            .wrapping_add(self.number)
            .wrapping_add((position >> 8) as u8)
    }

    // --- Connecting ------------------------------------------------------------------------------------

    pub(crate) fn connect(self: Rc<Self>, lp: &Loop) {
        self.tries.set(self.tries.get() + 1);
        let Ok(socket) = lp.socket(SocketKind::stream_for(&self.address)) else {
            return self.connect_again(lp); // no descriptor
        };
        let operation = Operation::Connect { socket, address: self.address.clone() };
        let side = self.side.clone();
        side.operate(lp, None, operation, move |lp, done| match done.result {
            Ok(_) => {
                self.state.set(State::Talking);
                self.send(lp, socket);
                self.receive(lp, socket);
            }
            Err(_) => {
                self.side.operate(lp, None, Operation::Close { handle: socket }, |_, _| ());
                self.connect_again(lp);
            }
        });
    }

    fn connect_again(self: Rc<Self>, lp: &Loop) {
        if self.tries.get() == LIMIT_TRIES {
            self.state.set(State::Broken);
            return self.report(lp);
        }
        let pause = self.random.borrow_mut().duration(Duration::from_millis(200));
        lp.after(pause, move |lp| Rc::clone(&self).connect(lp));
    }

    // --- Talking ---------------------------------------------------------------------------------------

    fn send(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        if self.state.get() != State::Talking {
            return;
        }
        let client = Rc::clone(self);
        let left = self.total - self.sent.get();
        if left == 0 {
            let operation = Operation::Shutdown { socket, how: Shutdown::Write };
            self.side.operate(lp, None, operation, |_, _| ());
            return;
        }
        let count = 1 + self.random.borrow_mut().below(left as u64) as usize;
        let start = self.sent.get();
        let bytes: Vec<u8> = (start..start + count).map(|position| self.byte(position)).collect();
        let operation = Operation::Send { socket, payload: bytes.into() };
        self.side.operate(lp, None, operation, move |lp, done| match done.result {
            Ok(Outcome::Count(sent)) => {
                assert!(sent > 0 && sent <= count);
                assert_eq!(done.payload.len(), count, "the memory comes back whole");
                client.sent.set(start + sent);
                if client.random.borrow_mut().chance(0.3) {
                    let pause = client.random.borrow_mut().duration(Duration::from_millis(20));
                    lp.after(pause, move |lp| client.send(lp, socket));
                } else {
                    client.send(lp, socket);
                }
            }
            Ok(other) => panic!("a send gave {other:?}"),
            Err(_) => client.end(lp, socket, State::Broken),
        });
    }

    fn receive(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        if self.state.get() != State::Talking {
            return;
        }
        if self.reset_after.is_some_and(|limit| self.received.get() >= limit) {
            let _ = lp.set_option(socket, SocketOption::ResetOnClose(true));
            return self.end(lp, socket, State::Reset);
        }
        let mut random = self.random.borrow_mut();
        let space = vec![0; 1 + random.below(400) as usize];
        let within = random.chance(0.4).then(|| random.duration(Duration::from_millis(10)));
        let cancel = random.chance(0.2).then(|| random.duration(Duration::from_millis(3)));
        drop(random);
        let client = Rc::clone(self);
        let operation = Operation::Receive { socket, space: space.into() };
        let ticket = self.side.operate(lp, within, operation, move |lp, done| {
            client.received(lp, socket, done);
        });
        if let Some(delay) = cancel {
            lp.after(delay, move |_| ticket.cancel());
        }
    }

    fn received(self: &Rc<Self>, lp: &Loop, socket: Handle, done: Finished) {
        match done.result {
            Ok(Outcome::Count(0)) => {
                // Before everything is back, only because the server met a fault.
                let complete = self.received.get() == self.total;
                self.end(lp, socket, if complete { State::Complete } else { State::Broken });
            }
            Ok(Outcome::Count(count)) => {
                let bytes = done.payload.into_vec();
                for (&byte, position) in bytes[..count].iter().zip(self.received.get()..) {
                    assert_eq!(byte, self.byte(position), "byte {position} of {}", self.total);
                }
                self.received.set(self.received.get() + count);
                assert!(self.received.get() <= self.sent.get(), "more than was sent");
                self.receive(lp, socket);
            }
            Ok(other) => panic!("a receive gave {other:?}"),
            Err(error) if error.kind() == ErrorKind::TimedOut && error.raw_os_error().is_none() => {
                self.receive(lp, socket); // our own time-out: nothing is lost
            }
            Err(error) if error.raw_os_error() == Some(125) => self.receive(lp, socket),
            Err(_) => self.end(lp, socket, State::Broken),
        }
    }

    // --- Ending ----------------------------------------------------------------------------------------

    fn end(self: &Rc<Self>, lp: &Loop, socket: Handle, state: State) {
        if self.state.get() != State::Talking {
            return;
        }
        self.state.set(state);
        let client = Rc::clone(self);
        self.side.operate(lp, None, Operation::Close { handle: socket }, move |lp, _| {
            client.report(lp);
        });
    }

    /// Posts to the server's loop, which posts back.
    fn report(&self, lp: &Loop) {
        let (back, answered) = (lp.handle(), Arc::clone(&self.office.answered));
        let count = move |_: &Loop| {
            answered.fetch_add(1, Ordering::SeqCst);
        };
        let answer = move |_: &Loop| back.post(count).expect("the client's loop is there");
        self.office.server.post(answer).expect("the server's loop is there");
    }
}
