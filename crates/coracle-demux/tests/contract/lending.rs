//! Receives into space that a coroutine lends, by the shortest way (`await_receive`); and those of sockets that
//! are lent themselves, and their sends (`await_send`).
#![allow(unsafe_code)]

use crate::harness::{Harness, Submission, errno};
use coracle_demux::{
    Arrival, Awaited, Backend, Descriptor, Handle, Interest, Landed, Landing, Lease, Memory,
    Operation, Outcome, Payload, Space, Token,
};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Space and a landing as a parked coroutine has them: they are there until the receive is over, and nobody looks
/// at the space before.
pub(crate) struct Lender {
    pub(crate) bytes: &'static mut [u8],
    place: NonNull<Place>,
}

#[repr(C)]
pub(crate) struct Place {
    pub(crate) landing: Landing,
    /// How often its owner was told to go on.
    told: Cell<u32>,
}

impl Lender {
    pub(crate) fn new(len: usize) -> Lender {
        // Whatever happens, they are there.
        let bytes = Box::leak(vec![0; len].into_boxed_slice());
        let place = Place { landing: Landing::new(tell), told: Cell::new(0) };
        Lender { bytes, place: NonNull::from(Box::leak(Box::new(place))) }
    }

    fn lend(&mut self) -> Space {
        // SAFETY: it is never freed, and every case sees the end of its receive before it looks.
        unsafe { Space::borrowed(self.bytes) }.expect("it is not empty")
    }

    fn lend_landing(&self) -> Awaited {
        // SAFETY: it is never freed, every case sees the end of its receive before it lends it again, and this is
        // the pointer that `tell` expects.
        unsafe { Awaited::new(self.place.cast()) }
    }

    pub(crate) fn place(&self) -> &Place {
        // SAFETY: it is never freed, and only ever shared.
        unsafe { self.place.as_ref() }
    }

    /// Starts a receive, if the shortest way is open.
    fn await_receive(&mut self, h: &mut Harness, socket: Handle) -> bool {
        let (space, landing) = (self.lend(), self.lend_landing());
        h.demux.await_receive(socket, space, landing)
    }

    /// What comes of a receive in flight. Who awaits it is told once.
    pub(crate) fn finish(&self, h: &mut Harness, started: Started) -> io::Result<usize> {
        let submission = match started {
            Started::Submitted(submission) => submission,
            Started::Awaited => {
                let before = self.place().told.get();
                let landed = h.landed(&self.place().landing);
                assert_eq!(self.place().told.get(), before + 1);
                return match landed {
                    Landed::Count(count) => Ok(count),
                    Landed::Failed(code) => Err(io::Error::from_raw_os_error(code)),
                    Landed::Nothing => unreachable!("something has landed"),
                };
            }
        };
        h.finish(submission).result.map(|outcome| match outcome {
            Outcome::Count(count) => count,
            other => panic!("a receive does not give {other:?}"),
        })
    }
}

/// Counts that somebody was told.
///
/// # Safety
/// The landing is that of a [`Place`], and this is the pointer of that.
unsafe fn tell(landing: NonNull<Landing>) {
    // SAFETY: the landing is the first field of a `Place`, whose pointer this is.
    let told = unsafe { &landing.cast::<Place>().as_ref().told };
    told.set(told.get() + 1);
}

/// A receive in flight.
pub(crate) enum Started {
    Awaited,
    Submitted(Submission),
}

impl Started {
    /// Asks for its end.
    pub(crate) fn cancel(&self, h: &mut Harness, socket: Handle) {
        match self {
            Started::Awaited => h.demux.cancel_receive(socket),
            Started::Submitted(Submission::Pending(token)) => h.demux.cancel(*token),
            Started::Submitted(Submission::Done(_)) => {}
        }
    }
}

/// Starts a receive, in one way or the other, as a coroutine does.
pub(crate) fn start(h: &mut Harness, socket: Handle, lender: &mut Lender) -> Started {
    if lender.await_receive(h, socket) {
        return Started::Awaited;
    }
    let space = Memory::from(lender.lend());
    Started::Submitted(h.submit(Operation::Receive { socket, space }))
}

