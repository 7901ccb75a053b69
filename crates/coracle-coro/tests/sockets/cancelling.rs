//! Cancelling, with operations in flight on the caller's own memory.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, Log, MS, Noted, errno};
use crate::streams::{byte, full_pair, pair, pattern, settle};
use coracle_coro::net::{TcpListener, TcpStream, UdpSocket};
use coracle_coro::sync::after;
use coracle_coro::{select, shield, spawn, timeout, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;

/// What a coroutine that is cancelled says of its last wait.
type Wait = Box<dyn FnOnce() -> io::Result<()>>;

/// Every place where a coroutine can wait for a socket.
fn park_points() -> io::Result<Vec<(&'static str, Wait)>> {
    let mut points: Vec<(&'static str, Wait)> = Vec::new();
    let (one, other) = pair()?;
    points.push((
        "read",
        Box::new(move || {
            let _peer = other;
            byte(&one).map(|_| ())
        }),
    ));
    let (one, other) = pair()?;
    let busy = one.try_clone()?;
    let reader = spawn(move || byte(&busy));
    points.push((
        "read in the line",
        Box::new(move || {
            let ended = byte(&one).map(|_| ());
            reader.cancel();
            assert_eq!(
                errno(
                    reader.join_timeout(HOUR).map_err(|_| io::Error::from_raw_os_error(ECANCELED))
                ),
                ECANCELED
            );
            drop(other);
            ended
        }),
    ));
    let (one, other, _) = full_pair()?;
    points.push((
        "write",
        Box::new(move || {
            let _peer = other;
            (&one).write(&[0; 1 << 16]).map(|_| ())
        }),
    ));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    points.push(("accept", Box::new(move || listener.accept().map(|_| ()))));
    let lp = Loop::current().unwrap();
    let full = lp.listen(&"127.0.0.1:0".parse().unwrap(), 1)?;
    let address = lp.local_address(full)?.ip().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, 20 * MS) {
        waiting.push(stream);
    }
    points.push((
        "connect",
        Box::new(move || {
            let _waiting = waiting;
            TcpStream::connect(address).map(|_| ())
        }),
    ));
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    points.push(("receive a message", Box::new(move || socket.recv_from(&mut [0; 8]).map(|_| ()))));
    let (one, other) = pair()?;
    points.push((
        "select",
        Box::new(move || {
            let _peer = &other;
            select! {
                ready = one.readable() => ready,
                () = after(HOUR) => Ok(()),
            }
        }),
    ));
    Ok(points)
}

pub(crate) fn t4_cancel_at_every_park_point(h: &Harness) {
    h.run(|| {
        let points = park_points()?;
        assert_eq!(points.len(), 7);
        for (name, wait) in points {
            let child = spawn(wait);
            settle()?;
            assert!(!child.is_finished(), "{name} does not wait");
            child.cancel();
            let ended = child.join().unwrap();
            assert!(ended.is_err(), "{name}");
            assert_eq!(errno(ended), ECANCELED, "{name}");
        }
        for (name, wait) in park_points()? {
            let child = spawn(move || errno(wait()));
            child.cancel(); // before it has begun
            assert_eq!(child.join().unwrap(), ECANCELED, "{name}");
        }
        for (name, wait) in park_points()? {
            if name != "read in the line" {
                assert_eq!(errno(timeout(MS, wait)), ETIMEDOUT, "{name}");
            }
        }
        Ok(())
    });
}

pub(crate) fn t4_cancel_from_another_thread(h: &Harness) {
    h.run(|| {
        for _ in 0..20 {
            let (client, server) = pair()?;
            let child = spawn(move || {
                let mut space = [0; 64];
                let error = errno((&server).read(&mut space));
                (error, space == [0; 64])
            });
            yield_now();
            let main = coracle_coro::current();
            let thread = std::thread::spawn(move || {
                child.cancel();
                let ended = child.join();
                main.unpark();
                ended.unwrap()
            });
            coracle_coro::park()?;
            assert_eq!(thread.join().unwrap(), (ECANCELED, true));
            // The peer sees an end, and no earlier: the descriptor was closed.
            assert_eq!((&client).read(&mut [0])?, 0);
        }
        Ok(())
    });
}

pub(crate) fn t4_cancelled_read_leaves_its_slice_alone(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let server = Rc::new(server);
        let reading = Rc::clone(&server);
        let child = spawn(move || {
            let mut space = vec![0; 4096];
            let ended = errno((&*reading).read(&mut space));
            (ended, space)
        });
        settle()?;
        child.cancel();
        let (ended, space) = child.join().unwrap();
        assert_eq!(ended, ECANCELED);
        // If the kernel still had the slice, these bytes would go there.
        (&client).write_all(&[7; 4096])?;
        settle()?;
        assert!(space.iter().all(|&byte| byte == 0));
        let mut heard = vec![0; 4096];
        (&*server).read_exact(&mut heard)?;
        assert_eq!(heard, [7; 4096]);
        Ok(())
    });
}

