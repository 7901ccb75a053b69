//! Children that borrow from their parent, which does not go on without them.
#![allow(unsafe_code)]

use crate::budget;
use crate::coroutine::{Coroutine, CoroutineId};
use crate::current::{self, Frame};
use crate::deadline;
use crate::join::report;
use crate::leak::{Family, leak};
use crate::must_not_unwind::MustNotUnwind;
use crate::shield::Shield;
use crate::spawn::start;
use crate::sync::failure::late;
use crate::waiter::{Waiter, Waker, Woken, refuse_callbacks};
use crate::waits_for::WaitsFor;
use coracle_stack::StackSize;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::thread;

/// What [`scope`] hands to its closure, to spawn children with.
pub struct Scope<'scope, 'env: 'scope> {
    children: Rc<Children>,
    // Both invariant, as in std.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The children of one scope.
#[derive(Default)]
struct Children {
    /// How many are not over.
    living: Cell<usize>,
    /// How many of those will never be.
    leaked: Cell<usize>,
    started: RefCell<BTreeMap<CoroutineId, Coroutine>>,
    /// They are cancelled, and so are those who come.
    cancelled: Cell<bool>,
    /// The first error of a child.
    error: RefCell<Option<io::Error>>,
    /// The parent, when it waits for the last of them.
    parent: RefCell<Option<Waker>>,
}

