//! Row S49: what is seen of those who wait for a socket.

use crate::harness::{Harness, MS};
use crate::streams::{byte, full_pair, pair, pattern};
use coracle_coro::net::{TcpListener, TcpStream};
use coracle_coro::{
    Coroutine, CoroutineInfo, WaitsFor, coroutines, park, select, sleep, spawn, yield_now,
};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

fn info_of(coroutine: &Coroutine) -> CoroutineInfo {
    let found = coroutines().into_iter().find(|one| one.coroutine.id() == coroutine.id());
    found.expect("it is listed")
}

/// Spawns `wait`, lets it come to its wait, looks at it, and cancels it.
fn seen<T: 'static>(wait: impl FnOnce() -> io::Result<T> + 'static) -> WaitsFor {
    let waiting = spawn(move || assert!(wait().is_err(), "it does not come"));
    yield_now();
    let info = info_of(waiting.coroutine());
    let is_real = Loop::current().unwrap().backend() != Backend::Sim;
    assert_eq!(info.descriptor.is_some(), is_real, "{info}");
    if let Some(number) = info.descriptor {
        assert!(info.to_string().contains(&format!("socket (descriptor {number}) for ")), "{info}");
    }
    waiting.cancel();
    waiting.join().unwrap();
    info.waits_for.expect("it waits")
}

pub(crate) fn s49_list_says_which_socket_is_waited_for(h: &Harness) {
    h.run(|| {
        let listener = Rc::new(TcpListener::bind("127.0.0.1:0")?);
        let accepting = Rc::clone(&listener);
        assert!(matches!(seen(move || accepting.accept()), WaitsFor::Accept(_)));
        let selecting = move || {
            select! {
                accepted = listener.accepting() => accepted,
            }
        };
        assert!(matches!(seen(selecting), WaitsFor::Accept(_)));

        let (one, _other) = pair()?;
        let one = Rc::new(one);
        let [first, second, third] = [0; 3].map(|_| Rc::clone(&one));
        let WaitsFor::Read(socket) = seen(move || byte(&*first)) else { panic!("it reads") };
        let before = spawn(move || byte(&*second));
        yield_now();
        assert_eq!(seen(move || byte(&*third)), WaitsFor::Read(socket), "it waits for its turn");
        before.cancel();
        assert!(before.join().unwrap().is_err());
        let selecting = move || {
            select! {
                ready = one.readable() => ready,
            }
        };
        assert_eq!(seen(selecting), WaitsFor::Read(socket));

        let (full, _other, _) = full_pair()?;
        let (full, more) = (Rc::new(full), pattern(64 << 10));
        let selected = Rc::clone(&full);
        let WaitsFor::Write(socket) = seen(move || (&*full).write(&more)) else {
            panic!("it writes")
        };
        let selecting = move || {
            select! {
                ready = selected.writable() => ready,
            }
        };
        assert_eq!(seen(selecting), WaitsFor::Write(socket));
        Ok(())
    });
}

pub(crate) fn s49_list_says_who_connects(h: &Harness) {
    h.run(|| {
        // Nobody accepts: when the backlog is full, whoever connects has to wait.
        let lp = Loop::current().unwrap();
        let listener = lp.listen(&"127.0.0.1:0".parse().unwrap(), 1)?;
        let address: SocketAddr = lp.local_address(listener)?.ip().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
            waiting.push(stream);
            assert!(waiting.len() < 100, "a backlog of one is never full");
        }
        let late = spawn(move || TcpStream::connect(address).map(drop));
        yield_now();
        let info = info_of(late.coroutine());
        assert!(matches!(info.waits_for, Some(WaitsFor::Connect(_))), "{info}");
        late.cancel();
        assert!(late.join().unwrap().is_err());
        Ok(())
    });
}

/// Who goes on by a completion comes to its next wait at the time of the loop, not at that of the last turn in
/// which somebody was ready.
pub(crate) fn s49_time_of_a_wait_after_a_completion_is_exact(h: &Harness) {
    h.run(|| {
        let (one, other) = pair()?;
        let reader = spawn(move || {
            let read = byte(&one);
            park().and(read)
        });
        sleep(10 * MS)?;
        (&other).write_all(b"x")?;
        while info_of(reader.coroutine()).waits_for != Some(WaitsFor::Unpark) {
            sleep(MS)?;
        }
        sleep(5 * MS)?;
        let info = info_of(reader.coroutine());
        assert!(info.waited >= Some(5 * MS) && info.waited < Some(10 * MS), "{info}");
        reader.coroutine().unpark();
        reader.join().unwrap().map(drop)
    });
}

/// Nobody waits any more when the last who did has ended by a completion.
pub(crate) fn s51_who_ends_by_a_completion_waits_no_more(h: &Harness) {
    h.run(|| {
        let (one, other) = pair()?;
        let reader = spawn(move || byte(&one));
        yield_now();
        assert_eq!(coracle_coro::seeing::stats().waiting, 1);
        (&other).write_all(b"x")?;
        while !reader.is_finished() {
            sleep(MS)?;
        }
        let before = coracle_coro::seeing::stats();
        sleep(100 * MS)?;
        let after = coracle_coro::seeing::stats();
        assert_eq!((before.waiting, after.waiting), (0, 0));
        assert_eq!(after.parked - before.parked, 100 * MS, "only this one has waited");
        reader.join().unwrap().map(drop)
    });
}
