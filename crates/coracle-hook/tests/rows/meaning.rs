//! The meaning of calls is the kernel's: the same script, in a thread and in a coroutine, says the same.

use crate::harness::Harness;
use crate::helping::{
    as_in_a_thread, number, pair, receive_with_descriptor, said, send_with_descriptor,
};
use coracle_coro::{spawn, yield_now};
use libc::{c_int, c_void};
use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn receive(fd: &impl AsRawFd, space: &mut [u8], flags: c_int) -> Result<i64, i32> {
    // SAFETY: space for as many bytes as are asked for.
    said(unsafe { libc::recv(fd.as_raw_fd(), space.as_mut_ptr().cast(), space.len(), flags) } as i64)
}

fn send(fd: &impl AsRawFd, bytes: &[u8], flags: c_int) -> Result<i64, i32> {
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: so many bytes.
    said(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) } as i64)
}

pub(crate) fn s32_nonblocking_is_the_users(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let (mut near, mut far) = pair().expect("a pair");
        near.set_nonblocking(true).expect("an option");
        far.set_nonblocking(true).expect("an option");
        let read = number(near.read(&mut [0; 8]));
        let mut full = 0;
        let written = loop {
            match far.write(&[1; 65536]) {
                Ok(count) => full += count,
                Err(error) => break error.raw_os_error(),
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        listener.set_nonblocking(true).expect("an option");
        let accepted = number(listener.accept().map(|_| ()));
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        udp.set_nonblocking(true).expect("an option");
        let received = number(udp.recv_from(&mut [0; 8]).map(|_| ()));
        let pipe = {
            let (reader, _writer) = io::pipe().expect("a pipe");
            // SAFETY: our own descriptor.
            said(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })
                .expect("a flag");
            number((&reader).read(&mut [0; 8]))
        };
        (read, full > 0, written, accepted, received, pipe)
    });
    let again = libc::EAGAIN;
    assert_eq!(seen, (Err(again), true, Some(again), Err(again), Err(again), Err(again)));
}

pub(crate) fn s32_dontwait_and_peek(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let (near, far) = pair().expect("a pair");
        let mut space = [0; 8];
        let nothing = receive(&near, &mut space, libc::MSG_DONTWAIT);
        send(&far, b"abc", 0).expect("sent");
        let peeked = receive(&near, &mut space, libc::MSG_PEEK);
        let first = receive(&near, &mut space[..2], 0);
        let rest = receive(&near, &mut space, libc::MSG_DONTWAIT);
        let errors = receive(&near, &mut space, libc::MSG_ERRQUEUE);
        let urgent = receive(&near, &mut space, libc::MSG_OOB);
        (nothing, peeked, first, rest, errors, urgent)
    });
    assert_eq!(seen.0, Err(libc::EAGAIN));
    assert_eq!((seen.1, seen.2, seen.3), (Ok(3), Ok(2), Ok(1)));
}

/// `MSG_WAITALL` waits for everything on a stream, and for one message elsewhere.
pub(crate) fn s32_waitall(h: &Harness) {
    h.run(|| {
        let (near, far) = pair()?;
        let receiver = spawn(move || {
            let mut space = [0; 6];
            let all = receive(&near, &mut space, libc::MSG_WAITALL);
            let peeked = receive(&near, &mut [0; 4], libc::MSG_WAITALL | libc::MSG_PEEK);
            let short = receive(&near, &mut [0; 9], libc::MSG_WAITALL);
            (all, space, peeked, short)
        });
        for part in [&b"ab"[..], b"c", b"def"] {
            yield_now();
            send(&far, part, 0).expect("sent");
        }
        for part in [&b"12"[..], b"34", b"5"] {
            coracle_coro::sleep(3 * MS)?;
            send(&far, part, 0).expect("sent");
        }
        drop(far);
        let (all, space, peeked, short) = receiver.join().expect("the receiver");
        assert_eq!((all, &space, peeked, short), (Ok(6), b"abcdef", Ok(4), Ok(5)));
        Ok(())
    });
    let seen = as_in_a_thread(h, || {
        let (one, other) = UnixDatagram::pair().expect("a pair");
        other.send(b"abc").expect("sent");
        receive(&one, &mut [0; 8], libc::MSG_WAITALL)
    });
    assert_eq!(seen, Ok(3));
}