/// A connection on which a byte was received, so that a receive has nothing to do but to wait.
pub(crate) fn used_connection(h: &mut Harness) -> (Handle, Handle) {
    let (a, b) = h.connection();
    h.send_all(a, b"1");
    assert_eq!(h.receive(b, 8).unwrap(), b"1");
    (a, b)
}

/// A receive in flight that was started by the shortest way, where the backend has it; else by the other.
fn waiting(h: &mut Harness, socket: Handle, lender: &mut Lender) -> Started {
    let before = h.demux.in_flight();
    let started = start(h, socket, lender);
    let backend = h.demux.backend();
    let short = matches!(started, Started::Awaited);
    // The simulator takes the one or the other, as its seed says.
    let has_it = matches!(backend, Backend::Uring | Backend::Epoll);
    assert!(short == has_it || backend == Backend::Sim, "{backend}");
    assert_eq!(h.demux.in_flight(), before + 1);
    assert!(h.dump().contains("receive"), "{}", h.dump());
    started
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
        let started = start(h, b, &mut lender);
        if round % 2 == 1 {
            h.send_all(a, &message);
        }
        let received = lender.finish(h, started).unwrap();
        assert_eq!(lender.bytes[..received], message[..received]);
        assert_eq!(h.receive_exactly(b, message.len() - received), message[received..]);
    }
}

pub(crate) fn rule_06_lent_space_learns_the_end_of_the_stream(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    let started = waiting(h, b, &mut lender);
    h.close(a);
    assert_eq!(lender.finish(h, started).unwrap(), 0);
}

pub(crate) fn rule_04_cancelled_receive_leaves_lent_space_alone(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let (mut first, mut second) = (Lender::new(8), Lender::new(8));
    h.demux.cancel_receive(b); // there is none
    let old = waiting(h, b, &mut first);
    let in_flight = h.demux.in_flight();
    old.cancel(h, b);
    old.cancel(h, b);
    // Until it is taken, nobody is told, and it is in flight.
    assert_eq!(first.place().landing.take(), Landed::Nothing);
    assert_eq!(h.demux.in_flight(), in_flight);
    assert_eq!(errno(first.finish(h, old)), Errno::CANCELED.raw_os_error());
    let new = waiting(h, b, &mut second);
    h.send_all(a, b"ahoy");
    assert_eq!(second.finish(h, new).unwrap(), 4);
    assert_eq!(&second.bytes[..4], b"ahoy");
    assert_eq!(first.bytes, [0; 8], "it was its owner's again");
    h.demux.cancel_receive(b); // it is over
    assert_eq!(first.place().landing.take(), Landed::Nothing);
    assert_eq!(second.place().landing.take(), Landed::Nothing);
}

/// Bytes that are there when a cancel comes are received, or stay: none are lost.
pub(crate) fn rule_04_cancelled_receive_into_lent_space_loses_nothing(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    for round in 0..20u8 {
        let started = start(h, b, &mut lender);
        h.send_all(a, &[round; 3]);
        started.cancel(h, b);
        let received = match lender.finish(h, started) {
            Ok(count) => lender.bytes[..count].to_vec(),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
                Vec::new()
            }
        };
        let rest = h.receive_exactly(b, 3 - received.len());
        assert_eq!([received, rest].concat(), [round; 3]);
        // However late the cancel was, it does not strike the next one.
        let next = start(h, b, &mut lender);
        h.send_all(a, &[round]);
        assert_eq!(lender.finish(h, next).unwrap(), 1);
        assert_eq!(lender.bytes[0], round);
    }
}

