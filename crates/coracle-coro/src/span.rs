//! The spans of `tracing` that a coroutine is in: only while it runs, and not while others do.

use crate::current::{self, Frame};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use tracing::Span;

/// Runs `f` in `span`, as [`Span::in_scope`] does; but while the coroutine waits in there, it is not in the
/// span, since others run. What it [spawns](crate::spawn()) is in the span, too.
///
/// A guard of [`Span::enter`] that is held while a coroutine waits would let all others of its thread be in that
/// span.
///
/// ```
/// use coracle_coro::{in_span, spawn, yield_now};
///
/// coracle_coro::run(|| {
///     in_span(&tracing::info_span!("request", id = 7), || {
///         let child = spawn(|| tracing::info!("this is of request 7")); // and runs while we wait:
///         yield_now();
///         child.join().unwrap();
///     });
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn in_span<T>(span: &Span, f: impl FnOnce() -> T) -> T {
    if current::with(|frame| frame.is_none()) {
        return span.in_scope(f);
    }
    with_spans(|spans| spans.enter(span.clone()));
    let _leave = Leave;
    f()
}

/// Also after a panic.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        with_spans(Spans::leave);
    }
}

fn with_spans(f: impl FnOnce(&Spans)) {
    current::with(|frame| {
        if let Some(frame) = frame {
            f(&frame.extras().spans);
        }
    });
}

/// The spans of one coroutine, the innermost last. None is borrowed while a subscriber is told: it may do what it
/// likes, also come here.
#[derive(Default)]
pub(crate) struct Spans {
    stack: RefCell<Vec<Rc<Span>>>,
    any: Cell<bool>,
}

impl Spans {
    pub(crate) fn enter(&self, span: Span) {
        enter(&span);
        self.push(Rc::new(span));
    }

    fn push(&self, span: Rc<Span>) {
        self.stack.borrow_mut().push(span);
        self.any.set(true);
    }

    fn leave(&self) {
        self.pop().iter().for_each(|span| exit(span));
    }

    fn pop(&self) -> Option<Rc<Span>> {
        let mut stack = self.stack.borrow_mut();
        let span = stack.pop();
        self.any.set(!stack.is_empty());
        span
    }

    /// The coroutine is over, and nothing can panic in it any more.
    pub(crate) fn leave_all(&self) {
        while let Some(span) = self.pop() {
            caught(|| exit(&span));
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.stack.borrow().len()
    }

    /// Leaves all but the first `count`, and returns them.
    pub(crate) fn split_off(&self, count: usize) -> Vec<Rc<Span>> {
        let mut left = Vec::new();
        while self.count() > count {
            let span = self.pop().expect("they were counted");
            exit(&span);
            left.push(span);
        }
        left.reverse();
        left
    }

    /// Enters what was split off.
    pub(crate) fn append(&self, spans: Vec<Rc<Span>>) {
        for span in spans {
            enter(&span);
            self.push(span);
        }
    }

    /// The coroutine is left for a while.
    #[inline]
    pub(crate) fn pause(&self, frame: &Frame) {
        if self.any.get() {
            (0..self.count()).rev().for_each(|nth| self.tell(frame, nth, exit));
        }
    }

    /// It goes on.
    #[inline]
    pub(crate) fn go_on(&self, frame: &Frame) {
        if self.any.get() {
            (0..self.count()).for_each(|nth| self.tell(frame, nth, enter));
        }
    }

    /// Tells the subscriber of one span, in the middle of a wait. Whatever it does must not begin another wait:
    /// its calls are not hooked meanwhile, and what waits by itself panics. And no panic leaves: the wait would
    /// be left with it, and whoever ended it would look for a frame that is gone. The panic hook has told of it.
    #[cold]
    fn tell(&self, frame: &Frame, nth: usize, how: fn(&Span)) {
        let Some(span) = self.stack.borrow().get(nth).cloned() else { return };
        let _quiet = Quiet::new(frame);
        caught(|| how(&span));
    }
}

fn caught(tell: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(tell)) {
        std::mem::forget(payload); // its destructor is not ours
    }
}

/// A coroutine that does not wait, until this is dropped.
struct Quiet<'a> {
    frame: &'a Frame,
    /// How often it is not hooked, and not to be parked, without this.
    before: [u32; 2],
}

impl Quiet<'_> {
    fn new(frame: &Frame) -> Quiet<'_> {
        let raise = |count: &Cell<u32>| count.replace(count.get() + 1);
        Quiet { frame, before: [raise(&frame.unhooked), raise(&frame.no_park)] }
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.frame.unhooked.set(self.before[0]);
        self.frame.no_park.set(self.before[1]);
    }
}

fn enter(span: &Span) {
    span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
}

fn exit(span: &Span) {
    span.with_subscriber(|(id, subscriber)| subscriber.exit(id));
}
