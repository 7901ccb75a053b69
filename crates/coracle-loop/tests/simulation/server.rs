//! The echo server of the simulation: everything the loop has, used at once.

use crate::ledger::{Being, Side};
use crate::random::Random;
use coracle_loop::demux::{
    Address, Completion, Finished, Handle, Operation, Outcome, Payload, Submitted, Token,
};
use coracle_loop::{Complete, IdleTimer, Loop};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What waits for a slow reader before it is not read either.
const LIMIT_WAITING_BYTES: usize = 300;

/// A connection that is silent for that long is given up. Longer than any stall, shorter than a storm.
const SILENCE: Duration = Duration::from_secs(600);

pub(crate) struct Server {
    side: Side,
    listener: Handle,
    accepting: Cell<Option<Token>>,
    closing: Cell<bool>,
    connections: Rc<Cell<usize>>,
    random: RefCell<Random>,
    _being: Being,
}

impl Server {
    pub(crate) fn start(lp: &Loop, address: &Address, side: Side, random: Random) -> Rc<Server> {
        // A storm may have no descriptor for it at first.
        let listener = loop {
            match lp.listen(address, 16) {
                Ok(listener) => break listener,
                Err(error) => assert_eq!(error.raw_os_error().or(Some(24)), Some(24), "{error}"),
            }
        };
        let being = side.being();
        let server = Rc::new(Server {
            side,
            listener,
            accepting: Cell::default(),
            closing: Cell::default(),
            connections: Rc::default(),
            random: RefCell::new(random),
            _being: being,
        });
        Rc::clone(&server).accept(lp);
        server
    }

    fn accept(self: Rc<Self>, lp: &Loop) {
        if self.closing.get() {
            return;
        }
        let operation = Operation::Accept { listener: self.listener };
        match self.side.submit(lp, operation, &self, 0) {
            Submitted::Pending(token) => self.accepting.set(Some(token)),
            Submitted::Done(finished) => self.pause(lp, &finished.result.map(|_| ())),
        }
    }

    /// No descriptor: tries again later. Who waits stays in the backlog.
    fn pause(self: Rc<Self>, lp: &Loop, result: &std::io::Result<()>) {
        assert!(result.is_err());
        lp.after(Duration::from_millis(10), move |lp| Rc::clone(&self).accept(lp));
    }

    /// No more connections, and the end of the listener.
    pub(crate) fn close(self: Rc<Self>, lp: &Loop) {
        self.closing.set(true);
        if let Some(token) = self.accepting.get() {
            lp.cancel(token); // and the close, at the same time
        }
        let listener = self.listener;
        self.side.operate(lp, None, Operation::Close { handle: listener }, |_, _| ());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.get() && self.accepting.get().is_none() && self.connections.get() == 0
    }
}

impl Complete for Server {
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        self.side.note(&completion);
        if !completion.more {
            self.accepting.set(None);
        }
        match completion.result {
            Ok(Outcome::Accepted(socket)) => {
                let random = self.random.borrow_mut().fork();
                Connection::open(lp, socket, &self, random);
            }
            Ok(other) => panic!("an accept gave {other:?}"),
            Err(_) if self.closing.get() => return,
            Err(error) => return self.pause(lp, &Err(error)),
        }
        if !completion.more {
            self.accept(lp);
        }
    }
}

const RECEIVED: u32 = 1;
const SENT: u32 = 2;
const CLOSED: u32 = 3;

struct Connection {
    side: Side,
    socket: Handle,
    state: RefCell<State>,
    idle: RefCell<Option<IdleTimer>>,
    count: Rc<Cell<usize>>,
    random: RefCell<Random>,
    _being: Being,
}

#[derive(Default)]
struct State {
    receiving: Option<Token>,
    /// A send is in flight, or its bytes are being worked on elsewhere.
    busy: bool,
    waiting: Vec<u8>,
    ended: bool,
    closing: bool,
}

impl Connection {
    fn open(lp: &Loop, socket: Handle, server: &Server, random: Random) {
        server.connections.set(server.connections.get() + 1);
        let connection = Rc::new(Connection {
            side: server.side.clone(),
            socket,
            state: RefCell::default(),
            idle: RefCell::default(),
            count: Rc::clone(&server.connections),
            random: RefCell::new(random),
            _being: server.side.being(),
        });
        let silent = Rc::clone(&connection);
        let idle = lp.idle_timer(SILENCE, move |lp| silent.close(lp));
        *connection.idle.borrow_mut() = Some(idle);
        connection.receive(lp);
    }

