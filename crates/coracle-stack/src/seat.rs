//! A coroutine that is kept on its own stack, whose first page is there anyway: its owner has but a pointer.
#![allow(unsafe_code)]

use crate::pool::Stack;
use crate::switch::{Bounds, Coroutine};
use corosensei::{CoroutineResult, Yielder};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// A [`Coroutine`] that is kept at the top of its own stack: as small as a pointer, for those who have a million.
///
/// ```
/// use coracle_stack::{CoroutineResult, Pool, Seated, StackSize, Yielder};
///
/// let stack = Pool::new()?.take(StackSize::default())?;
/// let mut twice = Seated::new(stack, |_: &Yielder<u32, u32>, n| 2 * n);
/// assert_eq!(size_of_val(&twice), size_of::<usize>());
/// assert_eq!(twice.resume(4), CoroutineResult::Return(8));
/// assert!(twice.is_done());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Seated<Input, Yield, Return> {
    /// On the stack that it owns.
    seat: NonNull<Seat<Input, Yield, Return>>,
    owned: PhantomData<Seat<Input, Yield, Return>>,
}

/// It begins a line of the processor's cache, as the coroutine's frames do then.
#[repr(C, align(64))]
struct Seat<Input, Yield, Return>(Coroutine<Input, Yield, Return>);

/// What is reserved for a seat. No type that it has to do with is in it, so they are all of one size.
pub(crate) const SEAT_BYTES: usize = size_of::<Seat<(), (), ()>>();

impl<Input: 'static, Yield: 'static, Return: 'static> Seated<Input, Yield, Return> {
    /// A coroutine that will run `body` on `stack`, as [`Coroutine::new`] makes it.
    #[inline]
    pub fn new<F>(stack: Stack, body: F) -> Seated<Input, Yield, Return>
    where
        F: FnOnce(&Yielder<Input, Yield>, Input) -> Return + 'static,
    {
        const { assert!(size_of::<Seat<Input, Yield, Return>>() == SEAT_BYTES) }
        let seat = std::ptr::with_exposed_provenance_mut(Bounds::of(&stack).base.get());
        let seat = NonNull::new(seat).expect("a stack is not at address zero");
        // SAFETY: the seat is on this stack, above all frames, large enough and aligned; nobody else has it.
        unsafe { seat.write(Seat(Coroutine::new(stack, body))) };
        Seated { seat, owned: PhantomData }
    }

    /// Has it run `body` from now on, on the same stack, after it has come to its end. Cheaper than to take
    /// another stack.
    ///
    /// ```
    /// use coracle_stack::{CoroutineResult, Pool, Seated, StackSize, Yielder};
    ///
    /// let stack = Pool::new()?.take(StackSize::default())?;
    /// let mut twice = Seated::new(stack, |_: &Yielder<u32, u32>, n| 2 * n);
    /// assert_eq!(twice.resume(1), CoroutineResult::Return(2));
    /// twice.restart(|_, n| 3 * n);
    /// assert_eq!(twice.resume(1), CoroutineResult::Return(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// When it has not come to its end.
    #[inline]
    pub fn restart<F>(&mut self, body: F)
    where
        F: FnOnce(&Yielder<Input, Yield>, Input) -> Return + 'static,
    {
        // What is below the seat is its stack: `Bounds::of` would say the same.
        let bounds = Bounds { base: self.seat.addr(), limit: self.stack().slot().low };
        self.coroutine_mut().restart(bounds, body);
    }
}

impl<Input, Yield, Return> Seated<Input, Yield, Return> {
    /// Not for others: whoever could swap two coroutines would have each on the stack that the other owns.
    #[inline]
    fn coroutine_mut(&mut self) -> &mut Coroutine<Input, Yield, Return> {
        // SAFETY: it is there from `new` to `drop`, and touched by none but those who have a `&mut` of ours: no
        // frame of the coroutine is there, so that it does not touch it while it runs.
        &mut unsafe { self.seat.as_mut() }.0
    }

    /// Runs it, as [`Coroutine::resume`] does.
    ///
    /// # Panics
    /// When it has returned before; when it panics.
    #[inline]
    pub fn resume(&mut self, input: Input) -> CoroutineResult<Yield, Return> {
        self.coroutine_mut().resume(input)
    }

    /// Unwinds it, as [`Coroutine::unwind`] does.
    pub fn unwind(&mut self) {
        self.coroutine_mut().unwind();
    }
}

impl<Input, Yield, Return> Deref for Seated<Input, Yield, Return> {
    type Target = Coroutine<Input, Yield, Return>;

    #[inline]
    fn deref(&self) -> &Coroutine<Input, Yield, Return> {
        // SAFETY: it is there from `new` to `drop`, and changed by none but those who have a `&mut` of ours.
        &unsafe { self.seat.as_ref() }.0
    }
}

impl<Input, Yield, Return> Drop for Seated<Input, Yield, Return> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is not used after this. Taken off the stack that is about to be given back.
        drop(unsafe { self.seat.read() });
    }
}

impl<Input, Yield, Return> fmt::Debug for Seated<Input, Yield, Return> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