pub(crate) fn rule_05_close_ends_a_receive_into_lent_space(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    let started = waiting(h, b, &mut lender);
    let close = h.submit(Operation::Close { handle: b }).token();
    match started {
        Started::Awaited => {
            match h.next_arrival() {
                Arrival::Landed(awaited) => awaited.go_on(),
                Arrival::Completion(completion) => panic!("the close was first: {completion:?}"),
            }
            let landed = lender.place().landing.take();
            assert_eq!(landed, Landed::Failed(Errno::CANCELED.raw_os_error()));
        }
        Started::Submitted(submission) => {
            let first = h.next();
            assert_eq!(first.token, submission.token());
            assert_eq!(errno(first.result), Errno::CANCELED.raw_os_error());
        }
    }
    assert_eq!(h.next().token, close);
    assert!(!lender.await_receive(h, b), "the name is stale");
    assert_eq!(h.receive(a, 8).unwrap(), b"", "the peer is told");
    assert_eq!(lender.bytes, [0; 8]);
}

pub(crate) fn rule_05_detach_waits_for_a_receive_into_lent_space(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    let started = waiting(h, b, &mut lender);
    assert_eq!(errno(h.demux.detach(b)), Errno::BUSY.raw_os_error());
    h.send_all(a, b"ahoy");
    assert_eq!(lender.finish(h, started).unwrap(), 4);
    let descriptor = h.demux.detach(b).unwrap();
    let b = h.demux.adopt(descriptor).unwrap();
    h.send_all(a, b"again");
    assert_eq!(h.receive_exactly(b, 5), b"again");
}

pub(crate) fn rule_07_second_receive_into_lent_space_is_refused(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let (mut first, mut second) = (Lender::new(8), Lender::new(8));
    let started = waiting(h, b, &mut first);
    assert!(!second.await_receive(h, b));
    let space = Memory::from(second.lend());
    let refused = h.run(Operation::Receive { socket: b, space });
    assert_eq!(errno(refused), Errno::ALREADY.raw_os_error());
    let refused = h.run(Operation::ReceiveLent { socket: b });
    assert_eq!(errno(refused), Errno::ALREADY.raw_os_error());
    h.send_all(a, b"mine");
    assert_eq!(first.finish(h, started).unwrap(), 4);
    assert_eq!(&first.bytes[..4], b"mine");
    assert_eq!(second.bytes, [0; 8]);
    let lent = h.submit(Operation::ReceiveLent { socket: b }).token();
    assert!(!second.await_receive(h, b), "somebody else receives");
    h.demux.cancel(lent);
    h.next_of(lent);
}

/// With something else that waits for the same descriptor.
pub(crate) fn rule_08_poll_and_send_do_not_disturb_a_receive_into_lent_space(h: &mut Harness) {
    let (a, b) = used_connection(h);
    let mut lender = Lender::new(8);
    for round in 0..20u8 {
        let poll = h.submit(Operation::Poll { handle: b, interest: Interest::READ }).token();
        let started = waiting(h, b, &mut lender);
        h.send_all(a, &[round]);
        assert_eq!(lender.finish(h, started).unwrap(), 1);
        assert_eq!(lender.bytes[0], round);
        h.demux.cancel(poll);
        h.next_of(poll);
    }
    let (send, before) = h.block_sender(b);
    let started = waiting(h, b, &mut lender);
    h.send_all(a, b"ahoy");
    assert_eq!(lender.finish(h, started).unwrap(), 4);
    assert_eq!(&lender.bytes[..4], b"ahoy");
    h.demux.cancel(send);
    let rest = match h.next_of(send).result {
        Ok(Outcome::Count(count)) => count,
        _ => 0,
    };
    h.receive_exactly(a, before + rest);
}

/// Connections with a receive in flight, for each of which a byte is there; one has been told, at least.
fn told_of_one(h: &mut Harness) -> Vec<(Handle, Lender, Started)> {
    let mut crowd = Vec::new();
    for _ in 0..80 {
        let (a, b) = used_connection(h);
        let mut lender = Lender::new(8);
        let started = waiting(h, b, &mut lender);
        crowd.push((a, b, lender, started));
    }
    for (index, (a, ..)) in crowd.iter().enumerate() {
        h.send_all(*a, &[index as u8]);
    }
    match h.next_arrival() {
        Arrival::Landed(awaited) => awaited.go_on(),
        Arrival::Completion(completion) => h.keep(completion),
    }
    crowd.into_iter().map(|(_, b, lender, started)| (b, lender, started)).collect()
}

