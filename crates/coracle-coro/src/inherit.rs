//! What a coroutine has of the one that spawned it: the span it was in, and the locals whose keys ask for it.

use crate::current;
use crate::local::{self, Legacy};
use tracing::Span;
use tracing::level_filters::LevelFilter;

/// What goes from whoever spawns to the coroutine, across threads if need be. Most often nothing.
pub(crate) struct Inheritance(Option<Box<Estate>>);

struct Estate {
    locals: Vec<Legacy>,
    span: Option<Span>,
}

impl Inheritance {
    /// What whoever calls has to leave.
    #[inline]
    pub(crate) fn of_caller() -> Inheritance {
        // Nobody listens, or nobody has locals: that costs two loads.
        let listened = LevelFilter::current() != LevelFilter::OFF;
        if listened || local::has_some() {
            Inheritance::collect(listened)
        } else {
            Inheritance(None)
        }
    }

    #[cold]
    fn collect(listened: bool) -> Inheritance {
        let locals = local::bequeath();
        let span = if listened { Some(Span::current()) } else { None };
        let span = span.filter(|span| !span.is_none());
        let worth = !locals.is_empty() || span.is_some();
        Inheritance(worth.then(|| Box::new(Estate { locals, span })))
    }

    /// Gives it to the coroutine that calls, which has nothing else yet.
    #[inline]
    pub(crate) fn take_up(self) {
        let Some(estate) = self.0 else { return };
        current::with(|frame| {
            let frame = frame.expect("it is a coroutine that inherits");
            let extras = frame.extras();
            extras.locals.inherit(estate.locals);
            estate.span.into_iter().for_each(|span| extras.spans.enter(span));
        });
    }
}
