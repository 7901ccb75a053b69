//! The jump between stacks: corosensei's, with our stacks. Nothing is added to a switch.
//!
//! ```text
//!   low                                                                                 low + size
//!   ┌─────────────────────────── … ──────────────────┬──────┬───────────────────┬───────┐
//!   │                                    ◄── frames  │ seat │ 0–15 colours      │ label │
//!   └─────────────────────────── … ──────────────────┴──────┴───────────────────┴───────┘
//!   limit                                            base
//! ```
//!
//! The *seat* is for a coroutine that is [kept on its own stack](crate::seat).
#![allow(unsafe_code)]

use crate::label::LABEL_BYTES;
use crate::mapping::Slot;
use crate::pool::Stack;
use crate::seat::SEAT_BYTES;
use corosensei::stack::{STACK_ALIGNMENT, StackPointer};
use corosensei::{CoroutineResult, Yielder};
use std::fmt;

/// The tops of stacks are this much apart in their pages, or else they would all compete for the same lines
/// of the processor's caches. It is a gain of a few per cent, when many take turns, and costs nothing.
const COLOUR_BYTES: usize = 64;

/// So many different places.
const COLOURS: usize = 16;

/// A function that has captured more than this is put on the heap first: corosensei takes no more.
const LIMIT_BODY_BYTES: usize = 1024;

/// A function with a stack of its own, that can be left in the middle and entered again.
///
/// [`resume`](Coroutine::resume) runs it until it calls [`Yielder::suspend`] or returns. It stays on its
/// thread, and so may hold an `Rc`, a lock guard or a reference to a thread-local while it is suspended.
///
/// ```
/// use coracle_stack::{Coroutine, CoroutineResult, Pool, StackSize, Yielder};
///
/// let pool = Pool::new()?;
/// let stack = pool.take(StackSize::default())?;
/// let mut sum = Coroutine::new(stack, |yielder: &Yielder<u32, u32>, first| {
///     let second = yielder.suspend(first);
///     first + second
/// });
/// assert_eq!(sum.resume(1), CoroutineResult::Yield(1));
/// assert_eq!(sum.resume(2), CoroutineResult::Return(3));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics inside
/// A panic that leaves the function leaves `resume`, too. The coroutine is done then.
///
/// # Dropping it half-way
/// A coroutine that is suspended is unwound when it is dropped: what is on its stack is dropped, in order,
/// and if it suspends itself again meanwhile, it is unwound from there. This is a panic of a special kind,
/// so it needs `panic = "unwind"`, and **must not pass frames of C**, where it aborts the process. Whoever
/// cannot rule that out [forgets](std::mem::forget) the coroutine: its stack is then never used again. One
/// that was not started only drops its function.
///
/// # Threads
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<coracle_stack::Coroutine<(), (), ()>>();
/// ```
pub struct Coroutine<Input, Yield, Return> {
    // Before the stack it is on: fields are dropped in order.
    inner: corosensei::Coroutine<Input, Yield, Return, Bounds>,
    stack: Stack,
}

impl<Input: 'static, Yield: 'static, Return: 'static> Coroutine<Input, Yield, Return> {
    /// A coroutine that will run `body` on `stack`. If `body` has captured much, it waits in a box until then.
    #[inline]
    pub fn new<F>(stack: Stack, body: F) -> Coroutine<Input, Yield, Return>
    where
        F: FnOnce(&Yielder<Input, Yield>, Input) -> Return + 'static,
    {
        Coroutine { inner: place(Bounds::of(&stack), body), stack }
    }

    /// Has it run `body` from now on, after it has come to its end. `bounds` are those of its stack.
    ///
    /// # Panics
    /// When it has not come to its end.
    #[inline]
    pub(crate) fn restart<F>(&mut self, bounds: Bounds, body: F)
    where
        F: FnOnce(&Yielder<Input, Yield>, Input) -> Return + 'static,
    {
        assert!(self.inner.done(), "a coroutine is restarted when it has come to its end");
        self.inner = place(bounds, body);
    }
}