impl Lender {
    /// What has landed, or lands next of all. `not_before`: what must not end before that.
    pub(crate) fn landed(&self, h: &mut Harness, not_before: Option<Token>) -> io::Result<usize> {
        loop {
            match self.place().landing.take() {
                Landed::Count(count) => return Ok(count),
                Landed::Failed(code) => return Err(io::Error::from_raw_os_error(code)),
                Landed::Nothing => {}
            }
            match h.next_arrival() {
                Arrival::Landed(awaited) => awaited.go_on(),
                Arrival::Completion(completion) => {
                    assert_ne!(Some(completion.token), not_before, "it ended before");
                    h.keep(completion);
                }
            }
        }
    }
}

pub(crate) fn rule_04_cancel_of_all_others_in_a_turn_loses_nothing_that_lands(h: &mut Harness) {
    let crowd = told_of_one(h);
    crowd.iter().for_each(|(b, _, started)| started.cancel(h, *b));
    for (index, (b, lender, started)) in crowd.into_iter().enumerate() {
        let received = match started {
            Started::Awaited => lender.landed(h, None),
            submitted @ Started::Submitted(_) => lender.finish(h, submitted),
        };
        match received {
            Ok(count) => assert_eq!((count, lender.bytes[0]), (1, index as u8)),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
                assert_eq!(h.receive_exactly(b, 1), [index as u8]);
            }
        }
    }
}

pub(crate) fn rule_05_close_of_all_others_in_a_turn_comes_after_their_landing(h: &mut Harness) {
    let crowd = told_of_one(h);
    let submit_close = |(b, lender, started)| {
        let close = h.submit(Operation::Close { handle: b });
        (lender, started, close)
    };
    let closing: Vec<(Lender, Started, Submission)> = crowd.into_iter().map(submit_close).collect();
    for (lender, started, close) in closing {
        let ended = match (started, &close) {
            (Started::Awaited, Submission::Pending(close)) => lender.landed(h, Some(*close)),
            (Started::Awaited, Submission::Done(_)) => match lender.place().landing.take() {
                Landed::Count(count) => Ok(count),
                other => panic!("it was closed before that landed: {other:?}"),
            },
            (submitted, _) => lender.finish(h, submitted),
        };
        assert!(matches!(ended, Ok(1)) || errno(ended) == Errno::CANCELED.raw_os_error());
        h.finish(close).result.unwrap();
    }
}

// --- Sockets of others -----------------------------------------------------------------------------------------

/// A connection of std's, whose second end is lent; it has received something, so that a receive has nothing to do
/// but to wait. None in the simulator, which has no descriptors of the system's, and says so.
fn lent_connection(h: &mut Harness) -> Option<(TcpStream, TcpStream, Handle)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    let handle = match h.demux.lend(b.as_fd()) {
        Ok(handle) => handle,
        Err(error) => {
            assert!(h.is_simulated(), "{error}");
            return None;
        }
    };
    a.write_all(b"1").unwrap();
    assert_eq!(h.receive_once(handle), b"1");
    Some((a, b, handle))
}

impl Harness {
    /// What one receive, as an operation of the table, finds.
    fn receive_once(&mut self, socket: Handle) -> Vec<u8> {
        let submission = self.submit(Operation::Receive { socket, space: vec![0; 8].into() });
        let finished = self.finish(submission);
        let Ok(Outcome::Count(count)) = finished.result else { panic!("{finished:?}") };
        finished.payload.into_vec()[..count].to_vec()
    }
}

/// Starts a receive by the shortest way, or as an operation of the table.
fn start_in_way(h: &mut Harness, short: bool, socket: Handle, lender: &mut Lender) -> Started {
    if short {
        return waiting(h, socket, lender);
    }
    let space = Memory::from(lender.lend());
    Started::Submitted(h.submit(Operation::Receive { socket, space }))
}

fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