/// Readers come and go while bytes arrive; all of these are read by somebody, in order.
fn lose_no_byte(end: impl Fn(&TcpStream, &mut Vec<u8>) + 'static) -> io::Result<()> {
    const LEN: usize = 20_000;
    let (client, server) = pair()?;
    let writer = spawn(move || -> io::Result<()> {
        for (round, bytes) in pattern(LEN).chunks(17).enumerate() {
            (&client).write_all(bytes)?;
            if round % 3 == 0 {
                yield_now();
            }
            if round % 16 == 0 {
                coracle_coro::sleep(MS / 4)?;
            }
        }
        Ok(())
    });
    let mut heard = Vec::new();
    while heard.len() < LEN {
        end(&server, &mut heard);
    }
    writer.join().unwrap()?;
    assert!(heard == pattern(LEN));
    Ok(())
}

pub(crate) fn t4_cancel_loses_no_byte(h: &Harness) {
    h.run(|| {
        let round = Rc::new(std::cell::Cell::new(0_u32));
        lose_no_byte(move |server, heard| {
            round.set(round.get() + 1);
            let reading = server.try_clone().unwrap();
            let child = spawn(move || {
                let mut space = [0; 64];
                (&reading).read(&mut space).map(|count| space[..count].to_vec())
            });
            for _ in 0..round.get() % 5 {
                yield_now();
            }
            if round.get().is_multiple_of(7) {
                coracle_coro::sleep(MS / 4).unwrap();
            }
            child.cancel();
            match child.join().unwrap() {
                Ok(bytes) => heard.extend_from_slice(&bytes),
                Err(error) => assert_eq!(error.raw_os_error(), Some(ECANCELED)),
            }
        })
    });
}

pub(crate) fn t4_timeouts_lose_no_byte(h: &Harness) {
    h.run(|| {
        lose_no_byte(|server, heard| {
            let mut space = [0; 64];
            match timeout(MS / 8, || (&*server).read(&mut space)) {
                Ok(count) => heard.extend_from_slice(&space[..count]),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
            }
        })
    });
}

pub(crate) fn t4_partial_write_is_told_before_the_cancel(h: &Harness) {
    let len = if h.lp.backend() == Backend::Sim { 4 << 20 } else { 64 << 20 };
    h.run(move || {
        let (client, mut server) = pair()?;
        let child = spawn(move || {
            let sent = (&client).write(&pattern(len)).unwrap();
            (sent, errno((&client).write(b"more")))
        });
        settle()?;
        child.cancel();
        let (sent, then) = child.join().unwrap();
        assert!(sent > 0 && sent < len, "{sent}");
        assert_eq!(then, ECANCELED);
        let mut heard = Vec::new();
        server.read_to_end(&mut heard)?;
        assert_eq!(heard.len(), sent);
        assert!(heard == pattern(len)[..sent]);
        Ok(())
    });
}

pub(crate) fn t4_loop_goes_with_operations_in_flight(h: &Harness) {
    let lp = h.another_loop();
    lp.defer(|_| {
        spawn(|| -> io::Result<()> {
            let (client, server) = pair()?;
            let writing = client.try_clone()?;
            spawn(move || {
                let mut space = vec![0; 4096];
                (&server).read(&mut space)
            });
            spawn(move || (&writing).write_all(&vec![0; 32 << 20]));
            byte(&client).map(|_| ())
        });
    });
    for _ in 0..50 {
        lp.run_ready().unwrap();
    }
    drop(lp); // they are leaked, with their stacks, and nobody writes anywhere
    h.run(|| {
        let (client, server) = pair()?;
        (&client).write_all(b"!")?;
        assert_eq!(byte(&server)?, b'!');
        Ok(())
    });
}

pub(crate) fn t4_cancelled_twice(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let child = spawn(move || {
            [errno(byte(&server)), errno(byte(&server)), errno(server.shutdown(Shutdown::Both))]
        });
        settle()?;
        child.cancel();
        child.cancel();
        assert_eq!(child.join().unwrap(), [ECANCELED; 3]);
        Ok(())
    });
}

struct Farewell(TcpStream, Log);

impl Drop for Farewell {
    fn drop(&mut self) {
        assert_eq!(errno((&self.0).write(b"farewell")), ECANCELED);
        assert_eq!(errno(byte(&self.0)), ECANCELED);
        self.1.add("tried");
    }
}

pub(crate) fn t4_wait_in_a_destructor_of_a_panic_fails(h: &Harness) {
    let log = Log::default();
    let noted = log.clone();
    h.run(move || {
        let (client, server) = pair()?;
        let child = spawn(move || {
            let _noted = Noted(noted.clone(), "dropped");
            let _farewell = Farewell(client, noted);
            panic!("on purpose");
        });
        assert!(child.join().is_err());
        assert_eq!((&server).read(&mut [0])?, 0); // closed all the same
        Ok(())
    });
    assert_eq!(log.take(), ["tried", "dropped"]);
}

/// A farewell has the time of its shield, whether the cancel came before it or in it.
pub(crate) fn s10_shielded_read_ends_with_its_shield(h: &Harness) {
    h.run(|| {
        for cancelled_before in [true, false] {
            let (one, other) = pair()?;
            let farewell = spawn(move || {
                if cancelled_before {
                    assert_eq!(errno(byte(&one)), ECANCELED);
                }
                shield(50 * MS, || errno(byte(&one)))
            });
            yield_now();
            farewell.cancel();
            assert_eq!(farewell.join_timeout(HOUR).unwrap(), ETIMEDOUT);
            drop(other);
        }
        Ok(())
    });
}
