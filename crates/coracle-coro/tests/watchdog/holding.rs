//! A loop that is held: by whom, and where.

use crate::PATIENCE;
use coracle_coro::seeing::{Held, Watchdog};
use coracle_coro::{Builder, run, run_on, yield_now};
use coracle_loop::demux::Backend;
use coracle_loop::demux::sim::Kernel;
use coracle_loop::{Loop, LoopHandle};
use std::hint::black_box;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(20);

/// A watchdog whose reports come out at the other end.
fn reports(watchdog: Watchdog) -> (impl Drop, Receiver<Held>) {
    let (tell, told) = channel();
    let watching = watchdog.limit(LIMIT).on_held(move |held| _ = tell.send(held.clone())).start();
    (watching.expect("there is a thread for it"), told)
}

/// Calculates until there is a report.
#[inline(never)]
fn calculate(told: &Receiver<Held>) -> Held {
    let begin = Instant::now();
    loop {
        match told.try_recv() {
            Ok(held) => return held,
            Err(TryRecvError::Empty) => assert!(begin.elapsed() < PATIENCE, "nobody has noticed"),
            Err(TryRecvError::Disconnected) => panic!("the watchdog is gone"),
        }
        black_box(());
    }
}

/// Blocks the thread until there is a report.
#[inline(never)]
fn block(told: &Receiver<Held>) -> Held {
    black_box(told.recv_timeout(PATIENCE).expect("somebody notices"))
}

fn assert_names(held: &Held, parts: &[&str]) {
    let text = held.to_string();
    assert!(held.lasted >= LIMIT, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing:\n{text}\n{:#?}", held.reason);
    }
}

pub(crate) fn s43_coroutine_that_holds_its_loop() {
    let (_watching, told) = reports(Watchdog::new());
    let held = run(|| {
        yield_now();
        let hog = Builder::new().name("hog").spawn(move || calculate(&told))?;
        Ok(hog.join().unwrap())
    });
    let held = held.unwrap();
    assert_eq!(held.coroutine.as_deref(), Some("'hog'"));
    assert_names(&held, &["thread 'main'", "'hog', spawned at", "holding.rs:", "calculate"]);
    let text = held.to_string();
    for ours in ["coracle-coro/src/", "coracle-loop/src/", "corosensei-"] {
        assert!(!text.contains(ours), "{text}");
    }
}

pub(crate) fn s43_coroutine_that_blocks_its_thread() {
    let (_watching, told) = reports(Watchdog::new());
    let held = run(|| {
        let hog = coracle_coro::spawn(move || block(&told));
        let id = hog.coroutine().id();
        Ok((hog.join().unwrap(), id))
    });
    let (held, id) = held.unwrap();
    assert_eq!(held.coroutine, Some(format!("#{id}")), "it has no name");
    assert_names(&held, &["holding.rs:", "block", "recv_timeout"]);
}

pub(crate) fn s43_callback_that_holds_its_loop() {
    let (_watching, told) = reports(Watchdog::new());
    let lp = Loop::new().unwrap();
    let (tell, seen) = channel();
    lp.after(Duration::from_millis(1), move |lp| {
        tell.send(calculate(&told)).unwrap();
        lp.stop();
    });
    lp.run().unwrap();
    let held = seen.recv().unwrap();
    assert_eq!(held.coroutine, None);
    assert_names(&held, &["by a callback", "calculate", "s43_callback_that_holds_its_loop"]);
}

pub(crate) fn s43_without_frames_nobody_is_interrupted() {
    let (_watching, told) = reports(Watchdog::new().without_frames());
    let held = run(move || Ok(block(&told))).unwrap();
    assert_names(&held, &["thread 'main'", "held for"]);
    assert!(held.trace.is_none() && held.coroutine.is_none());
}

pub(crate) fn s43_it_is_reported_again_when_it_lasts() {
    let (_watching, told) = reports(Watchdog::new());
    let held = run(move || Ok([block(&told), block(&told)])).unwrap();
    assert!(held[1].lasted >= held[0].lasted * 10, "{held:?}");
}

pub(crate) fn s43_every_backend_is_watched() {
    for backend in [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select, Backend::Sim] {
        let lp = match backend {
            Backend::Sim => Loop::builder().demux(Kernel::new(7).demux()).build(),
            _ => Loop::builder().backend(backend).build(),
        };
        let lp = lp.unwrap();
        assert!(LoopHandle::all().iter().any(|handle| handle.is_of(&lp)));
        let (_watching, told) = reports(Watchdog::new());
        let held = run_on(&lp, move || -> io::Result<Held> { Ok(calculate(&told)) }).unwrap();
        assert_names(&held, &["'main'", "calculate"]);
    }
}
