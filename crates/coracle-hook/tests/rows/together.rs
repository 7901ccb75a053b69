//! Small sends that leave with those of others: when one has returned, the kernel has had it, whatever comes next;
//! and who is cancelled or closed meanwhile is told so, and not somebody else.

use crate::harness::Harness;
use crate::helping::{number, said, used_pair};
use coracle_coro::{JoinHandle, sleep, spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::rc::Rc;
use std::time::Duration;

/// More than are received in a row, and more than one turn of any backend tells of.
const CROWD: usize = 100;

/// Coroutines that are all ready in one turn, and each do the same with a connection; the other ends.
fn crowd<T: 'static>(
    act: impl Fn(&mut TcpStream) -> T + Copy + 'static,
) -> io::Result<Vec<(TcpStream, JoinHandle<T>)>> {
    let mut all = Vec::new();
    for _ in 0..CROWD {
        let (mut near, far) = used_pair()?;
        all.push((far, spawn(move || act(&mut near))));
    }
    Ok(all)
}

/// What was sent comes before the end that the same coroutine sends next, by a call that nobody hooks.
pub(crate) fn s32_small_send_is_with_the_kernel_when_it_returns(h: &Harness) {
    h.run(|| {
        let all = crowd(|near| {
            for word in [&b"one "[..], b"two ", b"three"] {
                near.write_all(word)?;
            }
            near.shutdown(Shutdown::Write)?;
            near.read(&mut [0; 8])
        })?;
        for (mut far, sending) in all {
            let mut said = String::new();
            far.read_to_string(&mut said)?;
            assert_eq!(said, "one two three");
            far.write_all(b"ahoy")?;
            assert_eq!(sending.join().expect("it sends")?, 4);
        }
        Ok(())
    });
}

/// A crowd that is answered in turns, and does not mix up its answers.
pub(crate) fn s32_small_sends_of_many_stay_apart(h: &Harness) {
    h.run(|| {
        let all = crowd(|near| {
            let (mut word, mut rounds) = ([0; 8], 0);
            while let count @ 1.. = near.read(&mut word)? {
                near.write_all(&word[..count])?;
                rounds += 1;
            }
            io::Result::Ok(rounds)
        })?;
        for round in 0..20_u8 {
            for (index, (far, _)) in all.iter().enumerate() {
                (&mut &*far).write_all(&[round, index as u8])?;
            }
            for (index, (far, _)) in all.iter().enumerate() {
                let mut answer = [0; 2];
                (&mut &*far).read_exact(&mut answer)?;
                assert_eq!(answer, [round, index as u8]);
            }
        }
        for (far, sending) in all {
            far.shutdown(Shutdown::Write)?;
            assert!(sending.join().expect("it sends")? >= 20);
        }
        Ok(())
    });
}

/// A send for which there is no room waits for it, and is told whole.
pub(crate) fn s32_small_send_waits_for_room(h: &Harness) {
    const LEN: usize = 8 << 20;
    h.run(|| {
        let (mut near, mut far) = used_pair()?;
        let sent = Rc::new(Cell::new(0));
        let count = Rc::clone(&sent);
        let sending = spawn(move || {
            while count.get() < LEN {
                count.set(count.get() + near.write(&[7; 4000])?);
                yield_now(); // there are others in its turn
            }
            io::Result::Ok(())
        });
        let mut before = usize::MAX;
        while before != sent.get() || before == 0 {
            before = sent.get();
            sleep(Duration::from_millis(20))?;
        }
        assert!((1..LEN).contains(&before), "it is stuck");
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes)?;
        sending.join().expect("it sends")?;
        assert_eq!(bytes.len(), sent.get());
        assert!(bytes.iter().all(|&byte| byte == 7));
        Ok(())
    });
}

/// Whoever is closed before the turn is over is told `EBADF`, or has sent; its bytes are nobody else's.
pub(crate) fn s31_close_of_small_sends(h: &Harness) {
    h.run(|| {
        for _ in 0..10 {
            let (near, mut far) = used_pair()?;
            let fd = near.into_raw_fd();
            // SAFETY: a number, and bytes that are always there.
            let sending =
                spawn(
                    move || said(unsafe { libc::send(fd, c"ahoy".as_ptr().cast(), 4, 0) } as i64),
                );
            let closing = spawn(move || {
                // SAFETY: it is ours, and its users are told.
                said(unsafe { libc::close(fd) })
            });
            let stranger = spawn(used_pair);
            assert_eq!(closing.join().expect("it closes"), Ok(0));
            let (one, other) = stranger.join().expect("another")?;
            let sent = sending.join().expect("it sends");
            let mut rest = Vec::new();
            far.read_to_end(&mut rest)?;
            match sent {
                Ok(4) => assert_eq!(rest, b"ahoy"),
                other => assert_eq!((other, &rest[..]), (Err(libc::EBADF), &b""[..])),
            }
            for mut stranger in [&one, &other] {
                stranger.set_nonblocking(true)?;
                assert_eq!(number(stranger.read(&mut [0; 8])), Err(libc::EAGAIN));
            }
        }
        Ok(())
    });
}

