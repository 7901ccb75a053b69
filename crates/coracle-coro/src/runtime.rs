//! Running a program on several loops: a thread for each, and nothing shared but what is sent.

use crate::group::{Group, Member};
use crate::run::{refuse_turns, run_on, start_main};
use crate::scheduler::Scheduler;
use coracle_loop::demux::{Backend, Processors, pin_thread};
use coracle_loop::{Loop, LoopHandle};
use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

type MakeLoop = dyn Fn(usize) -> io::Result<Loop> + Send + Sync;

/// As [`run`](crate::run()), on several loops.
///
/// Each loop has a thread of its own; the first is that of the caller, and runs the first coroutine. A coroutine
/// stays on the loop it was spawned on: [`spawn`](crate::spawn()) is for the same loop,
/// [`spawn_anywhere`](crate::spawn_anywhere) for the one that has the fewest, and [`spawn_on`](crate::spawn_on)
/// for a certain one of the [`loops`](crate::loops).
///
/// ```
/// use coracle_coro::{Runtime, spawn_anywhere};
///
/// let sum = Runtime::new().loops(2).run(|| {
///     let squares: Vec<_> = (1..=10).map(|n| spawn_anywhere(move || n * n)).collect::<Result<_, _>>()?;
///     Ok(squares.into_iter().map(|square| square.join().unwrap()).sum::<u32>())
/// })?;
/// assert_eq!(sum, 385);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// It is a type of its own, because [`Builder`](crate::Builder) is for coroutines, as std's is for threads, and
/// `coracle_loop::Builder` for single loops.
#[must_use = "it does nothing before `run`"]
pub struct Runtime {
    loops: Option<usize>,
    pin_threads: bool,
    make_loop: Arc<MakeLoop>,
}

impl Runtime {
    /// A loop for each core that the process may use.
    pub fn new() -> Runtime {
        Runtime { loops: None, pin_threads: false, make_loop: Arc::new(|_| Loop::new()) }
    }

    /// How many loops there are.
    ///
    /// ```
    /// use coracle_coro::{Runtime, loops};
    ///
    /// let count = Runtime::new().loops(3).run(|| Ok(loops().len()))?;
    /// assert_eq!(count, 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn loops(mut self, loops: usize) -> Runtime {
        self.loops = Some(loops);
        self
    }

    /// Whether the thread of each loop stays on a processor, in turn, from the first on. Off: the system moves
    /// threads to where there is room, which is better on a machine that has other things to do. The thread of the
    /// caller may go everywhere again when the run is over.
    ///
    /// ```
    /// coracle_coro::Runtime::new().loops(2).pin_threads(true).run(|| Ok(()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pin_threads(mut self, on: bool) -> Runtime {
        self.pin_threads = on;
        self
    }

    /// The backend of all loops. Without this, the best there is.
    ///
    /// ```
    /// use coracle_loop::demux::Backend;
    ///
    /// coracle_coro::Runtime::new().loops(2).backend(Backend::Poll).run(|| Ok(()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn backend(self, backend: Backend) -> Runtime {
        self.make_loops(move |_| Loop::builder().backend(backend).build())
    }

    /// How a loop is made, with settings of your own, or simulated. `make` is called on the thread of each loop,
    /// with its number.
    ///
    /// ```
    /// use coracle_loop::Loop;
    ///
    /// let runtime = coracle_coro::Runtime::new().loops(2);
    /// runtime.make_loops(|_| Loop::builder().budget(64).build()).run(|| Ok(()))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn make_loops(
        mut self,
        make: impl Fn(usize) -> io::Result<Loop> + Send + Sync + 'static,
    ) -> Runtime {
        self.make_loop = Arc::new(make);
        self
    }

    /// Runs `f` as the first coroutine, called `main`. Returns what `f` returned, when it *and every coroutine
    /// of every loop* is over.
    ///
    /// Whoever stops one of the loops ([`LoopHandle::stop`]) cancels all coroutines of all of them; they are
    /// waited for all the same.
    ///
    /// # Errors
    /// What `f` says. `InvalidInput` without loops. That a loop cannot be made, its thread not started, or not
    /// pinned; that the kernel's side of one broke: its coroutines are leaked then, and all others cancelled.
    ///
    /// # Panics
    /// If `f` does, or a callback on one of the loops, with the same. In a coroutine or a callback, where there
    /// is a loop already.
    ///
    /// ```
    /// let seven = coracle_coro::Runtime::new().loops(2).run(|| Ok(7))?;
    /// assert_eq!(seven, 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run<F, T>(self, f: F) -> io::Result<T>
    where
        F: FnOnce() -> io::Result<T> + 'static,
        T: 'static,
    {
        refuse_turns();
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        let loops = self.loops.unwrap_or_else(cores);
        if loops == 0 {
            let text = "cannot run on 0 loops: `Runtime::loops` wants at least one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut workers = Workers::default();
        let mut handles = Vec::new();
        for index in 1..loops {
            let (handle, worker) = self.start_worker(index)?;
            handles.push(handle);
            workers.0.push(worker);
        }
        let lp = (self.make_loop)(0)?;
        let _unpin = if self.pin_threads { Some(pin(0)?) } else { None };
        if loops == 1 {
            return run_on(&lp, f);
        }
        handles.insert(0, lp.handle());
        let group = Group::new(handles);
        workers.begin(&group);
        let main = start_main(&lp, f)?;
        let ended = run_member(&lp, Member { group, index: 0 });
        workers.join()?;
        ended?;
        let main = main.take().expect("it is started in the first turn");
        main.join().unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }

    /// Starts the thread of a loop, and waits until there is one.
    fn start_worker(&self, index: usize) -> io::Result<(LoopHandle, Worker)> {
        let (make_loop, pin_threads) = (Arc::clone(&self.make_loop), self.pin_threads);
        let (report, reported) = channel();
        let (begin, begun) = channel();
        let body = move || worker(index, &*make_loop, pin_threads, &report, &begun);
        let thread = thread::Builder::new().name(format!("coracle loop {index}")).spawn(body)?;
        let handle = reported.recv().unwrap_or_else(|_| {
            Err(io::Error::other(format!("loop {index} panicked before it began")))
        })?;
        Ok((handle, Worker { begin, thread }))
    }
}

