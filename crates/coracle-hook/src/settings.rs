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
    /// On io_uring, small sends over TCP are handed to the kernel together with those of other coroutines, which
    /// run meanwhile, instead of being tried at once; off by default. A send finds room nearly always, and there
    /// is code that relies on it: OpenSSL sends an alert between an error and the look at its thread's list of
    /// errors, which another coroutine may have emptied then. Programs that have no OpenSSL gain a fifth of a
    /// short answer's time by it.
    pub sending: bool,
}
