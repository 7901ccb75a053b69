//! New connections.

use crate::harness::{Harness, MS, now};
use crate::streams::{byte, settle};
use coracle_coro::net::{TcpListener, TcpStream};
use coracle_coro::spawn;
use coracle_loop::Loop;
use coracle_loop::demux::sim::{Faults, Kernel};
use rustix::io::Errno;
use std::io::{self, Write};
use std::rc::Rc;

pub(crate) fn f8_connections_are_accepted_in_order(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // More than are kept for who accepts late.
        let mut clients = Vec::new();
        for number in 0..150_u8 {
            let client = TcpStream::connect(listener.local_addr()?)?;
            (&client).write_all(&[number])?;
            clients.push(client);
            if number == 3 {
                assert_eq!(byte(&listener.accept()?.0)?, 0); // from here on, they are accepted
            }
        }
        for number in 1..150 {
            let (stream, peer) = listener.accept()?;
            assert_eq!(
                (byte(&stream)?, peer),
                (number, clients[usize::from(number)].local_addr()?)
            );
        }
        Ok(())
    });
}

pub(crate) fn f8_those_who_accept_have_their_turns_in_order(h: &Harness) {
    h.run(|| {
        let listener = Rc::new(TcpListener::bind("127.0.0.1:0")?);
        let accepting: Vec<_> = (0..4)
            .map(|_| {
                let listener = Rc::clone(&listener);
                spawn(move || -> io::Result<u8> { byte(&listener.accept()?.0) })
            })
            .collect();
        settle()?;
        accepting[2].cancel();
        settle()?;
        let mut clients = Vec::new();
        for number in [0, 1, 3] {
            let client = TcpStream::connect(listener.local_addr()?)?;
            (&client).write_all(&[number])?;
            clients.push(client);
            settle()?;
        }
        for (number, one) in accepting.into_iter().enumerate() {
            match one.join().unwrap() {
                Ok(heard) => assert_eq!(usize::from(heard), number),
                Err(_) => assert_eq!(number, 2),
            }
        }
        Ok(())
    });
}

pub(crate) fn f10_two_listeners_share_an_address(h: &Harness) {
    h.run(|| {
        let one = TcpListener::bind_shared("127.0.0.1:0")?;
        let other = TcpListener::bind_shared(one.local_addr()?)?;
        assert_eq!(one.local_addr()?, other.local_addr()?);
        let _client = TcpStream::connect(one.local_addr()?)?;
        coracle_coro::select! {
            accepted = one.accepting() => accepted.map(|_| ()),
            accepted = other.accepting() => accepted.map(|_| ()),
        }
    });
}

pub(crate) fn f1_address_in_use_is_named(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let refused = TcpListener::bind(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.to_string().contains(&address.to_string()), "{refused}");
        Ok(())
    });
}

pub(crate) fn f9_without_descriptors_accept_pauses_and_recovers(_: &Harness) {
    let faults = Faults { limit_descriptors: 6, ..Faults::none() };
    let kernel = Kernel::with_faults(1, faults);
    let lp = Loop::builder().demux(kernel.demux()).build().unwrap();
    coracle_coro::run_on(&lp, || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut clients = Vec::new();
        while let Ok(client) = TcpStream::connect(listener.local_addr()?) {
            clients.push(client);
        }
        assert!(clients.len() > 2);
        // Each failure is told, and after each a pause: twice as long, up to a second.
        let begin = now();
        for _ in 0..12 {
            let error = listener.accept().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        }
        let waited = now() - begin;
        assert!(
            waited >= 10 * MS * (1 + 2 + 4 + 8 + 16 + 32 + 64) && waited < 8000 * MS,
            "{waited:?}"
        );
        clients.truncate(1);
        listener.accept().map(|_| ()) // whoever waited is still there
    })
    .unwrap();
}
