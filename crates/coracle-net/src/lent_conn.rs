//! A connection in other hands for a while.

use crate::Conn;
use crate::link::Link;
use coracle_loop::Loop;
use std::fmt;
use std::rc::Rc;

/// A connection while one of its callbacks runs, for somebody whom that has called and who cannot borrow its
/// [`Conn`]: a coroutine that it runs at once. Made by [`Conn::lend`]. Loop thread only.
///
/// Whoever keeps it longer has nothing of it, but keeps memory.
pub struct LentConn {
    lp: Loop,
    link: Rc<Link>,
}

impl LentConn {
    #[inline]
    pub(crate) fn new(lp: &Loop, link: &Rc<Link>) -> LentConn {
        LentConn { lp: lp.clone(), link: Rc::clone(link) }
    }

    /// Calls `f` with the connection, in the place of the callback that runs: what it asks for is done when that
    /// returns. `None` if none runs any more.
    #[inline]
    pub fn with<T>(&self, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        let mut conn = Conn { lp: &self.lp, link: &self.link };
        self.link.is_in_callback().then(|| f(&mut conn))
    }
}

impl fmt::Debug for LentConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentConn").finish_non_exhaustive()
    }
}