/// Runs `f`, which spawns children that may borrow from around it, and returns when *all of them* are over.
///
/// A child that returns an error, or panics, cancels its siblings: their waits fail with `ECANCELED`. So does
/// an error of `f` itself, and cancelling the coroutine that called this. It waits for the children even
/// then.
///
/// # Errors
/// That of `f`, or else the first of a child.
///
/// # Panics
/// If `f` does, after the last child is over. If it is called outside a coroutine and has a child, and in a
/// destructor that runs because of a panic.
///
/// ```
/// use std::cell::Cell;
///
/// coracle_coro::run(|| {
///     let sum = Cell::new(0);
///     coracle_coro::scope(|scope| {
///         for n in 1..=10 {
///             let sum = &sum; // no `Rc`, no `'static`
///             scope.spawn(move || {
///                 sum.set(sum.get() + n);
///                 Ok(())
///             });
///         }
///         Ok(())
///     })?;
///     assert_eq!(sum.get(), 55);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn scope<'env, F, T>(f: F) -> io::Result<T>
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> io::Result<T>,
{
    refuse_callbacks();
    current::with(|frame| frame.into_iter().for_each(Frame::assert_may_park));
    assert!(
        !thread::panicking(),
        "a scope waits for its children, which nobody can while panicking"
    );
    let scope = Scope { children: Rc::default(), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    if !matches!(result, Ok(Ok(_))) {
        scope.children.cancel();
    }
    // Before anything that they may borrow is gone.
    let must_not_unwind =
        MustNotUnwind("a scope cannot wait for its children, which may borrow from it");
    scope.children.wait();
    std::mem::forget(must_not_unwind);
    let value = result.unwrap_or_else(|payload| resume_unwind(payload))?;
    match scope.children.error.take() {
        None => Ok(value),
        Some(error) => Err(error),
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Has `f` run as a coroutine of this loop, which may borrow what outlives the scope. With a name, or a
    /// stack of another size: [`Builder::spawn_scoped`](crate::Builder::spawn_scoped).
    ///
    /// There is no handle to join: it writes its result to what it has borrowed. For a result of each there is
    /// [`join_all`](crate::join_all()).
    #[track_caller]
    pub fn spawn<F>(&'scope self, f: F)
    where
        F: FnOnce() -> io::Result<()> + 'scope,
    {
        self.spawn_at(Location::caller(), f);
    }

    /// Cancels all children that there are, but for the one that calls, and those to come. It is no error: the
    /// scope returns what its closure returned, when they are over.
    ///
    /// ```
    /// coracle_coro::run(|| {
    ///     let found = coracle_coro::scope(|scope| {
    ///         scope.spawn(|| {
    ///             coracle_coro::park().expect_err("it is cancelled");
    ///             Ok(())
    ///         });
    ///         coracle_coro::yield_now();
    ///         scope.cancel();
    ///         Ok(7)
    ///     })?;
    ///     assert_eq!(found, 7);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.children.cancel();
    }

    /// Whether its children are cancelled: by [`cancel`](Scope::cancel), an error, a deadline, or because
    /// whoever is in it is.
    pub fn is_cancelled(&self) -> bool {
        self.children.cancelled.get()
    }

    /// As [`spawn`](Scope::spawn), for somebody else.
    pub(crate) fn spawn_at<F>(&'scope self, spawned: &'static Location<'static>, f: F)
    where
        F: FnOnce() -> io::Result<()> + 'scope,
    {
        self.spawn_with(None, StackSize::default(), spawned, f);
    }

    /// The same, with a name and a stack of a certain size.
    pub(crate) fn spawn_with<F>(
        &'scope self,
        name: Option<Box<str>>,
        size: StackSize,
        spawned: &'static Location<'static>,
        f: F,
    ) where
        F: FnOnce() -> io::Result<()> + 'scope,
    {
        let children = Rc::clone(&self.children);
        let body: Box<dyn FnOnce() -> io::Result<()> + 'scope> = Box::new(f);
        // SAFETY: only the lifetime changes. `scope` does not return, and is not unwound, before `living`
        // is 0, and `living` is counted down after the body is used up or dropped (`Living`). If the
        // coroutine that is in `scope` is leaked, its stack stays as it is for ever, and what `body` borrows
        // with it.
        let body: Box<dyn FnOnce() -> io::Result<()> + 'static> =
            unsafe { std::mem::transmute(body) };
        children.living.set(children.living.get() + 1);
        let child = Child { body: Some(body), living: Living(children) };
        let coroutine = start(name, size, spawned, move || child.run());
        let coroutine = coroutine.coroutine().clone();
        if self.children.cancelled.get() {
            coroutine.cancel();
        }
        self.children.started.borrow_mut().insert(coroutine.id(), coroutine);
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({} children)", self.children.living.get())
    }
}

/// What a child runs. Its fields are dropped in order: the body is gone before the child is counted as over.
struct Child {
    body: Option<Box<dyn FnOnce() -> io::Result<()>>>,
    living: Living,
}

impl Child {
    fn run(mut self) {
        let children = Rc::clone(&self.living.0);
        let body = self.body.take().expect("a child runs once");
        let family: Rc<dyn Family> = Rc::<Children>::clone(&children);
        current::with(|frame| frame.expect("a child is a coroutine").family.set(Some(family)));
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => children.fail(error),
            Err(payload) => {
                let message = report(&*payload);
                let text = format!("a coroutine of the scope panicked: {message}");
                children.fail(io::Error::other(text));
            }
        }
        children.started.borrow_mut().remove(&crate::current().id());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.body.take().is_some() {
            self.living.0.fail(io::Error::other("a coroutine of the scope could not start"));
        }
    }
}

struct Living(Rc<Children>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.living.set(self.0.living.get() - 1);
        if self.0.living.get() == self.0.leaked.get()
            && let Some(parent) = self.0.parent.take()
        {
            parent.wake();
        }
    }
}

impl Children {
    /// Keeps the first error, and cancels the others.
    fn fail(&self, error: io::Error) {
        let mut first = self.error.borrow_mut();
        if first.is_none() {
            *first = Some(error);
            drop(first);
            self.cancel();
        }
    }

    fn cancel(&self) {
        self.cancelled.set(true);
        let own = crate::current().id();
        let others = |coroutine: &&Coroutine| coroutine.id() != own;
        let others: Vec<Coroutine> =
            self.started.borrow().values().filter(others).cloned().collect();
        others.iter().for_each(Coroutine::cancel);
    }

    /// What the parent does before it waits for them.
    fn look_after(&self, parent: &Frame, shielded: bool) {
        if self.leaked.get() == self.living.get() {
            leak(parent, "it waits for children that were cancelled, and went on waiting");
        }
        if parent.scheduler().is_forked() {
            leak(parent, "it waits for children that do not run in a copy of the process");
        }
        if parent.sleeper.is_cancelled() && !shielded {
            self.cancel();
        }
    }

    /// Until all are over, whatever happens to the one that waits.
    fn wait(&self) {
        let mut limit = deadline::limit();
        let shielded = current::with(|frame| frame.is_some_and(Frame::is_shielded));
        let _shield = Shield::new(None);
        budget::share();
        while self.living.get() > 0 {
            let look = |frame: &Frame| self.look_after(frame, shielded);
            current::with(|frame| frame.into_iter().for_each(look));
            let waiter = Waiter::new().waiting_for(WaitsFor::Children);
            self.parent.replace(Some(waiter.waker()));
            if waiter.wait(limit) == Woken::TimedOut {
                limit = None;
                self.fail(late());
            }
        }
    }
}

/// When no other children are left, the parent has waited long enough.
impl Family for Children {
    fn child_leaked(&self) {
        self.leaked.set(self.leaked.get() + 1);
        if self.leaked.get() == self.living.get()
            && let Some(parent) = self.parent.take()
        {
            parent.wake();
        }
    }
}
