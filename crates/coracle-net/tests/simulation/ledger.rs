//! What has happened, and what must not: a callback that panics is the server's business, so whatever is found
//! wrong in one is written down here and looked at between turns.

use crate::random::Random;
use coracle_loop::Loop;
use coracle_net::{Conn, ConnHandle, Reason};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How much of the history is kept.
const LIMIT_HISTORY: usize = 300;

/// The books of one seed.
#[derive(Clone)]
pub(crate) struct Ledger(Rc<Books>);

#[derive(Default)]
struct Books {
    fair: bool,
    history: RefCell<VecDeque<String>>,
    violations: RefCell<Vec<String>>,
    alive: Cell<usize>,
    panics: Cell<u64>,
    /// Connections that others may write to.
    open_to_all: RefCell<Vec<ConnHandle>>,
    /// All connections there have been: tasks are given to them from elsewhere.
    within_reach: RefCell<Vec<ConnHandle>>,
    /// Tasks of which nobody has heard yet. From any thread, as far as the loop knows.
    tasks: Arc<AtomicUsize>,
}

impl Ledger {
    /// The books of a seed; of a `fair` one, in which no connection breaks.
    pub(crate) fn new(fair: bool) -> Ledger {
        Ledger(Rc::new(Books { fair, ..Books::default() }))
    }

    pub(crate) fn is_fair(&self) -> bool {
        self.0.fair
    }

    /// Adds a line to the history.
    pub(crate) fn note(&self, line: String) {
        let mut history = self.0.history.borrow_mut();
        if history.len() == LIMIT_HISTORY {
            history.pop_front();
        }
        history.push_back(line);
    }

    /// Writes down what is wrong, unless it is not.
    pub(crate) fn expect(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            let text = otherwise();
            self.note(format!("VIOLATION {text}"));
            self.0.violations.borrow_mut().push(text);
        }
    }

    /// Everything was as it must be, so far.
    pub(crate) fn assert_clean(&self) {
        let violations = self.0.violations.borrow();
        assert!(violations.is_empty(), "{}\n--- history\n{}", violations.join("\n"), self.tell());
    }

    pub(crate) fn tell(&self) -> String {
        self.0.history.borrow().iter().map(|line| format!("{line}\n")).collect()
    }

    /// A protocol is about to panic.
    pub(crate) fn will_panic(&self) {
        self.0.panics.set(self.0.panics.get() + 1);
    }

    pub(crate) fn panics(&self) -> u64 {
        self.0.panics.get()
    }

    /// How many protocols and takers there are.
    pub(crate) fn alive(&self) -> usize {
        self.0.alive.get()
    }

    pub(crate) fn open_to_all(&self, handle: ConnHandle) {
        self.0.open_to_all.borrow_mut().push(handle);
    }

    pub(crate) fn within_reach(&self, handle: ConnHandle) {
        self.0.within_reach.borrow_mut().push(handle);
    }

    /// Gives a task to a connection, which may be gone: then that is told, and in any case one of the two, once.
    pub(crate) fn send_task(&self, random: &mut Random) {
        let list = self.0.within_reach.borrow();
        if list.is_empty() {
            return;
        }
        let handle = &list[random.below(list.len() as u64) as usize];
        self.0.tasks.fetch_add(1, Ordering::SeqCst);
        let [done, gone] = [&self.0.tasks; 2].map(|tasks| {
            let tasks = Arc::clone(tasks);
            move || assert!(tasks.fetch_sub(1, Ordering::SeqCst) > 0, "told twice")
        });
        let pause = random.chance(0.3).then(|| random.duration(Duration::from_millis(20)));
        let task = move |conn: &mut Conn<'_>| {
            done();
            conn.touch();
            if let Some(pause) = pause {
                conn.pause();
                let handle = conn.handle();
                let resume = move |lp: &Loop| {
                    let _ = handle.with(lp, |conn| conn.resume());
                };
                conn.lp().after(pause, resume);
            }
            Ok(())
        };
        handle.run(task, gone);
    }

    /// How many tasks were neither done nor refused.
    pub(crate) fn tasks(&self) -> usize {
        self.0.tasks.load(Ordering::SeqCst)
    }

    pub(crate) fn nth_open_to_all(&self, n: u64) -> Option<ConnHandle> {
        let list = self.0.open_to_all.borrow();
        (!list.is_empty()).then(|| list[n as usize % list.len()].clone())
    }
}

/// Counts as alive until it is dropped.
pub(crate) struct Being(Ledger);

impl Being {
    pub(crate) fn new(ledger: &Ledger) -> Being {
        ledger.0.alive.set(ledger.0.alive.get() + 1);
        Being(ledger.clone())
    }
}

impl Drop for Being {
    fn drop(&mut self) {
        self.0.0.alive.set(self.0.0.alive.get() - 1);
    }
}

/// The life of one protocol: opened first and once, closed last and once, then dropped.
pub(crate) struct Life {
    pub(crate) ledger: Ledger,
    name: String,
    opened: bool,
    closed: bool,
    /// Its connection went to somebody else: nothing is told any more.
    released: bool,
    _being: Being,
}

impl Life {
    pub(crate) fn new(ledger: &Ledger, name: String) -> Life {
        let _being = Being::new(ledger);
        Life { ledger: ledger.clone(), name, opened: false, closed: false, released: false, _being }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn open(&mut self) {
        self.expect(!self.opened && !self.closed, "on_open is the first and comes once");
        self.opened = true;
        self.ledger.note(format!("{} open", self.name));
    }

    pub(crate) fn callback(&mut self, what: &str) {
        self.expect(self.opened && !self.closed, what);
        self.ledger.note(format!("{} {what}", self.name));
    }

    pub(crate) fn close(&mut self, reason: &Reason) {
        self.expect(self.opened && !self.closed, "on_close comes once");
        self.closed = true;
        self.ledger.note(format!("{} close: {reason}", self.name));
    }

    pub(crate) fn release(&mut self) {
        self.released = true;
    }

    pub(crate) fn expect(&self, holds: bool, what: &str) {
        self.ledger.expect(holds, || format!("{}: {what}", self.name));
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let told = self.closed || self.released || !self.opened;
        self.expect(told, "dropped without on_close");
    }
}
