//! Corners of what calls mean: errors after a part, descriptors in the middle, numbers that change under a wait.

use crate::harness::{ECANCELED, HOUR, Harness};
use crate::helping::{
    Folder, apart, as_in_a_thread, number, pair, receive_with_descriptor, said,
    send_with_descriptor,
};
use coracle_coro::{spawn, timeout, yield_now};
use libc::{c_char, c_int, hostent};
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::ptr::null_mut;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

// SAFETY: as libc has them.
unsafe extern "C" {
    fn gethostbyname(name: *const c_char) -> *mut hostent;
    fn gethostbyname_r(
        name: *const c_char,
        place: *mut hostent,
        space: *mut c_char,
        len: usize,
        found: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int;
    safe fn __h_errno_location() -> *mut c_int;
}

/// What will never be there is told at once.
pub(crate) fn s32_accept_where_nobody_comes(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let (near, _far) = pair().expect("a pair");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (reader, _writer) = io::pipe().expect("a pipe");
        [near.as_raw_fd(), udp.as_raw_fd(), reader.as_raw_fd()].map(|fd| {
            // SAFETY: a descriptor of ours, and nobody asks who comes.
            said(unsafe { libc::accept(fd, std::ptr::null_mut(), std::ptr::null_mut()) })
        })
    });
    assert_eq!(seen, [Err(libc::EINVAL), Err(libc::EOPNOTSUPP), Err(libc::ENOTSOCK)]);
}

/// Descriptors that come with a later part of a message are not lost.
pub(crate) fn s32_descriptors_with_a_later_part(h: &Harness) {
    h.run(|| {
        let (near, far) = UnixStream::pair()?;
        let (mut reader, writer) = io::pipe()?;
        let receiving = spawn(move || {
            let mut space = [0_u8; 8];
            let (got, passed) = receive_with_descriptor(&far, &mut space);
            (got, space, passed)
        });
        yield_now();
        (&near).write_all(b"ahoy")?;
        coracle_coro::sleep(3 * MS)?;
        let mut parts = [libc::iovec { iov_base: b"crew".as_ptr().cast_mut().cast(), iov_len: 4 }];
        // SAFETY: bytes that are always there.
        let sent = unsafe { send_with_descriptor(&near, &mut parts, &writer) };
        assert_eq!(sent, Ok(4));
        let (got, space, passed) = receiving.join().expect("it receives");
        assert_eq!((got, &space), (Ok(8), b"ahoycrew"));
        drop(writer);
        io::PipeWriter::from(passed).write_all(b"ahoy")?;
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        assert_eq!(text, "ahoy");
        Ok(())
    });
}

/// An error that strikes after a part of a write is the next call's.
pub(crate) fn s32_error_after_a_part_is_the_next_calls(h: &Harness) {
    h.run(|| {
        let (near, far) = pair()?;
        let writing = spawn(move || {
            let first = number((&near).write(&vec![7; 32 << 20]));
            (first, number((&near).write(&[7; 8])))
        });
        yield_now();
        (&far).read_exact(&mut [0; 1])?;
        let reset = libc::linger { l_onoff: 1, l_linger: 0 };
        let len = size_of_val(&reset) as u32;
        // SAFETY: an option whose value is a `linger`.
        said(unsafe {
            let (level, option) = (libc::SOL_SOCKET, libc::SO_LINGER);
            libc::setsockopt(far.as_raw_fd(), level, option, (&raw const reset).cast(), len)
        })
        .expect("an option");
        drop(far);
        let (first, second) = writing.join().expect("it writes");
        assert!(first.is_ok_and(|count| count > 0 && count < 32 << 20), "{first:?}");
        assert_eq!(second, Err(libc::ECONNRESET));
        Ok(())
    });
}

/// Whoever only looks again now and then is told of a close, too.
pub(crate) fn s31_number_that_changes_in_a_pause(h: &Harness) {
    let folder = Folder::new();
    let path = folder.0.join("door");
    h.run(move || {
        let listener = UnixListener::bind(&path)?;
        // SAFETY: a listening socket: this only makes its backlog short.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let _first = UnixStream::connect(&path)?;
        // SAFETY: numbers.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        let connecting = spawn(move || {
            // SAFETY: plain numbers.
            let mut address: libc::sockaddr_un = unsafe { zeroed() };
            address.sun_family = libc::AF_UNIX as u16;
            let bytes = path.as_os_str().as_encoded_bytes();
            for (place, &byte) in address.sun_path.iter_mut().zip(bytes) {
                *place = byte as c_char;
            }
            let len = size_of_val(&address) as u32;
            // SAFETY: an address that lives through the call.
            said(unsafe { libc::connect(fd, (&raw const address).cast(), len) })
        });
        yield_now();
        coracle_coro::sleep(3 * MS)?;
        assert!(!connecting.is_finished());
        let (reader, _writer) = io::pipe()?;
        // SAFETY: both are ours.
        assert_eq!(unsafe { libc::dup2(reader.as_raw_fd(), fd) }, fd);
        assert_eq!(connecting.join().expect("it connects"), Err(libc::EBADF));
        // SAFETY: ours, and nobody else's.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(())
    });
}

