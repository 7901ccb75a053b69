//! Streams that are read ahead.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, MS, errno};
use crate::streams::{byte, full_pair, pair, pattern, settle};
use coracle_coro::net::{ReadAhead, TcpStream, UnixStream};
use coracle_coro::{sleep, spawn, timeout, yield_now};
use coracle_loop::demux::{Backend, SocketOption};
use std::cell::Cell;
use std::io::{self, BufRead, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;

const EBADF: i32 = 9;

pub(crate) fn s29_much_is_read_ahead_and_nothing_is_lost(h: &Harness) {
    let len = if h.lp.backend() == Backend::Sim { 200_000 } else { 8_000_000 };
    h.run(move || {
        let (client, server) = pair()?;
        spawn(move || {
            let (reading, mut writing) = server.into_split(); // which is ended when it is dropped
            let mut reading = reading.read_ahead();
            let mut space = [0; 3000]; // so that there is often a rest
            loop {
                match reading.read(&mut space)? {
                    0 => return Ok::<_, io::Error>(()),
                    count => writing.write_all(&space[..count])?,
                }
            }
        });
        let writing = client.try_clone()?;
        let writer = spawn(move || {
            (&writing).write_all(&pattern(len))?;
            writing.shutdown(Shutdown::Write)
        });
        let (mut echo, mut client) = (Vec::new(), client.read_ahead());
        client.read_to_end(&mut echo)?;
        assert!(echo == pattern(len));
        assert_eq!(client.read(&mut [0])?, 0, "and once more");
        writer.join().unwrap()
    });
}

pub(crate) fn s29_lines_are_read_ahead(h: &Harness) {
    h.run(|| {
        let (here, mut there) = UnixStream::pair()?;
        let mut here = here.read_ahead();
        assert_eq!(here.read(&mut [])?, 0, "nothing is asked for, and nobody waits");
        let writer = spawn(move || {
            for piece in ["o", "ne\ntw", "o\n", "th", "ree"] {
                there.write_all(piece.as_bytes())?;
                settle()?;
            }
            Ok::<_, io::Error>(())
        });
        let mut line = String::new();
        assert_eq!(here.read_line(&mut line)?, 4);
        assert_eq!((&*line, here.buffer()), ("one\n", &b"tw"[..]));
        settle()?; // "o\n" comes while nobody reads
        assert_eq!(here.buffer(), b"tw", "the front stays as it is");
        let mut space = [0; 1];
        here.read_exact(&mut space)?;
        assert_eq!((space, here.buffer()), (*b"t", &b"w"[..]));
        let rest: Vec<_> = here.lines().collect::<io::Result<_>>()?;
        assert_eq!(rest, ["wo", "three"]);
        writer.join().unwrap()
    });
}

/// Reads `count` bytes.
fn some(mut stream: impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn s29_what_was_read_ahead_goes_along(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        (&client).write_all(b"abcdef")?;
        let mut ahead = server.read_ahead();
        assert_eq!(some(&mut ahead, 2)?, b"ab");
        (&client).write_all(b"ghi")?;
        settle()?;
        let (server, rest) = ahead.into_parts()?;
        (&client).write_all(b"jkl")?;
        assert_eq!([rest, some(&server, 12 - 2 - 7)?].concat(), b"cdefghijkl");

        // As often as one likes; also without a read, and by another owner of the descriptor.
        let (server, rest) = server.read_ahead().into_parts()?;
        assert!(rest.is_empty());
        let mut ahead = TcpStream::from_descriptor(server.into_descriptor()?)?.read_ahead();
        (&client).write_all(b"m")?;
        assert_eq!(byte(&mut ahead)?, b'm');
        // The receive is over, and nobody else has the socket: it can be given away.
        let (server, rest) = ahead.into_parts()?;
        assert!(rest.is_empty());
        let mut server = TcpStream::from_descriptor(server.into_descriptor()?)?;
        (&client).write_all(b"n")?;
        assert_eq!(byte(&mut server)?, b'n');
        Ok(())
    });
}

pub(crate) fn s29_no_more_is_kept_than_the_limit(h: &Harness) {
    h.run(|| {
        let (reading, writing) = UnixStream::pair()?;
        let bytes = pattern(64 << 10);
        let sent = Rc::new(Cell::new(0));
        let counting = Rc::clone(&sent);
        let total = 4 << 20;
        let writer = spawn(move || {
            while counting.get() < total {
                counting.set(counting.get() + (&writing).write(&bytes)?);
            }
            Ok::<_, io::Error>(())
        });
        let mut reading = reading.read_ahead();
        byte(&mut reading)?;
        sleep(5 * MS)?;
        // What may be kept, what the loop had received by then, and the buffers of the socket.
        assert!(sent.get() < total / 2, "{} bytes were taken while nobody has read", sent.get());
        let mut heard = 1;
        let mut space = vec![0; 100_000];
        while heard < total {
            let count = reading.read(&mut space)?;
            assert!(count > 0);
            let at = |place: usize| pattern(64 << 10)[place % (64 << 10)];
            assert_eq!((space[0], space[count - 1]), (at(heard), at(heard + count - 1)));
            heard += count;
        }
        writer.join().unwrap()
    });
}