/// `SO_RCVTIMEO` and `SO_SNDTIMEO`: `EAGAIN` when they have passed, and a part that went before is told.
pub(crate) fn s32_timeouts_of_sockets(h: &Harness) {
    let simulated = h.lp.backend() == coracle_loop::demux::Backend::Sim;
    let seen = as_in_a_thread(h, move || {
        let (near, far) = pair().expect("a pair");
        near.set_read_timeout(Some(30 * MS)).expect("an option");
        let begin = Instant::now();
        let nothing = number((&near).read(&mut [0; 8]));
        let long_enough = simulated || begin.elapsed() >= 29 * MS;
        (&far).write_all(b"abc").expect("written");
        let some = number((&near).read(&mut [0; 8]));
        far.set_write_timeout(Some(30 * MS)).expect("an option");
        // More than any buffer: a part goes, and then nothing.
        let part = number((&far).write(&vec![0; 64 << 20]));
        let part = part.map(|count| count > 0 && count < 64 << 20);
        // The kernel may find some more room, but not for ever.
        let none = loop {
            if let Err(error) = number((&far).write(&[0; 1 << 20])) {
                break Err::<(), i32>(error);
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let time = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
        // SAFETY: an option whose value is a time.
        said(unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const time).cast(),
                size_of_val(&time) as u32,
            )
        })
        .expect("an option");
        let accepted = number(listener.accept().map(|_| ()));
        (nothing, long_enough, some, part, none, accepted)
    });
    let again = libc::EAGAIN;
    assert_eq!(seen, (Err(again), true, Ok(3), Ok(true), Err(again), Err(again)));
}

pub(crate) fn s32_errors_of_connect(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let closed = {
            let gone = TcpListener::bind("127.0.0.1:0").expect("a listener");
            gone.local_addr().expect("an address")
        };
        let refused = number(TcpStream::connect(closed).map(|_| ()));
        let timed = number(TcpStream::connect_timeout(&closed, Duration::from_secs(9)).map(|_| ()));
        let missing = number(UnixStream::connect("/nowhere/at/all").map(|_| ()));
        // A second connect of the same socket.
        let stream = TcpStream::connect(address).expect("connected");
        let mut place: libc::sockaddr_in = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        let len = size_of_val(&place) as u32;
        // SAFETY: an address of its length.
        let twice =
            said(unsafe { libc::connect(stream.as_raw_fd(), (&raw const place).cast(), len) });
        place.sin_family = 99;
        // SAFETY: as above; the kernel refuses the family.
        let family =
            said(unsafe { libc::connect(stream.as_raw_fd(), (&raw const place).cast(), len) });
        // SAFETY: numbers, and a pointer that is not looked at.
        let nobody = said(unsafe { libc::connect(9999, (&raw const place).cast(), len) });
        (refused, timed, missing, twice, family, nobody)
    });
    assert_eq!((seen.0, seen.3), (Err(libc::ECONNREFUSED), Err(libc::EISCONN)));
    assert_eq!(seen.5, Err(libc::EBADF));
}

