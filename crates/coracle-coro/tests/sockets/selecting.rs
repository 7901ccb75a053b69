//! `select!` over sockets.

use crate::harness::{ECANCELED, HOUR, Harness, MS, errno};
use crate::streams::{byte, full_pair, pair, settle};
use coracle_coro::net::{TcpListener, TcpStream};
use coracle_coro::sync::{Arm, Select, after, channel};
use coracle_coro::{select, spawn};
use coracle_loop::Loop;
use coracle_loop::demux::{Handle, Interest, Operation, SocketOption};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Instant;

pub(crate) fn s25_first_of_two_streams(h: &Harness) {
    h.run(|| {
        let ((one, mut to_one), (other, mut to_other)) = (pair()?, pair()?);
        for round in 0..20 {
            let second = round % 3 == 0;
            if second { &mut to_other } else { &mut to_one }.write_all(&[round])?;
            let heard = select! {
                ready = one.readable() => {
                    ready?;
                    assert!(!second);
                    byte(&one)?
                }
                ready = other.readable() => {
                    ready?;
                    assert!(second);
                    byte(&other)?
                }
            };
            assert_eq!(heard, round);
        }
        drop(to_one); // the end of a stream can be read, too
        select! {
            ready = one.readable() => assert_eq!(ready.and_then(|()| (&one).read(&mut [0]))?, 0),
            _ = other.readable() => unreachable!("nothing comes from there"),
        }
        Ok(())
    });
}

pub(crate) fn s25_arm_that_loses_consumes_nothing(h: &Harness) {
    h.run(|| {
        let ((one, to_one), (other, to_other)) = (pair()?, pair()?);
        let mut rounds = [0, 0];
        for _ in 0..50 {
            // Both are ready: one of them is chosen, and the byte of the other stays.
            (&to_one).write_all(b"1")?;
            (&to_other).write_all(b"2")?;
            settle()?;
            for _ in 0..2 {
                select! {
                    ready = one.readable() => {
                        ready?;
                        assert_eq!(byte(&one)?, b'1');
                        rounds[0] += 1;
                    }
                    ready = other.readable() => {
                        ready?;
                        assert_eq!(byte(&other)?, b'2');
                        rounds[1] += 1;
                    }
                }
            }
        }
        assert_eq!(rounds, [50, 50]);
        // And nothing is left in flight: they can go.
        one.into_descriptor()?;
        other.into_descriptor()?;
        Ok(())
    });
}

pub(crate) fn s25_listener_channel_and_time(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (sender, messages) = channel(4);
        let client = spawn(move || -> io::Result<()> {
            for number in 0..10_u8 {
                if number % 2 == 0 {
                    (&TcpStream::connect(address)?).write_all(&[number])?;
                } else {
                    sender.send(number).unwrap();
                }
                settle()?;
            }
            Ok(())
        });
        let mut heard = Vec::new();
        loop {
            select! {
                accepted = listener.accepting() => heard.push(byte(&accepted?.0)?),
                message = &messages => match message {
                    Ok(number) => heard.push(number),
                    Err(_) => break,
                },
                () = after(HOUR) => unreachable!(),
            }
        }
        client.join().unwrap()?;
        assert_eq!(heard, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        select! {
            _ = listener.accepting() => unreachable!(),
            () = after(MS) => {}
        }
        Ok(())
    });
}

pub(crate) fn s25_writable_when_the_peer_has_read(h: &Harness) {
    h.run(|| {
        let (client, _server) = pair()?;
        select! {
            ready = client.writable() => ready?,
            () = after(HOUR) => unreachable!("there is room"),
        }
        let (client, server, _) = full_pair()?;
        select! {
            _ = client.writable() => unreachable!("there is no room"),
            () = after(MS) => {}
        }
        let reader = spawn(move || {
            let mut server = server;
            io::copy(&mut server, &mut io::sink())
        });
        select! {
            ready = client.writable() => ready?,
            () = after(HOUR) => unreachable!("there is room again"),
        }
        drop(client);
        reader.join().unwrap().map(|_| ())
    });
}

pub(crate) fn s25_cancelled_select(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let server = Rc::new(server);
        let shared = Rc::clone(&server);
        let child = spawn(move || {
            select! {
                ready = shared.readable() => errno(ready),
                () = after(HOUR) => 0,
            }
        });
        settle()?;
        child.cancel();
        assert_eq!(child.join().unwrap(), ECANCELED);
        let server = Rc::into_inner(server).expect("it is ours again");
        server.into_descriptor().map(|_| ())
    });
}

