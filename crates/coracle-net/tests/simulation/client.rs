//! A client of the simulation, in plain operations: it follows its script, in its own manner.

use crate::ledger::Ledger;
use crate::random::Random;
use crate::script::{BUSY, Kind, Script};
use coracle_loop::Loop;
use coracle_loop::demux::{
    Address, Finished, Handle, Operation, Outcome, SocketKind, SocketOption,
};
use coracle_net::{Connector, Retry};
use std::cell::{Cell, RefCell};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

/// How often a client tries to get a connection before it gives up.
const LIMIT_TRIES: u32 = 100;

/// How long a client waits for the end where it cannot be sure of it: somebody else may have the last descriptor.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a client behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// Sends everything, ends its side, reads to the end.
    Polite,
    /// Reads until it has everything, and closes.
    Satisfied,
    /// Closes in the middle, in order.
    Leaving,
    /// Breaks off in the middle.
    Resetting,
    /// Sends nothing for a while, and goes.
    Idle,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It got everything.
    Complete,
    /// It left before that.
    Left,
    /// It was turned away.
    TurnedAway,
    /// The connection broke, or never came about.
    Broken,
}

pub(crate) struct Client {
    name: String,
    address: Address,
    ledger: Ledger,
    random: RefCell<Random>,
    script: Script,
    manner: Manner,
    /// Sends byte by byte.
    stutters: bool,
    /// Reads in small bites, with pauses.
    slow: bool,
    /// After how many received bytes it leaves.
    patience: usize,
    /// Nothing excuses the server.
    strict: bool,
    tries: Cell<u32>,
    sent: Cell<usize>,
    got: RefCell<Vec<u8>>,
    is_connected: Cell<bool>,
    /// It has sent everything, and seen the end.
    done: Cell<(bool, bool)>,
    end: Cell<Option<End>>,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        kind: Kind,
        coats: &[u8],
        address: Address,
        ledger: &Ledger,
        mut random: Random,
        strict: bool,
    ) -> Rc<Client> {
        let manner = match random.below(20) {
            0..9 => Manner::Polite,
            9..14 if !matches!(kind, Kind::Urgent | Kind::HalfClose) => Manner::Satisfied,
            14..16 => Manner::Leaving,
            16..18 => Manner::Resetting,
            18 => Manner::Idle,
            _ => Manner::Polite,
        };
        let promised = manner == Manner::Polite;
        let script = Script::new(kind, coats, &mut random, promised);
        let (stutters, slow) = (random.chance(0.1), random.chance(0.3));
        let patience = random.below(script.input.len() as u64 + 1) as usize;
        Rc::new(Client {
            name: format!("client {number} of {kind:?}, {manner:?}"),
            address,
            ledger: ledger.clone(),
            random: RefCell::new(random),
            script,
            manner,
            stutters,
            slow,
            patience,
            strict,
            tries: Cell::new(0),
            sent: Cell::new(0),
            got: RefCell::default(),
            is_connected: Cell::new(false),
            done: Cell::new((false, false)),
            end: Cell::new(None),
        })
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end.get()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.get()
    }

    pub(crate) fn received(&self) -> u64 {
        self.got.borrow().len() as u64
    }

    fn pause(&self, limit_ms: u64) -> Duration {
        self.random.borrow_mut().duration(Duration::from_millis(limit_ms))
    }

    // --- Connecting ------------------------------------------------------------------------------------

    /// In one of the two ways there are.
    pub(crate) fn start(self: Rc<Self>, lp: &Loop) {
        if self.random.borrow_mut().chance(0.7) {
            return self.connect(lp);
        }
        let (first, limit) = (Duration::from_millis(20), Duration::from_millis(400));
        Connector::to([self.address.clone()])
            .timeout(if self.strict { Duration::MAX } else { PATIENCE })
            .retry(Retry { rounds: LIMIT_TRIES, first, limit })
            .connect(lp, move |lp, connected| match connected {
                Ok(socket) => self.connected(lp, socket),
                Err(_) => self.end.set(Some(End::Broken)),
            });
    }

    fn connect(self: Rc<Self>, lp: &Loop) {
        self.tries.set(self.tries.get() + 1);
        let Ok(socket) = lp.socket(SocketKind::stream_for(&self.address)) else {
            return self.connect_again(lp); // no descriptor
        };
        let operation = Operation::Connect { socket, address: self.address.clone() };
        lp.operate(operation, move |lp, done| {
            if done.result.is_err() {
                lp.operate(Operation::Close { handle: socket }, |_, _| ());
                return self.connect_again(lp);
            }
            self.connected(lp, socket);
        });
    }

    fn connected(self: Rc<Self>, lp: &Loop, socket: Handle) {
        self.ledger.note(format!("{} connected", self.name));
        self.is_connected.set(true);
        self.receive(lp, socket);
        if !self.strict {
            let client = Rc::clone(&self);
            lp.after(PATIENCE, move |lp| client.leave(lp, socket, End::Left));
        }
        if self.manner == Manner::Idle {
            let pause = self.pause(3000);
            lp.after(pause, move |lp| self.leave(lp, socket, End::Left));
        } else {
            self.send(lp, socket);
        }
    }

    fn connect_again(self: Rc<Self>, lp: &Loop) {
        if self.tries.get() == LIMIT_TRIES {
            return self.end.set(Some(End::Broken));
        }
        let pause = self.pause(200);
        lp.after(pause, move |lp| Rc::clone(&self).connect(lp));
    }

    // --- Sending ---------------------------------------------------------------------------------------

    fn send(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        if self.end.get().is_some() {
            return;
        }
        let left = self.script.input.len() - self.sent.get();
        if left == 0 {
            return self.all_sent(lp, socket);
        }
        let mut random = self.random.borrow_mut();
        let count = if self.stutters { 1 } else { 1 + random.below(left as u64) as usize };
        drop(random);
        let start = self.sent.get();
        let bytes = self.script.input[start..start + count].to_vec();
        let client = Rc::clone(self);
        lp.operate(Operation::Send { socket, payload: bytes.into() }, move |lp, done| {
            match done.result {
                Ok(Outcome::Count(sent)) => client.sent.set(start + sent),
                // The server may be gone; what it said before that is still to be read.
                _ => return client.end_our_side(lp, socket),
            }
            if client.random.borrow_mut().chance(0.2) {
                let pause = client.pause(20);
                lp.after(pause, move |lp| client.send(lp, socket));
            } else {
                client.send(lp, socket);
            }
        });
    }

    fn all_sent(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        if self.manner != Manner::Satisfied || self.script.server_ends {
            return self.end_our_side(lp, socket);
        }
        self.done.set((true, self.done.get().1));
        self.maybe_over(lp, socket);
    }

    fn end_our_side(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        let client = Rc::clone(self);
        let operation = Operation::Shutdown { socket, how: Shutdown::Write };
        lp.operate(operation, move |lp, done| {
            client.done.set((true, client.done.get().1));
            let gone = client.done.get().1; // then there is nobody left to tell
            match done.result {
                Err(error) if !gone => client.broke(lp, socket, &error.to_string()),
                _ => client.maybe_over(lp, socket),
            }
        });
    }

    // --- Receiving -------------------------------------------------------------------------------------

    fn receive(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        if self.end.get().is_some() {
            return;
        }
        let mut random = self.random.borrow_mut();
        let limit = if self.slow { 50 } else { 2000 };
        let space = vec![0; 1 + random.below(limit) as usize];
        drop(random);
        let client = Rc::clone(self);
        let operation = Operation::Receive { socket, space: space.into() };
        lp.operate(operation, move |lp, done| client.received_some(lp, socket, done));
    }

    fn received_some(self: &Rc<Self>, lp: &Loop, socket: Handle, done: Finished) {
        if self.end.get().is_some() {
            return;
        }
        let count = match done.result {
            Ok(Outcome::Count(count)) => count,
            Ok(other) => panic!("a receive gave {other:?}"),
            Err(error) => return self.broke(lp, socket, &error.to_string()),
        };
        if count == 0 {
            self.done.set((self.done.get().0, true));
            return self.maybe_over(lp, socket);
        }
        self.got.borrow_mut().extend_from_slice(&done.payload.into_vec()[..count]);
        let got = self.got.borrow().len();
        let wants_to_leave = matches!(self.manner, Manner::Leaving | Manner::Resetting);
        if wants_to_leave && got >= self.patience {
            return self.leave(lp, socket, End::Left);
        }
        if self.done.get().0 && self.is_satisfied() {
            return self.leave(lp, socket, End::Complete);
        }
        if self.slow && self.random.borrow_mut().chance(0.3) {
            let (client, pause) = (Rc::clone(self), self.pause(100));
            lp.after(pause, move |lp| client.receive(lp, socket));
        } else {
            self.receive(lp, socket);
        }
    }

    // --- Ending ----------------------------------------------------------------------------------------

    fn maybe_over(self: &Rc<Self>, lp: &Loop, socket: Handle) {
        let (sent, ended) = self.done.get();
        if sent && (ended || self.is_satisfied()) {
            self.leave(lp, socket, End::Complete);
        }
    }

    /// Whether it has all it came for, and does not wait for the end.
    fn is_satisfied(&self) -> bool {
        let has_all = self.script.wanted_bytes() == Some(self.got.borrow().len());
        self.manner == Manner::Satisfied && !self.script.server_ends && has_all
    }

    fn broke(self: &Rc<Self>, lp: &Loop, socket: Handle, why: &str) {
        self.ledger.note(format!("{} broke: {why}", self.name));
        self.leave(lp, socket, End::Broken);
    }

    fn leave(self: &Rc<Self>, lp: &Loop, socket: Handle, end: End) {
        if self.end.get().is_some() {
            return;
        }
        let end = self.judge(end);
        self.ledger.note(format!(
            "{} ends: {end:?}, sent {} of {}, got {}",
            self.name,
            self.sent.get(),
            self.script.input.len(),
            self.got.borrow().len()
        ));
        if self.manner == Manner::Resetting {
            let _ = lp.set_option(socket, SocketOption::ResetOnClose(true));
        }
        self.end.set(Some(end));
        lp.operate(Operation::Close { handle: socket }, |_, _| ());
    }

    /// What became of it, and whether that may be.
    fn judge(&self, end: End) -> End {
        let got = self.got.borrow();
        let busy = BUSY.starts_with(&got) && (!got.is_empty() || end != End::Left);
        if !self.strict && busy {
            return End::TurnedAway;
        }
        let complete = self.strict && end == End::Complete;
        let objection = self.script.objection(&got, complete);
        self.ledger.expect(objection.is_none(), || {
            format!("{}: {}", self.name, objection.unwrap_or_default())
        });
        let panics = self.name.contains("Panic");
        let excused = !self.strict || panics || end != End::Broken;
        self.ledger.expect(excused, || format!("{}: no fault explains what broke", self.name));
        end
    }
}
