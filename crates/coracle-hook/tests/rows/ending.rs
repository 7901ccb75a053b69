//! Cancelling, deadlines, closing: whatever ends a wait, ends one in a hooked call.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, now};
use crate::helping::{Folder, number, pair, said, to_be_closed};
use coracle_coro::{JoinHandle, shield, spawn, timeout, yield_now};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A call that waits, by name. It may keep what it waits on.
type Call = (&'static str, Box<dyn FnOnce() -> Result<(), i32>>);

/// Calls that would wait for ever.
fn endless() -> io::Result<Vec<Call>> {
    fn call(name: &'static str, act: impl FnOnce() -> Result<(), i32> + 'static) -> Call {
        (name, Box::new(act))
    }
    let (near, far) = pair()?;
    // Not of TCP, where what is full now has room a moment later, when the peer's side of the kernel has taken it.
    let (full, unread) = UnixStream::pair()?;
    full.set_nonblocking(true)?;
    while (&full).write(&[0; 65536]).is_ok() {}
    full.set_nonblocking(false)?;
    let (reader, writer) = io::pipe()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let (polled, silent) = pair()?;
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
    let input = child.stdin.take();
    Ok(vec![
        call("recv", move || {
            let _far = far;
            number((&near).read(&mut [0; 8])).map(|_| ())
        }),
        call("send", move || {
            let _unread = unread;
            // What was under way may have arrived meanwhile, and then there is room again.
            loop {
                number((&full).write(&[0; 65536]))?;
            }
        }),
        call("read of a pipe", move || {
            let _writer = writer;
            number((&reader).read(&mut [0; 8])).map(|_| ())
        }),
        call("accept", move || number(listener.accept()).map(|_| ())),
        call("recvfrom", move || number(udp.recv_from(&mut [0; 8])).map(|_| ())),
        call("poll", move || {
            let _silent = silent;
            let mut list =
                [libc::pollfd { fd: polled.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            // SAFETY: a list of one.
            said(unsafe { libc::poll(list.as_mut_ptr(), 1, -1) }).map(|_| ())
        }),
        call("waitpid", move || {
            let ended = number(child.wait()).map(|_| ());
            drop(input);
            coracle_coro::shield(HOUR, || child.wait()).expect("it ends");
            ended
        }),
    ])
}

pub(crate) fn s10_cancel_reaches_hooked_calls(h: &Harness) {
    h.run(|| {
        let calls: Vec<(&str, JoinHandle<_>)> =
            endless()?.into_iter().map(|(name, call)| (name, spawn(call))).collect();
        coracle_coro::sleep(3 * MS)?;
        for (name, waiting) in calls {
            assert!(!waiting.is_finished(), "{name} did not wait");
            waiting.cancel();
            assert_eq!(waiting.join().expect(name), Err(ECANCELED), "{name}");
        }
        Ok(())
    });
}

pub(crate) fn s10_cancelled_before_the_call(h: &Harness) {
    let folder = Folder::new();
    let path = folder.0.join("file");
    h.run(move || {
        let running = endless()?.into_iter().take(6).map(|(name, call)| {
            let coroutine = spawn(move || {
                let _ = coracle_coro::park(); // until it is cancelled
                call()
            });
            yield_now();
            coroutine.cancel();
            (name, coroutine)
        });
        for (name, coroutine) in running.collect::<Vec<_>>() {
            assert_eq!(coroutine.join().expect(name), Err(ECANCELED), "{name}");
        }
        // What does not wait is not refused.
        let other = spawn(move || -> io::Result<()> {
            let _ = coracle_coro::park();
            std::fs::write(&path, b"fine")?;
            assert_eq!(std::fs::read(&path)?, b"fine");
            let (near, far) = shield(HOUR, pair)?;
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            (&near).write_all(b"fine")?;
            coracle_coro::shield(HOUR, || coracle_coro::sleep(MS))?;
            (&far).read_exact(&mut [0; 4])
        });
        yield_now();
        other.cancel();
        other.join().expect("the other")
    });
}

pub(crate) fn s16_deadlines_reach_hooked_calls(h: &Harness) {
    h.run(|| {
        let running: Vec<_> = endless()?
            .into_iter()
            .map(|(name, call)| (name, spawn(move || timeout(5 * MS, call))))
            .collect();
        for (name, one) in running {
            assert_eq!(one.join().expect(name), Err(ETIMEDOUT), "{name}");
        }
        Ok(())
    });
}

/// std takes any error of a sleep but EINTR for a bug: it ends early, and the next wait fails.
pub(crate) fn s10_cancelled_sleep_ends_early(h: &Harness) {
    h.run(|| {
        let begin = now();
        let (near, _far) = pair()?;
        let sleeping = spawn(move || {
            thread::sleep(HOUR);
            thread::sleep(HOUR);
            number((&near).read(&mut [0; 8])).map(|_| ())
        });
        coracle_coro::sleep(MS)?;
        sleeping.cancel();
        assert_eq!(sleeping.join().expect("it sleeps"), Err(ECANCELED));
        timeout(5 * MS, || thread::sleep(HOUR));
        assert!(now() - begin < HOUR);
        Ok(())
    });
}

pub(crate) fn s10_cancelled_look_up(h: &Harness) {
    h.run(|| {
        let looking = spawn(|| {
            let _ = coracle_coro::park();
            number(("localhost", 9).to_socket_addrs().map(|_| ()))
        });
        yield_now();
        looking.cancel();
        assert_eq!(looking.join().expect("it looks"), Err(ECANCELED));
        Ok(())
    });
}

/// A cancel that finds a part sent leaves the part told, and strikes the next call.
pub(crate) fn s10_part_of_a_write_is_told(h: &Harness) {
    h.run(|| {
        let (near, far) = pair()?;
        let writing = spawn(move || {
            let first = number((&near).write(&vec![0; 64 << 20]));
            (first, number((&near).write(b"more")))
        });
        coracle_coro::sleep(5 * MS)?;
        writing.cancel();
        let (first, second) = writing.join().expect("it writes");
        assert!(first.is_ok_and(|count| count > 0 && count < 64 << 20), "{first:?}");
        assert_eq!(second, Err(ECANCELED));
        drop(far);
        Ok(())
    });
}

/// Clean-up does its I/O in a shield.
pub(crate) fn s10_shield_around_a_hooked_call(h: &Harness) {
    h.run(|| {
        let (near, mut far) = pair()?;
        let cleaning = spawn(move || {
            let cancelled = number((&near).read(&mut [0; 8])).map(|_| ());
            shield(HOUR, || {
                (&near).write_all(b"bye").expect("write");
                let mut space = [0; 2];
                (&near).read_exact(&mut space).expect("read");
                (cancelled, space)
            })
        });
        yield_now();
        cleaning.cancel();
        let mut space = [0; 3];
        far.read_exact(&mut space)?;
        far.write_all(b"ok")?;
        assert_eq!(cleaning.join().expect("it cleans"), (Err(ECANCELED), *b"ok"));
        Ok(())
    });
}

pub(crate) fn s31_close_wakes_who_waits(h: &Harness) {
    h.run(|| {
        let (near, _far) = pair()?;
        let fd = near.into_raw_fd();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                spawn(move || {
                    // SAFETY: space for a byte.
                    said(unsafe { libc::recv(fd, [0_u8; 1].as_mut_ptr().cast(), 1, 0) } as i64)
                })
            })
            .collect();
        coracle_coro::sleep(MS)?;
        assert!(waiting.iter().all(|one| !one.is_finished()));
        // SAFETY: it is ours, and its users are told.
        assert_eq!(unsafe { libc::close(fd) }, 0);
        for one in waiting {
            assert_eq!(one.join().expect("it waits"), Err(libc::EBADF));
        }
        Ok(())
    });
}

/// The number may be in use again before the one who waited has had its turn: nobody is confused.
pub(crate) fn s31_number_that_is_used_again(h: &Harness) {
    h.run(|| {
        for _ in 0..20 {
            let (near, _far) = pair()?;
            let fd = near.into_raw_fd();
            let old = spawn(move || {
                // SAFETY: space for a byte.
                said(unsafe { libc::recv(fd, [0_u8; 1].as_mut_ptr().cast(), 1, 0) } as i64)
            });
            coracle_coro::sleep(MS)?;
            let (fresh, other) = pair()?;
            // SAFETY: both are ours: the old one is closed by it.
            assert_eq!(unsafe { libc::dup2(fresh.as_raw_fd(), fd) }, fd);
            drop(fresh);
            let new = spawn(move || {
                let mut space = [0_u8; 1];
                // SAFETY: space for a byte.
                let answer =
                    said(unsafe { libc::recv(fd, space.as_mut_ptr().cast(), 1, 0) } as i64);
                (answer, space[0])
            });
            assert_eq!(old.join().expect("the old one"), Err(libc::EBADF));
            (&other).write_all(b"x")?;
            assert_eq!(new.join().expect("the new one"), (Ok(1), b'x'));
            // SAFETY: it is ours.
            assert_eq!(unsafe { libc::close(fd) }, 0);
        }
        Ok(())
    });
}

pub(crate) fn s31_close_from_another_thread(h: &Harness) {
    h.run(|| {
        for _ in 0..10 {
            let (near, _far) = pair()?;
            let fd = to_be_closed(near);
            let waiting = spawn(move || {
                // SAFETY: space for a byte.
                said(unsafe { libc::recv(fd, [0_u8; 1].as_mut_ptr().cast(), 1, 0) } as i64)
            });
            coracle_coro::sleep(MS)?;
            // SAFETY: it is ours, and its users are told.
            let closing = thread::spawn(move || unsafe { libc::close(fd) });
            assert_eq!(waiting.join().expect("it waits"), Err(libc::EBADF));
            assert_eq!(closing.join().expect("a thread"), 0);
            // The loop goes on.
            let (mut one, mut other) = pair()?;
            let echo = spawn(move || other.read(&mut [0; 4]).expect("read"));
            yield_now();
            one.write_all(b"ab")?;
            assert_eq!(echo.join().expect("echo"), 2);
        }
        Ok(())
    });
}

/// `off`, `no_park` and a panic: the call is libc's own, and nobody else runs.
pub(crate) fn s33_hooks_can_be_switched_off(h: &Harness) {
    h.run(|| {
        let ran = Rc::new(Cell::new(0));
        let counter = Rc::clone(&ran);
        let other = spawn(move || counter.set(counter.get() + 1));
        coracle_hook::off(|| thread::sleep(2 * MS));
        coracle_coro::no_park(|| thread::sleep(2 * MS));
        assert_eq!(ran.get(), 0, "another ran");
        coracle_hook::off(|| {
            // SAFETY: there is no reason why it is off.
            unsafe { coracle_hook::on(|| thread::sleep(2 * MS)) };
        });
        assert_eq!(ran.get(), 1, "no other ran");
        other.join().expect("the other");
        Ok(())
    });
}

/// Has a destructor that waits: it is told whether others have run meanwhile, and what has come of it.
struct Waits {
    others: Rc<Cell<bool>>,
    pipe: (io::PipeReader, io::PipeWriter),
    seen: Rc<Cell<Option<(bool, usize)>>>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut writer = self.pipe.1.try_clone().expect("a copy");
        // The bytes come when we wait already, or soon after: both is a plain blocking read.
        let writing = thread::spawn(move || {
            thread::sleep(5 * MS);
            writer.write_all(b"ahoy").expect("write");
        });
        thread::sleep(MS);
        let read = self.pipe.0.read(&mut [0; 8]).unwrap_or(0);
        writing.join().expect("the thread");
        self.seen.set(Some((self.others.get(), read)));
    }
}

