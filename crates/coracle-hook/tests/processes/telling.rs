//! Subscribers of `tracing` with calls of their own that wait: whatever they do in the middle of a switch, the
//! wait that the switch belongs to is not broken.

use super::{MS, alone, open, switch_on};
use coracle_coro::sync::channel;
use coracle_coro::{in_span, park, run_on, spawn, yield_now};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// How often a span was entered or left.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Sleeps whenever that happens, and talks to itself over a socket.
struct Waits;

impl Waits {
    fn wait() {
        TOLD.fetch_add(1, Ordering::Relaxed);
        thread::sleep(MS);
        let (mut near, mut far) = UnixStream::pair().expect("a pair");
        far.set_read_timeout(Some(MS)).expect("a time-out");
        near.write_all(b"ahoy").expect("write");
        far.read_exact(&mut [0; 4]).expect("read");
        assert!(far.read(&mut [0; 4]).is_err(), "nothing comes, and that takes its time");
    }
}

impl Subscriber for Waits {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        Waits::wait();
    }

    fn exit(&self, _: &Id) {
        Waits::wait();
    }
}

/// Waits of coracle's own, in which hooks are not off already; of hooked calls; and turns that are only given
/// away.
fn subscriber_waits(backend: &str) {
    const ROUNDS: u32 = 5;
    switch_on();
    tracing::subscriber::set_global_default(Waits).expect("the first");
    run_on(&open(backend).expect("a loop"), || {
        let (sender, receiver) = channel::<u32>(1);
        let (mut reader, mut writer) = io::pipe()?;
        let waiting = spawn(move || {
            in_span(&tracing::info_span!("waiting"), || {
                let mut seen = Vec::new();
                for _ in 0..ROUNDS {
                    seen.push(receiver.recv().expect("a message"));
                    let mut byte = [0];
                    reader.read_exact(&mut byte).expect("a byte");
                    seen.push(byte[0].into());
                    yield_now();
                    coracle_coro::sleep(MS).expect("it sleeps");
                }
                park().expect("somebody unparks it");
                seen
            })
        });
        for round in 0..ROUNDS {
            coracle_coro::sleep(2 * MS)?;
            sender.send(round).expect("somebody receives");
            coracle_coro::sleep(2 * MS)?;
            writer.write_all(&[round as u8])?;
        }
        while !waiting.is_finished() {
            waiting.coroutine().unpark();
            coracle_coro::sleep(MS)?;
        }
        let seen = waiting.join().expect("it waits");
        assert_eq!(seen, (0..ROUNDS).flat_map(|round| [round, round]).collect::<Vec<_>>());
        assert!(TOLD.load(Ordering::Relaxed) > 4 * ROUNDS, "it was told of no switch");
        Ok(())
    })
    .expect("run");
}

#[test]
fn s32_subscriber_that_waits_breaks_no_wait_on_uring() {
    alone("telling::s32_subscriber_that_waits_breaks_no_wait_on_uring", || {
        subscriber_waits("uring")
    });
}

#[test]
fn s32_subscriber_that_waits_breaks_no_wait_on_epoll() {
    alone("telling::s32_subscriber_that_waits_breaks_no_wait_on_epoll", || {
        subscriber_waits("epoll")
    });
}

#[test]
fn s32_subscriber_that_waits_breaks_no_wait_on_poll() {
    alone("telling::s32_subscriber_that_waits_breaks_no_wait_on_poll", || subscriber_waits("poll"));
}

#[test]
fn s32_subscriber_that_waits_breaks_no_wait_on_select() {
    alone("telling::s32_subscriber_that_waits_breaks_no_wait_on_select", || {
        subscriber_waits("select")
    });
}

#[test]
fn s32_subscriber_that_waits_breaks_no_wait_on_sim() {
    alone("telling::s32_subscriber_that_waits_breaks_no_wait_on_sim", || subscriber_waits("sim"));
}