pub(crate) fn s32_errors_are_the_kernels(h: &Harness) {
    as_in_a_thread(h, || {
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        let (near, far) = pair().expect("a pair");
        drop(far);
        let mut space = [0; 4];
        let none = std::ptr::null_mut::<c_void>();
        let mut seen = vec![
            receive(&file, &mut space, 0),
            send(&file, b"abc", 0),
            send(&near, b"abc", 0), // the first finds out
            receive(&near, &mut space, 0),
            send(&near, b"abc", 0),
        ];
        // SAFETY: the kernel refuses all of these.
        unsafe {
            seen.push(said(libc::read(9999, none, 4) as i64));
            seen.push(said(libc::write(9999, none, 4) as i64));
            seen.push(said(libc::recv(9999, none, 4, 0) as i64));
            seen.push(said(libc::accept(9999, std::ptr::null_mut(), std::ptr::null_mut())));
            seen.push(said(libc::accept(
                file.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )));
            seen.push(said(libc::readv(file.as_raw_fd(), std::ptr::null(), -1) as i64));
            seen.push(said(libc::poll(std::ptr::null_mut(), 4, 1)));
            seen.push(said(libc::epoll_wait(file.as_raw_fd(), std::ptr::null_mut(), 1, 1)));
            seen.push(said(libc::waitpid(1, std::ptr::null_mut(), 0)));
            seen.push(said(libc::read(-1, none, 0) as i64));
        }
        seen
    });
}

/// A read of nothing asks for nothing, and a write of nothing is a datagram.
pub(crate) fn s32_nothing_is_read_at_once(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let (one, other) = UnixDatagram::pair().expect("a pair");
        // SAFETY: no bytes.
        let (read, written) = unsafe {
            let none = std::ptr::NonNull::<c_void>::dangling().as_ptr();
            (
                said(libc::read(one.as_raw_fd(), none, 0) as i64),
                said(libc::write(other.as_raw_fd(), none, 0) as i64),
            )
        };
        (read, written, number(one.recv(&mut [0; 4])))
    });
    assert_eq!(seen, (Ok(0), Ok(0), Ok(0)));
}

/// Descriptors travel with the first byte of a message, however it is cut.
pub(crate) fn s32_messages_with_descriptors(h: &Harness) {
    const LEN: usize = 600_000;
    h.run(|| {
        let (near, far) = UnixStream::pair()?;
        let (mut reader, writer) = io::pipe()?;
        let sender = spawn(move || {
            let bytes = vec![5_u8; LEN];
            let mut parts = [
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: 10 },
                libc::iovec {
                    iov_base: bytes.as_ptr().cast_mut().wrapping_add(10).cast(),
                    iov_len: LEN - 10,
                },
            ];
            // SAFETY: two stretches of `bytes`.
            let sent = unsafe { send_with_descriptor(&near, &mut parts, &writer) };
            drop((writer, near));
            sent
        });
        let mut space = vec![0_u8; LEN];
        let (got, passed) = receive_with_descriptor(&far, &mut space);
        // As in the kernel, it ends with the bytes that the descriptor came with.
        let got = got.expect("some bytes");
        assert!(got > 0 && got <= LEN as i64, "{got}");
        let mut rest = Vec::new();
        (&far).read_to_end(&mut rest)?;
        assert_eq!(got as usize + rest.len(), LEN);
        assert_eq!(sender.join().expect("the sender"), Ok(LEN as i64));
        let mut passed = io::PipeWriter::from(passed);
        passed.write_all(b"ahoy")?;
        let mut text = [0; 4];
        reader.read_exact(&mut text)?;
        assert_eq!(&text, b"ahoy");
        Ok(())
    });
}

