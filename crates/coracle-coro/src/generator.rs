//! Generators: a function that hands out values on its way, and takes others in.
//!
//! A [`Generator`] has a stack of its own. [`resume`](Generator::resume) goes there and comes back with a value
//! as soon as the function, or any function it calls, says [`suspend`](Yielder::suspend). Nothing
//! schedules it: it runs when it is resumed, on the thread that made it, and no loop is needed.
//!
//! ```text
//!                            resume
//!                 ┌──────────────────────────┐
//!      new        │                          ▼   return, panic
//!  ──────────► Suspended                  Running ────────────► Done
//!                 ▲                          │
//!                 └──────────────────────────┘
//!                            suspend
//! ```
//!
//! What keeps the states apart is a [`RefCell`]: whoever resumes a generator has borrowed its coroutine. So one
//! that is running cannot be resumed, not by itself either, and one that is dropped is not running.

use coracle_stack::{Coroutine, CoroutineResult, Pool, Stack, StackSize};
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::io;
use std::iter::FusedIterator;
use std::rc::Rc;

pub use crate::yielder::Yielder;

/// A function with a stack of its own, that hands out values on its way.
///
/// The function gets a [`Yielder`]; each value given to its `suspend` comes out of [`resume`](Generator::resume),
/// or of a `for` loop:
///
/// ```
/// use coracle_coro::Generator;
/// use coracle_coro::generator::Yielder;
///
/// /// Hanoi's moves, by a function that calls itself.
/// fn hanoi(disks: u32, [from, to, other]: [char; 3], out: &Yielder<String>) {
///     if disks > 0 {
///         hanoi(disks - 1, [from, other, to], out);
///         out.suspend(format!("{from}{to}"));
///         hanoi(disks - 1, [other, to, from], out);
///     }
/// }
///
/// let mut moves = Generator::new(|out| hanoi(64, ['a', 'c', 'b'], out));
/// assert_eq!(moves.next().as_deref(), Some("ab"));
/// assert_eq!(moves.next().as_deref(), Some("ac"));
/// // The other 18 quintillion are never computed.
/// ```
///
/// # Values in
/// What is given to `resume` comes out of the `suspend` that it was left in; the first, which no `suspend` waits
/// for, is an argument of the function. A value that it returns is the last.
///
/// ```
/// use coracle_coro::Generator;
/// use coracle_coro::generator::Resumed::{Complete, Yielded};
///
/// // Sums up until it is given a zero.
/// let sum = Generator::with_input(|out, first: u32| {
///     let (mut sum, mut next) = (0, first);
///     while next > 0 {
///         sum += next;
///         next = out.suspend(sum);
///     }
///     "enough"
/// });
/// assert_eq!(sum.resume(3), Ok(Yielded(3)));
/// assert_eq!(sum.resume(4), Ok(Yielded(7)));
/// assert_eq!(sum.resume(0), Ok(Complete("enough")));
/// ```
///
/// # Sharing it
/// `resume` takes `&self`, so that several may hold a generator in an [`Rc`], itself among them (in a
/// [`Weak`](std::rc::Weak), or else it is never dropped). Resuming one that is running is an
/// [error](ResumeError). A generator may make and resume others, and these others, as deep as there is memory
/// for stacks.
///
/// # Panics inside
/// A panic that leaves the function leaves `resume`. The generator is done then.
///
/// # Dropping it half-way
/// What is on its stack is dropped, in order. For this the function is unwound from the `suspend` it was left
/// in: by a panic of a special kind, which no hook reports. If it is caught, the next `suspend` throws it again.
///
/// This needs `panic = "unwind"`, and all frames from that `suspend` up to the function must be Rust's: a frame
/// of C, or of an `extern "C" fn`, cannot be unwound, and the process is aborted. It is aborted, too, if a
/// destructor waits in a `suspend` then. Who cannot rule that out runs the generator to its end, or
/// [forgets](std::mem::forget) it, and with it a stack.
///
/// # What it must not hold while it is suspended
/// Others run meanwhile, on the same thread. A lock is found locked by whoever wants it next, for ever. And a
/// scope of a thread-local, as of the crate `scoped-tls`, may end before one that began later, which is
/// **not sound**. The whole list is in SOUNDNESS.md.
///
/// In a coroutine, what the generator is inside of when it hands a value out (a [deadline](crate::deadline()), a
/// [shield](crate::shield()), [`no_park`](crate::no_park()), [`in_span`](crate::in_span())) is its own: it does
/// not hold for who has resumed it, and holds again when it goes on, whoever resumes it then. In a plain thread, a
/// deadline holds for the thread, also while a generator is suspended inside of it.
///
/// # Threads
/// Any thread can make generators; each has a pool of stacks for them. A generator stays on its thread, and so
/// may hold an `Rc` or a reference to a thread-local; but in the latter case it must not itself be kept in another
/// thread-local, where it could be the last to be dropped.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_coro::Generator<u32>>();
/// ```
pub struct Generator<Yield, Input = (), Return = ()> {
    /// Borrowed while it runs.
    coroutine: RefCell<Coroutine<Input, Yield, Return>>,
}

