//! The app that answers now, and can be another one the next moment.
//!
//! ```text
//!   reload ──► Live: app, number ──┬──► loop 0: its copy, as long as the number is the same
//!                                  └──► loop 1: …
//! ```
//!
//! A request keeps the app with which it began.

use super::site::SharedApp;
use coracle::http::{App, Plan, Refusal, Request, Response};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The app of all loops.
pub(super) struct Live {
    /// Which one it is. Loops look at it for every request, so it is no lock.
    number: AtomicU64,
    app: Mutex<SharedApp>,
}

impl Live {
    pub(super) fn new(app: SharedApp) -> Arc<Live> {
        Arc::new(Live { number: AtomicU64::new(0), app: Mutex::new(app) })
    }

    /// From now on this one answers. Gives back the other, with which some may still be busy.
    pub(super) fn replace(&self, app: SharedApp) -> SharedApp {
        let mut current = self.app.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, app);
        self.number.fetch_add(1, Ordering::Release);
        old
    }

    /// What a loop asks.
    pub(super) fn on_loop(self: &Arc<Self>) -> OnLoop {
        let (number, app) = self.current();
        OnLoop {
            live: Arc::clone(self),
            number: Cell::new(number),
            app: RefCell::new(Rc::new(app)),
        }
    }

    fn current(&self) -> (u64, SharedApp) {
        let app = self.app.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: they belong together.
        (self.number.load(Ordering::Acquire), Arc::clone(&app))
    }
}

/// The app of one loop.
pub(super) struct OnLoop {
    live: Arc<Live>,
    number: Cell<u64>,
    /// Counted on this loop alone: a count that all loops change for every request would be fought over.
    app: RefCell<Rc<SharedApp>>,
}

impl OnLoop {
    fn app(&self) -> Rc<SharedApp> {
        if self.live.number.load(Ordering::Acquire) != self.number.get() {
            let (number, app) = self.live.current();
            self.number.set(number);
            let old = self.app.replace(Rc::new(app));
            drop(old); // when nothing is borrowed any more
        }
        Rc::clone(&self.app.borrow())
    }
}

impl App for OnLoop {
    fn call(&self, req: &Request<'_>) -> Response {
        self.app().call(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        self.app().plan(req)
    }

    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        self.app().refuse(req, refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle::http::OwnedRequest;

    fn named(name: &'static str) -> SharedApp {
        Arc::new(move |_: &Request<'_>| name)
    }

    #[test]
    fn q1_the_new_app_answers_on_every_loop_and_the_old_one_goes() {
        let live = Live::new(named("old"));
        let loops = [live.on_loop(), live.on_loop()];
        let ask = |app: &OnLoop| {
            let response = app.call(&OwnedRequest::new("GET", "/").request());
            String::from_utf8(response.body().as_bytes().unwrap().to_vec()).unwrap()
        };
        assert_eq!(loops.each_ref().map(ask), ["old", "old"]);
        let old = live.replace(named("new"));
        assert_eq!(ask(&loops[0]), "new");
        assert_eq!(Arc::strong_count(&old), 2, "the second loop has not looked");
        assert_eq!(ask(&loops[1]), "new");
        assert_eq!(Arc::strong_count(&old), 1);
        assert_eq!(ask(&live.on_loop()), "new");
    }
}
