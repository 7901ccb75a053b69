//! The loops of a server in coroutines or futures: on the backend that was asked for, and with an end.

use coracle::Loop;
use coracle::demux::Backend;
use std::io;

/// What makes them: `begin_end` is called on the first one when the process is asked to end.
pub(crate) fn make_loops(
    backend: Option<Backend>,
    begin_end: impl Fn(&Loop) + Clone + Send + Sync + 'static,
) -> impl Fn(usize) -> io::Result<Loop> + Send + Sync + 'static {
    move |index| {
        let builder = Loop::builder();
        let builder = backend.into_iter().fold(builder, |builder, it| builder.backend(it));
        let lp = builder.build()?;
        if index == 0 {
            lp.on_terminate(begin_end.clone())?;
        }
        Ok(lp)
    }
}
