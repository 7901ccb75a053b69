//! What a generator hands values out by, and that only the generator does so.
//!
//! A [`Yielder`] is at the base of the generator's stack, and may be borrowed by whatever runs there: also by the
//! children of a [`scope`](crate::scope()), which are other coroutines, on other stacks. To suspend the generator
//! from one of those would jump to where nobody waits. So it is noted which coroutine has resumed the generator:
//!
//! ```text
//!            resumed by a coroutine: it is noted
//!   Nobody ─────────────────────────────────────► that coroutine, which alone may suspend
//!     ▲                                                     │
//!     └─────────────────────────────────────────────────────┘
//!            suspended, in that coroutine
//! ```
//!
//! While a coroutine runs that has resumed a generator which is not suspended again, it runs on the stack of that
//! generator, or on one that was taken from there ([`on_big_stack`](crate::on_big_stack())). Where no coroutine
//! runs, in a plain thread or in a callback, there is nobody else who could have borrowed it: everything that a
//! loop calls is `'static`. So nothing is noted there, and a switch is as cheap as ever.
#![allow(unsafe_code)]

use crate::current::{self, Frame};
use crate::scopes::{Scopes, Settings};
use std::cell::Cell;
use std::fmt;
use std::ptr::{NonNull, from_ref, null};

/// By this the function of a [`Generator`](crate::Generator) hands values out, and every function that it lends
/// it to.
///
/// ```
/// use coracle_coro::Generator;
/// use coracle_coro::generator::Yielder;
///
/// fn twice(value: u32, out: &Yielder<u32>) {
///     out.suspend(value);
///     out.suspend(value);
/// }
///
/// let stutter = Generator::new(|out| (1..=2).for_each(|value| twice(value, out)));
/// assert_eq!(stutter.collect::<Vec<_>>(), [1, 1, 2, 2]);
/// ```
///
/// It stays where it is: neither the generator's caller nor another generator can get hold of it.
///
/// ```compile_fail
/// use coracle_coro::Generator;
///
/// let outer = Generator::<u32, (), Generator<u32>>::new(|out| Generator::new(move |_| out.suspend(1)));
/// ```
pub struct Yielder<Yield, Input = ()> {
    inner: NonNull<coracle_stack::Yielder<Input, Yield>>,
    /// The coroutine that has resumed the generator; null while it is suspended, and if it was no coroutine.
    resumed_by: Cell<*const Frame>,
    /// What is around the generator, in that coroutine.
    around: Cell<Settings>,
    /// What the generator has entered and not left, while it is suspended.
    inside: Cell<Scopes>,
}

impl<Yield, Input> Yielder<Yield, Input> {
    /// Calls `body` with the yielder of the generator that it is the function of.
    #[inline]
    pub(crate) fn run<R>(
        inner: &coracle_stack::Yielder<Input, Yield>,
        body: impl FnOnce(&Yielder<Yield, Input>) -> R,
    ) -> R {
        let yielder = Yielder {
            inner: NonNull::from(inner),
            resumed_by: Cell::new(null()),
            around: Cell::default(),
            inside: Cell::default(),
        };
        yielder.go_on();
        let over = Over(&yielder);
        let result = body(&yielder);
        drop(over);
        result
    }

    /// Hands `value` out: the generator is left here, until it is resumed, with what this returns.
    ///
    /// # Panics
    /// In another coroutine than the one that has resumed the generator: in a child of a
    /// [`scope`](crate::scope()) that the generator is in, or of a [`race`](crate::race()).
    ///
    /// ```
    /// use coracle_coro::{Generator, scope};
    ///
    /// coracle_coro::run(|| {
    ///     let mut generator = Generator::new(|out| {
    ///         let lent = scope(|scope| {
    ///             scope.spawn(|| Ok(out.suspend(1))); // it is not the generator that runs there
    ///             Ok(())
    ///         });
    ///         assert!(lent.unwrap_err().to_string().contains("panicked"));
    ///         out.suspend(2);
    ///     });
    ///     assert_eq!(generator.next(), Some(2));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn suspend(&self, value: Yield) -> Input {
        current::with(|frame| frame.into_iter().for_each(|frame| self.leave(frame)));
        let _back = Back(self); // also if it is unwound from here
        // SAFETY: it is in the frame around the one whose local we are (`run`).
        unsafe { self.inner.as_ref() }.suspend(value)
    }

    #[inline]
    fn go_on(&self) {
        current::with(|frame| frame.into_iter().for_each(|frame| self.enter(frame)));
    }

    /// The coroutine with this frame has resumed the generator.
    #[cold]
    fn enter(&self, frame: &Frame) {
        self.resumed_by.set(frame);
        let around = Settings::of(frame);
        self.around.set(around);
        self.inside.take().put_on(frame, around);
    }

    /// The generator is left in the coroutine with this frame.
    #[cold]
    fn leave(&self, frame: &Frame) {
        assert!(
            self.resumed_by.get() == from_ref(frame),
            "a generator is suspended by another coroutine than the one that has resumed it: lend its `Yielder` \
             to functions, and not to the children of a `scope` or `race`, who can send what they have to the \
             generator"
        );
        self.inside.set(Scopes::take_off(frame, self.around.get()));
        self.resumed_by.set(null());
    }
}

/// The generator was resumed, to go on or to be unwound.
struct Back<'a, Yield, Input>(&'a Yielder<Yield, Input>);

impl<Yield, Input> Drop for Back<'_, Yield, Input> {
    #[inline]
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// The generator has come to its end, and whoever has resumed it goes on as before.
struct Over<'a, Yield, Input>(&'a Yielder<Yield, Input>);

impl<Yield, Input> Drop for Over<'_, Yield, Input> {
    #[inline]
    fn drop(&mut self) {
        let restore = |frame: &Frame| drop(Scopes::take_off(frame, self.0.around.get()));
        current::with(|frame| frame.into_iter().for_each(restore));
    }
}

impl<Yield, Input> fmt::Debug for Yielder<Yield, Input> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielder").finish_non_exhaustive()
    }
}
