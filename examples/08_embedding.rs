//! A loop inside another loop: the host sleeps in its own poll(2) and gives this one a turn when it has
//! something to do.
//!
//! ```text
//! run:   cargo run -p coracle --example 08_embedding
//! ```
//!
//! So a program that has a main loop already (a user interface, a game, a C library) can have a server in
//! it, on the same thread. It ends by itself. Needs a backend with a descriptor: io_uring or epoll.

use coracle::Loop;
use coracle::demux::{Operation, Outcome, Payload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::Duration;

fn main() -> io::Result<()> {
    let lp = Loop::new()?;
    let (a, b) = lp.socket_pair()?;

    // Something for the loop to do: a message after 20 ms, and its answer.
    lp.operate(Operation::Receive { socket: b, space: vec![0; 16].into() }, move |lp, finished| {
        println!("received {:?}", finished.result);
        let mut bytes = finished.payload.into_vec();
        if let Ok(Outcome::Count(count)) = finished.result {
            bytes.truncate(count);
        }
        lp.operate(Operation::Send { socket: b, payload: bytes.into() }, |_, finished| {
            println!("answered {:?}", finished.result);
        });
    });
    lp.after(Duration::from_millis(20), move |lp| {
        let payload = Payload::from(b"ahoy".to_vec());
        lp.operate(Operation::Send { socket: a, payload }, |_, _| println!("sent"));
    });

    // The host's loop. Here it ends with the work; a real one has work of its own.
    while !lp.is_idle() {
        sleep(&lp)?;
        lp.run_ready()?; // a turn that does not wait
    }
    println!("nothing is left to do");
    Ok(())
}

/// The host's own wait, for its descriptors and for the loop's.
fn sleep(lp: &Loop) -> io::Result<()> {
    let timeout = lp.timeout().and_then(|timeout| Timespec::try_from(timeout).ok());
    lp.descriptor(|descriptor| {
        let Some(descriptor) = descriptor else {
            return Err(io::Error::other(format!("{} has no descriptor", lp.backend())));
        };
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        poll(&mut descriptors, timeout.as_ref())?;
        Ok(())
    })
}
