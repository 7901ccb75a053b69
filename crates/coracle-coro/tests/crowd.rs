//! More receives in one turn than are handed to the kernel together. In a process of its own, for it has more
//! descriptors than select can wait for.

use coracle_coro::net::UnixStream;
use coracle_coro::{sleep, spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::io::{self, Read, Write};
use std::time::Duration;

const COUNT: usize = 2600;

/// Lets everybody else go as far as they can.
fn settle() -> io::Result<()> {
    sleep(Duration::from_millis(2))
}

fn byte(mut stream: &UnixStream) -> io::Result<u8> {
    let mut space = [0];
    stream.read_exact(&mut space)?;
    Ok(space[0])
}

/// All read, time after time; then all of them are cancelled in the turn in which they have asked.
fn thousands_read_in_one_turn(backend: Backend) -> io::Result<()> {
    let lp = Loop::builder().backend(backend).build()?;
    coracle_coro::run_on(&lp, || {
        let streams: io::Result<Vec<_>> = (0..COUNT).map(|_| UnixStream::pair()).collect();
        let (ours, theirs): (Vec<_>, Vec<_>) = streams?.into_iter().unzip();
        let read = |stream: UnixStream| {
            spawn(move || {
                for expected in 0..3 {
                    assert_eq!(byte(&stream)?, expected);
                }
                Ok::<_, io::Error>(stream)
            })
        };
        let readers: Vec<_> = theirs.into_iter().map(read).collect();
        for round in 0..3 {
            settle()?;
            for mut stream in &ours {
                stream.write_all(&[round])?;
            }
        }
        let theirs: io::Result<Vec<_>> =
            readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let wait = |stream: UnixStream| spawn(move || byte(&stream).unwrap_err().raw_os_error());
        let readers: Vec<_> = theirs?.into_iter().map(wait).collect();
        yield_now();
        readers.iter().for_each(|reader| reader.cancel());
        let is_cancelled = |error| error == Some(libc::ECANCELED);
        assert!(readers.into_iter().all(|reader| is_cancelled(reader.join().unwrap())));
        Ok(())
    })
}

#[test]
fn t4_thousands_read_in_one_turn() {
    for backend in [Backend::Uring, Backend::Epoll, Backend::Poll] {
        thousands_read_in_one_turn(backend).unwrap();
    }
}
