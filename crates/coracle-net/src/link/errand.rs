//! Work that a connection has given to the worker pool, and whose answers come in the order it was given.
//!
//! ```text
//!   offload ──► [ pending │ done │ pending │ done ]        the front is delivered, then what is behind it
//!                 ▲ oldest
//! ```

use super::Link;
use crate::Conn;
use crate::guard::Guarded;
use coracle_loop::{Loop, OffloadError, Overloaded};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

/// What to do with an answer on the loop.
pub(super) type Deliver = Box<dyn FnOnce(&mut Conn<'_>) -> io::Result<()>>;

/// The errands of one connection, oldest first.
#[derive(Default)]
pub(super) struct Errands {
    /// The number of the oldest.
    first: u64,
    answers: VecDeque<Option<Deliver>>,
}

impl Errands {
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    fn begin(&mut self) -> u64 {
        self.answers.push_back(None);
        self.first + self.answers.len() as u64 - 1
    }

    /// Takes back the errand that was begun last.
    fn take_back(&mut self) {
        self.answers.pop_back();
    }

    /// The place of an answer, unless nobody waits for it any more.
    fn place(&mut self, number: u64) -> Option<&mut Option<Deliver>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.answers.get_mut(index)
    }

    /// All answers that were not delivered, to be thrown away.
    pub(super) fn into_answers(self) -> impl Iterator<Item = Deliver> {
        self.answers.into_iter().flatten()
    }

    /// Takes the oldest answer out of its place, which it keeps until [`delivered`](Errands::delivered).
    fn take_answer(&mut self) -> Option<Deliver> {
        self.answers.front_mut()?.take()
    }

    fn delivered(&mut self) {
        self.answers.pop_front();
        self.first += 1;
    }
}

impl Link {
    pub(crate) fn offload<T: Send + 'static>(
        self: &Rc<Self>,
        lp: &Loop,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Conn<'_>, Result<T, OffloadError>) -> io::Result<()> + 'static,
    ) -> Result<(), Overloaded> {
        let number = self.change().rare().errands.begin();
        let link = Rc::downgrade(self);
        // From here on, for the loop may end before the answer is there.
        let (work, done) = (move || Guarded::new(work()), Guarded::new(done));
        let submitted = lp.offload(work, move |lp, result| {
            let Some(link) = link.upgrade() else { return };
            let deliver: Deliver =
                Box::new(move |conn| done.into_inner()(conn, result.map(Guarded::into_inner)));
            let mut state = link.change();
            match state.rare.as_mut().and_then(|rare| rare.errands.place(number)) {
                Some(place) => *place = Some(deliver),
                None => {
                    drop(state);
                    return link.discard(deliver);
                }
            }
            drop(state);
            link.deliver_answers(lp);
        });
        if submitted.is_err() {
            let mut state = self.change();
            state.rare().errands.take_back();
            state.tidy();
        }
        submitted
    }

    fn deliver_answers(self: &Rc<Self>, lp: &Loop) {
        loop {
            // It counts until it is delivered, so that a connection that closes still sends it.
            let Some(deliver) = self.next_answer() else { break };
            self.change().late = true;
            self.enter(lp, |_, conn| deliver(conn));
            self.flush(lp);
            let mut state = self.change();
            state.late = false;
            if let Some(rare) = &mut state.rare {
                rare.errands.delivered();
            }
            state.tidy();
            drop(state);
            self.settle(lp);
        }
    }

    fn next_answer(&self) -> Option<Deliver> {
        self.change().rare.as_mut()?.errands.take_answer()
    }
}

#[cfg(test)]
mod tests {
    use crate::hub::Hub;
    use crate::{Buffer, Conn, Settings, attach};
    use coracle_loop::pool::{Pool, PoolSettings};
    use coracle_loop::{Builder, Loop};
    use std::sync::mpsc::channel;

    #[test]
    fn g2_connection_whose_work_was_refused_is_as_it_was() {
        let settings = PoolSettings { threads: 1, limit_queue: 1, ..PoolSettings::default() };
        let pool = Pool::new(settings).expect("a pool");
        let (release, held) = channel::<()>();
        let (begun, is_busy) = channel();
        let hold = move || {
            begun.send(()).expect("somebody waits");
            held.recv().unwrap_or(());
        };
        assert!(pool.try_run(hold).is_ok(), "it has room");
        is_busy.recv().expect("its thread begins"); // or it would make room later
        while pool.try_run(|| ()).is_ok() {} // until it is full
        let lp = Builder::new().pool(pool).build().expect("a loop");
        let (_client, socket) = lp.socket_pair().expect("a pair");
        let serve = |_: &mut Conn<'_>, _: &mut Buffer| Ok(());
        let handle = attach(&lp, socket, Settings::default(), serve).expect("a connection");
        let refused = handle.with(&lp, |conn| conn.offload(|| (), |_, _| Ok(())).is_err());
        assert_eq!(refused, Some(true));
        assert!(Hub::of(&lp).get(handle.key).expect("it is open").is_calm());
        drop(release);
    }

    #[test]
    fn i1_answer_that_comes_after_the_loop_is_dropped_in_peace() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let lp = Loop::new().expect("a loop");
        let (_client, socket) = lp.socket_pair().expect("a pair");
        let serve = |_: &mut Conn<'_>, _: &mut Buffer| Ok(());
        let handle = attach(&lp, socket, Settings::default(), serve).expect("a connection");
        let (release, held) = channel::<()>();
        let (value, work) = (Panics, move || held.recv().map_or(Panics, |()| Panics));
        let given = handle.with(&lp, move |conn| {
            let done = move |_: &mut Conn<'_>, _| {
                drop(value);
                Ok(())
            };
            conn.offload(work, done).is_ok()
        });
        assert_eq!(given, Some(true));
        drop(lp);
        drop(release);
    }
}