pub(crate) fn s30_others_wait_while_one_reads_ahead(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let mut ahead = server.try_clone()?.read_ahead();
        (&client).write_all(b"a")?;
        assert_eq!(byte(&mut ahead)?, b'a');
        let other = spawn(move || (byte(&server), byte(&server)));
        settle()?;
        (&client).write_all(b"b")?;
        assert_eq!(byte(&mut ahead)?, b'b');
        drop(ahead); // with its receive in flight
        settle()?;
        (&client).write_all(b"cd")?;
        let (third, fourth) = other.join().unwrap();
        assert_eq!((third?, fourth?), (b'c', b'd'));
        Ok(())
    });
}

pub(crate) fn s30_who_reads_ahead_waits_for_its_turn(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let first = server.try_clone()?;
        let first = spawn(move || byte(first));
        settle()?;
        let mut second = server.read_ahead();
        let second = spawn(move || byte(&mut second));
        settle()?;
        (&client).write_all(b"ab")?;
        assert_eq!((first.join().unwrap()?, second.join().unwrap()?), (b'a', b'b'));
        Ok(())
    });
}

pub(crate) fn s31_close_wakes_who_reads_ahead(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let closing = server.try_clone()?;
        let reader = spawn(move || {
            let mut server = server.read_ahead();
            (errno(byte(&mut server)), errno(byte(&mut server)))
        });
        settle()?;
        closing.close()?;
        assert_eq!(reader.join().unwrap(), (EBADF, EBADF));
        assert_eq!((&client).read(&mut [0])?, 0);
        Ok(())
    });
}

pub(crate) fn s31_reset_is_told_once_to_who_reads_ahead(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let reader = spawn(move || {
            let mut client = client.read_ahead();
            assert_eq!(byte(&mut client)?, b'!');
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            client.read(&mut [0])
        });
        settle()?;
        (&server).write_all(b"!")?;
        settle()?;
        server.set_option(SocketOption::ResetOnClose(true))?;
        drop(server);
        assert_eq!(reader.join().unwrap()?, 0);
        Ok(())
    });
}

pub(crate) fn s31_read_ahead_is_dropped_outside_its_loop(h: &Harness) {
    let kept = coracle_coro::run_on(&h.lp, || {
        let (mut one, other) = UnixStream::pair()?;
        one.write_all(b"ab")?;
        let mut other = other.read_ahead();
        assert_eq!(byte(&mut other)?, b'a');
        Ok((Cell::new(Some(one)), other))
    });
    let (one, other) = kept.unwrap();
    drop(other); // between two turns, with its receive in flight
    h.run(move || {
        let mut one = one.take().unwrap();
        // Its end, and no reset of what it did not read, in whatever form the socket has it.
        let ended = one.read(&mut [0]);
        assert!(matches!(ended, Ok(0)) || ended.is_err(), "{ended:?}");
        Ok(())
    });
    let lp = h.another_loop();
    let read: io::Result<(ReadAhead<UnixStream>, UnixStream)> = coracle_coro::run_on(&lp, || {
        let (one, mut other) = UnixStream::pair()?;
        other.write_all(b"a")?;
        let mut one = one.read_ahead();
        byte(&mut one)?;
        Ok((one, other))
    });
    drop(lp);
    drop(read); // after its loop
}

pub(crate) fn s16_read_ahead_within_a_time(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        server.set_read_timeout(Some(MS))?;
        let mut server = server.read_ahead();
        assert_eq!(errno(byte(&mut server)), ETIMEDOUT);
        assert_eq!(errno(timeout(HOUR, || byte(&mut server))), ETIMEDOUT);
        server.stream().set_read_timeout(None)?;
        assert_eq!(errno(timeout(MS, || byte(&mut server))), ETIMEDOUT);
        (&client).write_all(b"!")?;
        assert_eq!(timeout(HOUR, || byte(&mut server))?, b'!');
        Ok(())
    });
}