pub(crate) fn rule_06_socket_that_is_lent_receives_and_stays_blocking(h: &mut Harness) {
    let Some((mut a, mut b, handle)) = lent_connection(h) else { return };
    let mut lender = Lender::new(8);
    for round in 0..20u8 {
        let started = start_in_way(h, round % 2 == 0, handle, &mut lender);
        a.write_all(&[round; 3]).unwrap();
        assert_eq!(lender.finish(h, started).unwrap(), 3);
        assert_eq!(lender.bytes[..3], [round; 3]);
    }
    let flags = rustix::fs::fcntl_getfl(&b).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    // What is its owner's to do is refused.
    let payload = Payload::from(b"ahoy".to_vec());
    for refused in [
        Operation::ReceiveLent { socket: handle },
        Operation::Accept { listener: handle },
        Operation::Send { socket: handle, payload },
    ] {
        assert_eq!(errno(h.run(refused)), Errno::BADF.raw_os_error());
    }
    h.demux.reclaim(handle);
    a.write_all(b"still").unwrap();
    let mut word = [0; 5];
    b.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"still");
}

pub(crate) fn rule_05_reclaim_ends_a_receive_of_a_lent_socket(h: &mut Harness) {
    for short in [true, false] {
        let Some((mut a, mut b, handle)) = lent_connection(h) else { return };
        let (mut lender, before) = (Lender::new(8), h.demux.in_flight());
        let started = start_in_way(h, short, handle, &mut lender);
        h.demux.reclaim(handle);
        assert_eq!(h.demux.in_flight(), before + 1, "until it is told");
        assert!(!Lender::new(8).await_receive(h, handle), "the name is stale");
        h.demux.reclaim(handle);
        h.demux.cancel_receive(handle);
        assert_eq!(errno(lender.finish(h, started)), Errno::CANCELED.raw_os_error());
        assert_eq!(h.demux.in_flight(), before);
        a.write_all(b"ahoy").unwrap();
        let mut word = [0; 4];
        b.read_exact(&mut word).unwrap();
        assert_eq!((&word, &lender.bytes[..]), (b"ahoy", &[0; 8][..]));
        // It may be lent anew.
        let handle = h.demux.lend(b.as_fd()).unwrap();
        a.write_all(b"again").unwrap();
        assert_eq!(h.receive_once(handle), b"again");
        h.demux.reclaim(handle);
    }
}

/// Bytes that are there when it is taken back are received, or stay.
pub(crate) fn rule_05_reclaimed_receive_loses_nothing(h: &mut Harness) {
    for round in 0..40u8 {
        let Some((mut a, mut b, handle)) = lent_connection(h) else { return };
        let mut lender = Lender::new(8);
        let started = start_in_way(h, round % 2 == 0, handle, &mut lender);
        a.write_all(&[round; 3]).unwrap();
        if round % 4 < 2 {
            h.demux.wait(Some(Duration::ZERO)).unwrap(); // what has come may be known, and is not taken yet
        }
        h.demux.reclaim(handle);
        let received = match lender.finish(h, started) {
            Ok(count) => count,
            Err(error) => {
                assert!(is_cancelled(&error), "{error}");
                0
            }
        };
        let mut word = lender.bytes[..received].to_vec();
        word.resize(3, 0);
        b.read_exact(&mut word[received..]).unwrap();
        assert_eq!(word, [round; 3]);
    }
}

/// A number that is another socket as soon as it is taken back: its bytes are not those of who waited before.
pub(crate) fn rule_05_number_of_a_reclaimed_socket_is_used_again(h: &mut Harness) {
    for round in 0..20 {
        let Some((_a, b, handle)) = lent_connection(h) else { return };
        let Some((mut c, d, other)) = lent_connection(h) else { return };
        h.demux.reclaim(other);
        c.write_all(b"ship").unwrap();
        let mut lender = Lender::new(8);
        let started = start_in_way(h, round % 2 == 0, handle, &mut lender);
        h.demux.reclaim(handle);
        let mut number = OwnedFd::from(b);
        rustix::io::dup2(&d, &mut number).unwrap();
        drop(d);
        let new = h.demux.lend(number.as_fd()).unwrap();
        let receiving = h.submit(Operation::Receive { socket: new, space: vec![0; 8].into() });
        assert_eq!(errno(lender.finish(h, started)), Errno::CANCELED.raw_os_error());
        assert_eq!(lender.bytes, [0; 8]);
        assert_eq!(&h.finish(receiving).payload.into_vec()[..4], b"ship");
        h.demux.reclaim(new);
    }
}

