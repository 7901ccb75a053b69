//! What a case works with: a loop on the backend under test, and ways to run coroutines on it.

use coracle_loop::demux::Backend;
use coracle_loop::demux::lock::Lock;
use coracle_loop::demux::sim::{Faults, Kernel};
use coracle_loop::{Builder, Loop};
use std::cell::RefCell;
use std::fmt::Debug;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// No case takes longer than this, however busy the machine. It decides no case: it ends those that hang.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Longer than any case.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Who has hundreds of descriptors, and who needs numbers below a thousand, do not run at the same time.
static CROWD: RwLock<()> = RwLock::new(());

/// For who has hundreds of descriptors, on any backend but select.
#[allow(dead_code)] // of the suites that share this file, only some have such a case
pub(crate) fn crowd() -> RwLockWriteGuard<'static, ()> {
    CROWD.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Harness {
    pub(crate) lp: Loop,
    backend: Backend,
    kernel: Option<Kernel>,
    _watchdog: Sender<()>,
    /// select can watch only descriptors below 1024, and they are numbered for all cases together.
    _room: Option<RwLockReadGuard<'static, ()>>,
}

impl Harness {
    pub(crate) fn new(backend: Backend, path: &'static str) -> Harness {
        let room = (backend == Backend::Select)
            .then(|| CROWD.read().unwrap_or_else(PoisonError::into_inner));
        let kernel = (backend == Backend::Sim).then(|| Kernel::with_faults(1, Faults::benign()));
        let lp = builder(backend, kernel.as_ref()).build().expect("the backend opens");
        Harness { lp, backend, kernel, _watchdog: watch_over(path), _room: room }
    }

    /// A loop of its own on the same backend.
    pub(crate) fn another_loop(&self) -> Loop {
        builder(self.backend, self.kernel.as_ref()).build().expect("the backend opens")
    }

    /// What sends a signal to the process, which in the simulator is a simulated one.
    pub(crate) fn raiser(&self) -> Rc<dyn Fn(i32)> {
        match self.kernel.clone() {
            Some(kernel) => Rc::new(move |signal| kernel.raise(signal)),
            None => Rc::new(|signal| {
                let signal =
                    rustix::process::Signal::from_named_raw(signal).expect("it has a name");
                rustix::process::kill_process(rustix::process::getpid(), signal)
                    .expect("it is ours");
            }),
        }
    }

    /// Runs `f` as the first coroutine, and all others to their end.
    pub(crate) fn run(&self, f: impl FnOnce() -> io::Result<()> + 'static) {
        coracle_coro::run_on(&self.lp, f).expect("the case");
    }
}

/// How many run what [`everywhere`] is given.
pub(crate) const PARTIES: usize = 6;

/// Runs `party` in six places at the same time, each with its number: two coroutines of this loop, two of another,
/// and two plain threads. Returns what each of them returned.
pub(crate) fn everywhere<T: Send + 'static>(
    h: &Harness,
    party: impl Fn(usize, usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let party = Arc::new(move |me| party(me, PARTIES));
    let (backend, results) = (h.backend, Arc::new(Lock::new(Vec::new())));
    let shared = Arc::clone(&results);
    h.run(move || {
        let main = coracle_coro::current();
        let go = |me: usize| {
            let (party, results, main) = (Arc::clone(&party), Arc::clone(&shared), main.clone());
            move || {
                let result = party(me);
                results.lock().push((me, result));
                main.unpark();
            }
        };
        let own = [0, 1].map(|me| coracle_coro::spawn(go(me)));
        let pair = [2, 3].map(&go);
        let other = std::thread::spawn(move || {
            let lp = make_loop(backend, 2).expect("the backend opens");
            let pair = move || Ok(pair.map(coracle_coro::spawn).map(|one| one.join().unwrap()));
            coracle_coro::run_on(&lp, pair).expect("the other loop");
        });
        let threads = [4, 5].map(|me| std::thread::spawn(go(me)));
        while shared.lock().len() < PARTIES {
            let ended = |thread: &std::thread::JoinHandle<()>| thread.is_finished();
            if !threads.iter().chain([&other]).any(ended) {
                coracle_coro::park()?;
            } else {
                coracle_coro::park_timeout(MS)?; // one that has panicked does not unpark
            }
            if threads.iter().chain([&other]).all(ended) && own.iter().all(|one| one.is_finished())
            {
                break;
            }
        }
        own.into_iter().for_each(|one| one.join().expect("a coroutine of this loop"));
        other.join().expect("the other loop");
        threads.into_iter().for_each(|thread| thread.join().expect("a plain thread"));
        Ok(())
    });
    let mut results = std::mem::take(&mut *results.lock());
    results.sort_by_key(|(me, _)| *me);
    assert_eq!(results.len(), PARTIES);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The time of the loop that this coroutine is on.
pub(crate) fn now() -> Instant {
    Loop::current().expect("we are in a loop").deadline(Duration::ZERO)
}

/// The error number of something that failed; that of a wait that was too late, which has none of its own.
pub(crate) fn errno<T: Debug>(result: io::Result<T>) -> i32 {
    let error = result.expect_err("it must fail");
    let late = (error.kind() == io::ErrorKind::TimedOut).then_some(ETIMEDOUT);
    error.raw_os_error().or(late).expect("an error of the system")
}

pub(crate) const ECANCELED: i32 = rustix::io::Errno::CANCELED.raw_os_error();
pub(crate) const ETIMEDOUT: i32 = rustix::io::Errno::TIMEDOUT.raw_os_error();

/// A list that coroutines write to.
#[derive(Clone, Default)]
pub(crate) struct Log(Rc<RefCell<Vec<&'static str>>>);

impl Log {
    pub(crate) fn add(&self, what: &'static str) {
        self.0.borrow_mut().push(what);
    }

    pub(crate) fn take(&self) -> Vec<&'static str> {
        self.0.take()
    }
}

/// Notes in a [`Log`] that it was dropped.
pub(crate) struct Noted(pub(crate) Log, pub(crate) &'static str);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.add(self.1);
    }
}

/// A loop for any thread; in the simulator it is a world of its own.
pub(crate) fn make_loop(backend: Backend, seed: u64) -> io::Result<Loop> {
    let kernel = (backend == Backend::Sim).then(|| Kernel::with_faults(seed, Faults::benign()));
    builder(backend, kernel.as_ref()).build()
}

fn builder(backend: Backend, kernel: Option<&Kernel>) -> Builder {
    match kernel {
        Some(kernel) => Loop::builder().demux(kernel.demux()),
        None => Loop::builder().backend(backend),
    }
}

/// Ends the process, naming the case, unless the case is over in time.
pub(crate) fn watch_over(path: &'static str) -> Sender<()> {
    let (alive, case) = channel();
    std::thread::spawn(move || {
        if case.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            // Not by a macro: the test runner would keep what it prints to itself.
            let _ = writeln!(io::stderr(), "{path} hangs: not over after {PATIENCE:?}");
            std::process::abort();
        }
    });
    alive
}