/// `sendmmsg` and `recvmmsg` wait until all are through; with `MSG_WAITFORONE`, until one is.
pub(crate) fn s32_many_messages(h: &Harness) {
    fn exchange(
        socket: c_int,
        bytes: &mut [[u8; 8]],
        flags: c_int,
        sending: bool,
    ) -> (Result<i64, i32>, Vec<u32>) {
        let mut parts: Vec<libc::iovec> = bytes
            .iter_mut()
            .map(|one| libc::iovec { iov_base: one.as_mut_ptr().cast(), iov_len: 8 })
            .collect();
        // SAFETY: messages of one stretch each; all of it lives through the call.
        unsafe {
            let mut messages: Vec<libc::mmsghdr> = vec![zeroed(); bytes.len()];
            for (message, part) in messages.iter_mut().zip(&mut parts) {
                (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
            }
            let count = messages.len() as u32;
            let done = if sending {
                libc::sendmmsg(socket, messages.as_mut_ptr(), count, flags)
            } else {
                libc::recvmmsg(socket, messages.as_mut_ptr(), count, flags, std::ptr::null_mut())
            };
            (said(done), messages.iter().map(|message| message.msg_len).collect())
        }
    }
    h.run(|| {
        let (near, far) = UnixDatagram::pair()?;
        let receiver = spawn(move || {
            let all = exchange(near.as_raw_fd(), &mut [[0; 8]; 5], 0, false);
            let one = exchange(near.as_raw_fd(), &mut [[0; 8]; 5], libc::MSG_WAITFORONE, false);
            (all, one)
        });
        yield_now();
        assert_eq!(exchange(far.as_raw_fd(), &mut [[1; 8]; 2], 0, true).0, Ok(2));
        coracle_coro::sleep(3 * MS)?;
        assert_eq!(exchange(far.as_raw_fd(), &mut [[1; 8]; 3], 0, true).0, Ok(3));
        coracle_coro::sleep(3 * MS)?;
        assert_eq!(exchange(far.as_raw_fd(), &mut [[1; 8]; 1], 0, true).0, Ok(1));
        let (all, one) = receiver.join().expect("the receiver");
        assert_eq!(all, (Ok(5), vec![8; 5]));
        assert_eq!(one.0, Ok(1));
        // More than there is room for: the sender waits.
        let (near, far) = UnixDatagram::pair()?;
        let sender = spawn(move || exchange(far.as_raw_fd(), &mut [[2; 8]; 800], 0, true).0);
        let mut space = [0; 8];
        for _ in 0..800 {
            assert_eq!(near.recv(&mut space)?, 8);
        }
        assert_eq!(sender.join().expect("the sender"), Ok(800));
        Ok(())
    });
}

/// How the user sets a socket is followed from its birth on, and by whatever call; what a copy changes, changes
/// both.
pub(crate) fn s32_flags_are_followed(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let (near, far) = pair().expect("a pair");
        let mut seen = Vec::new();
        let mut look = |near: &TcpStream| seen.push(number((&*near).read(&mut [0; 8])));
        let flags = |on: c_int| {
            // SAFETY: our own descriptor.
            said(unsafe { libc::fcntl(near.as_raw_fd(), libc::F_SETFL, on) }).expect("flags");
        };
        flags(libc::O_NONBLOCK);
        look(&near);
        flags(0);
        (&far).write_all(b"ab").expect("write");
        look(&near);
        // Known to be empty, from here on.
        near.set_nonblocking(true).expect("an option");
        look(&near);
        near.set_nonblocking(false).expect("an option");
        near.set_read_timeout(Some(5 * MS)).expect("an option");
        look(&near);
        near.set_read_timeout(None).expect("an option");
        (&far).write_all(b"abc").expect("write");
        look(&near);
        let copy = near.try_clone().expect("a copy");
        copy.set_nonblocking(true).expect("an option");
        look(&near);
        copy.set_nonblocking(false).expect("an option");
        (&far).write_all(b"abcd").expect("write");
        look(&near);
        drop(far);
        look(&near);
        look(&near);
        seen
    });
    let again = Err(libc::EAGAIN);
    assert_eq!(seen, [again, Ok(2), again, again, Ok(3), again, Ok(4), Ok(0), Ok(0)]);
}

/// A socket of a listener that has a time-out has it, too.
pub(crate) fn s32_accepted_sockets_have_the_timeouts_of_their_listener(h: &Harness) {
    let seen = as_in_a_thread(h, || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let time = libc::timeval { tv_sec: 0, tv_usec: 5_000 };
        let len = size_of_val(&time) as u32;
        // SAFETY: an option whose value is a time.
        said(unsafe {
            let option = libc::SO_RCVTIMEO;
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                len,
            )
        })
        .expect("an option");
        let _near =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (far, _) = listener.accept().expect("accepted");
        number((&far).read(&mut [0; 8]))
    });
    assert_eq!(seen, Err(libc::EAGAIN));
}