impl<Input, Yield, Return> Coroutine<Input, Yield, Return> {
    /// Runs it, until it suspends itself or returns.
    ///
    /// # Panics
    /// When it has returned before; when it panics.
    #[inline]
    pub fn resume(&mut self, input: Input) -> CoroutineResult<Yield, Return> {
        self.inner.resume(input)
    }

    /// Unwinds it, as dropping it would do; it is done then. For those who want to see a panic of a destructor: it
    /// leaves this call.
    pub fn unwind(&mut self) {
        self.inner.force_unwind();
    }

    /// Whether it was resumed at least once.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.inner.started()
    }

    /// Whether it has come to its end, in one way or the other.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.inner.done()
    }

    /// Its stack: how large it is, how much of it was used, what it is called.
    #[inline]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }
}

impl<Input, Yield, Return> Drop for Coroutine<Input, Yield, Return> {
    #[inline]
    fn drop(&mut self) {
        if !self.inner.done() {
            self.inner.force_unwind(); // if it panics, the stack is given back all the same
        }
    }
}

impl<Input, Yield, Return> fmt::Debug for Coroutine<Input, Yield, Return> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coroutine")
            .field("stack", &self.stack)
            .field("is_done", &self.is_done())
            .finish()
    }
}

/// Puts `body` on a stack that nobody uses.
#[inline]
fn place<Input: 'static, Yield: 'static, Return: 'static, F>(
    bounds: Bounds,
    body: F,
) -> corosensei::Coroutine<Input, Yield, Return, Bounds>
where
    F: FnOnce(&Yielder<Input, Yield>, Input) -> Return + 'static,
{
    // corosensei puts it at the top of the stack, if it is small and of no special alignment.
    if const { size_of::<F>() > LIMIT_BODY_BYTES || align_of::<F>() > STACK_ALIGNMENT } {
        let body = Box::new(body);
        corosensei::Coroutine::with_stack(bounds, move |yielder, input| body(yielder, input))
    } else {
        corosensei::Coroutine::with_stack(bounds, body)
    }
}

/// Runs `body` on another stack, and comes back: for deep recursion in a coroutine with a small one.
///
/// ```
/// use coracle_stack::{Pool, StackSize, on_stack};
///
/// fn depth(n: u32) -> u32 {
///     if n == 0 { 0 } else { std::hint::black_box(depth(n - 1)) + 1 }
/// }
///
/// let pool = Pool::new()?;
/// let mut stack = pool.take(StackSize::at_least(64 << 20)?)?;
/// assert_eq!(on_stack(&mut stack, || depth(100_000)), 100_000);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A coroutine may suspend itself in `body`, and goes on there. A panic leaves this call.
pub fn on_stack<R>(stack: &mut Stack, body: impl FnOnce() -> R) -> R {
    corosensei::on_stack(Bounds::of(stack), body)
}

/// Where a stack begins and ends: what corosensei needs to know. The owner of the stack keeps it.
pub(crate) struct Bounds {
    pub(crate) base: StackPointer,
    pub(crate) limit: StackPointer,
}

impl Bounds {
    #[inline]
    pub(crate) fn of(stack: &Stack) -> Bounds {
        let Slot { low, number, size, .. } = stack.slot();
        let colour = usize::from(number) % COLOURS * COLOUR_BYTES;
        let base = low
            .checked_add(size.bytes() - LABEL_BYTES - colour - SEAT_BYTES)
            .expect("a stack ends before the addresses do");
        Bounds { base, limit: low }
    }
}

// SAFETY: both are multiples of 64, at least 62 KiB apart, and all between them is memory that only the
// holder of the `Stack` uses. Below `limit` is a guard region of 64 KiB. The `Stack` outlives
// whoever gets these bounds: it is kept beside the coroutine and dropped after it, or is borrowed while
// `on_stack` runs.
unsafe impl corosensei::stack::Stack for Bounds {
    #[inline]
    fn base(&self) -> StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.limit
    }
}