/// While a panic unwinds, calls are what they are without hooks: nobody else runs, and they do what they should.
pub(crate) fn s53_nobody_is_parked_while_unwinding(h: &Harness) {
    h.run(|| {
        let (others, seen) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
        let waits = Waits { others: Rc::clone(&others), pipe: io::pipe()?, seen: Rc::clone(&seen) };
        let panicking = spawn(move || {
            let _waits = waits;
            panic!("on purpose");
        });
        let other = spawn(move || others.set(true));
        assert!(panicking.join().is_err());
        other.join().expect("the other");
        assert_eq!(seen.get(), Some((false, 4)));
        Ok(())
    });
}

/// One that is parked in a call has its own panics; so has the one that panics meanwhile.
pub(crate) fn s53_panic_while_others_are_parked(h: &Harness) {
    h.run(|| {
        let (mut near, mut far) = pair()?;
        let reading = spawn(move || near.read(&mut [0; 4]).expect("read"));
        yield_now();
        let panicking = spawn(|| {
            thread::sleep(MS);
            panic!("on purpose")
        });
        assert!(panicking.join().is_err());
        far.write_all(b"fine")?;
        assert_eq!(reading.join().expect("it reads"), 4);
        Ok(())
    });
}

/// Two waits of plain threads and of coroutines on one listening socket, which is blocking for both.
pub(crate) fn s32_listener_shared_with_a_thread(h: &Harness) {
    const ROUNDS: usize = 100;
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = listener.try_clone()?;
        let threads = thread::spawn(move || {
            let mut count = 0;
            // The end is told by a connection that says so.
            loop {
                let (mut stream, _) = shared.accept().expect("accept in a thread");
                let mut word = [0; 1];
                stream.read_exact(&mut word).expect("read");
                if word == [b'q'] {
                    return count;
                }
                count += 1;
                stream.write_all(b"t").expect("write");
            }
        });
        let coroutine = spawn(move || {
            loop {
                let (mut stream, _) = listener.accept().expect("accept in a coroutine");
                let mut word = [0; 1];
                stream.read_exact(&mut word).expect("read");
                if word == [b'q'] {
                    return;
                }
                stream.write_all(b"c").expect("write");
            }
        });
        for _ in 0..ROUNDS {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(b"?")?;
            stream.read_exact(&mut [0; 1])?;
        }
        for _ in 0..2 {
            TcpStream::connect(address)?.write_all(b"q")?;
        }
        coroutine.join().expect("the coroutine");
        coracle_coro::offload(move || threads.join().expect("the thread"))?;
        Ok(())
    });
}

/// A socket of std's that was waited for becomes one of the loop's, and the other way round, and back.
pub(crate) fn s32_sockets_change_their_owner(h: &Harness) {
    use coracle_coro::net;
    h.run(|| {
        for _ in 0..5 {
            let (near, far) = pair()?;
            let echo = spawn(move || {
                let mut space = [0; 4];
                (&far).read_exact(&mut space).expect("read");
                (&far).write_all(&space).expect("write");
                (&far).read_exact(&mut space).expect("read");
                let mut far = net::TcpStream::from_std(far).expect("the loop takes it");
                far.write_all(&space).expect("write");
                far.read_exact(&mut space).expect("read");
                let far = far.into_std().expect("the loop gives it back");
                (&far).write_all(&space).expect("write");
                (&far).read(&mut space).expect("the end")
            });
            for word in [b"one.", b"two.", b"end."] {
                (&near).write_all(word)?;
                let mut back = [0; 4];
                (&near).read_exact(&mut back)?;
                assert_eq!(&back, word);
            }
            let near = net::TcpStream::from_std(near)?;
            drop(near); // closed by the loop
            assert_eq!(echo.join().expect("echo"), 0);
        }
        Ok(())
    });
}