/// A copy of something that is not open closes nothing.
pub(crate) fn s31_failed_copy_tells_nobody(h: &Harness) {
    h.run(|| {
        let (near, far) = pair()?;
        let fd = near.as_raw_fd();
        let reading = spawn(move || number((&near).read(&mut [0; 8])));
        yield_now();
        coracle_coro::sleep(2 * MS)?;
        let (wrong, flags) = (1 << 19, 1 << 30);
        // SAFETY: numbers, of which the first is no descriptor, or the flags are none.
        unsafe {
            assert_eq!(said(libc::dup2(wrong, fd)), Err(libc::EBADF));
            assert_eq!(said(libc::dup3(far.as_raw_fd(), fd, flags)), Err(libc::EINVAL));
        }
        coracle_coro::sleep(2 * MS)?;
        assert!(!reading.is_finished());
        (&far).write_all(b"ahoy")?;
        assert_eq!(reading.join().expect("it reads"), Ok(4));
        Ok(())
    });
}

/// Closed past libc's `close`, and told nevertheless.
pub(crate) fn s31_close_by_syscall(h: &Harness) {
    h.run(|| {
        let (near, _far) = pair()?;
        let fd = near.into_raw_fd();
        let reading = spawn(move || {
            timeout(60_000 * MS, || {
                // SAFETY: space that lives through the call.
                said(unsafe { libc::read(fd, [0_u8; 8].as_mut_ptr().cast(), 8) } as i64)
            })
        });
        yield_now();
        coracle_coro::sleep(2 * MS)?;
        // SAFETY: ours, and nobody else's.
        assert_eq!(unsafe { libc::syscall(libc::SYS_close, fd) }, 0);
        assert_eq!(reading.join().expect("it reads"), Err(libc::EBADF));
        Ok(())
    });
}

/// A number that was a socket, and has become a pipe without a word: how the socket was set says nothing.
pub(crate) fn s32_number_that_was_a_socket(h: &Harness) {
    h.run(|| {
        let (near, _far) = pair()?;
        let (reader, _writer) = io::pipe()?;
        // SAFETY: our own descriptor.
        assert_eq!(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        let mut number_of = OwnedFd::from(near);
        rustix::io::dup2(&reader, &mut number_of)?; // not by libc
        let mut file = std::fs::File::from(number_of);
        let seen = timeout(60_000 * MS, || number(file.read(&mut [0; 8])));
        assert_eq!(seen, Err(libc::EAGAIN));
        Ok(())
    });
}

/// What poll(2) knows of some descriptors and not of others.
pub(crate) fn s32_rare_masks_of_poll(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        // SAFETY: numbers, and a descriptor that is ours.
        let event = unsafe { OwnedFd::from_raw_fd(libc::eventfd(1, libc::EFD_CLOEXEC)) };
        let look = |fd: &dyn AsRawFd, events| {
            let mut list = [libc::pollfd { fd: fd.as_raw_fd(), events, revents: -1 }];
            // SAFETY: a list of one.
            (said(unsafe { libc::poll(list.as_mut_ptr(), 1, 3) }), list[0].revents)
        };
        [look(&file, libc::POLLPRI), look(&event, libc::POLLRDNORM)]
    });
    assert_eq!(seen, [(Ok(0), 0); 2]);
}

/// The time of `recvmmsg` is looked at, and what is left of it is told.
pub(crate) fn s32_time_of_many_messages(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let (near, far) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        let receive = |seconds, nanoseconds| {
            far.send(b"ahoy").expect("sent");
            let mut time = libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            let mut space = [0_u8; 8];
            let mut part = libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: 8 };
            // SAFETY: a message of one stretch; all of it lives through the call.
            let done = said(unsafe {
                let mut message: libc::mmsghdr = zeroed();
                (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (&raw mut part, 1);
                libc::recvmmsg(near.as_raw_fd(), &raw mut message, 1, 0, &raw mut time)
            });
            (done, time.tv_sec < seconds)
        };
        [receive(0, 2_000_000_000), receive(-1, 0), receive(3600, 0)]
    });
    assert_eq!(seen, [(Err(libc::EINVAL), false), (Err(libc::EINVAL), false), (Ok(1), true)]);
}

