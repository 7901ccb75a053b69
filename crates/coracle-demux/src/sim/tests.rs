//! What the simulated kernel promises beyond the contract, and what it promises of the contract.
//!
//! Facts that hold whatever the seed run on a kind kernel and on a few dozen unkind ones ([`on_kernels`]).
//! `model.rs` has the two that need hundreds: a stream is complete and in order, no operation is lost.

mod clock;
mod datagrams;
mod model;
mod objects;
mod streams;

use super::{Faults, Kernel, SimDemux};
use crate::memory::{Memory, Payload};
use crate::operation::{Completion, Finished, Handle, Operation, Outcome, Submitted, Token};
use crate::socket::SocketKind;
use crate::{Address, Demux};
use std::io;

/// Runs `test` without faults, and with the default ones for a few seeds.
fn on_kernels(test: impl Fn(&mut Rig)) {
    test(&mut Rig::new(Kernel::with_faults(0, Faults::none())));
    for seed in 0..40 {
        test(&mut Rig::new(Kernel::new(seed)));
    }
}

/// A kernel, one demultiplexer, and the completions nobody has asked for yet.
struct Rig {
    kernel: Kernel,
    demux: SimDemux,
    kept: Vec<Completion>,
}

impl Rig {
    fn new(kernel: Kernel) -> Rig {
        Rig { demux: kernel.demux(), kernel, kept: Vec::new() }
    }

    fn kind() -> Rig {
        Rig::new(Kernel::with_faults(0, Faults::none()))
    }

    /// Submits an operation that has to be waited for.
    fn start(&mut self, operation: Operation) -> Token {
        match self.demux.submit(operation) {
            Submitted::Pending(token) => token,
            Submitted::Done(finished) => panic!("finished at once: {:?}", finished.result),
        }
    }

    /// Submits an operation and sees it through.
    fn run(&mut self, operation: Operation) -> Finished {
        match self.demux.submit(operation) {
            Submitted::Done(finished) => finished,
            Submitted::Pending(token) => {
                let completion = self.take(token);
                assert!(!completion.more);
                Finished { result: completion.result, payload: completion.payload }
            }
        }
    }

    fn result(&mut self, operation: Operation) -> io::Result<Outcome> {
        self.run(operation).result
    }

    fn errno(&mut self, operation: Operation) -> rustix::io::Errno {
        errno(&self.result(operation).expect_err("the operation was to fail"))
    }

    /// The next completion of an operation, waiting for it.
    fn take(&mut self, token: Token) -> Completion {
        loop {
            if let Some(at) = self.kept.iter().position(|kept| kept.token == token) {
                return self.kept.remove(at);
            }
            self.demux.wait(None).unwrap();
            self.kept.extend(std::iter::from_fn(|| self.demux.next()));
        }
    }

    /// Lets happen what can happen by itself.
    fn settle(&mut self) {
        loop {
            while let Some(completion) = self.demux.next() {
                self.kept.push(completion);
            }
            if !self.kernel.advance_to_next_event() && self.demux.next().is_none() {
                return;
            }
        }
    }

    fn listener(&mut self, kind: SocketKind, at: &str) -> (Handle, Address) {
        let listener = self.demux.socket(kind).unwrap();
        self.demux.bind(listener, &at.parse().unwrap()).unwrap();
        self.demux.listen(listener, 16).unwrap();
        (listener, self.demux.local_address(listener).unwrap())
    }

    /// A connected client and the server's end of it.
    fn connection(&mut self, kind: SocketKind, at: &str) -> (Handle, Handle) {
        let (listener, address) = self.listener(kind, at);
        let client = self.demux.socket(kind).unwrap();
        self.result(Operation::Connect { socket: client, address }).unwrap();
        let accept = self.start(Operation::Accept { listener });
        let completion = self.take(accept);
        let Outcome::Accepted(server) = completion.result.unwrap() else { panic!("not accepted") };
        self.close(listener);
        (client, server)
    }

    fn tcp(&mut self) -> (Handle, Handle) {
        self.connection(SocketKind::Tcp4, "127.0.0.1:0")
    }

    fn send_all(&mut self, socket: Handle, bytes: &[u8]) {
        let mut payload = Payload::from(bytes.to_vec());
        while !payload.is_empty() {
            let sent = self.run(Operation::Send { socket, payload });
            payload = sent.payload;
            payload.advance(count(sent.result));
        }
    }

    /// One receive: what came, empty at the end of the stream.
    fn receive(&mut self, socket: Handle) -> io::Result<Vec<u8>> {
        let finished = self.run(Operation::Receive { socket, space: space(256) });
        let mut bytes = finished.payload.into_vec();
        bytes.truncate(match finished.result? {
            Outcome::Count(count) => count,
            other => panic!("a receive counts, and not {other:?}"),
        });
        Ok(bytes)
    }

    /// Everything up to the end of the stream or an error.
    fn receive_all(&mut self, socket: Handle) -> (Vec<u8>, io::Result<()>) {
        let mut all = Vec::new();
        loop {
            match self.receive(socket) {
                Ok(bytes) if bytes.is_empty() => return (all, Ok(())),
                Ok(bytes) => all.extend(bytes),
                Err(error) => return (all, Err(error)),
            }
        }
    }

    fn close(&mut self, handle: Handle) {
        self.result(Operation::Close { handle }).unwrap();
    }
}

fn space(bytes: usize) -> Memory {
    Memory::from(vec![0; bytes])
}

fn count(result: io::Result<Outcome>) -> usize {
    match result.unwrap() {
        Outcome::Count(count) => count,
        other => panic!("not a count: {other:?}"),
    }
}

fn errno(error: &io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).expect("an error of the operating system")
}
