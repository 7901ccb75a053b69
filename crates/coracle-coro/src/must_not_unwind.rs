//! For the length of a wait that somebody else's use of our memory depends on.

/// Ends the process if it is dropped, and says this: whoever has borrowed would go on without what it has
/// borrowed. Who has waited in good order [forgets](std::mem::forget) it.
pub(crate) struct MustNotUnwind(pub(crate) &'static str);

impl Drop for MustNotUnwind {
    fn drop(&mut self) {
        eprintln!("coracle: {}: aborting", self.0);
        std::process::abort();
    }
}