/// What came of resuming a [`Generator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resumed<Yield, Return = ()> {
    /// It has handed this out, and waits.
    Yielded(Yield),
    /// It has returned this, and is done.
    Complete(Return),
}

/// Why a [`Generator`] was not resumed.
///
/// ```
/// use coracle_coro::Generator;
/// use coracle_coro::generator::{ResumeError, Resumed};
///
/// let generator = Generator::<u32>::new(|_| ());
/// assert_eq!(generator.resume(()), Ok(Resumed::Complete(())));
/// let error = generator.resume(()).unwrap_err();
/// assert_eq!(error, ResumeError::Done);
/// assert_eq!(error.to_string(), "cannot resume a generator that is done");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResumeError {
    /// It is running: it tries to resume itself, or one does that it has resumed.
    Running,
    /// It has returned or panicked.
    Done,
}

/// What a [`Generator`] is doing.
///
/// ```
/// use coracle_coro::Generator;
/// use coracle_coro::generator::Status;
/// use std::rc::{Rc, Weak};
///
/// // One that looks at itself.
/// let generator = Rc::new_cyclic(|itself: &Weak<Generator<Status>>| {
///     let itself = itself.clone();
///     Generator::new(move |out| {
///         let status = itself.upgrade().unwrap().status();
///         out.suspend(status);
///     })
/// });
/// let statuses: Vec<Status> = std::iter::from_fn(|| generator.resume(()).ok()?.yielded()).collect();
/// assert_eq!(statuses, [Status::Running]);
/// assert_eq!(generator.status(), Status::Done);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// It can be resumed: it has not begun, or waits in a `suspend`.
    Suspended,
    /// It runs now, or one does that it has resumed.
    Running,
    /// It has returned or panicked.
    Done,
}

impl<Yield: 'static, Return: 'static> Generator<Yield, (), Return> {
    /// A generator that will run `body` when it is first resumed. It is an [`Iterator`] over what comes out.
    ///
    /// # Panics
    /// When there is no stack for it: [`Builder::build`] has an error instead.
    #[track_caller]
    #[inline]
    pub fn new<F>(body: F) -> Generator<Yield, (), Return>
    where
        F: FnOnce(&Yielder<Yield>) -> Return + 'static,
    {
        Generator::with_input(move |out, ()| body(out))
    }
}

impl<Yield: 'static, Input: 'static, Return: 'static> Generator<Yield, Input, Return> {
    /// A generator that takes values in. The first is an argument of `body`, the others come out of `suspend`.
    ///
    /// # Panics
    /// When there is no stack for it: [`Builder::build`] has an error instead.
    #[track_caller]
    #[inline]
    pub fn with_input<F>(body: F) -> Generator<Yield, Input, Return>
    where
        F: FnOnce(&Yielder<Yield, Input>, Input) -> Return + 'static,
    {
        match take_stack(StackSize::default()) {
            Ok(stack) => Generator::on(stack, body),
            Err(error) => panic!("cannot make a generator: {error}"),
        }
    }

    #[inline]
    fn on<F>(stack: Stack, body: F) -> Generator<Yield, Input, Return>
    where
        F: FnOnce(&Yielder<Yield, Input>, Input) -> Return + 'static,
    {
        let body = move |out: &coracle_stack::Yielder<Input, Yield>, input| {
            Yielder::run(out, |out| body(out, input))
        };
        Generator { coroutine: RefCell::new(Coroutine::new(stack, body)) }
    }
}

impl<Yield, Input, Return> Generator<Yield, Input, Return> {
    /// Runs it until it hands out a value or returns.
    ///
    /// # Errors
    /// [`Running`](ResumeError::Running) or [`Done`](ResumeError::Done); `input` is dropped.
    ///
    /// # Panics
    /// When it panics.
    #[inline]
    pub fn resume(&self, input: Input) -> Result<Resumed<Yield, Return>, ResumeError> {
        let mut coroutine = self.coroutine.try_borrow_mut().map_err(|_| ResumeError::Running)?;
        if coroutine.is_done() {
            return Err(ResumeError::Done);
        }
        Ok(match coroutine.resume(input) {
            CoroutineResult::Yield(value) => Resumed::Yielded(value),
            CoroutineResult::Return(value) => Resumed::Complete(value),
        })
    }

