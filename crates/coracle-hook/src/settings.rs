//! What can be chosen when hooks are enabled.

/// How hooks are [enabled](crate::enable_with).
///
/// ```
/// use coracle_hook::Settings;
///
/// let settings = Settings { sending: true, ..Settings::default() };
/// assert!(!settings.sleeping);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// `nanosleep`, `usleep` and `sleep` park, too; off by default. std does not use them, and libraries of C,
    /// SQLite among them, sleep while they hold locks.
    pub sleeping: bool,
    /// On io_uring and epoll, small sends over TCP are handed to the kernel together with those of other
    /// coroutines, which run meanwhile, instead of being tried at once; off by default. When a send returns, the
    /// kernel has the bytes, as ever. But it finds room nearly always, and there is code that relies on running on
    /// at once: OpenSSL sends an alert between an error and the look at its thread's list of errors, which another
    /// coroutine may have emptied then; and a library may have one buffer for all its connections. Programs
    /// without such code gain about a tenth of a short answer's time by it.
    pub sending: bool,
}