/// An error that comes while `recvmmsg` waits for more is told by the call after it.
pub(crate) fn s32_error_after_many_messages_is_the_next_calls(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let [near, far] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        near.connect(far.local_addr().expect("an address")).expect("connected");
        far.send_to(b"ahoy", near.local_addr().expect("an address")).expect("sent");
        let sender = near.try_clone().expect("a copy");
        let breaking = thread::spawn(move || {
            thread::sleep(20 * MS);
            drop(far);
            sender.send(b"is anybody there?").expect("sent");
        });
        let mut space = [[0_u8; 8]; 2];
        let mut parts = space
            .each_mut()
            .map(|space| libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: 8 });
        let mut receive = |flags| {
            // SAFETY: two messages of one stretch each; all of it lives through the call.
            said(unsafe {
                let mut messages: [libc::mmsghdr; 2] = zeroed();
                for (message, part) in messages.iter_mut().zip(&mut parts) {
                    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
                }
                libc::recvmmsg(near.as_raw_fd(), messages.as_mut_ptr(), 2, flags, null_mut())
            })
        };
        let answers = [receive(0), receive(libc::MSG_DONTWAIT), receive(libc::MSG_DONTWAIT)];
        breaking.join().expect("a thread");
        answers
    });
    assert_eq!(seen, [Ok(1), Err(libc::ECONNREFUSED), Err(libc::EAGAIN)]);
}

/// `writev` of nothing is nothing: no empty message.
pub(crate) fn s32_writing_nothing_sends_nothing(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let (near, far) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        far.set_nonblocking(true).expect("an option");
        let nothing = libc::iovec { iov_base: null_mut(), iov_len: 0 };
        let written = [2, 0].map(|count| {
            // SAFETY: two stretches of nothing, or none.
            said(unsafe { libc::writev(near.as_raw_fd(), [nothing; 2].as_ptr(), count) } as i64)
        });
        (written, number(far.recv(&mut [0; 8])))
    });
    assert_eq!(seen, ([Ok(0), Ok(0)], Err(libc::EAGAIN)));
}

/// A descriptor that is closed, or becomes another, ends a `poll` for whatever of it.
pub(crate) fn s31_close_wakes_rare_polls(h: &Harness) {
    h.run(|| {
        for replaced in [false, true] {
            let (near, _far) = pair()?;
            let fd = apart(near);
            let polling = spawn(move || {
                let mut list = [libc::pollfd { fd, events: libc::POLLPRI, revents: 0 }];
                // SAFETY: a list of one.
                (said(unsafe { libc::poll(list.as_mut_ptr(), 1, 20_000) }), list[0].revents)
            });
            coracle_coro::sleep(2 * MS)?;
            assert!(!polling.is_finished());
            if replaced {
                // What hangs up would be told without being asked for; but it is another's.
                let (other, gone) = std::os::unix::net::UnixStream::pair()?;
                drop(gone);
                // SAFETY: both are ours.
                assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
                assert_eq!(polling.join().expect("it polls"), (Ok(1), libc::POLLNVAL));
                // SAFETY: it is ours.
                assert_eq!(unsafe { libc::close(fd) }, 0);
            } else {
                // SAFETY: it is ours, and its users are told.
                assert_eq!(unsafe { libc::close(fd) }, 0);
                assert_eq!(polling.join().expect("it polls"), (Ok(1), libc::POLLNVAL));
            }
        }
        Ok(())
    });
}

fn first(found: *const hostent) -> IpAddr {
    assert!(!found.is_null());
    // SAFETY: an entry, with an address of four bytes.
    IpAddr::from(unsafe { (*(*found).h_addr_list).cast::<[u8; 4]>().read_unaligned() })
}

/// A host that was found stays as it is while others look up others, in whatever thread.
pub(crate) fn s34_host_stays_what_it_is(h: &Harness) {
    h.run(|| {
        // SAFETY: names.
        unsafe {
            let own = gethostbyname(c"127.0.0.1".as_ptr());
            assert_eq!(first(own), IpAddr::from([127, 0, 0, 1]));
            thread::spawn(|| {
                coracle_coro::run(|| {
                    assert_eq!(
                        first(gethostbyname(c"127.0.0.9".as_ptr())),
                        IpAddr::from([127, 0, 0, 9])
                    );
                    Ok(())
                })
            })
            .join()
            .expect("a thread")?;
            assert_eq!(first(own), IpAddr::from([127, 0, 0, 1]));
            *__h_errno_location() = 0;
            assert!(gethostbyname(c"no such name".as_ptr()).is_null());
            assert_ne!(*__h_errno_location(), 0);
        }
        Ok(())
    });
}