pub(crate) fn s25_closed_socket_is_chosen(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let server = Rc::new(server);
        let shared = Rc::clone(&server);
        let child = spawn(move || {
            select! {
                ready = shared.readable() => ready.is_err(),
                () = after(HOUR) => false,
            }
        });
        settle()?;
        server.close()?;
        assert!(child.join().unwrap());
        select! {
            ready = server.readable() => assert_eq!(errno(ready), Errno::BADF.raw_os_error()),
            () = after(HOUR) => unreachable!(),
        }
        Ok(())
    });
}

pub(crate) fn s25_many_sockets_as_poll(h: &Harness) {
    h.run(|| {
        let pairs = (0..30).map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
        let poll = |timeout| {
            let mut arms: Vec<_> = pairs.iter().map(|(stream, _)| stream.readable()).collect();
            let mut select = Select::new();
            for arm in &mut arms {
                select.arm(arm);
            }
            let chosen = select.wait_timeout(timeout)?;
            arms[chosen].output().map(|()| chosen)
        };
        assert_eq!(poll(MS).unwrap_err().kind(), io::ErrorKind::TimedOut);
        for at in [7, 29, 0] {
            (&pairs[at].1).write_all(b"!")?;
            assert_eq!(poll(HOUR)?, at);
            assert_eq!(byte(&pairs[at].0)?, b'!');
        }
        Ok(())
    });
}

pub(crate) fn s25_default_when_nothing_is_ready(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let ready = || {
            select! {
                ready = server.readable() => ready.is_ok(),
                default => false,
            }
        };
        assert!(!ready());
        (&client).write_all(b"!")?;
        // Asking takes nothing. (The simulated kernel takes its time to say what is ready.)
        for _ in 0..3 {
            while !ready() {
                settle()?;
            }
        }
        assert_eq!(byte(&server)?, b'!');
        assert!(!ready());
        Ok(())
    });
}

/// However much else there is to be told, and if the loop stops meanwhile.
pub(crate) fn s25_default_only_when_nothing_is_ready(h: &Harness) {
    const MANY: usize = 16;
    /// Is ready again and again, and takes its time.
    fn flood(lp: &Loop, handle: Handle, until: &Rc<Cell<bool>>) {
        let until = Rc::clone(until);
        let poll = Operation::Poll { handle, interest: Interest::WRITE };
        lp.operate(poll, move |lp, _| {
            let begin = Instant::now();
            while begin.elapsed() < MS / 2 {}
            if !until.get() {
                flood(lp, handle, &until);
            }
        });
    }
    fn is_ready(server: &TcpStream) -> bool {
        select! {
            ready = server.readable() => ready.is_ok(),
            default => false,
        }
    }
    h.run(|| {
        let (client, server) = pair()?;
        (&client).write_all(b"!")?;
        settle()?;
        let lp = Loop::current().expect("a coroutine is in a turn");
        let over = Rc::new(Cell::new(false));
        for _ in 0..MANY {
            flood(&lp, lp.socket_pair()?.0, &over);
        }
        for _ in 0..5 {
            assert!(is_ready(&server));
        }
        over.set(true);
        Ok(())
    });
    let seen = Rc::new(Cell::new(None));
    let shared = Rc::clone(&seen);
    h.lp.defer(move |_| {
        spawn(move || {
            let (client, server) = pair().expect("a pair");
            let writing = spawn(move || {
                settle().expect("the other waits");
                (&client).write_all(b"!!").expect("two bytes");
                client
            });
            byte(&server).expect("the first"); // by a completion: there is no wait in this turn any more
            Loop::current().expect("a coroutine is in a turn").stop();
            shared.set(Some(is_ready(&server)));
            drop(writing.join());
        });
    });
    h.lp.run().expect("until it stops");
    h.lp.run_until_idle().expect("the rest");
    assert_eq!(seen.get(), Some(true));
}

pub(crate) fn s25_connection_that_was_reset_is_not_accepted(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let reset = || -> io::Result<()> {
            let client = TcpStream::connect(listener.local_addr()?)?;
            client.set_option(SocketOption::ResetOnClose(true))?;
            drop(client);
            settle()
        };
        // Before anybody asks, while somebody waits, and when it was accepted for nobody.
        for round in 0..3 {
            reset()?;
            let client = TcpStream::connect(listener.local_addr()?)?;
            let own = client.local_addr()?;
            select! {
                accepted = listener.accepting() => assert_eq!(accepted?.1, own, "round {round}"),
                () = after(HOUR) => unreachable!("somebody is there"),
            }
        }
        select! {
            accepted = listener.accepting() => panic!("nobody is there: {accepted:?}"),
            () = after(MS) => {}
        }
        reset()?;
        select! {
            accepted = listener.accepting() => panic!("nobody is there: {accepted:?}"),
            () = after(20 * MS) => {}
        }
        Ok(())
    });
}