/// A cancel that comes while a send is under way does not undo it: it strikes the next wait.
pub(crate) fn s10_cancel_of_small_sends(h: &Harness) {
    h.run(|| {
        for _ in 0..10 {
            let (mut near, mut far) = used_pair()?;
            let sending = spawn(move || {
                let sent = number(near.write(b"ahoy"));
                (sent, number(near.read(&mut [0; 8])))
            });
            let other = spawn(|| ());
            yield_now(); // it has begun
            sending.cancel();
            let (sent, then) = sending.join().expect("it sends");
            other.join().expect("the other");
            let mut rest = Vec::new();
            far.read_to_end(&mut rest)?;
            assert_eq!(then, Err(libc::ECANCELED));
            match sent {
                Ok(4) => assert_eq!(rest, b"ahoy"),
                other => assert_eq!((other, &rest[..]), (Err(libc::ECANCELED), &b""[..])),
            }
        }
        Ok(())
    });
}

/// Where a backend has rows, these sends are in one: what is tested here is that.
pub(crate) fn s32_small_sends_wait_for_their_row(h: &Harness) {
    h.run(|| {
        let (mut near, mut far) = used_pair()?;
        let (fd, lp) = (near.as_raw_fd(), Loop::current().expect("a loop"));
        let sending = spawn(move || number(near.write(b"ahoy")));
        let other = spawn(|| ());
        yield_now();
        let dump = lp.dump();
        let rows = matches!(lp.backend(), Backend::Uring | Backend::Epoll);
        let line = format!("awaited: send on descriptor {fd}");
        assert_eq!((dump.contains(&line), sending.is_finished()), (rows, !rows), "{dump}");
        assert_eq!(sending.join().expect("it sends"), Ok(4));
        other.join().expect("the other");
        let mut word = String::new();
        far.read_to_string(&mut word)?;
        assert_eq!(word, "ahoy");
        Ok(())
    });
}

/// A number that becomes another's after its send has found no room, and before that is told: the bytes are not
/// for the other.
pub(crate) fn s31_number_that_changes_when_there_is_no_room(h: &Harness) {
    h.run(|| {
        let (mut full, _reader) = used_pair()?;
        full.set_nonblocking(true)?;
        while full.write(&[1; 4096]).is_ok() {}
        full.set_nonblocking(false)?;
        let (stranger, mut peer) = used_pair()?;
        let (mut near, _far) = used_pair()?;
        let (fd, begun) = (full.into_raw_fd(), Rc::new(Cell::new(false)));
        let seen = Rc::clone(&begun);
        let changing = spawn(move || {
            near.write_all(b"first in the row, and told first")?;
            while !seen.get() {
                yield_now(); // where there are no rows
            }
            // SAFETY: numbers.
            io::Result::Ok(said(unsafe { libc::dup2(stranger.as_raw_fd(), fd) }))
        });
        let sending = spawn(move || {
            begun.set(true);
            // SAFETY: a number, and bytes that are always there.
            said(unsafe { libc::send(fd, c"ahoy".as_ptr().cast(), 4, 0) } as i64)
        });
        assert_eq!(changing.join().expect("it changes")?, Ok(i64::from(fd)));
        assert_eq!(sending.join().expect("it sends"), Err(libc::EBADF));
        // SAFETY: it is ours.
        assert_eq!(said(unsafe { libc::close(fd) }), Ok(0));
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest)?;
        assert_eq!(rest, b"");
        Ok(())
    });
}

/// Who wants no wait lets nobody run, whether its socket is known from birth or not.
pub(crate) fn s32_nonblocking_sends_let_nobody_run(h: &Harness) {
    h.run(|| {
        for copied in [false, true] {
            let (mut near, mut far) = used_pair()?;
            let copy = if copied { Some(near.try_clone()?) } else { None };
            near.set_nonblocking(true)?;
            far.write_all(b"1")?;
            while number(near.read(&mut [0; 8])) != Ok(1) {
                yield_now();
            }
            let others = Rc::new(Cell::new(0));
            let count = Rc::clone(&others);
            let other = spawn(move || count.set(1));
            near.write_all(b"ahoy")?;
            assert_eq!(others.get(), 0, "another coroutine ran meanwhile");
            other.join().expect("the other");
            drop((near, copy));
            let mut word = String::new();
            far.read_to_string(&mut word)?;
            assert_eq!(word, "ahoy");
        }
        Ok(())
    });
}

/// A peer that is gone is an error of whose send it was.
pub(crate) fn s32_small_send_to_nobody_is_an_error(h: &Harness) {
    h.run(|| {
        let all = crowd(|near| {
            loop {
                match number(near.write(b"ahoy")) {
                    Ok(4) => yield_now(),
                    other => return other,
                }
            }
        })?;
        let (gone, still): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|it| it.0 % 2 == 0);
        let gone = gone.into_iter().map(|(_, (far, sending))| (drop(far), sending).1);
        for sending in gone.collect::<Vec<_>>() {
            let error = sending.join().expect("it sends").expect_err("nobody is there");
            assert!([libc::EPIPE, libc::ECONNRESET].contains(&error), "{error}");
        }
        assert!(still.iter().all(|(_, (_, sending))| !sending.is_finished()));
        still.into_iter().for_each(|(_, (far, _))| drop(far));
        Ok(())
    });
}
