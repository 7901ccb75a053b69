//! Receives that a coroutine waits for, where there is nothing to do but to wait: cancelled, closed, taken over by
//! another, disturbed by a signal, and gone with their loop. Whatever ends one, its space is its owner's again.

use crate::harness::{ECANCELED, Harness};
use crate::helping::{apart, number, pair, said, to_be_closed, used_pair};
use coracle_coro::{JoinHandle, spawn, spawn_on, timeout, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Space that is never given back, so that one may look at it after its receive is over.
#[derive(Clone, Copy)]
struct Room(usize);

impl Room {
    const BYTES: usize = 8;

    fn new() -> Room {
        Room(Box::leak(Box::new([0_u8; Room::BYTES])).as_mut_ptr().expose_provenance())
    }

    /// recv(2).
    fn receive(self, fd: i32) -> Result<i64, i32> {
        let space = std::ptr::with_exposed_provenance_mut(self.0);
        // SAFETY: it is never freed, and nobody looks at it before this is over.
        said(unsafe { libc::recv(fd, space, Room::BYTES, 0) } as i64)
    }

    fn bytes(self) -> [u8; Room::BYTES] {
        // SAFETY: it is never freed.
        unsafe { std::ptr::with_exposed_provenance::<[u8; Room::BYTES]>(self.0).read_volatile() }
    }
}

/// A coroutine that waits for bytes of `fd`.
fn receiving(fd: i32) -> (Room, JoinHandle<Result<i64, i32>>) {
    let room = Room::new();
    let waiting = spawn(move || room.receive(fd));
    yield_now();
    assert!(!waiting.is_finished(), "it waits");
    (room, waiting)
}

fn close(fd: i32) {
    // SAFETY: it is ours, and its users are told.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// Where a backend has a shortest way, hooked receives take it: what is tested here is that.
pub(crate) fn s32_receive_waits_by_the_shortest_way(h: &Harness) {
    h.run(|| {
        let (near, far) = used_pair()?;
        let (room, waiting) = receiving(near.as_raw_fd());
        let lp = Loop::current().expect("a loop");
        let line = format!("awaited: receive on descriptor {}", near.as_raw_fd());
        let short = matches!(lp.backend(), Backend::Uring | Backend::Epoll);
        assert_eq!(lp.dump().contains(&line), short, "{}", lp.dump());
        (&far).write_all(b"ahoy")?;
        assert_eq!(waiting.join().expect("it reads"), Ok(4));
        assert_eq!(&room.bytes()[..4], b"ahoy");
        Ok(())
    });
}

pub(crate) fn s10_cancelled_receive_leaves_its_space_alone(h: &Harness) {
    h.run(|| {
        for _ in 0..20 {
            let (near, far) = used_pair()?;
            let (room, waiting) = receiving(near.as_raw_fd());
            waiting.cancel();
            assert_eq!(waiting.join().expect("it waits"), Err(ECANCELED));
            (&far).write_all(b"ahoy")?;
            let mut word = [0; 4];
            (&near).read_exact(&mut word)?;
            assert_eq!((&word, room.bytes()), (b"ahoy", [0; 8]));
        }
        Ok(())
    });
}

/// Bytes that come with a cancel are received, or stay.
pub(crate) fn s10_cancelled_receive_loses_nothing(h: &Harness) {
    h.run(|| {
        let (near, far) = used_pair()?;
        for round in 0..40_u8 {
            let (room, waiting) = receiving(near.as_raw_fd());
            (&far).write_all(&[round; 3])?;
            if round % 2 == 0 {
                coracle_coro::sleep(MS)?;
            }
            waiting.cancel();
            let received = match waiting.join().expect("it waits") {
                Ok(count) => count as usize,
                error => {
                    assert_eq!(error, Err(ECANCELED));
                    0
                }
            };
            let mut word = room.bytes()[..received].to_vec();
            word.resize(3, 0);
            (&near).read_exact(&mut word[received..])?;
            assert_eq!(word, [round; 3]);
        }
        Ok(())
    });
}

/// Of several at one socket, one is cancelled after the other; the last has what comes.
pub(crate) fn s10_cancelled_one_of_several_at_one_socket(h: &Harness) {
    h.run(|| {
        let (near, far) = used_pair()?;
        let mut all: Vec<_> = (0..4).map(|_| receiving(near.as_raw_fd())).collect();
        for index in [0, 1, 0] {
            let (room, one) = all.remove(index);
            one.cancel();
            assert_eq!((one.join().expect("it waits"), room.bytes()), (Err(ECANCELED), [0; 8]));
        }
        let (room, last) = all.remove(0);
        yield_now();
        (&far).write_all(b"ahoy")?;
        assert_eq!(last.join().expect("it reads"), Ok(4));
        assert_eq!(&room.bytes()[..4], b"ahoy");
        Ok(())
    });
}

pub(crate) fn s31_closed_receives_leave_their_space_alone(h: &Harness) {
    h.run(|| {
        for _ in 0..20 {
            let (near, far) = used_pair()?;
            let fd = near.into_raw_fd();
            let all: Vec<_> = (0..3).map(|_| receiving(fd)).collect();
            close(fd);
            let _ = (&far).write(b"to nobody");
            for (room, waiting) in all {
                let seen = (waiting.join().expect("it waits"), room.bytes());
                assert_eq!(seen, (Err(libc::EBADF), [0; 8]));
            }
        }
        Ok(())
    });
}

/// Bytes that are there when it is closed are received, or it is told `EBADF`.
pub(crate) fn s31_close_when_bytes_have_come(h: &Harness) {
    h.run(|| {
        for round in 0..20 {
            let (near, far) = used_pair()?;
            let fd = near.into_raw_fd();
            let (room, waiting) = receiving(fd);
            (&far).write_all(b"ahoy")?;
            if round % 2 == 0 {
                yield_now();
            }
            close(fd);
            let (ended, bytes) = (waiting.join().expect("it waits"), room.bytes());
            if ended == Ok(4) {
                assert_eq!(&bytes[..4], b"ahoy");
            } else {
                assert_eq!((ended, bytes), (Err(libc::EBADF), [0; 8]));
            }
        }
        Ok(())
    });
}

/// The same with a time-out of the socket's, for which there is another way.
pub(crate) fn s31_close_of_a_receive_with_a_time_out(h: &Harness) {
    h.run(|| {
        for round in 0..10 {
            let (near, far) = used_pair()?;
            near.set_read_timeout(Some(MS))?;
            let fd = near.as_raw_fd();
            assert_eq!(Room::new().receive(fd), Err(libc::EAGAIN));
            near.set_read_timeout(Some(600_000 * MS))?;
            let (room, waiting) = receiving(near.into_raw_fd());
            if round % 2 == 0 {
                (&far).write_all(b"ahoy")?;
            }
            close(fd);
            match waiting.join().expect("it waits") {
                Ok(count) => assert_eq!((count, &room.bytes()[..4]), (4, &b"ahoy"[..])),
                error => assert_eq!((error, room.bytes()), (Err(libc::EBADF), [0; 8])),
            }
        }
        Ok(())
    });
}

/// Who waits behind another, and whose time is over when it is woken to be the next, is told so nevertheless.
pub(crate) fn s32_time_out_of_who_is_the_next(h: &Harness) {
    const TIME: Duration = Duration::from_millis(400);
    h.run(|| {
        let (near, far) = pair()?;
        near.set_read_timeout(Some(TIME))?;
        let fd = apart(near); // a copy, of which nothing is known
        (&far).write_all(b"1")?;
        assert_eq!(Room::new().receive(fd), Ok(1));
        let begin = Instant::now();
        let first = spawn(move || Room::new().receive(fd));
        yield_now();
        let next = spawn(move || timeout(60_000 * MS, || Room::new().receive(fd)));
        coracle_coro::sleep(TIME / 3)?; // the kernel was asked meanwhile
        (&far).write_all(b"1")?;
        // In one turn, the first receives and wakes the next, and it is late.
        coracle_hook::off(|| thread::sleep((TIME + 50 * MS).saturating_sub(begin.elapsed())));
        let (first, next) = (first.join().expect("the first"), next.join().expect("the next"));
        if first == Ok(1) {
            assert_eq!(next, Err(libc::EAGAIN));
        } // else the machine is too slow for this
        assert!(begin.elapsed() < 30_000 * MS, "it was told by the time-out around it");
        close(fd);
        Ok(())
    });
}

/// A number that becomes another socket, which has bytes already: who waited before does not get them.
pub(crate) fn s31_number_with_bytes_takes_the_place_of_another(h: &Harness) {
    h.run(|| {
        for _ in 0..20 {
            let (near, _far) = used_pair()?;
            let fd = near.into_raw_fd();
            let (room, old) = receiving(fd);
            let (fresh, peer) = used_pair()?;
            (&peer).write_all(b"ship")?;
            // SAFETY: both are ours: the old one is closed by it.
            assert_eq!(unsafe { libc::dup2(fresh.as_raw_fd(), fd) }, fd);
            drop(fresh);
            let new_room = Room::new();
            assert_eq!(new_room.receive(fd), Ok(4));
            assert_eq!(&new_room.bytes()[..4], b"ship");
            assert_eq!((old.join().expect("it waits"), room.bytes()), (Err(libc::EBADF), [0; 8]));
            // And who waits on it now is told as well.
            let (room, waiting) = receiving(fd);
            close(fd);
            let _ = (&peer).write(b"to nobody");
            let seen = (waiting.join().expect("it waits"), room.bytes());
            assert_eq!(seen, (Err(libc::EBADF), [0; 8]));
        }
        Ok(())
    });
}

pub(crate) fn s31_used_socket_is_closed_by_another_thread(h: &Harness) {
    h.run(|| {
        for _ in 0..10 {
            let (near, far) = used_pair()?;
            let fd = to_be_closed(near);
            (&far).write_all(b"1")?; // it is used under this number, too
            assert_eq!(Room::new().receive(fd), Ok(1));
            let all: Vec<_> = (0..2).map(|_| receiving(fd)).collect();
            let closing = thread::spawn(move || close(fd));
            for (room, waiting) in all {
                let seen = (waiting.join().expect("it waits"), room.bytes());
                assert_eq!(seen, (Err(libc::EBADF), [0; 8]));
            }
            closing.join().expect("a thread");
            let _ = (&far).write(b"to nobody");
        }
        Ok(())
    });
}

/// What the peer ends, and what is ended here, is the end of the stream.
pub(crate) fn s32_ends_of_the_stream_are_told_to_who_waits(h: &Harness) {
    h.run(|| {
        for round in 0..6 {
            let (near, far) = used_pair()?;
            let (room, waiting) = receiving(near.as_raw_fd());
            match round % 3 {
                0 => near.shutdown(Shutdown::Read)?,
                1 => far.shutdown(Shutdown::Write)?,
                _ => drop(far),
            }
            assert_eq!((waiting.join().expect("it reads"), room.bytes()), (Ok(0), [0; 8]));
            assert_eq!(number((&near).read(&mut [0; 8])), Ok(0));
        }
        Ok(())
    });
}

/// Signals whose handlers do nothing, while somebody waits: nobody hears of them.
pub(crate) fn s32_signals_do_not_disturb_who_waits(h: &Harness) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a handler that does nothing, without SA_RESTART: calls that wait end with EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    h.run(|| {
        let (near, far) = used_pair()?;
        // SAFETY: no arguments.
        let (process, this) = unsafe { (libc::getpid(), libc::gettid()) };
        for _ in 0..5 {
            let (room, waiting) = receiving(near.as_raw_fd());
            let far = far.try_clone()?;
            let sending = thread::spawn(move || {
                for _ in 0..20 {
                    // SAFETY: numbers; the thread is there until this one is joined.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, this, libc::SIGUSR2) };
                    thread::yield_now();
                }
                (&far).write_all(b"ahoy").expect("write");
            });
            assert_eq!(waiting.join().expect("it reads"), Ok(4));
            assert_eq!(&room.bytes()[..4], b"ahoy");
            sending.join().expect("a thread");
        }
        Ok(())
    });
}

/// A loop that is dropped while one of its coroutines receives: the kernel has its hands off the space from then
/// on, and the socket is as good as before, on another loop, too.
pub(crate) fn s10_loop_is_dropped_with_a_receive_in_flight(h: &Harness) {
    let (near, far) = pair().expect("a pair");
    let (fd, room, lp) = (near.as_raw_fd(), Room::new(), h.another_loop());
    let waits = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&waits);
    (&far).write_all(b"1").expect("write");
    let lost = spawn_on(&lp.handle(), move || {
        assert_eq!(Room::new().receive(fd), Ok(1));
        tells.store(true, Ordering::Relaxed);
        room.receive(fd)
    })
    .expect("a loop");
    while !waits.load(Ordering::Relaxed) {
        lp.run_ready().expect("a turn");
    }
    for _ in 0..3 {
        lp.run_ready().expect("a turn");
    }
    assert!(!lost.is_finished(), "it waits");
    drop(lp);
    (&far).write_all(b"ahoy").expect("write");
    let mut word = [0; 4];
    (&near).read_exact(&mut word).expect("read");
    assert_eq!((&word, room.bytes()), (b"ahoy", [0; 8]));
    h.run(move || {
        let (other, waiting) = receiving(fd);
        (&far).write_all(b"ship")?;
        assert_eq!(waiting.join().expect("it reads"), Ok(4));
        assert_eq!(&other.bytes()[..4], b"ship");
        drop(near);
        Ok(())
    });
}

