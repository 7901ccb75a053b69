//! Echo on the loop alone: accept, receive, send, close, each an operation with a result.
//!
//! ```text
//! run:   cargo run -p coracle --example 01_echo_loop
//! type:  nc 127.0.0.1 7000        and whatever you like; Ctrl-C here ends it
//! ```
//!
//! A connection has one receive or one send in flight, never both, and one buffer that goes round between
//! them. So a peer that does not read its echo is not read from either, and nothing grows.

use coracle::Loop;
use coracle::demux::{Completion, Handle, Operation, Outcome, Payload, Submitted};
use std::{env, io, rc::Rc, time::Duration};

fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let lp = Loop::new()?; // io_uring if the kernel allows it, else epoll, …
    let listener = lp.listen(&address.parse()?, 128)?;
    println!("echo on {}, by {}", lp.local_address(listener)?, lp.backend());
    accept(&lp, listener);
    lp.on_terminate(Loop::stop)?; // Ctrl-C
    lp.run()
}

pub(crate) fn accept(lp: &Loop, listener: Handle) {
    let accepted = move |lp: &Loop, _tag: u32, completion: Completion| match completion.result {
        Ok(Outcome::Accepted(socket)) => {
            receive(lp, socket, vec![0; 4096]);
            if !completion.more {
                accept(lp, listener); // it may end without an error: ask again
            }
        }
        _ => {
            // Out of descriptors, most likely. Those who wait stay in the backlog.
            lp.after(Duration::from_millis(100), move |lp| accept(lp, listener));
        }
    };
    let submitted = lp.submit(Operation::Accept { listener }, &Rc::new(accepted), 0);
    assert!(matches!(submitted, Submitted::Pending(_)), "refused: {submitted:?}");
}

fn receive(lp: &Loop, socket: Handle, space: Vec<u8>) {
    let receive = Operation::Receive { socket, space: space.into() };
    lp.operate(receive, move |lp, finished| match finished.result {
        Ok(Outcome::Count(count)) if count > 0 => {
            let mut bytes = finished.payload.into_vec();
            bytes.truncate(count);
            send(lp, socket, bytes.into());
        }
        _ => close(lp, socket), // the end of the stream, or an error
    });
}

fn send(lp: &Loop, socket: Handle, payload: Payload) {
    lp.operate(Operation::Send { socket, payload }, move |lp, finished| {
        let mut payload = finished.payload;
        match finished.result {
            Ok(Outcome::Count(count)) if count < payload.len() => {
                payload.advance(count); // a short send: the rest
                send(lp, socket, payload);
            }
            Ok(_) => {
                let mut space = payload.into_vec(); // the same allocation, whole again
                space.resize(4096, 0);
                receive(lp, socket, space);
            }
            Err(_) => close(lp, socket),
        }
    });
}

fn close(lp: &Loop, socket: Handle) {
    lp.operate(Operation::Close { handle: socket }, |_, _| ());
}
