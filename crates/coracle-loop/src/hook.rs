//! Callbacks at fixed points of every turn: for metrics, for embedding, for work that may wait.

use crate::{Loop, Rest};

/// Where in a turn a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// Before the wait of every turn.
    Prepare,
    /// After the wait of every turn, before its completions.
    Check,
    /// Before a wait that would sleep: the loop has nothing else to do. A job deferred here is run at once.
    Idle,
    /// Before a wait that nothing of the loop's own can end, for it [is idle](Loop::is_idle): only a signal can,
    /// or another thread. A job deferred here is run at once.
    Stuck,
}

/// How many kinds there are.
const KINDS: usize = HookKind::Stuck as usize + 1;

/// Names a hook, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook(u64);

type Callback = Box<dyn FnMut(&Loop)>;

/// The hooks of a loop, in the order they were added.
#[derive(Default)]
pub(crate) struct Hooks {
    entries: Vec<Entry>,
    count: u64,
    /// How many of each kind there are: most loops have none, and look at this in every turn.
    of_kind: [usize; KINDS],
}

impl Hooks {
    #[inline]
    fn has(&self, kind: HookKind) -> bool {
        self.of_kind[kind as usize] > 0
    }

    fn find(&mut self, id: Hook) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// The next of a kind that was added after `last`, up to `newest`; and its callback, unless that is being
    /// called.
    fn take_next(
        &mut self,
        kind: HookKind,
        last: u64,
        newest: u64,
    ) -> Option<(Hook, Option<Callback>)> {
        let due =
            |entry: &&mut Entry| entry.kind == kind && entry.id.0 > last && entry.id.0 <= newest;
        self.entries.iter_mut().find(due).map(|entry| (entry.id, entry.callback.take()))
    }
}

/// A hook that is being called. Puts it back afterwards, also after a panic, unless it was removed.
struct Call<'a> {
    lp: &'a Loop,
    id: Hook,
    callback: Option<Callback>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.lp.inner.hooks.borrow_mut().find(self.id) {
            entry.callback = self.callback.take();
        }
        // What was not put back is dropped with `self`, when nothing is borrowed.
    }
}

struct Entry {
    id: Hook,
    kind: HookKind,
    /// `None` while it is being called.
    callback: Option<Callback>,
}

impl Loop {
    /// Calls `callback` at this point of every turn, until it is [removed](Loop::remove_hook).
    ///
    /// ```
    /// use coracle_loop::{HookKind, Loop};
    ///
    /// let lp = Loop::new().unwrap();
    /// lp.on_turn(HookKind::Idle, |lp| lp.stop()); // nothing to do: stop
    /// lp.run().unwrap();
    /// ```
    pub fn on_turn(&self, kind: HookKind, callback: impl FnMut(&Loop) + 'static) -> Hook {
        let mut hooks = self.inner.hooks.borrow_mut();
        hooks.count += 1;
        hooks.of_kind[kind as usize] += 1;
        let id = Hook(hooks.count);
        hooks.entries.push(Entry { id, kind, callback: Some(Box::new(callback)) });
        id
    }

    /// Removes a hook, also from inside itself. False if it was not there.
    pub fn remove_hook(&self, hook: Hook) -> bool {
        let mut hooks = self.inner.hooks.borrow_mut();
        let Some(place) = hooks.entries.iter().position(|entry| entry.id == hook) else {
            return false;
        };
        let removed = hooks.entries.remove(place);
        hooks.of_kind[removed.kind as usize] -= 1;
        drop(hooks);
        drop(removed); // when nothing is borrowed: what it owns may use the loop as it goes
        true
    }

    /// Calls the hooks of a kind that are there now, in the order they were added. False if there are none.
    #[inline]
    pub(crate) fn run_hooks(&self, kind: HookKind) -> bool {
        let any = self.has_hooks(kind);
        if any {
            self.call_hooks(kind);
        }
        any
    }

    /// Calls those that are for a moment at which the loop would sleep so long. False if there are none, or it
    /// would not sleep.
    #[inline]
    pub(crate) fn run_idle_hooks(&self, rest: Rest) -> bool {
        let idle = self.has_hooks(HookKind::Idle);
        let stuck = || rest == Rest::Endless && self.has_hooks(HookKind::Stuck) && self.is_idle();
        if !idle && !stuck() || self.inner.demux.borrow().is_busy() {
            return false;
        }
        self.run_hooks(HookKind::Idle);
        if stuck() {
            self.call_hooks(HookKind::Stuck);
            return true;
        }
        idle
    }

    #[inline]
    fn has_hooks(&self, kind: HookKind) -> bool {
        self.inner.hooks.borrow().has(kind)
    }

    #[inline(never)]
    fn call_hooks(&self, kind: HookKind) {
        let newest = self.inner.hooks.borrow().count;
        let mut last = 0;
        loop {
            // By number, and not by place: a hook may add others and remove any.
            let next = self.inner.hooks.borrow_mut().take_next(kind, last, newest);
            let Some((id, callback)) = next else { return };
            last = id.0;
            if let Some(callback) = callback {
                let mut call = Call { lp: self, id, callback: Some(callback) };
                call.callback.as_mut().expect("it was put there")(self);
            }
        }
    }
}
