//! Receives into space that a coroutine lends, by the shortest way (`receive_later`).
#![allow(unsafe_code)]

use crate::harness::{Harness, Submission, count, errno};
use coracle_demux::{Backend, Handle, Interest, Memory, Operation, Outcome, Space, Token};
use rustix::io::Errno;

/// Space as a parked coroutine has it: it is there until the receive is over, and nobody looks at it before.
struct Lender {
    bytes: &'static mut [u8],
}

impl Lender {
    fn new(len: usize) -> Lender {
        Lender { bytes: Box::leak(vec![0; len].into_boxed_slice()) } // whatever happens, it is there
    }

    fn lend(&mut self) -> Space {
        // SAFETY: it is never freed, and every case sees the end of its receive before it looks.
        unsafe { Space::borrowed(self.bytes) }.expect("it is not empty")
    }
}

/// Starts a receive, in one way or the other, as a coroutine does. Says whether it was the shortest.
fn start(h: &mut Harness, socket: Handle, lender: &mut Lender) -> (Submission, bool) {
    match h.demux.receive_later(socket, lender.lend()) {
        Some(token) => (Submission::Pending(token), true),
        None => {
            let space = Memory::from(lender.lend());
            (h.submit(Operation::Receive { socket, space }), false)
        }
    }
}

/// A connection on which a byte was received, so that a receive has nothing to do but to wait.
fn used_connection(h: &mut Harness) -> (Handle, Handle) {
    let (a, b) = h.connection();
    h.send_all(a, b"1");
    assert_eq!(h.receive(b, 8).unwrap(), b"1");
    (a, b)
}

/// A receive in flight that was started by the shortest way, where the backend has it; else by the other.
fn waiting(h: &mut Harness, socket: Handle, lender: &mut Lender) -> Token {
    let (submission, short) = start(h, socket, lender);
    let backend = h.demux.backend();
    assert_eq!(short, matches!(backend, Backend::Uring | Backend::Epoll), "{backend}");
    submission.token()
}

pub(crate) fn rule_06_lent_space_is_filled_however_the_receive_was_started(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    for round in 0..50u8 {
        // Once it is waited for, and once it is there before; now and then it fills all the space.
        let message = vec![round; if round % 5 == 0 { 8 } else { 3 }];
        if round % 2 == 0 {
            h.send_all(a, &message);
        }
        let (submission, _) = start(h, b, &mut lender);
        if round % 2 == 1 {
            h.send_all(a, &message);
        }
        let received = count(h.finish(submission).result);
        assert_eq!(lender.bytes[..received], message[..received]);
        assert_eq!(h.receive_exactly(b, message.len() - received), message[received..]);
    }
}

pub(crate) fn rule_06_lent_space_learns_the_end_of_the_stream(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    let receive = waiting(h, b, &mut lender);
    h.close(a);
    let completion = h.next_of(receive);
    assert!(!completion.more);
    assert_eq!(count(completion.result), 0);
}

pub(crate) fn rule_04_cancelled_receive_leaves_lent_space_alone(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let (mut first, mut second) = (Lender::new(8), Lender::new(8));
    let old = waiting(h, b, &mut first);
    h.demux.cancel(old);
    let completion = h.next_of(old);
    assert!(!completion.more);
    assert_eq!(errno(completion.result), Errno::CANCELED.raw_os_error());
    let new = waiting(h, b, &mut second);
    h.demux.cancel(old); // which is stale
    h.send_all(a, b"ahoy");
    assert_eq!(count(h.next_of(new).result), 4);
    assert_eq!(&second.bytes[..4], b"ahoy");
    assert_eq!(first.bytes, [0; 8], "it was its owner's again");
}

pub(crate) fn rule_05_close_ends_a_receive_into_lent_space(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    let receive = waiting(h, b, &mut lender);
    let close = h.submit(Operation::Close { handle: b }).token();
    let first = h.next();
    assert_eq!(first.token, receive);
    assert_eq!(errno(first.result), Errno::CANCELED.raw_os_error());
    assert_eq!(h.next().token, close);
    assert!(h.demux.receive_later(b, lender.lend()).is_none(), "the name is stale");
    assert_eq!(h.receive(a, 8).unwrap(), b"", "the peer is told");
    assert_eq!(lender.bytes, [0; 8]);
}

pub(crate) fn rule_07_second_receive_into_lent_space_is_refused(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let (mut first, mut second) = (Lender::new(8), Lender::new(8));
    let receive = waiting(h, b, &mut first);
    assert!(h.demux.receive_later(b, second.lend()).is_none());
    let space = Memory::from(second.lend());
    let refused = h.run(Operation::Receive { socket: b, space });
    assert_eq!(errno(refused), Errno::ALREADY.raw_os_error());
    h.send_all(a, b"mine");
    assert_eq!(count(h.next_of(receive).result), 4);
    assert_eq!(&first.bytes[..4], b"mine");
    assert_eq!(second.bytes, [0; 8]);
}

/// With something else that waits for the same descriptor.
pub(crate) fn rule_08_poll_and_send_do_not_disturb_a_receive_into_lent_space(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    for round in 0..20u8 {
        let poll = h.submit(Operation::Poll { handle: b, interest: Interest::READ }).token();
        let receive = waiting(h, b, &mut lender);
        h.send_all(a, &[round]);
        assert_eq!(count(h.next_of(receive).result), 1);
        assert_eq!(lender.bytes[0], round);
        h.demux.cancel(poll);
        h.next_of(poll);
    }
    let (send, before) = h.block_sender(b);
    let receive = waiting(h, b, &mut lender);
    h.send_all(a, b"ahoy");
    assert_eq!(count(h.next_of(receive).result), 4);
    assert_eq!(&lender.bytes[..4], b"ahoy");
    h.demux.cancel(send);
    let rest = match h.next_of(send).result {
        Ok(Outcome::Count(count)) => count,
        _ => 0,
    };
    h.receive_exactly(a, before + rest);
}
