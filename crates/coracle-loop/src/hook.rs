//! Callbacks at fixed points of every turn: for metrics, for embedding, for work that may wait.

use crate::Loop;

/// Where in a turn a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookKind {
    /// Before the wait of every turn.
    Prepare,
    /// After the wait of every turn, before its completions.
    Check,
    /// Before a wait that would sleep: the loop has nothing else to do. A job deferred here is run at once.
    Idle,
}

/// Names a hook, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook(u64);

type Callback = Box<dyn FnMut(&Loop)>;

/// The hooks of a loop, in the order they were added.
#[derive(Default)]
pub(crate) struct Hooks {
    entries: Vec<Entry>,
    count: u64,
}

impl Hooks {
    fn find(&mut self, id: Hook) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
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
        let id = Hook(hooks.count);
        hooks.entries.push(Entry { id, kind, callback: Some(Box::new(callback)) });
        id
    }

    /// Removes a hook, also from inside itself. False if it was not there.
    pub fn remove_hook(&self, hook: Hook) -> bool {
        let mut hooks = self.inner.hooks.borrow_mut();
        let before = hooks.entries.len();
        // The entry is dropped after the borrow ends: what it owns may use the loop as it goes.
        let removed: Vec<Entry> = hooks.entries.extract_if(.., |entry| entry.id == hook).collect();
        let found = hooks.entries.len() < before;
        drop(hooks);
        drop(removed);
        found
    }

    /// Calls the hooks of a kind. False if there are none.
    #[inline]
    pub(crate) fn run_hooks(&self, kind: HookKind) -> bool {
        let any = self.inner.hooks.borrow().entries.iter().any(|entry| entry.kind == kind);
        if any {
            self.call_hooks(kind);
        }
        any
    }

    #[inline(never)]
    fn call_hooks(&self, kind: HookKind) {
        let ids: Vec<Hook> = (self.inner.hooks.borrow().entries.iter())
            .filter(|entry| entry.kind == kind)
            .map(|entry| entry.id)
            .collect();
        for id in ids {
            let mut hooks = self.inner.hooks.borrow_mut();
            let callback = hooks.find(id).and_then(|entry| entry.callback.take());
            drop(hooks);
            if let Some(callback) = callback {
                let mut call = Call { lp: self, id, callback: Some(callback) };
                call.callback.as_mut().expect("it was put there")(self);
            }
        }
    }
}
