//! Telling the error of a cancelled wait from others.

use rustix::io::Errno;
use std::io;

/// Whether it is the error of a wait that failed because its coroutine is cancelled: `ECANCELED`, for which
/// [`io::ErrorKind`] has no name. (The end of a [`timeout`](crate::timeout) is `ErrorKind::TimedOut`.)
///
/// For who has something to do at such an end, in a [`shield`](crate::shield()). All others write `?`.
///
/// ```
/// use coracle_coro::{is_cancelled, park, spawn};
///
/// coracle_coro::run(|| {
///     let patient = spawn(park);
///     patient.cancel();
///     let error = patient.join().unwrap().unwrap_err();
///     assert!(is_cancelled(&error));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}