    fn receive(self: &Rc<Self>, lp: &Loop) {
        let operation = Operation::ReceiveLent { socket: self.socket };
        match self.side.submit(lp, operation, self, RECEIVED) {
            Submitted::Pending(token) => self.state.borrow_mut().receiving = Some(token),
            Submitted::Done(finished) => panic!("a multishot operation gave {finished:?}"),
        }
    }

    fn received(self: &Rc<Self>, lp: &Loop, bytes: &[u8]) {
        if let Some(idle) = &*self.idle.borrow() {
            idle.touch();
        }
        let mut state = self.state.borrow_mut();
        state.waiting.extend_from_slice(bytes);
        state.ended |= bytes.is_empty();
        if state.waiting.len() > LIMIT_WAITING_BYTES
            && let Some(token) = state.receiving
        {
            lp.cancel(token); // a pause: what was received meanwhile still comes
        }
        drop(state);
        self.go_on(lp);
    }

    /// Sends what waits, or reads on, or closes.
    fn go_on(self: &Rc<Self>, lp: &Loop) {
        let mut state = self.state.borrow_mut();
        if state.closing {
            return;
        }
        if !state.busy && !state.waiting.is_empty() {
            state.busy = true;
            let bytes = std::mem::take(&mut state.waiting);
            drop(state);
            return self.work(lp, bytes);
        }
        let (idle, ended) = (!state.busy && state.waiting.is_empty(), state.ended);
        let paused = state.receiving.is_none() && state.waiting.len() <= LIMIT_WAITING_BYTES;
        drop(state);
        if ended && idle {
            self.close(lp);
        } else if paused && !ended {
            self.receive(lp);
        }
    }

    /// Sends at once, or after some work elsewhere.
    fn work(self: &Rc<Self>, lp: &Loop, bytes: Vec<u8>) {
        let choice = self.random.borrow_mut().below(10);
        match choice {
            0..2 => {} // below
            2..5 => return self.try_send(lp, bytes),
            _ => return self.send(lp, bytes.into()),
        }
        let connection = Rc::clone(self);
        let work = move || bytes.iter().rev().copied().collect::<Vec<u8>>();
        let done = move |lp: &Loop, reversed: Result<Vec<u8>, _>| {
            let bytes: Vec<u8> = reversed.expect("it does not panic").into_iter().rev().collect();
            connection.send(lp, bytes.into());
        };
        lp.offload(work, done).expect("a simulated pool has room");
    }

    /// Sends what goes at once without an operation, and the rest with one.
    fn try_send(self: &Rc<Self>, lp: &Loop, bytes: Vec<u8>) {
        match lp.try_send(self.socket, &bytes) {
            Ok(sent) if sent == bytes.len() => {
                self.state.borrow_mut().busy = false;
                self.go_on(lp);
            }
            Ok(sent) => {
                let mut rest = Payload::from(bytes);
                rest.advance(sent);
                self.send(lp, rest);
            }
            Err(_) => self.close(lp),
        }
    }

    fn send(self: &Rc<Self>, lp: &Loop, payload: Payload) {
        if self.state.borrow().closing {
            return;
        }
        let operation = Operation::Send { socket: self.socket, payload };
        if let Submitted::Done(finished) = self.side.submit(lp, operation, self, SENT) {
            self.sent(lp, finished);
        }
    }

    fn sent(self: &Rc<Self>, lp: &Loop, finished: Finished) {
        let Ok(Outcome::Count(count)) = finished.result else { return self.close(lp) };
        let mut payload = finished.payload;
        assert!(count > 0 && count <= payload.len(), "{count} of {} bytes", payload.len());
        if count < payload.len() {
            payload.advance(count);
            return self.send(lp, payload);
        }
        self.state.borrow_mut().busy = false;
        self.go_on(lp);
    }

    fn close(self: &Rc<Self>, lp: &Loop) {
        if std::mem::replace(&mut self.state.borrow_mut().closing, true) {
            return;
        }
        drop(self.idle.take());
        let operation = Operation::Close { handle: self.socket };
        if let Submitted::Done(_) = self.side.submit(lp, operation, self, CLOSED) {
            self.closed();
        }
    }

    fn closed(&self) {
        self.count.set(self.count.get() - 1);
    }
}

impl Complete for Connection {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        self.side.note(&completion);
        let Completion { more, result, payload, .. } = completion;
        match tag {
            RECEIVED => {
                if !more {
                    self.state.borrow_mut().receiving = None;
                }
                match result {
                    Ok(Outcome::Lent(bytes)) => self.received(lp, &bytes),
                    Ok(other) => panic!("a receive gave {other:?}"),
                    Err(error) if error.raw_os_error() == Some(125) => self.go_on(lp), // ECANCELED
                    Err(_) => self.close(lp),
                }
            }
            SENT => self.sent(lp, Finished { result, payload }),
            _ => self.closed(),
        }
    }
}
