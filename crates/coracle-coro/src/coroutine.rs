//! A handle to a coroutine, for any thread: what `std::thread::Thread` is to a thread.

use crate::sleeper::Sleeper;
use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A handle to a coroutine, or to a plain thread. Cheap to clone; any thread.
///
/// ```
/// coracle_coro::run(|| {
///     let main = coracle_coro::current();
///     assert_eq!(main.name(), Some("main"));
///     std::thread::spawn(move || main.unpark());
///     coracle_coro::park()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Coroutine(Arc<Sleeper>);

impl Coroutine {
    pub(crate) fn new(sleeper: Arc<Sleeper>) -> Coroutine {
        Coroutine(sleeper)
    }

    #[inline]
    pub(crate) fn sleeper(&self) -> &Arc<Sleeper> {
        &self.0
    }

    /// What tells it from every other of this process, past ones included.
    pub fn id(&self) -> CoroutineId {
        self.0.id
    }

    /// What it was called when it was [spawned](crate::Builder::name).
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Has its [`park`](crate::park()) return, the one it is in or else the next. Any thread.
    pub fn unpark(&self) {
        self.0.unpark();
    }

    pub(crate) fn cancel(&self) {
        self.0.cancel();
    }
}

/// `'resolver'`, or `#7` if it has no name.
impl fmt::Display for Coroutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Coroutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Coroutine({self})")
    }
}

/// What a coroutine is called. Most have no name, so it takes no more than a pointer if there is none.
#[derive(Clone)]
pub(crate) struct Name(Box<Box<str>>);

impl Name {
    pub(crate) fn new(name: Box<str>) -> Name {
        Name(Box::new(name))
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The coroutine that calls; of a plain thread, a handle to the thread.
///
/// ```
/// let here = coracle_coro::current();
/// assert_eq!(here.id(), coracle_coro::current().id());
/// ```
pub fn current() -> Coroutine {
    Coroutine(Sleeper::of_caller())
}

/// Whether the caller may wait: a coroutine may, and a plain thread; a callback of a loop may not, it would be a
/// panic, nor may anybody inside [`no_park`](crate::no_park()).
///
/// For code that has work to [`offload`](crate::offload()) where that can be waited for, and does it there and
/// then where it cannot.
///
/// ```
/// use coracle_loop::Loop;
///
/// assert!(coracle_coro::may_wait());
/// coracle_coro::run(|| {
///     assert!(coracle_coro::may_wait());
///     Loop::current().unwrap().defer(|_| assert!(!coracle_coro::may_wait()));
///     coracle_coro::yield_now();
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn may_wait() -> bool {
    crate::current::with(|frame| match frame {
        Some(frame) => frame.no_park.get() == 0,
        None => coracle_loop::Loop::current().is_none(),
    })
}

/// Tells a coroutine from every other of the process.
///
/// ```
/// coracle_coro::run(|| {
///     let child = coracle_coro::spawn(|| coracle_coro::current().id());
///     let id = child.coroutine().id();
///     assert_eq!(child.join().unwrap(), id);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoroutineId(NonZeroU64);

impl CoroutineId {
    /// One that nobody had.
    pub(crate) fn next() -> CoroutineId {
        CoroutineId(take(1))
    }
}

/// Numbers that nobody had, for who needs one often.
pub(crate) struct Ids {
    next: Cell<u64>,
    /// One more than the last that is ours.
    end: Cell<u64>,
}

/// How many are taken at a time.
const BLOCK: u64 = 64;

impl Ids {
    pub(crate) fn new() -> Ids {
        Ids { next: Cell::new(1), end: Cell::new(1) }
    }

    #[inline]
    pub(crate) fn next(&self) -> CoroutineId {
        if self.next.get() == self.end.get() {
            let first = take(BLOCK).get();
            self.next.set(first);
            self.end.set(first + BLOCK);
        }
        let id = self.next.get();
        self.next.set(id + 1);
        CoroutineId(NonZeroU64::new(id).unwrap_or(NonZeroU64::MIN)) // they begin with 1
    }
}

/// The first of so many that nobody had.
#[inline(never)]
fn take(count: u64) -> NonZeroU64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let first = NEXT.fetch_add(count, Ordering::Relaxed);
    NonZeroU64::new(first).expect("nobody counts to the end")
}

impl fmt::Display for CoroutineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