/// Sockets come and go, in many coroutines, and their numbers are those of others soon: nobody is told of
/// something that is not his.
pub(crate) fn s31_numbers_go_round(h: &Harness) {
    const ROUNDS: u32 = 40;
    const CREW: u32 = 6;
    h.run(|| {
        let sailors = (0..CREW).map(|me| {
            spawn(move || {
                for round in 0..ROUNDS {
                    one_round(me as u8 + 1, (me + round * 7) % 6).expect("a round");
                }
            })
        });
        for sailor in sailors.collect::<Vec<_>>() {
            sailor.join().expect("a sailor");
        }
        Ok(())
    });
}

/// A socket, somebody who waits on it, and an end.
fn one_round(me: u8, end: u32) -> io::Result<()> {
    let (near, far) = used_pair()?;
    let fd = near.as_raw_fd();
    let (room, waiting) = receiving(fd);
    if end.is_multiple_of(2) {
        yield_now();
    }
    let near = Rc::new(near);
    let expected = match end {
        0 => {
            (&far).write_all(&[me; 4])?;
            Ok(4)
        }
        1 => {
            waiting.cancel();
            Err(ECANCELED)
        }
        2 => {
            drop(near);
            Err(libc::EBADF)
        }
        3 => {
            drop(far);
            Ok(0)
        }
        4 => {
            near.shutdown(Shutdown::Read)?;
            Ok(0)
        }
        _ => {
            let (fresh, peer) = used_pair()?;
            (&peer).write_all(&[me; 4])?;
            // SAFETY: both are ours: the old one is closed by it.
            assert_eq!(unsafe { libc::dup2(fresh.as_raw_fd(), fd) }, fd);
            let mut word = [0; 4];
            (&*near).read_exact(&mut word)?;
            assert_eq!(word, [me; 4]);
            Err(libc::EBADF)
        }
    };
    let seen = waiting.join().expect("it waits");
    assert_eq!(seen, expected, "end {end}");
    let came = if seen == Ok(4) { [me, me, me, me, 0, 0, 0, 0] } else { [0; 8] };
    assert_eq!(room.bytes(), came, "end {end}");
    Ok(())
}
