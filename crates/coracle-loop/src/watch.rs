//! Readiness of descriptors that belong to somebody else.

use crate::{Complete, Loop, WeakLoop};
use coracle_demux::{Completion, Handle, Interest, Operation, Outcome, Readiness, Submitted};
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};

/// When a watched descriptor is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// As long as it is ready, once a turn.
    Level,
    /// When it becomes ready, and again after the callback has said [`drained`](Watched::drained): that it has
    /// read or written until `WouldBlock`. It may be reported without need, it is never missed.
    Edge,
    /// Once; then after each [`rearm`](Watched::rearm).
    OneShot,
}

/// Watches a foreign descriptor; dropping it ends that. See [`Watched`] for what can be done with it.
///
/// It owns the descriptor's owner (a socket of another library, a timerfd, an inotify, a terminal), so that
/// the number cannot be closed and given to something else while it is watched.
pub struct Watch<F: AsFd + 'static>(Rc<Watched<F>>);

/// A watched descriptor, as its callback sees it.
pub struct Watched<F: AsFd + 'static> {
    lp: WeakLoop,
    own: Weak<Watched<F>>,
    handle: Handle,
    interest: Interest,
    trigger: Trigger,
    armed: Cell<bool>,
    ended: Cell<bool>,
    /// `None` while it is being called.
    callback: RefCell<Option<Callback<F>>>,
    /// `None` once it was given back.
    owner: RefCell<Option<F>>,
}

type Callback<F> = Box<dyn FnMut(&Watched<F>, Readiness)>;

impl Loop {
    /// Calls `callback` when `owner`'s descriptor is ready. Loop thread only.
    ///
    /// ```
    /// use coracle_loop::demux::Interest;
    /// use coracle_loop::{Loop, Trigger};
    /// use std::io::{Read, Write};
    /// use std::os::unix::net::UnixStream;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let lp = Loop::new()?;
    /// let (mut a, b) = UnixStream::pair()?;
    /// let _watch = lp.watch(b, Interest::READ, Trigger::Level, |watched, _ready| {
    ///     let mut bytes = [0; 4];
    ///     watched.with(|mut stream| stream.read_exact(&mut bytes)).unwrap();
    ///     assert_eq!(&bytes, b"ahoy");
    ///     watched.lp().stop();
    /// })?;
    /// a.write_all(b"ahoy")?;
    /// lp.run()
    /// # }
    /// ```
    ///
    /// # Errors
    /// A regular file or directory (they are always ready: use the file operations); on select, a descriptor
    /// of 1024 or above.
    pub fn watch<F: AsFd + 'static>(
        &self,
        owner: F,
        interest: Interest,
        trigger: Trigger,
        callback: impl FnMut(&Watched<F>, Readiness) + 'static,
    ) -> io::Result<Watch<F>> {
        self.reclaim_number(owner.as_fd().as_raw_fd()); // a hooked call may have waited for it
        let handle = self.inner.demux.borrow_mut().lend(owner.as_fd()).map_err(explain)?;
        let watch = Watch(Rc::new_cyclic(|own| Watched {
            lp: self.downgrade(),
            own: own.clone(),
            handle,
            interest,
            trigger,
            armed: Cell::new(false),
            ended: Cell::new(false),
            callback: RefCell::new(Some(Box::new(callback))),
            owner: RefCell::new(Some(owner)),
        }));
        watch.arm()?;
        Ok(watch)
    }
}

fn explain(error: io::Error) -> io::Error {
    const EPERM: i32 = 1;
    if error.raw_os_error() == Some(EPERM) {
        let text =
            "a regular file cannot be watched, it is always ready: use Operation::Read or offload";
        return io::Error::new(io::ErrorKind::InvalidInput, text);
    }
    error
}

impl<F: AsFd + 'static> Watch<F> {
    /// Ends the watch and gives the descriptor's owner back.
    pub fn into_inner(self) -> F {
        self.end();
        self.owner.take().expect("only this takes it, and it takes itself")
    }
}

impl<F: AsFd + 'static> Deref for Watch<F> {
    type Target = Watched<F>;

    fn deref(&self) -> &Watched<F> {
        &self.0
    }
}

impl<F: AsFd + 'static> Drop for Watch<F> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<F: AsFd + 'static> Watched<F> {
    /// Lets `use_it` read from or write to the watched thing.
    ///
    /// # Panics
    /// After it was given back.
    pub fn with<T>(&self, use_it: impl FnOnce(&F) -> T) -> T {
        use_it(self.owner.borrow().as_ref().expect("the descriptor was given back"))
    }

    /// The loop that watches.
    ///
    /// # Panics
    /// When the loop is gone; in a callback it is not.
    pub fn lp(&self) -> Loop {
        self.lp.upgrade().expect("the loop that watched this is gone")
    }

    /// With [`Trigger::Edge`]: everything was read or written until `WouldBlock`; report the next change.
    ///
    /// # Errors
    /// The kernel refuses to watch.
    pub fn drained(&self) -> io::Result<()> {
        self.arm()
    }

    /// With [`Trigger::OneShot`]: report once more.
    ///
    /// # Errors
    /// The kernel refuses to watch.
    pub fn rearm(&self) -> io::Result<()> {
        self.arm()
    }

    fn arm(&self) -> io::Result<()> {
        if self.ended.get() || self.armed.get() {
            return Ok(());
        }
        let (Some(own), Some(lp)) = (self.own.upgrade(), self.lp.upgrade()) else {
            return Ok(());
        };
        let operation = Operation::Poll { handle: self.handle, interest: self.interest };
        match lp.submit(operation, &own, 0) {
            Submitted::Pending(_) => {}
            Submitted::Done(finished) => match finished.result? {
                Outcome::Ready(ready) => lp.defer(move |_| own.report(ready)),
                other => unreachable!("a poll does not give {other:?}"),
            },
        }
        self.armed.set(true);
        Ok(())
    }

    fn report(&self, ready: Readiness) {
        self.armed.set(false);
        let callback = self.callback.take().filter(|_| !self.ended.get());
        let mut call = Call { watched: self, callback };
        if let Some(callback) = &mut call.callback {
            callback(self, ready);
        }
    }

    fn end(&self) {
        if !self.ended.replace(true)
            && let Some(lp) = self.lp.upgrade()
        {
            lp.inner.demux.borrow_mut().reclaim(self.handle);
        }
    }
}

/// A callback that is being called. Puts it back afterwards, also after a panic, and goes on watching.
struct Call<'a, F: AsFd + 'static> {
    watched: &'a Watched<F>,
    callback: Option<Callback<F>>,
}

impl<F: AsFd + 'static> Drop for Call<'_, F> {
    fn drop(&mut self) {
        if let Some(callback) = self.callback.take() {
            *self.watched.callback.borrow_mut() = Some(callback);
        }
        if self.watched.trigger == Trigger::Level
            && let Err(error) = self.watched.arm()
        {
            tracing::error!("a descriptor can no longer be watched: {error}");
        }
    }
}

impl<F: AsFd + 'static> Complete for Watched<F> {
    fn complete(self: Rc<Self>, _lp: &Loop, _tag: u32, completion: Completion) {
        match completion.result {
            Ok(Outcome::Ready(ready)) => self.report(ready),
            Ok(other) => unreachable!("a poll does not give {other:?}"),
            Err(_) if self.ended.get() => {}
            Err(error) => tracing::error!("a descriptor can no longer be watched: {error}"),
        }
    }
}
