//! What a coroutine has of the one that spawned it.

use crate::harness::{Harness, MS};
use coracle_coro::{Builder, in_span, park, scope, sleep, spawn, spawn_on, timeout, yield_now};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::span::Id;
use tracing::{Span, Subscriber, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

coracle_coro::coroutine_local! {
    inherit static REQUEST: Cell<u32> = Cell::new(0);
    static OWN: Cell<u32> = Cell::new(0);
    /// With an attribute, and a value that is shared.
    pub(crate) inherit static CONTEXT: RefCell<Option<Arc<()>>> = RefCell::default()
}

fn request() -> u32 {
    REQUEST.with(Cell::get)
}

pub(crate) fn s27_child_inherits_what_the_key_asks_for(h: &Harness) {
    h.run(|| {
        REQUEST.with(|request| request.set(7));
        OWN.with(|own| own.set(7));
        let child = spawn(|| {
            let grandchild = spawn(request); // it was not even looked at in between
            let seen = (OWN.with(Cell::get), grandchild.join().unwrap(), request());
            REQUEST.with(|request| request.set(8));
            seen
        });
        REQUEST.with(|request| request.set(9)); // too late for the child
        assert_eq!(child.join().unwrap(), (0, 7, 7));
        assert_eq!(request(), 9, "it is a clone");
        let named = Builder::new().name("named").spawn(request)?;
        assert_eq!(named.join().unwrap(), 9);
        scope(|scope| {
            scope.spawn(|| {
                assert_eq!(request(), 9);
                Ok(())
            });
            Ok(())
        })
    });
}

pub(crate) fn s27_inheritance_goes_to_other_loops_and_is_dropped_there(h: &Harness) {
    let backend = h.lp.backend();
    let shared = Arc::new(());
    let held = Arc::clone(&shared);
    h.run(move || {
        REQUEST.with(|request| request.set(7));
        CONTEXT.with(|context| context.replace(Some(held)));
        let here = coracle_coro::loops().remove(0);
        let runtime = std::thread::spawn(move || {
            REQUEST.with(|request| request.set(8)); // a thread has its own
            spawn_on(&here, request).unwrap().join().unwrap()
        });
        while !runtime.is_finished() {
            sleep(MS)?;
        }
        assert_eq!(runtime.join().unwrap(), 8);
        let (lp, main) = (crate::harness::make_loop(backend, 3)?, coracle_coro::current());
        let sent = spawn_on(&lp.handle(), move || {
            main.unpark();
            (request(), CONTEXT.with(|context| context.borrow().is_some()))
        })?;
        lp.run_ready()?; // it was adopted
        lp.run_ready()?;
        park()?;
        assert_eq!(sent.join().unwrap(), (7, true));
        Ok(())
    });
    assert_eq!(Arc::strong_count(&shared), 1, "all of them are over, and their values with them");
}

fn span() -> Option<u64> {
    Span::current().id().map(|id| id.into_u64())
}

/// Runs `f` where somebody listens to spans.
pub(crate) fn listening(f: impl FnOnce()) {
    tracing::subscriber::with_default(tracing_subscriber::registry(), f);
}

pub(crate) fn s28_span_follows_spawn(h: &Harness) {
    listening(|| {
        h.run(|| {
            let request = info_span!("request");
            let id = request.id().map(|id| id.into_u64());
            assert!(id.is_some());
            let child = in_span(&request, || {
                assert_eq!(span(), id);
                spawn(|| {
                    let before = span();
                    yield_now();
                    let grandchild = spawn(span).join().unwrap();
                    [before, span(), grandchild]
                })
            });
            assert_eq!(span(), None);
            let stranger = spawn(span);
            assert_eq!(child.join().unwrap(), [id; 3]);
            assert_eq!(stranger.join().unwrap(), None);
            Ok(())
        });
    });
}

pub(crate) fn s28_coroutines_do_not_run_in_the_spans_of_others(h: &Harness) {
    listening(|| {
        h.run(|| {
            let children = (0..3).map(|_| {
                spawn(|| {
                    let (outer, inner) = (info_span!("outer"), info_span!("inner"));
                    let id = |span: &Span| span.id().map(|id| id.into_u64());
                    for _ in 0..10 {
                        assert_eq!(span(), None);
                        in_span(&outer, || {
                            yield_now();
                            assert_eq!(span(), id(&outer));
                            in_span(&inner, || {
                                yield_now();
                                assert_eq!(span(), id(&inner));
                            });
                            yield_now();
                            assert_eq!(span(), id(&outer));
                        });
                        let panicking = || in_span(&outer, || panic!("on purpose"));
                        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
                    }
                })
            });
            children.collect::<Vec<_>>().into_iter().for_each(|child| child.join().unwrap());
            assert_eq!(span(), None);
            Ok(())
        });
        // Also in a plain thread.
        let own = info_span!("own");
        assert_eq!(in_span(&own, span), own.id().map(|id| id.into_u64()));
    });
}

/// Does something whenever a span is left or entered.
struct Meddler<F>(F);

impl<S: Subscriber, F: Fn() + 'static> Layer<S> for Meddler<F>
where
    Meddler<F>: Send + Sync,
{
    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        (self.0)();
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        (self.0)();
    }
}

/// Runs `f` where `meddle` is called whenever a span is left or entered.
fn meddled(meddle: impl Fn() + Send + Sync + 'static, f: impl FnOnce()) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(Meddler(meddle)), f);
}

pub(crate) fn s28_subscriber_that_panics_in_a_wait_breaks_none(h: &Harness) {
    thread_local! {
        static PANICS: Cell<bool> = const { Cell::new(false) };
    }
    let meddle = || assert!(!PANICS.get(), "on purpose");
    meddled(meddle, || {
        h.run(|| {
            let child = spawn(|| {
                let [outer, inner] = [info_span!("outer"), info_span!("inner")];
                in_span(&outer, || {
                    in_span(&inner, || {
                        PANICS.set(true);
                        sleep(MS)?;
                        yield_now();
                        park()?;
                        timeout(MS, park).unwrap_err();
                        PANICS.set(false);
                        Ok::<_, std::io::Error>(span() == inner.id().map(|id| id.into_u64()))
                    })
                })
            });
            sleep(Duration::from_millis(3))?;
            child.coroutine().unpark();
            assert!(child.join().unwrap()?);
            Ok(())
        });
    });
}

pub(crate) fn s28_subscriber_cannot_wait_in_a_wait(h: &Harness) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let texts = Arc::clone(&said);
    let meddle = move || {
        let waits: [fn(); 2] = [|| drop(sleep(MS)), yield_now];
        for wait in waits {
            if let Err(payload) = catch_unwind(wait) {
                let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
                texts.lock().unwrap().extend(text);
            }
        }
    };
    meddled(meddle, || {
        h.run(|| {
            let child = spawn(|| {
                sleep(MS).unwrap();
                let span = info_span!("span");
                in_span(&span, || {
                    (0..3).try_for_each(|_| sleep(MS))?;
                    park()
                })
            });
            sleep(Duration::from_millis(20))?;
            child.coroutine().unpark();
            child.join().unwrap()
        });
    });
    let said = said.lock().unwrap();
    assert!(said.iter().any(|text| text.contains("subscriber of `tracing`")), "{said:?}");
}