pub(crate) fn t4_cancelled_read_ahead_loses_no_byte(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let total = 3000;
        let writer = spawn(move || {
            for bytes in pattern(total).chunks(70) {
                (&client).write_all(bytes)?;
                sleep(MS / 8)?;
            }
            Ok::<_, io::Error>(())
        });
        let (mut heard, mut round) = (Vec::new(), 0);
        let mut ahead = Some(server.read_ahead());
        while heard.len() < total {
            round += 1;
            let mut reading = ahead.take().expect("it comes back from each child");
            let child = spawn(move || {
                let mut space = [0; 64];
                let read = reading.read(&mut space).map(|count| space[..count].to_vec());
                (reading, read)
            });
            for _ in 0..round % 5 {
                yield_now();
            }
            if round % 7 == 0 {
                sleep(MS / 4)?;
            }
            child.cancel();
            let (reading, read) = child.join().unwrap();
            ahead = Some(reading);
            match read {
                Ok(bytes) => heard.extend_from_slice(&bytes),
                Err(error) => assert_eq!(error.raw_os_error(), Some(ECANCELED)),
            }
        }
        assert!(heard == pattern(total));
        writer.join().unwrap()
    });
}

pub(crate) fn t4_cancelled_into_parts_gives_everything_back(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let mut ahead = server.read_ahead();
        (&client).write_all(b"abc")?;
        assert_eq!(byte(&mut ahead)?, b'a');
        let child = spawn(move || {
            let parts = ahead.into_parts();
            (parts, errno(sleep(HOUR)))
        });
        yield_now();
        child.cancel(); // while it waits for the end of the receive
        let (parts, later) = child.join().unwrap();
        let (server, rest) = parts?;
        assert_eq!((&*rest, later), (&b"bc"[..], ECANCELED));
        (&client).write_all(b"d")?;
        assert_eq!(byte(&server)?, b'd');
        Ok(())
    });
}

pub(crate) fn s29_read_ahead_stays_on_its_loop(h: &Harness) {
    let (mut client, ahead) = coracle_coro::run_on(&h.lp, || {
        let (client, mut server) = UnixStream::pair()?;
        server.write_all(b"a")?;
        let mut client = client.read_ahead();
        byte(&mut client)?;
        Ok((server, client))
    })
    .unwrap();
    let other = h.another_loop();
    let ended = coracle_coro::run_on(&other, move || {
        let (one, mut two) = UnixStream::pair()?;
        one.set_read_timeout(Some(HOUR))?;
        let reader = spawn(move || byte(&one)); // with an operation of its own in flight
        yield_now();
        let mut ahead = ahead;
        assert_eq!(ahead.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let refused = ahead.into_parts().map(|_| ()).unwrap_err();
        two.write_all(b"b")?;
        assert_eq!(reader.join().unwrap()?, b'b', "it is not the one that was ended");
        Ok(refused.kind())
    });
    assert_eq!(ended.unwrap(), io::ErrorKind::Unsupported);
    drop(other);
    h.run(move || {
        let _ = client.write_all(b"b"); // nobody is woken who is gone
        settle()
    });
}

pub(crate) fn s31_close_wakes_who_reads_ahead_while_bytes_wait(h: &Harness) {
    h.run(|| {
        let (one, _other, _) = full_pair()?;
        while timeout(MS, || (&one).write(&[7; 1000])).is_ok() {}
        let reading = one.try_clone()?;
        let reader = spawn(move || errno(byte(&mut reading.read_ahead())));
        settle()?;
        one.close()?;
        settle()?;
        assert!(reader.is_finished(), "it need not wait for what is still to be sent");
        assert_eq!(reader.join().unwrap(), EBADF);
        Ok(())
    });
}

pub(crate) fn s31_own_end_wakes_who_reads_ahead(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let closing = server.try_clone()?;
        let reader = spawn(move || {
            let mut server = server.read_ahead();
            Ok::<_, io::Error>((server.read(&mut [0])?, server.read(&mut [0])?))
        });
        settle()?;
        closing.shutdown(Shutdown::Read)?;
        assert_eq!(reader.join().unwrap()?, (0, 0));
        Ok(())
    });
}

pub(crate) fn s31_dropped_read_ahead_is_no_owner(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let mut ahead = server.try_clone()?.read_ahead();
        (&client).write_all(b"a")?;
        assert_eq!(byte(&mut ahead)?, b'a');
        drop(ahead); // with its receive in flight
        let server = TcpStream::from_descriptor(server.into_descriptor()?)?;
        (&client).write_all(b"b")?;
        assert_eq!(byte(&server)?, b'b');
        // The last owner: the peer is told.
        byte(&mut {
            (&client).write_all(b"c")?;
            server.read_ahead()
        })?;
        assert_eq!((&client).read(&mut [0])?, 0);
        Ok(())
    });
}

/// The end of a run does not come between a stream and its end.
pub(crate) fn s31_read_ahead_is_closed_before_its_run_ends(h: &Harness) {
    let (mut theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    theirs.write_all(b"a").unwrap();
    h.run(move || {
        byte(&mut UnixStream::from_std(ours)?.read_ahead())?;
        Ok(())
    });
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
}
