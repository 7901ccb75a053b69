//! A server and clients from many seeds: resets, short counts, late completions, and cancels at any moment.

use crate::harness::{Harness, MS};
use crate::streams::pattern;
use coracle_coro::net::{TcpListener, TcpStream, serve_on};
use coracle_coro::{sleep, spawn, timeout};
use coracle_loop::Loop;
use coracle_loop::demux::sim::{Faults, Kernel};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};

const SEEDS: u64 = 150;

/// Echoes a message there and back, and says whether all of it came; if it did, it is the same.
fn talk(address: SocketAddr, len: usize) -> io::Result<()> {
    let stream = TcpStream::connect(address)?;
    let writing = stream.try_clone()?;
    let writer = spawn(move || {
        (&writing).write_all(&pattern(len))?;
        writing.shutdown(Shutdown::Write)
    });
    let mut echo = Vec::new();
    let read = timeout(500 * MS, || (&stream).read_to_end(&mut echo));
    assert!(echo == pattern(len)[..echo.len()], "what came is the beginning of what was sent");
    stream.close()?; // whether the writer is done or not
    // A cancelled one cannot wait for it.
    let written = writer.join().unwrap_or_else(|error| Err(error.into()));
    if read.is_ok() && written.is_ok() {
        assert_eq!(echo.len(), len, "without an error, nothing is missing");
    }
    read.and(written).map(|_| ())
}

pub(crate) fn t4_cancels_leak_nothing_whatever_happens(_: &Harness) {
    let mut whole = 0;
    for seed in 0..SEEDS {
        let faults = if seed % 2 == 0 { Faults::benign() } else { Faults::hostile() };
        let kernel = Kernel::with_faults(seed, faults);
        let lp = Loop::builder().demux(kernel.demux()).build().unwrap();
        let before = kernel.open_descriptors();
        let ended = coracle_coro::run_on(&lp, move || {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let server =
                spawn(|| serve_on(listener, |stream| io::copy(&mut &stream, &mut &stream)));
            let clients: Vec<_> =
                (0..6).map(|n| spawn(move || talk(address, 1 + 3000 * n))).collect();
            // Two of them are cancelled, sooner or later; and then the server, with its connections.
            sleep(MS / 16 * (seed % 97) as u32)?;
            clients[1].cancel();
            sleep(MS / 16 * (seed % 31) as u32)?;
            clients[4].cancel();
            let ended = clients.into_iter().map(|client| client.join().expect("it does not panic"));
            let whole = ended.filter(Result::is_ok).count();
            server.cancel();
            server.join().expect("it does not panic").or_else(|error| {
                // The listener itself may fail on a hostile kernel.
                if error.raw_os_error().is_some() { Ok(()) } else { Err(error) }
            })?;
            Loop::current().unwrap().stop(); // which cancels who still serves
            Ok(whole)
        });
        whole += ended.unwrap_or(0); // it cannot listen, if the kernel has not a socket for it
        lp.run_until_idle().unwrap();
        assert_eq!(kernel.open_descriptors(), before, "seed {seed}: {}", kernel.describe_faults());
    }
    assert!(whole > SEEDS as usize, "most of them come through: {whole}");
}
