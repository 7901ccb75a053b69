//! Small sends that leave with those of others: when one has returned, the kernel has had it, whatever comes next;
//! and who is cancelled or closed meanwhile is told so, and not somebody else.

use crate::harness::Harness;
use crate::helping::{number, pair, said};
use coracle_coro::{JoinHandle, sleep, spawn, yield_now};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::IntoRawFd;
use std::rc::Rc;
use std::time::Duration;

/// More than are received in a row, and more than one turn of any backend tells of.
const CROWD: usize = 100;

/// Two ends of a connection of which both have received something.
fn used_pair() -> io::Result<(TcpStream, TcpStream)> {
    let (near, far) = pair()?;
    for (mut from, mut to) in [(&far, &near), (&near, &far)] {
        from.write_all(b"1")?;
        assert_eq!(to.read(&mut [0; 8])?, 1);
    }
    Ok((near, far))
}

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
