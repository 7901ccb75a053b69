//! What a generator is inside of when it is left: it takes that along, and it is not the business of who
//! resumed it.
//!
//! A [deadline](crate::deadline()), a [shield](crate::shield()), [`no_park`](crate::no_park()),
//! [`in_span`](crate::in_span()) and calls that are not hooked hold for the length of a closure, and are noted in
//! the frame of the coroutine. A generator can be left inside the closure, and another coroutine can resume it.

use crate::current::Frame;
use std::rc::Rc;
use std::time::Instant;
use tracing::Span;

/// What holds in a coroutine, at some point.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    deadline: Option<Instant>,
    shields: u32,
    is_shielded: bool,
    no_park: u32,
    unhooked: u32,
    spans: usize,
}

/// What a generator has added to that.
#[derive(Default)]
pub(crate) struct Scopes {
    /// If it has added a deadline or a shield.
    deadline: Option<Option<Instant>>,
    shields: u32,
    is_shielded: bool,
    no_park: u32,
    unhooked: u32,
    spans: Vec<Rc<Span>>,
}

impl Settings {
    pub(crate) fn of(frame: &Frame) -> Settings {
        Settings {
            deadline: frame.deadline.get(),
            shields: frame.shields.get(),
            is_shielded: frame.sleeper.is_shielded(),
            no_park: frame.no_park.get(),
            unhooked: frame.unhooked.get(),
            spans: frame.extras.get().map_or(0, |extras| extras.spans.count()),
        }
    }

    fn put_on(self, frame: &Frame) {
        frame.deadline.set(self.deadline);
        frame.shields.set(self.shields);
        frame.sleeper.set_shielded(self.is_shielded);
        frame.no_park.set(self.no_park);
        frame.unhooked.set(self.unhooked);
    }
}

impl Scopes {
    /// The generator is left: what was added `since` it was resumed is taken off.
    pub(crate) fn take_off(frame: &Frame, since: Settings) -> Scopes {
        let now = Settings::of(frame);
        if now == since {
            return Scopes::default();
        }
        since.put_on(frame);
        let spans = match frame.extras.get() {
            Some(extras) if now.spans > since.spans => extras.spans.split_off(since.spans),
            _ => Vec::new(),
        };
        Scopes {
            deadline: (now.deadline != since.deadline).then_some(now.deadline),
            shields: now.shields.saturating_sub(since.shields),
            is_shielded: now.is_shielded && !since.is_shielded,
            no_park: now.no_park.saturating_sub(since.no_park),
            unhooked: now.unhooked.saturating_sub(since.unhooked),
            spans,
        }
    }

    /// The generator goes on: it is still inside what it was inside of, and all that inside of what is `around`.
    pub(crate) fn put_on(self, frame: &Frame, around: Settings) {
        let Scopes { deadline, shields, is_shielded, no_park, unhooked, spans } = self;
        let deadline = match deadline {
            None => around.deadline,
            Some(own) if shields > 0 => own, // whatever is around a shield
            Some(own) => own.into_iter().chain(around.deadline).min(),
        };
        let settings = Settings {
            deadline,
            shields: around.shields + shields,
            is_shielded: around.is_shielded || is_shielded,
            no_park: around.no_park + no_park,
            unhooked: around.unhooked + unhooked,
            ..around
        };
        if settings != around {
            settings.put_on(frame);
        }
        if !spans.is_empty() {
            frame.extras().spans.append(spans);
        }
    }
}
