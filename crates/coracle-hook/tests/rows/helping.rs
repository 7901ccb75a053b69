//! What the cases have in common.

use std::sync::Once;

/// Enables hooks in this process.
pub(crate) fn enable() {
    static ONCE: Once = Once::new();
    // SAFETY: the tests know what they do: nothing of theirs is held over a call that may wait, except where
    // that is the case.
    ONCE.call_once(|| unsafe { coracle_hook::enable() });
}
