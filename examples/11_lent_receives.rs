//! The echo server on the loop alone, as fast as it gets: lent receives and tried sends.
//!
//! ```text
//! cargo run --release -p coracle --example 11_lent_receives -- --listen 127.0.0.1:7000 --backend epoll
//! ```
//!
//! A *lent* receive (`Operation::ReceiveLent`) is submitted once and completes again and again, each time with
//! bytes in a buffer of the loop's: an idle connection has no buffer. `Loop::try_send` sends them from there,
//! without giving them up. Only what does not fit at once is copied. It is what `coracle::net` does, without a
//! protocol on top, and the program by which the loop itself is measured. Each connection has at most one receive
//! and one send in flight:
//!
//! ```text
//!   lent bytes ──► try_send ──► all gone: nothing to remember
//!        │              └─ the rest ──► out, then send ──► sent ──► back to `out`: the allocation goes round
//!        └─ (a send is in flight) ──► waiting ─────────────┘
//! ```
//!
//! A peer that does not read its echo stops being read itself once `LIMIT_WAITING_BYTES` wait for it.

use coracle::demux::{
    Address, Backend, Completion, Finished, Handle, Operation, Outcome, Payload, SocketOption,
    Submitted, Token,
};
use coracle::{Complete, Loop};
use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// How many bytes may wait for a peer that does not read before it is not read either.
const LIMIT_WAITING_BYTES: usize = 64 << 10;

/// How long to leave new connections alone when there is no descriptor for them.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

fn main() -> io::Result<()> {
    let mut builder = Loop::builder();
    let mut address: Address = "127.0.0.1:7000".parse()?;
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--listen" => address = value.parse()?,
            "--backend" => builder = builder.backend(value.parse::<Backend>()?),
            _ => return Err(io::Error::other(format!("unknown option {name}"))),
        }
    }
    let lp = builder.build()?;
    let listener = lp.listen(&address, BACKLOG)?;
    Rc::new(Listener { listener }).accept(&lp);
    lp.on_terminate(Loop::stop)?;
    println!("echo on {}, by {}", lp.local_address(listener)?, lp.backend());
    lp.run()
}

struct Listener {
    listener: Handle,
}

impl Listener {
    fn accept(self: Rc<Self>, lp: &Loop) {
        let operation = Operation::Accept { listener: self.listener };
        if let Submitted::Done(Finished { result: Err(error), .. }) = lp.submit(operation, &self, 0)
        {
            eprintln!("cannot accept connections: {error}");
            lp.stop();
        }
    }
}

impl Complete for Listener {
    fn complete(self: Rc<Self>, lp: &Loop, _tag: u32, completion: Completion) {
        match completion.result {
            Ok(Outcome::Accepted(socket)) => Connection::open(lp, socket),
            Ok(other) => unreachable!("an accept does not give {other:?}"),
            Err(error) => {
                // Out of descriptors, most likely. Those who wait stay in the backlog.
                eprintln!("cannot accept: {error}; trying again in {ACCEPT_PAUSE:?}");
                lp.after(ACCEPT_PAUSE, move |lp| Rc::clone(&self).accept(lp));
                return;
            }
        }
        if !completion.more {
            self.accept(lp);
        }
    }
}

/// What a completion is about.
const RECEIVED: u32 = 0;
const SENT: u32 = 1;
const SHUT_DOWN: u32 = 2;
const CLOSED: u32 = 3;

struct Connection {
    socket: Handle,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// The receive in flight.
    receiving: Option<Token>,
    /// A send is in flight, and has `out`.
    sending: bool,
    /// What is being sent, or the empty allocation for the next time.
    out: Vec<u8>,
    /// What came while a send was in flight.
    waiting: Vec<u8>,
    /// The peer has sent everything: close once it has got everything.
    ended: bool,
    closing: bool,
}

impl Connection {
    fn open(lp: &Loop, socket: Handle) {
        // Echoes are small: send each at once. Unix sockets have no such option.
        let _ = lp.set_option(socket, SocketOption::NoDelay(true));
        let connection = Rc::new(Connection { socket, state: RefCell::default() });
        connection.receive(lp);
    }

    fn receive(self: &Rc<Self>, lp: &Loop) {
        let operation = Operation::ReceiveLent { socket: self.socket };
        match lp.submit(operation, self, RECEIVED) {
            Submitted::Pending(token) => self.state.borrow_mut().receiving = Some(token),
            Submitted::Done(_) => self.close(lp),
        }
    }

