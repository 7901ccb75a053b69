//! Starting coroutines: here, with a name or a stack of a certain size, or on another loop.

use crate::coroutine::CoroutineId;
use crate::current;
use crate::inherit::Inheritance;
use crate::join::JoinHandle;
use crate::scheduler::Scheduler;
use crate::scope::Scope;
use crate::sleeper::Sleeper;
use crate::task::Sent;
use coracle_loop::{Loop, LoopHandle};
use coracle_stack::StackSize;
use std::io;
use std::panic::Location;

/// Has `f` run as a coroutine of this loop, soon. Never inline: it is behind all that are ready now.
///
/// It stays on this thread, so it needs no `Send`, and may hold an `Rc`. It may not hold borrows of its
/// spawner's stack.
///
/// # Panics
/// Outside a loop: neither in a coroutine nor in a callback.
///
/// # What a coroutine must not do
/// Wait in a closure that keeps a borrowed pointer in a thread-local (as `scoped-tls` does): scopes of
/// several coroutines on one thread need not end in the order in which they began.
/// [`no_park`](crate::no_park()) makes sure of it. Nor should it hold a `std::sync::Mutex` while it waits:
/// another coroutine that locks it stops the thread, and nobody can unlock it.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// coracle_coro::run(|| {
///     let count = Rc::new(Cell::new(0));
///     let adders: Vec<_> = (1..=10)
///         .map(|n| {
///             let count = Rc::clone(&count);
///             coracle_coro::spawn(move || count.set(count.get() + n))
///         })
///         .collect();
///     for adder in adders {
///         adder.join().unwrap();
///     }
///     assert_eq!(count.get(), 55);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    start(None, StackSize::default(), Location::caller(), f)
}

/// Has `f` run as a coroutine of the loop that `handle` names. Any thread.
///
/// # Errors
/// If the loop is gone, or has too many posted jobs.
///
/// ```
/// use coracle_coro::spawn_on;
///
/// # use coracle_loop::Loop;
/// let lp = Loop::new()?;
/// let handle = lp.handle();
/// let thread = std::thread::spawn(move || {
///     let answer = spawn_on(&handle, || 6 * 7).unwrap().join().unwrap();
///     handle.stop();
///     answer
/// });
/// lp.run()?;
/// assert_eq!(thread.join().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_on<F, T>(handle: &LoopHandle, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    start_on(handle, None, StackSize::default(), Location::caller(), f)
}

/// A coroutine with a name, or with a stack of another size: what `std::thread::Builder` is for threads.
///
/// ```
/// use coracle_coro::{Builder, current};
///
/// coracle_coro::run(|| {
///     let named = Builder::new().name("resolver").stack_size(1 << 20).spawn(|| current().to_string())?;
///     assert_eq!(named.join().unwrap(), "'resolver'");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    name: Option<Box<str>>,
    stack_bytes: Option<usize>,
}

impl Builder {
    /// No name, and a stack of 192 KiB.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// What it is called: in the log, in the list, and when it overflows its stack.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into().into_boxed_str());
        self
    }

    /// How many bytes of stack it can use at least: what `std::thread::Builder` means by it. The guard below the
    /// stack, of 64 KiB, comes on top. It is address space, rounded up to a [`StackSize`]; memory is used only
    /// where it is touched. The default of 192 KiB has 256 KiB together with its guard.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_bytes = Some(bytes);
        self
    }

    /// As [`spawn`].
    ///
    /// # Errors
    /// If the stack is to be larger than [`LIMIT_STACK_BYTES`](coracle_stack::LIMIT_STACK_BYTES).
    ///
    /// # Panics
    /// As [`spawn`].
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let size = self.size()?;
        Ok(start(self.name, size, Location::caller(), f))
    }

    /// As [`spawn_on`].
    ///
    /// # Errors
    /// As [`spawn_on`] and [`Builder::spawn`].
    #[track_caller]
    pub fn spawn_on<F, T>(self, handle: &LoopHandle, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let size = self.size()?;
        start_on(handle, self.name, size, Location::caller(), f)
    }

    /// As [`Scope::spawn`].
    ///
    /// # Errors
    /// As [`Builder::spawn`]: then `f` is not run, and the scope goes on.
    ///
    /// ```
    /// use coracle_coro::{Builder, scope};
    ///
    /// coracle_coro::run(|| {
    ///     let text = String::from("borrowed");
    ///     scope(|scope| {
    ///         let deep = Builder::new().name("deep").stack_size(8 << 20);
    ///         deep.spawn_scoped(scope, || {
    ///             assert_eq!((text.len(), coracle_coro::current().name()), (8, Some("deep")));
    ///             Ok(())
    ///         })
    ///     })
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, F>(self, scope: &'scope Scope<'scope, '_>, f: F) -> io::Result<()>
    where
        F: FnOnce() -> io::Result<()> + 'scope,
    {
        let size = self.size()?;
        scope.spawn_with(self.name, size, Location::caller(), f);
        Ok(())
    }

    fn size(&self) -> io::Result<StackSize> {
        self.stack_bytes.map_or(Ok(StackSize::default()), StackSize::at_least)
    }
}

pub(crate) fn start<F, T>(
    name: Option<Box<str>>,
    size: StackSize,
    spawned: &'static Location<'static>,
    f: F,
) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let inheritance = Inheritance::of_caller();
    let f = move || {
        inheritance.take_up();
        f()
    };
    current::with(|frame| match frame {
        Some(frame) if frame.scheduler().is_turning() => {
            frame.scheduler().spawn(name, size, spawned, f)
        }
        // Or in a callback of a loop that a coroutine runs, in its turn.
        _ => {
            let Some(lp) = Loop::current() else { refuse(spawned) };
            Scheduler::of(&lp).spawn(name, size, spawned, f)
        }
    })
}

/// There is no loop to spawn a coroutine on.
#[cold]
fn refuse(spawned: &Location<'_>) -> ! {
    panic!(
        "cannot spawn a coroutine outside a loop, at {spawned}: call it inside `run` or in a callback, or give it \
         to a loop with `spawn_on`"
    )
}

fn start_on<F, T>(
    handle: &LoopHandle,
    name: Option<Box<str>>,
    size: StackSize,
    spawned: &'static Location<'static>,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let inheritance = Inheritance::of_caller();
    let f = move || {
        inheritance.take_up();
        f()
    };
    let sleeper = Sleeper::of_coroutine(handle.clone(), CoroutineId::next(), name, spawned);
    let (sent, join) = Sent::new(sleeper, f);
    handle.post(move |lp| Scheduler::of(lp).adopt(sent, size))?;
    Ok(join)
}
