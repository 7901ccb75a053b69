//! What the cases have in common: a loop on a backend, many who call at the same time, and a neighbour.
#![allow(unsafe_code)]

use coracle::demux::Backend;
use coracle::{JoinHandle, Loop, run_on, spawn};
use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

/// How many ask at the same time.
pub(crate) const MANY: usize = 100;

/// Ends those that hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Those with real descriptors.
pub(crate) const BACKENDS: [Backend; 4] =
    [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select];

/// What is to be ended when a case hangs and the process with it.
pub(crate) static PROCESSES: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Runs `case` in a coroutine, on one thread and this backend, with hooks.
pub(crate) fn on(backend: Backend, case: impl FnOnce() -> io::Result<()> + 'static) {
    static ONCE: Once = Once::new();
    // SAFETY: clients that share nothing, each in its own coroutine; where they share something, that is the case.
    ONCE.call_once(|| unsafe { coracle::hook::enable() });
    let (alive, over) = channel::<()>();
    let name = thread::current().name().unwrap_or("a case").to_owned();
    thread::spawn(move || {
        if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _ = writeln!(io::stderr(), "{name} hangs on {backend}");
            for pid in PROCESSES.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                crate::servers::signal(pid, rustix::process::Signal::KILL);
            }
            std::process::abort();
        }
    });
    let lp = Loop::builder().backend(backend).build().expect("the backend opens");
    run_on(&lp, case).unwrap_or_else(|error| panic!("on {backend}: {error}"));
    drop(alive);
}

/// The same on every real backend, one after the other.
pub(crate) fn on_each(case: impl Fn(Backend) -> io::Result<()> + Clone + 'static) {
    for backend in BACKENDS {
        let case = case.clone();
        on(backend, move || case(backend));
    }
}

/// Runs `call` in so many coroutines, all of them before the first has ended.
fn start(count: usize, call: impl Fn(usize) + 'static) -> Vec<JoinHandle<()>> {
    let call = Rc::new(call);
    let one = |me| {
        let call = Rc::clone(&call);
        spawn(move || call(me))
    };
    (0..count).map(one).collect()
}

/// Runs `call` in many coroutines.
pub(crate) fn many(call: impl Fn(usize) + 'static) {
    start(MANY, call).into_iter().for_each(|one| one.join().expect("a client"));
}

/// Runs `call` in `count` coroutines whose server answers nobody yet. When `all_wait` says that every one of them
/// has asked, and a neighbour on the same thread has gone on sleeping and waking meanwhile, `open` lets the server
/// answer. If a call held the thread, the next would never ask.
pub(crate) fn held(
    count: usize,
    call: impl Fn(usize) + 'static,
    mut all_wait: impl FnMut() -> bool,
    open: impl FnOnce(),
) {
    let (ticks, over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let neighbour = spawn({
        let (ticks, over) = (Rc::clone(&ticks), Rc::clone(&over));
        move || {
            while !over.get() {
                thread::sleep(2 * MS);
                ticks.set(ticks.get() + 1);
            }
        }
    });
    let calls = start(count, call);
    let patiently = |is_so: &mut dyn FnMut() -> bool| {
        while !is_so() {
            let ended = calls.iter().position(JoinHandle::is_finished);
            assert_eq!(ended, None, "a client has ended before it was answered");
            thread::sleep(MS);
        }
    };
    patiently(&mut all_wait);
    let before = ticks.get();
    patiently(&mut || ticks.get() >= before + 3);
    open();
    calls.into_iter().for_each(|one| one.join().expect("a client"));
    over.set(true);
    neighbour.join().expect("the neighbour");
}

/// Whatever `call` returns; and that it has let others run meanwhile: who is ready runs before the thread sleeps.
pub(crate) fn parked<R>(call: impl FnOnce() -> R) -> R {
    let ran = Rc::new(Cell::new(false));
    let other = spawn({
        let ran = Rc::clone(&ran);
        move || ran.set(true)
    });
    let result = call();
    assert!(ran.get(), "the thread was held");
    other.join().expect("the other");
    result
}

/// Holds back a server of our own, in plain threads, until it is opened.
#[derive(Default, Clone)]
pub(crate) struct Gate(Arc<(Mutex<(usize, bool)>, Condvar)>);

impl Gate {
    /// In the server: somebody has asked.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().expect("the gate");
        state.0 += 1;
        while !state.1 {
            state = changed.wait(state).expect("the gate");
        }
    }

    /// How many have asked.
    pub(crate) fn asked(&self) -> usize {
        self.0.0.lock().expect("the gate").0
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().expect("the gate").1 = true;
        self.0.1.notify_all();
    }
}