impl Default for Runtime {
    fn default() -> Runtime {
        Runtime::new()
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Runtime { loops, pin_threads, .. } = self;
        f.debug_struct("Runtime").field("loops", loops).field("pin_threads", pin_threads).finish()
    }
}

/// The threads of all loops but the first. If they are not told to begin, they end.
#[derive(Default)]
struct Workers(Vec<Worker>);

struct Worker {
    begin: Sender<Arc<Group>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Workers {
    fn begin(&self, group: &Arc<Group>) {
        for worker in &self.0 {
            let _ = worker.begin.send(Arc::clone(group)); // it waits for that
        }
    }

    /// Waits for all, and says what was the first to go wrong.
    fn join(self) -> io::Result<()> {
        let ended: Vec<_> = self.0.into_iter().map(|worker| worker.thread.join()).collect();
        for ended in ended {
            ended.unwrap_or_else(|payload| resume_unwind(payload))?;
        }
        Ok(())
    }
}

/// The thread of one loop.
fn worker(
    index: usize,
    make_loop: &MakeLoop,
    pin_thread: bool,
    report: &Sender<io::Result<LoopHandle>>,
    begun: &Receiver<Arc<Group>>,
) -> io::Result<()> {
    let made = make_loop(index).and_then(|lp| {
        if pin_thread {
            std::mem::forget(pin(index)?); // for as long as the thread lives
        }
        Ok(lp)
    });
    let lp = match made {
        Ok(lp) => lp,
        Err(error) => {
            let _ = report.send(Err(error));
            return Ok(());
        }
    };
    let _ = report.send(Ok(lp.handle()));
    match begun.recv() {
        Ok(group) => run_member(&lp, Member { group, index }),
        Err(_) => Ok(()), // another loop could not be made
    }
}

/// Runs one of the loops until all coroutines of all of them are over.
fn run_member(lp: &Loop, member: Member) -> io::Result<()> {
    let (group, index) = (Arc::clone(&member.group), member.index);
    let scheduler = Scheduler::of(lp);
    scheduler.join_group(member);
    let abandon = Abandon(Member { group: Arc::clone(&group), index });
    while !(group.is_done() && scheduler.is_empty()) {
        lp.run()?;
        if !group.is_done() {
            group.cancel_all(); // it was somebody else who stopped the loop
        } else if !scheduler.is_empty() {
            lp.defer(|lp| Scheduler::of(lp).cancel_all()); // who comes when all is over
        }
    }
    std::mem::forget(abandon);
    Ok(())
}

/// When it is dropped, the loop is gone, by an error or a panic: nobody must wait for its coroutines.
struct Abandon(Member);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Binds this thread to a processor, until what it returns is dropped.
fn pin(index: usize) -> io::Result<Unpin> {
    let before = Processors::of_this_thread()?;
    let number = pin_thread(index).map_err(|error| {
        let text = format!("cannot bind loop {index} to a processor: {error}");
        io::Error::new(error.kind(), text)
    })?;
    tracing::debug!("loop {index} stays on processor {number}");
    Ok(Unpin(before))
}

struct Unpin(Processors);

impl Drop for Unpin {
    fn drop(&mut self) {
        if let Err(error) = self.0.use_for_this_thread() {
            tracing::warn!(%error, "a thread that was bound to a processor stays there");
        }
    }
}