    /// What it is doing.
    #[inline]
    pub fn status(&self) -> Status {
        match self.coroutine.try_borrow() {
            Err(_) => Status::Running,
            Ok(coroutine) if coroutine.is_done() => Status::Done,
            Ok(_) => Status::Suspended,
        }
    }

    /// The most that was ever used of its stack, in bytes; `None` while it is running. In release builds others
    /// that had this stack before count, too. One system call.
    ///
    /// ```
    /// let generator = coracle_coro::Generator::new(|out| out.suspend(1));
    /// generator.resume(()).unwrap();
    /// assert!(generator.high_water().unwrap() > 0);
    /// ```
    pub fn high_water(&self) -> Option<usize> {
        Some(self.coroutine.try_borrow().ok()?.stack().high_water())
    }
}

/// What it hands out, until it is done. What it returns is dropped.
impl<Yield, Return> Iterator for Generator<Yield, (), Return> {
    type Item = Yield;

    #[inline]
    fn next(&mut self) -> Option<Yield> {
        self.resume(()).ok()?.yielded()
    }
}

impl<Yield, Return> FusedIterator for Generator<Yield, (), Return> {}

impl<Yield, Input, Return> fmt::Debug for Generator<Yield, Input, Return> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generator({:?})", self.status())
    }
}

impl<Yield, Return> Resumed<Yield, Return> {
    /// What it has handed out, if it has.
    #[inline]
    pub fn yielded(self) -> Option<Yield> {
        match self {
            Resumed::Yielded(value) => Some(value),
            Resumed::Complete(_) => None,
        }
    }

    /// What it has returned, if it has.
    #[inline]
    pub fn complete(self) -> Option<Return> {
        match self {
            Resumed::Yielded(_) => None,
            Resumed::Complete(value) => Some(value),
        }
    }
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResumeError::Running => "cannot resume a generator that is running",
            ResumeError::Done => "cannot resume a generator that is done",
        })
    }
}

impl std::error::Error for ResumeError {}

/// What can be chosen about a [`Generator`], as `std::thread::Builder` has it for threads.
///
/// ```
/// use coracle_coro::generator::Builder;
///
/// let depths = Builder::new().name("diver").stack_size(8 << 20).build(|out, ()| {
///     fn dive(depth: u32) -> u32 {
///         if depth == 0 { 0 } else { std::hint::black_box(dive(depth - 1)) + 1 }
///     }
///     out.suspend(dive(10_000));
/// })?;
/// assert_eq!(depths.collect::<Vec<_>>(), [10_000]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    name: Option<Rc<str>>,
    stack_bytes: Option<usize>,
}

impl Builder {
    /// No name, and a stack of 192 KiB.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// What it is called when it overflows its stack.
    #[must_use]
    pub fn name(self, name: impl Into<Rc<str>>) -> Builder {
        Builder { name: Some(name.into()), ..self }
    }

    /// How much of stack it can use at least, in bytes: 64 KiB to 1 GiB, the guard not counted. This is
    /// address space; memory is used as the
    /// stack grows.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Builder {
        Builder { stack_bytes: Some(bytes), ..self }
    }

    /// A generator that will run `body`, as [`Generator::with_input`] makes it.
    ///
    /// # Errors
    /// `InvalidInput` for a stack of more than 1 GiB; `QuotaExceeded` when this thread's generators have as many
    /// stacks as [they may](coracle_stack::Settings::limit_stacks); what mmap(2) says, most likely `OutOfMemory`.
    pub fn build<Yield, Input, Return, F>(
        self,
        body: F,
    ) -> io::Result<Generator<Yield, Input, Return>>
    where
        F: FnOnce(&Yielder<Yield, Input>, Input) -> Return + 'static,
        Yield: 'static,
        Input: 'static,
        Return: 'static,
    {
        let size = self.stack_bytes.map_or(Ok(StackSize::default()), StackSize::at_least)?;
        let mut stack = take_stack(size)?;
        if let Some(name) = self.name {
            stack.set_name(name);
        }
        Ok(Generator::on(stack, body))
    }
}

/// A stack of this thread's pool.
#[inline]
fn take_stack(size: StackSize) -> io::Result<Stack> {
    thread_local! {
        static POOL: OnceCell<Pool> = const { OnceCell::new() };
    }
    let take = |shared: &OnceCell<Pool>| match shared.get() {
        Some(pool) => pool.take(size),
        None => {
            let pool = Pool::new()?;
            shared.get_or_init(|| pool).take(size)
        }
    };
    // It is gone when the thread is about to end. A generator that is made then has a pool of its own.
    POOL.try_with(take).unwrap_or_else(|_| Pool::new()?.take(size))
}
