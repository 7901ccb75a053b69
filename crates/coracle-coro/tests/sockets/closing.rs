//! The end of a socket, while others use it and when nobody does.

use crate::harness::{Harness, MS, errno};
use crate::streams::{byte, full_pair, pair, pattern, settle};
use coracle_coro::net::{TcpListener, TcpStream, UnixStream};
use coracle_coro::{sleep, spawn};
use coracle_loop::demux::Backend;
use rustix::io::Errno;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::rc::Rc;

const EBADF: i32 = Errno::BADF.raw_os_error();

pub(crate) fn s31_close_wakes_who_reads(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let server = Rc::new(server);
        (&*server).write_all(b"!")?; // which is still sent
        let reading = Rc::clone(&server);
        let reader = spawn(move || errno(byte(&*reading)));
        settle()?;
        server.close()?;
        assert_eq!(reader.join().unwrap(), EBADF);
        assert_eq!(byte(&client)?, b'!');
        assert_eq!((&client).read(&mut [0])?, 0);
        Ok(())
    });
}

pub(crate) fn s31_close_wakes_who_writes(h: &Harness) {
    h.run(|| {
        let (client, _server, _) = full_pair()?;
        let client = Rc::new(client);
        let writing = Rc::clone(&client);
        let writer = spawn(move || errno((&*writing).write(&[0; 1 << 16])));
        settle()?;
        client.close()?;
        assert_eq!(writer.join().unwrap(), EBADF);
        Ok(())
    });
}

pub(crate) fn s31_close_wakes_those_in_the_line(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let server = Rc::new(server);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let reading = Rc::clone(&server);
                spawn(move || errno(byte(&*reading)))
            })
            .collect();
        settle()?;
        server.close()?;
        for reader in readers {
            assert_eq!(reader.join().unwrap(), EBADF);
        }
        Ok(())
    });
}

pub(crate) fn s31_close_wakes_who_accepts(h: &Harness) {
    h.run(|| {
        let listener = Rc::new(TcpListener::bind("127.0.0.1:0")?);
        let address = listener.local_addr()?;
        let accepting: Vec<_> = (0..2)
            .map(|_| {
                let listener = Rc::clone(&listener);
                spawn(move || errno(listener.accept()))
            })
            .collect();
        settle()?;
        listener.close()?;
        for one in accepting {
            assert_eq!(one.join().unwrap(), EBADF);
        }
        assert_eq!(errno(listener.accept()), EBADF);
        sleep(5 * MS)?;
        TcpListener::bind(address).map(|_| ()) // nobody has it any more
    });
}

pub(crate) fn s31_closed_socket_is_refused(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let other = server.try_clone()?;
        server.close()?;
        assert_eq!(errno(byte(&server)), EBADF);
        assert_eq!(errno((&other).write(b"!")), EBADF);
        assert_eq!(errno(other.peer_addr()), EBADF);
        assert_eq!(errno(other.set_nodelay(true)), EBADF);
        assert_eq!(errno(other.shutdown(Shutdown::Both)), EBADF);
        assert_eq!(errno(other.close()), EBADF);
        Ok(())
    });
}

pub(crate) fn s31_shutdown_wakes_who_reads(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let server = Rc::new(server);
        let reading = Rc::clone(&server);
        let reader = spawn(move || (&*reading).read(&mut [0; 8]));
        settle()?;
        server.shutdown(Shutdown::Both)?;
        assert_eq!(reader.join().unwrap()?, 0);
        Ok(())
    });
}

pub(crate) fn s31_dropped_socket_sends_what_was_written(h: &Harness) {
    let len = if h.lp.backend() == Backend::Sim { 50_000 } else { 1_000_000 };
    h.run(move || {
        for extra in [1, 100, 4096] {
            let (client, mut server) = pair()?;
            // The peer reads late, so that a part of this has no room yet when its owner is gone.
            let writer = spawn(move || {
                (&client).write_all(&pattern(len)).unwrap();
                (&client).write_all(&vec![0xAA; extra]).unwrap();
            });
            sleep(5 * MS)?;
            let mut heard = Vec::new();
            while heard.len() < len / 2 {
                let mut space = vec![0; 10_000];
                let count = server.read(&mut space)?;
                heard.extend_from_slice(&space[..count]);
            }
            writer.join().unwrap();
            sleep(5 * MS)?;
            server.read_to_end(&mut heard)?;
            assert_eq!(heard.len(), len + extra);
            assert!(heard[..len] == pattern(len) && heard[len..].iter().all(|&byte| byte == 0xAA));
        }
        Ok(())
    });
}

pub(crate) fn s31_socket_dropped_outside_its_loop(h: &Harness) {
    let kept = coracle_coro::run_on(&h.lp, || {
        let (one, other) = UnixStream::pair()?;
        Ok((one, std::cell::Cell::new(Some(other))))
    });
    let (one, other) = kept.unwrap();
    drop(one); // between two turns
    h.run(move || {
        let mut other = other.take().unwrap();
        assert_eq!(other.read(&mut [0])?, 0);
        Ok(())
    });
}

pub(crate) fn s31_socket_outlives_its_loop(h: &Harness) {
    let lp = h.another_loop();
    let (one, _other) = coracle_coro::run_on(&lp, UnixStream::pair).unwrap();
    drop(lp);
    assert!(one.local_addr().is_err());
    drop(one);
}

pub(crate) fn s31_what_was_written_arrives_although_the_loop_is_gone(h: &Harness) {
    const LEN: usize = 3_000_000;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (gone, wait) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = vec![0; LEN / 2];
        stream.read_exact(&mut heard).unwrap();
        let _ = wait.recv(); // until the loop is gone
        stream.read_to_end(&mut heard).unwrap();
        heard
    });
    let lp = h.another_loop();
    coracle_coro::run_on(&lp, move || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&pattern(LEN))?;
        stream.write_all(b"and the last word")
    })
    .unwrap();
    drop(lp);
    drop(gone);
    let heard = reader.join().unwrap();
    assert_eq!(heard.len(), LEN + 17);
    assert!(heard[..LEN] == pattern(LEN) && heard[LEN..] == *b"and the last word");
}
