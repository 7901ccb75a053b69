//! The spans of `tracing` that a coroutine is in: only while it runs, and not while others do.

use crate::current;
use std::cell::{Cell, RefCell};
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

/// The spans of one coroutine, the innermost last.
#[derive(Default)]
pub(crate) struct Spans {
    stack: RefCell<Vec<Span>>,
    any: Cell<bool>,
}

impl Spans {
    pub(crate) fn enter(&self, span: Span) {
        enter(&span);
        self.stack.borrow_mut().push(span);
        self.any.set(true);
    }

    fn leave(&self) {
        let span = self.stack.borrow_mut().pop();
        self.any.set(!self.stack.borrow().is_empty());
        span.iter().for_each(exit); // nothing is borrowed: a subscriber may do what it likes
    }

    /// The coroutine is over.
    pub(crate) fn leave_all(&self) {
        while self.any.get() {
            self.leave();
        }
    }

    /// The coroutine is left for a while. It is in the middle of a wait: whatever a subscriber calls must not
    /// begin another one, so its calls are not hooked meanwhile.
    #[inline]
    pub(crate) fn pause(&self, unhooked: &Cell<u32>) {
        if self.any.get() {
            quietly(unhooked, || self.exit_all());
        }
    }

    /// It goes on. As above.
    #[inline]
    pub(crate) fn go_on(&self, unhooked: &Cell<u32>) {
        if self.any.get() {
            quietly(unhooked, || self.enter_all());
        }
    }

    fn exit_all(&self) {
        self.stack.borrow().iter().rev().for_each(exit);
    }

    fn enter_all(&self) {
        self.stack.borrow().iter().for_each(enter);
    }
}

#[cold]
fn quietly(unhooked: &Cell<u32>, tell: impl FnOnce()) {
    let before = unhooked.replace(unhooked.get() + 1);
    tell();
    unhooked.set(before);
}

fn enter(span: &Span) {
    span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
}

fn exit(span: &Span) {
    span.with_subscriber(|(id, subscriber)| subscriber.exit(id));
}