    /// The receive in flight is over: the stream has ended, or was paused, or it just has to be asked again.
    fn receive_ended(self: &Rc<Self>, lp: &Loop, result: io::Result<Outcome>) {
        self.state.borrow_mut().receiving = None;
        match result {
            Ok(Outcome::Lent(bytes)) if bytes.is_empty() => self.state.borrow_mut().ended = true,
            Ok(Outcome::Lent(bytes)) => self.received(lp, &bytes),
            Err(error) if is_cancelled(&error) => {}
            _ => return self.close(lp),
        }
        self.go_on(lp);
    }

    #[inline(always)]
    fn received(self: &Rc<Self>, lp: &Loop, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        if state.sending {
            state.waiting.extend_from_slice(bytes);
            let full = state.waiting.len() > LIMIT_WAITING_BYTES;
            if let Some(token) = state.receiving.filter(|_| full) {
                lp.cancel(token);
            }
            return;
        }
        match lp.try_send(self.socket, bytes) {
            Ok(sent) if sent == bytes.len() => {}
            Ok(sent) => {
                let mut out = std::mem::take(&mut state.out);
                drop(state);
                out.extend_from_slice(&bytes[sent..]);
                self.send(lp, out.into());
            }
            Err(_) => {
                drop(state);
                self.close(lp);
            }
        }
    }

    fn send(self: &Rc<Self>, lp: &Loop, payload: Payload) {
        self.state.borrow_mut().sending = true;
        let operation = Operation::Send { socket: self.socket, payload };
        if let Submitted::Done(finished) = lp.submit(operation, self, SENT) {
            self.sent(lp, finished);
        }
    }

    /// Takes in how much was sent, and sends the rest.
    fn sent(self: &Rc<Self>, lp: &Loop, finished: Finished) {
        let Ok(Outcome::Count(count)) = finished.result else { return self.close(lp) };
        let mut payload = finished.payload;
        if count < payload.len() {
            payload.advance(count);
            return self.send(lp, payload);
        }
        let mut state = self.state.borrow_mut();
        state.sending = false;
        state.out = payload.into_vec();
        state.out.clear();
        drop(state);
        self.go_on(lp);
    }

    /// Nothing is being sent: sends what has waited, or reads on, or closes.
    fn go_on(self: &Rc<Self>, lp: &Loop) {
        let state = self.state.borrow();
        let (ended, receiving) = (state.ended, state.receiving.is_some());
        if state.sending || state.closing {
            return;
        }
        let waiting = !state.waiting.is_empty();
        drop(state);
        if waiting {
            let waiting = std::mem::take(&mut self.state.borrow_mut().waiting);
            self.send(lp, waiting.into());
        } else if ended {
            self.shut_down(lp);
        } else if !receiving {
            self.receive(lp); // it was paused
        }
    }

    /// The peer is done and everything is on its way to it: closes once it is out.
    fn shut_down(self: &Rc<Self>, lp: &Loop) {
        let operation = Operation::Shutdown { socket: self.socket, how: Shutdown::Write };
        if let Submitted::Done(_) = lp.submit(operation, self, SHUT_DOWN) {
            self.close(lp);
        }
    }

    fn close(self: &Rc<Self>, lp: &Loop) {
        if std::mem::replace(&mut self.state.borrow_mut().closing, true) {
            return;
        }
        let operation = Operation::Close { handle: self.socket };
        let _ = lp.submit(operation, self, CLOSED);
    }
}

impl Complete for Connection {
    fn complete(self: Rc<Self>, lp: &Loop, tag: u32, completion: Completion) {
        let Completion { more, result, payload, .. } = completion;
        match (tag, result) {
            (RECEIVED, Ok(Outcome::Lent(bytes))) if more => {
                std::mem::forget(payload); // a completion that is not the last carries nothing
                self.received(lp, &bytes);
            }
            (RECEIVED, result) => self.receive_ended(lp, result),
            (SENT, result) => self.sent(lp, Finished { result, payload }),
            (SHUT_DOWN, _) => self.close(lp),
            _ => {} // closed: this was the last reference
        }
    }
}

fn is_cancelled(error: &io::Error) -> bool {
    const ECANCELED: i32 = 125;
    error.raw_os_error() == Some(ECANCELED)
}
