//! Who has begun what: every operation has to end exactly once.

use coracle_loop::demux::{Completion, Finished, Operation, Submitted, Token};
use coracle_loop::{Complete, Loop};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The books of all loops.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Rc<Books>);

#[derive(Default)]
struct Books {
    /// Operations in flight, by loop and token.
    in_flight: RefCell<BTreeMap<(usize, Token), &'static str>>,
    /// Callbacks of `operate` that have not been called, by number.
    owed: RefCell<BTreeMap<u64, &'static str>>,
    count: Cell<u64>,
    alive: Cell<usize>,
}

impl Ledger {
    /// The books of one loop.
    pub(crate) fn side(&self, loop_number: usize) -> Side {
        Side { ledger: self.clone(), loop_number }
    }

    /// How many objects of the simulation there are.
    pub(crate) fn alive(&self) -> usize {
        self.0.alive.get()
    }

    /// Nothing was lost.
    pub(crate) fn assert_settled(&self) {
        let books = &*self.0;
        assert!(books.in_flight.borrow().is_empty(), "never ended: {:?}", books.in_flight);
        assert!(books.owed.borrow().is_empty(), "never told: {:?}", books.owed);
    }
}

/// The books of one loop.
#[derive(Clone)]
pub(crate) struct Side {
    ledger: Ledger,
    loop_number: usize,
}

impl Side {
    /// [`Loop::submit`], on record.
    pub(crate) fn submit<T: Complete + 'static>(
        &self,
        lp: &Loop,
        operation: Operation,
        who: &Rc<T>,
        tag: u32,
    ) -> Submitted {
        let name = operation.name();
        let submitted = lp.submit(operation, who, tag);
        if let Submitted::Pending(token) = submitted {
            let before =
                self.books().in_flight.borrow_mut().insert((self.loop_number, token), name);
            assert_eq!(before, None, "a token was given twice");
        }
        submitted
    }

    /// To be called first with every completion of [`submit`](Side::submit).
    pub(crate) fn note(&self, completion: &Completion) {
        let mut in_flight = self.books().in_flight.borrow_mut();
        let key = (self.loop_number, completion.token);
        assert!(in_flight.contains_key(&key), "it has ended already: {completion:?}");
        if !completion.more {
            in_flight.remove(&key);
        }
    }

    /// [`Loop::operate`], or [`Loop::operate_within`], on record.
    pub(crate) fn operate(
        &self,
        lp: &Loop,
        within: Option<Duration>,
        operation: Operation,
        done: impl FnOnce(&Loop, Finished) + 'static,
    ) -> coracle_loop::Ticket {
        let number = self.books().count.get() + 1;
        self.books().count.set(number);
        self.books().owed.borrow_mut().insert(number, operation.name());
        let side = self.clone();
        let inside = Rc::new(Cell::new(true));
        let called = Rc::clone(&inside);
        let done = move |lp: &Loop, finished: Finished| {
            assert!(!called.get(), "called back from inside the call");
            let owed = side.books().owed.borrow_mut().remove(&number);
            assert!(owed.is_some(), "told twice");
            done(lp, finished);
        };
        let ticket = match within {
            Some(timeout) => lp.operate_within(timeout, operation, done),
            None => lp.operate(operation, done),
        };
        inside.set(false);
        ticket
    }

    /// An object that has to be gone when everything is over.
    pub(crate) fn being(&self) -> Being {
        self.books().alive.set(self.books().alive.get() + 1);
        Being(self.ledger.clone())
    }

    fn books(&self) -> &Books {
        &self.ledger.0
    }
}

/// Counts as alive until it is dropped.
pub(crate) struct Being(Ledger);

impl Drop for Being {
    fn drop(&mut self) {
        self.0.0.alive.set(self.0.0.alive.get() - 1);
    }
}
