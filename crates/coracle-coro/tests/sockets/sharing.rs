//! Several coroutines on one socket.

use crate::harness::{ECANCELED, Harness, Log, errno};
use crate::streams::{byte, pair, settle};
use coracle_coro::{spawn, yield_now};
use std::io::{self, Read, Write};
use std::rc::Rc;

pub(crate) fn s30_reader_and_writer_at_the_same_time(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let server = Rc::new(server);
        let reading = Rc::clone(&server);
        let reader = spawn(move || byte(&*reading));
        settle()?; // it waits
        (&*server).write_all(b"?")?;
        assert_eq!(byte(&client)?, b'?');
        (&client).write_all(b"!")?;
        assert_eq!(reader.join().unwrap()?, b'!');
        Ok(())
    });
}

pub(crate) fn s30_readers_have_their_turns_in_order(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let server = Rc::new(server);
        let readers: Vec<_> = (0..5)
            .map(|_| {
                let reading = Rc::clone(&server);
                spawn(move || byte(&*reading))
            })
            .collect();
        settle()?;
        for bytes in [&b"01"[..], b"2", b"34"] {
            (&client).write_all(bytes)?;
            settle()?;
        }
        let heard: io::Result<Vec<_>> =
            readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert_eq!(heard?, b"01234");
        Ok(())
    });
}

pub(crate) fn s30_writers_do_not_mix(h: &Harness) {
    const LEN: usize = 100_000;
    h.run(|| {
        let (client, mut server) = pair()?;
        let client = Rc::new(client);
        let writers: Vec<_> = (0..4_u8)
            .map(|number| {
                let writing = Rc::clone(&client);
                spawn(move || (&*writing).write(&vec![number; LEN]))
            })
            .collect();
        drop(client);
        let mut heard = vec![0; 4 * LEN];
        server.read_exact(&mut heard)?;
        for (number, bytes) in heard.chunks(LEN).enumerate() {
            assert!(bytes.iter().all(|&byte| usize::from(byte) == number), "writer {number}");
        }
        for writer in writers {
            assert_eq!(writer.join().unwrap()?, LEN); // a write is whole, as that of a blocking socket
        }
        Ok(())
    });
}

pub(crate) fn s30_who_leaves_the_line_is_passed_over(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let server = Rc::new(server);
        let reader = || {
            let reading = Rc::clone(&server);
            spawn(move || byte(&*reading))
        };
        let readers = [reader(), reader(), reader()];
        settle()?;
        readers[1].cancel();
        yield_now();
        (&client).write_all(b"ab")?;
        let [first, second, third] = readers;
        assert_eq!(first.join().unwrap()?, b'a');
        assert_eq!(errno(second.join().unwrap()), ECANCELED);
        assert_eq!(third.join().unwrap()?, b'b');
        Ok(())
    });
}

pub(crate) fn s30_panic_gives_up_the_turn(h: &Harness) {
    h.run(|| {
        let (client, server) = pair()?;
        let (server, log) = (Rc::new(server), Log::default());
        let (reading, noted) = (Rc::clone(&server), log.clone());
        let child = spawn(move || {
            let read = byte(&*reading);
            noted.add("read");
            assert!(read.is_err(), "on purpose");
        });
        let second = spawn(move || byte(&*server));
        settle()?;
        (&client).write_all(b"ab")?;
        assert!(child.join().is_err());
        assert_eq!(second.join().unwrap()?, b'b');
        assert_eq!(log.take(), ["read"]);
        Ok(())
    });
}
