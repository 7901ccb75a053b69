//! The end of a server: every loop is told, and has its futures finish what they do.

use crate::space::Space;
use coracle::future::net::{ReadHalf, WriteHalf};
use coracle::future::sleep_until;
use coracle::{Loop, LoopHandle};
use futures::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// What all loops know of the end.
pub(super) struct Stop {
    drain: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    loops: Vec<LoopHandle>,
    deadline: Option<Instant>,
    failure: Option<io::Error>,
}

impl Stop {
    pub(super) fn new(drain: Duration) -> Stop {
        Stop { drain, state: Mutex::default() }
    }

    /// These are the loops. If it was asked to stop before, they are told now.
    pub(super) fn know(&self, loops: Vec<LoopHandle>) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.loops = loops;
        state.tell();
    }

    /// From now on nobody is accepted, and every connection comes to its end.
    pub(super) fn begin(&self) {
        let now = Instant::now();
        let mut state = self.state.lock().expect("nobody panics with it");
        state.deadline.get_or_insert(now.checked_add(self.drain).unwrap_or(now));
        state.tell();
    }

    /// Ends everything because of an error.
    pub(super) fn fail(&self, error: io::Error) {
        self.state.lock().expect("nobody panics with it").failure.get_or_insert(error);
        self.begin();
    }

    pub(super) fn result(&self) -> io::Result<()> {
        self.state.lock().expect("nobody panics with it").failure.take().map_or(Ok(()), Err)
    }
}

impl State {
    fn tell(&self) {
        let Some(deadline) = self.deadline else { return };
        for handle in &self.loops {
            // A loop that is gone has nobody to be told.
            let _ = handle.post(move |lp| Stopping::of(lp).begin(deadline));
        }
    }
}

/// What one loop knows of the end, and whom it has to tell.
#[derive(Default)]
pub(crate) struct Stopping {
    deadline: Cell<Option<Instant>>,
    next: Cell<u64>,
    wakers: RefCell<BTreeMap<u64, Waker>>,
}

impl Stopping {
    fn of(lp: &Loop) -> Rc<Stopping> {
        lp.extension(Stopping::default)
    }

    pub(super) fn of_this_loop() -> Rc<Stopping> {
        Stopping::of(&Loop::current().expect("a future is polled by a loop"))
    }

    fn begin(&self, deadline: Instant) {
        self.deadline.set(Some(deadline));
        self.wakers.take().into_values().for_each(Waker::wake);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// Has whoever polls this woken when it begins, until the answer is dropped.
    async fn told(&self) -> Told<'_> {
        let number = self.next.replace(self.next.get() + 1);
        poll_fn(|cx| {
            self.wakers.borrow_mut().insert(number, cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        Told { stopping: self, number }
    }

    /// What `future` gives, unless the end begins before.
    pub(super) async fn unless_begun<F: Future>(&self, future: F) -> Option<F::Output> {
        let _told = self.told().await;
        let mut future = pin!(future);
        poll_fn(|cx| match self.has_begun() {
            true => Poll::Ready(None),
            false => future.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// What `connection` gives, unless the end takes longer than it may.
    pub(super) async fn within_time(
        &self,
        connection: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let _told = self.told().await;
        let mut connection = pin!(connection);
        let mut time = pin!(None);
        poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            if let Some(deadline) = self.deadline.get().filter(|_| time.is_none()) {
                time.set(Some(sleep_until(deadline)));
            }
            match time.as_mut().as_pin_mut() {
                Some(time) => time.poll(cx).map(|_| Err(ErrorKind::TimedOut.into())),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Reads. `None` if there is no more, or the end has begun.
    #[inline]
    pub(super) async fn read(
        &self,
        reader: &mut ReadHalf,
        space: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let count = poll_fn(|cx| match self.has_begun() {
            true => Poll::Ready(Ok(0)),
            false => Pin::new(&mut *reader).poll_read(cx, space),
        });
        Ok(Some(count.await?).filter(|&count| count > 0))
    }

    /// Tells the peer that no more will come. If the end has begun, takes what it still sends until it ends,
    /// too: to close a connection on which something is unread would destroy what is on its way to the peer.
    pub(super) async fn finish(
        &self,
        from: &mut ReadHalf,
        to: &mut WriteHalf,
        space: &mut Space,
    ) -> io::Result<()> {
        to.close().await?;
        while self.has_begun() && from.read(space.get()).await? > 0 {}
        Ok(())
    }
}

/// See [`Stopping::told`].
struct Told<'a> {
    stopping: &'a Stopping,
    number: u64,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.stopping.wakers.borrow_mut().remove(&self.number);
    }
}