/// A demultiplexer that goes leaves the space of others alone from then on.
pub(crate) fn rule_04_end_of_everything_leaves_lent_space_alone(h: &mut Harness) {
    for (short, reclaim) in [(true, false), (true, true), (false, false), (false, true)] {
        let Some((mut a, mut b, handle)) = lent_connection(h) else { return };
        let mut lender = Lender::new(8);
        let _started = start_in_way(h, short, handle, &mut lender);
        if reclaim {
            h.demux.reclaim(handle);
        }
        *h = Harness::new(h.demux.backend());
        a.write_all(b"ahoy").unwrap();
        let mut word = [0; 4];
        b.read_exact(&mut word).unwrap();
        assert_eq!((&word, &lender.bytes[..]), (b"ahoy", &[0; 8][..]));
        assert_eq!(lender.place().told.get(), 0, "nobody goes on in a loop that is gone");
    }
}

impl Lender {
    /// Has these bytes sent with the others of a turn.
    fn await_send(&self, h: &mut Harness, socket: Handle, bytes: &'static [u8]) -> bool {
        h.demux.await_send(socket, Memory::from(bytes), self.lend_landing())
    }
}

/// How many sends are awaited in the turn that is going on.
fn awaited_sends(h: &Harness) -> usize {
    h.dump().matches("awaited: send").count()
}

pub(crate) fn rule_07_awaited_sends_go_together_and_are_told(h: &mut Harness) {
    let mut connections = Vec::new();
    for _ in 0..40 {
        let Some(connection) = lent_connection(h) else { return };
        connections.push((connection, Lender::new(1)));
    }
    let before = h.demux.in_flight();
    for ((_, _, handle), lender) in &connections {
        assert!(lender.await_send(h, *handle, b"ahoy"));
    }
    assert_eq!((awaited_sends(h), h.demux.in_flight()), (40, before + 40));
    assert!(h.demux.is_busy(), "they are told without a wait");
    for ((a, _, _), _) in &connections {
        a.set_nonblocking(true).unwrap();
        let early = (&mut &*a).read(&mut [0; 4]).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        a.set_nonblocking(false).unwrap();
    }
    for ((a, _, handle), lender) in &mut connections {
        assert_eq!((lender.landed(h, None).unwrap(), lender.place().told.get()), (4, 1));
        let mut word = [0; 4];
        a.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ahoy");
        h.demux.reclaim(*handle);
    }
    assert_eq!(h.demux.in_flight(), before);
    let flags = rustix::fs::fcntl_getfl(&connections[0].0.1).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    // To sockets of the demultiplexer's own this is not offered: they carry what is small.
    let (own, _peer) = h.connection();
    assert!(!Lender::new(1).await_send(h, own, b"ahoy"));
}

pub(crate) fn rule_07_awaited_send_finds_no_room_and_says_so(h: &mut Harness) {
    let Some((mut a, mut b, handle)) = lent_connection(h) else { return };
    let lender = Lender::new(1);
    b.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(count) = b.write(&[1; 4096]) {
        sent += count;
    }
    b.set_nonblocking(false).unwrap();
    assert!(lender.await_send(h, handle, b"ahoy"));
    assert_eq!(lender.finish(h, Started::Awaited).unwrap(), 0);
    let mut all = vec![0; sent];
    a.read_exact(&mut all).unwrap();
    // There is room, and nothing of the first was kept.
    assert!(lender.await_send(h, handle, b"ship"));
    assert_eq!(lender.finish(h, Started::Awaited).unwrap(), 4);
    let mut word = [0; 4];
    a.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"ship");
    // Who is gone is told as an error, and not by a signal.
    drop(a);
    let told = loop {
        assert!(lender.await_send(h, handle, b"gone"));
        match lender.finish(h, Started::Awaited) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let errors = [Errno::PIPE, Errno::CONNRESET].map(|errno| Some(errno.raw_os_error()));
    assert!(errors.contains(&told.raw_os_error()), "{told}");
    h.demux.reclaim(handle);
}

