//! What can be chosen when hooks are enabled.

/// How hooks are [enabled](crate::enable_with).
///
/// ```
/// let settings = coracle_hook::Settings { sleeping: true };
/// assert!(!coracle_hook::Settings::default().sleeping);
/// # let _ = settings;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// `nanosleep`, `usleep` and `sleep` park, too; off by default. std does not use them, and libraries of C,
    /// SQLite among them, sleep while they hold locks.
    pub sleeping: bool,
}