/// A look-up that is not made leaves the places for its answers as one that has failed.
pub(crate) fn s10_cancelled_look_up_of_a_host(h: &Harness) {
    h.run(|| {
        let looking = spawn(|| {
            let _ = coracle_coro::sleep(HOUR);
            let mut space = [0_u64; 64];
            // SAFETY: a name, and places for the answers.
            unsafe {
                let mut place: hostent = zeroed();
                let (mut found, mut error) = (&raw mut place, 0);
                let said = gethostbyname_r(
                    c"127.0.0.1".as_ptr(),
                    &raw mut place,
                    space.as_mut_ptr().cast(),
                    512,
                    &raw mut found,
                    &raw mut error,
                );
                *__h_errno_location() = 0;
                let older = gethostbyname(c"127.0.0.1".as_ptr());
                (said, found.is_null(), error, older.is_null(), *__h_errno_location())
            }
        });
        yield_now();
        looking.cancel();
        assert_eq!(looking.join().expect("it looks"), (ECANCELED, true, -1, true, -1));
        Ok(())
    });
}

/// A number that a loop has had, and that has become another socket without a word: what comes there is received.
pub(crate) fn s31_number_that_changes_past_libc(h: &Harness) {
    h.run(|| {
        for _ in 0..2 {
            let (near, far) = pair()?;
            (&far).write_all(b"ahoy")?;
            (&near).read_exact(&mut [0; 4])?;
            let (other, peer) = pair()?;
            let mut number_of = OwnedFd::from(near);
            rustix::io::dup2(&other, &mut number_of)?; // not by libc
            drop(other);
            let near = std::net::TcpStream::from(number_of);
            let reading = spawn(move || {
                let mut word = [0; 4];
                let read = timeout(60_000 * MS, || (&near).read_exact(&mut word));
                read.map(|()| word).map_err(|error| error.raw_os_error())
            });
            yield_now();
            coracle_coro::sleep(MS)?;
            (&peer).write_all(b"ship")?;
            assert_eq!(reading.join().expect("it reads"), Ok(*b"ship"));
        }
        Ok(())
    });
}

/// Several who wait to receive from one socket, and some who send on it: each has what it would have in threads.
pub(crate) fn s32_several_at_one_socket(h: &Harness) {
    h.run(|| {
        let (near, far) = pair()?;
        let (near, far) = (Rc::new(near), Rc::new(far));
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let near = Rc::clone(&near);
                spawn(move || {
                    let mut byte = [0];
                    (&*near).read_exact(&mut byte).map(|()| byte[0]).expect("a byte")
                })
            })
            .collect();
        yield_now();
        let writers: Vec<_> = (0..4_u8)
            .map(|me| {
                let far = Rc::clone(&far);
                spawn(move || (&*far).write_all(&[me]).expect("a byte is written"))
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        let mut seen: Vec<u8> =
            readers.into_iter().map(|reader| reader.join().expect("a reader")).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        // Who waits behind another hears of a close as well.
        let fd = near.as_raw_fd();
        let readers: Vec<_> = (0..3)
            .map(|_| {
                spawn(move || {
                    // SAFETY: space for a byte.
                    said(unsafe { libc::recv(fd, [0_u8; 1].as_mut_ptr().cast(), 1, 0) } as i64)
                })
            })
            .collect();
        yield_now();
        coracle_coro::sleep(2 * MS)?;
        drop(near);
        for reader in readers {
            assert_eq!(reader.join().expect("a reader"), Err(libc::EBADF));
        }
        Ok(())
    });
}

/// A receive where nothing can come says so at once, and does not wait for somebody to connect.
pub(crate) fn s32_receive_where_nothing_can_come(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let receive = |fd| {
            // SAFETY: space for a byte.
            said(unsafe { libc::recv(fd, [0_u8; 1].as_mut_ptr().cast(), 1, 0) } as i64)
        };
        let early = receive(listener.as_raw_fd());
        // SAFETY: numbers, and a descriptor that is ours.
        let fresh =
            unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)) };
        let unconnected = receive(fresh.as_raw_fd());
        let address = listener.local_addr().expect("an address");
        let near = std::net::TcpStream::connect(address).expect("connect");
        let (far, _) = listener.accept().expect("accept");
        near.shutdown(std::net::Shutdown::Read).expect("shutdown");
        let ended = receive(near.as_raw_fd());
        drop(far);
        [early, unconnected, ended, receive(listener.as_raw_fd())]
    });
    let refused = Err(libc::ENOTCONN);
    assert_eq!(seen, [refused, refused, Ok(0), refused]);
}