/// What was to be sent to a socket that is taken back goes there at once; if it is closed already, nowhere, even
/// if its number is another's then.
pub(crate) fn rule_05_reclaim_and_abandon_end_an_awaited_send(h: &mut Harness) {
    for abandon in [false, true] {
        let Some((mut a, b, handle)) = lent_connection(h) else { return };
        let Some((mut c, d, other)) = lent_connection(h) else { return };
        h.demux.reclaim(other);
        let (lender, before) = (Lender::new(1), h.demux.in_flight());
        assert!(lender.await_send(h, handle, b"ahoy"));
        if abandon {
            h.demux.abandon(handle);
        } else {
            h.demux.reclaim(handle);
        }
        assert!(!lender.await_send(h, handle, b"late"), "the name is stale");
        let mut number = OwnedFd::from(b);
        rustix::io::dup2(&d, &mut number).unwrap();
        let sent = lender.finish(h, Started::Awaited);
        match abandon {
            true => assert_eq!(errno(sent), Errno::CANCELED.raw_os_error()),
            false => assert_eq!(sent.unwrap(), 4),
        }
        assert_eq!(h.demux.in_flight(), before);
        drop((number, d));
        let (mut rest, mut nothing) = (Vec::new(), Vec::new());
        a.read_to_end(&mut rest).unwrap();
        c.read_to_end(&mut nothing).unwrap();
        let expected: &[u8] = if abandon { b"" } else { b"ahoy" };
        assert_eq!((&rest[..], &nothing[..]), (expected, &b""[..]));
    }
}

/// A number that somebody has closed, who has not told this demultiplexer yet, is not sent to.
pub(crate) fn rule_05_awaited_send_ends_with_its_lease(h: &mut Harness) {
    static CLOSES: AtomicU32 = AtomicU32::new(0);
    let Some((mut a, b, handle)) = lent_connection(h) else { return };
    let Some((_c, _d, other)) = lent_connection(h) else { return };
    let (lender, still) = (Lender::new(1), Lender::new(1));
    lender.place().landing.set_lease(Lease::new(&CLOSES));
    assert!(lender.await_send(h, handle, b"ahoy"));
    assert!(still.await_send(h, other, b"ahoy"));
    CLOSES.fetch_add(1, Ordering::Relaxed);
    let late = lender.landed(h, None).unwrap_err();
    assert!(is_cancelled(&late), "{late}");
    assert_eq!(still.landed(h, None).unwrap(), 4);
    h.demux.abandon(handle);
    drop(b);
    let mut rest = Vec::new();
    a.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    h.demux.reclaim(other);
}

/// Nor is it received from, though there was something when that was asked for.
pub(crate) fn rule_05_awaited_receive_ends_with_its_lease(h: &mut Harness) {
    static CLOSES: AtomicU32 = AtomicU32::new(0);
    let Some((mut a, mut b, handle)) = lent_connection(h) else { return };
    a.write_all(b"ahoy").unwrap();
    match h.demux.backend() {
        Backend::Uring => {}
        Backend::Epoll => h.demux.wait(Some(Duration::from_secs(60))).unwrap(),
        _ => return h.demux.reclaim(handle), // nothing is awaited in this way
    }
    assert!(h.demux.next().is_none(), "nobody waits for it");
    let mut lender = Lender::new(8);
    lender.place().landing.set_lease(Lease::new(&CLOSES));
    assert!(lender.await_receive(h, handle));
    CLOSES.fetch_add(1, Ordering::Relaxed);
    let late = lender.landed(h, None).unwrap_err();
    assert!(is_cancelled(&late), "{late}");
    h.demux.abandon(handle);
    let mut word = [0; 4];
    b.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"ahoy");
}

