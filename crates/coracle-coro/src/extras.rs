//! What few coroutines have: values of their own, and spans. Most have none, and pay for one pointer.

use crate::local::Locals;
use crate::span::Spans;

#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) locals: Locals,
    pub(crate) spans: Spans,
}

impl Extras {
    /// The coroutine is over.
    #[cold]
    pub(crate) fn clear(&self) {
        self.locals.clear();
        self.spans.leave_all();
    }
}
