//! Limits of time on every call that waits.

use crate::harness::{ETIMEDOUT, HOUR, Harness, MS, errno, now};
use crate::streams::{byte, full_pair, pair, settle};
use coracle_coro::net::{TcpListener, TcpStream, UdpSocket};
use coracle_coro::{sleep, spawn, timeout};
use coracle_loop::Loop;
use std::io::{self, Read, Write};
use std::time::Duration;

pub(crate) fn s16_timeout_around_a_read(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        assert_eq!(errno(timeout(MS, || byte(&server))), ETIMEDOUT);
        (&client).write_all(b"!")?; // what comes later is not lost
        assert_eq!(timeout(HOUR, || byte(&server))?, b'!');
        Ok(())
    });
}

pub(crate) fn s16_timeout_of_a_read_is_exact(h: &Harness) {
    h.run(|| {
        let (_client, server) = pair()?;
        let begin = now();
        assert_eq!(errno(timeout(HOUR, || byte(&server))), ETIMEDOUT);
        let waited = now() - begin;
        assert!(waited >= HOUR && waited < HOUR + MS, "{waited:?}"); // its operation takes a moment to end
        Ok(())
    });
}

pub(crate) fn s16_read_timeout_of_the_socket(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        server.set_read_timeout(Some(MS))?;
        assert_eq!(server.read_timeout()?, Some(MS));
        assert_eq!(errno(byte(&server)), ETIMEDOUT);
        assert_eq!(errno(byte(&server)), ETIMEDOUT); // each read anew
        assert_eq!(errno(timeout(HOUR, || byte(&server))), ETIMEDOUT); // the earlier of both
        server.set_read_timeout(None)?;
        let reader = spawn(move || byte(&server));
        sleep(3 * MS)?;
        (&client).write_all(b"!")?;
        assert_eq!(reader.join().unwrap()?, b'!');
        Ok(())
    });
}

pub(crate) fn s16_write_to_a_peer_who_does_not_read_times_out(h: &Harness) {
    h.run(|| {
        let (client, mut server, sent) = full_pair()?;
        client.set_write_timeout(Some(MS))?;
        assert_eq!(errno((&client).write(&[0; 1 << 16])), ETIMEDOUT);
        drop(client);
        assert_eq!(server.read_to_end(&mut Vec::new())?, sent); // nothing of what failed
        Ok(())
    });
}

pub(crate) fn s16_accept_times_out(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        assert_eq!(errno(timeout(MS, || listener.accept().map(|_| ()))), ETIMEDOUT);
        let _client = TcpStream::connect(listener.local_addr()?)?;
        timeout(HOUR, || listener.accept()).map(|_| ())
    });
}

pub(crate) fn s16_connect_times_out(h: &Harness) {
    h.run(|| {
        // Nobody accepts: when the backlog is full, whoever connects has to wait.
        let lp = Loop::current().unwrap();
        let listener = lp.listen(&"127.0.0.1:0".parse().unwrap(), 1)?;
        let address = lp.local_address(listener)?.ip().unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
            assert!(waiting.len() < 100, "a backlog of one is never full");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(errno(timeout(MS, || TcpStream::connect(address))), ETIMEDOUT);
        Ok(())
    });
}

pub(crate) fn s16_receive_of_a_message_times_out(h: &Harness) {
    h.run(|| {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let mut space = [0; 8];
        assert_eq!(errno(timeout(MS, || there.recv_from(&mut space))), ETIMEDOUT);
        there.set_read_timeout(Some(MS))?;
        assert_eq!(errno(there.recv(&mut space)), ETIMEDOUT);
        here.send_to(b"late", there.local_addr()?)?;
        there.set_read_timeout(Some(HOUR))?;
        assert_eq!(there.recv_from(&mut space)?.0, 4);
        Ok(())
    });
}

pub(crate) fn s16_timeout_in_the_line(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let first = server.try_clone()?;
        let reader = spawn(move || byte(&first));
        settle()?;
        assert_eq!(errno(timeout(MS, || byte(&server))), ETIMEDOUT);
        (&client).write_all(b"12")?;
        assert_eq!((reader.join().unwrap()?, byte(&server)?), (b'1', b'2'));
        Ok(())
    });
}

pub(crate) fn s16_zero_is_refused(h: &Harness) {
    h.run(|| {
        let (client, _server) = pair()?;
        let zero = Some(Duration::ZERO);
        for refused in [client.set_read_timeout(zero), client.set_write_timeout(zero)] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        Ok(())
    });
}