/// Who sends again and again leaves the others their turn: a receive of another kind, and a connection that waits.
pub(crate) fn rule_08_awaited_sends_starve_nobody(h: &mut Harness) {
    let mut senders = Vec::new();
    for _ in 0..40 {
        let Some(connection) = lent_connection(h) else { return };
        senders.push((connection, Lender::new(1)));
    }
    let mut connections = Vec::new();
    for _ in 0..4 {
        let Some((mut far, near, lent)) = lent_connection(h) else { return };
        h.demux.reclaim(lent);
        far.write_all(b"ahoy").unwrap();
        connections.push((far, h.demux.adopt(Descriptor::Os(near.into())).unwrap()));
    }
    let receive = |socket| Operation::Receive { socket, space: vec![0; 8].into() };
    let others: Vec<_> = connections.iter().map(|it| h.submit(receive(it.1))).collect();
    for ((_, _, handle), lender) in &senders {
        assert!(lender.await_send(h, *handle, b"1"));
    }
    let (mut told, mut completed) = (0, 0);
    while completed < others.len() {
        h.demux.wait(Some(Duration::from_millis(100))).unwrap();
        // As much as a loop takes in a turn: fewer than those who send, or more.
        for _ in 0..[30, 300][told % 2] {
            match h.demux.next_arrival() {
                Some(Arrival::Completion(completion)) => {
                    completed += 1;
                    h.keep(completion);
                }
                Some(Arrival::Landed(awaited)) => awaited.go_on(),
                None => break,
            }
            for ((_, _, handle), lender) in &senders {
                if let Landed::Count(1) = lender.place().landing.take() {
                    told += 1;
                    assert!(lender.await_send(h, *handle, b"1"));
                }
            }
        }
        assert!(told < 10_000, "after {told} sends, {completed} others had their turn");
    }
    for submission in others {
        assert!(matches!(h.finish(submission).result, Ok(Outcome::Count(4))));
    }
    for ((_, _, handle), lender) in &senders {
        if lender.landed(h, None).is_ok() {
            h.demux.reclaim(*handle);
        }
    }
}

/// A number that has become another socket without a word is found out; one that has not tells what it is ready
/// for, though that was told before.
pub(crate) fn rule_05_socket_that_was_replaced_is_not_confirmed(h: &mut Harness) {
    let Some((mut a, b, handle)) = lent_connection(h) else { return };
    a.write_all(b"ahoy").unwrap();
    let mut lender = Lender::new(8);
    for _ in 0..3 {
        h.demux.confirm(handle).unwrap();
        h.demux.wait(Some(Duration::from_millis(100))).unwrap();
    }
    h.demux.confirm(handle).unwrap();
    let started = start(h, handle, &mut lender);
    assert_eq!(lender.finish(h, started).unwrap(), 4);
    let Some((_c, d, other)) = lent_connection(h) else { return };
    h.demux.reclaim(other);
    let mut number = OwnedFd::from(b);
    rustix::io::dup2(&d, &mut number).unwrap();
    let confirmed = h.demux.confirm(handle);
    // poll and select know numbers only, and io_uring looks each of them up.
    assert_eq!(confirmed.is_err(), h.demux.backend() == Backend::Epoll, "{confirmed:?}");
    h.demux.abandon(handle);
    assert_eq!(errno(h.demux.confirm(handle)), Errno::BADF.raw_os_error(), "the name is stale");
}

/// A demultiplexer that goes reads the bytes of others no more, and tells nobody.
pub(crate) fn rule_04_end_of_everything_forgets_awaited_sends(h: &mut Harness) {
    for told in [false, true] {
        let Some((mut a, b, handle)) = lent_connection(h) else { return };
        let lender = Lender::new(1);
        assert!(lender.await_send(h, handle, b"ahoy"));
        if told {
            h.demux.flush(); // it is over, and nobody has taken it
        }
        *h = Harness::new(h.demux.backend());
        assert_eq!(lender.place().told.get(), 0, "nobody goes on in a loop that is gone");
        drop(b);
        let mut rest = Vec::new();
        a.read_to_end(&mut rest).unwrap();
        let expected: &[u8] = if told { b"ahoy" } else { b"" };
        assert_eq!(rest, expected);
    }
}
