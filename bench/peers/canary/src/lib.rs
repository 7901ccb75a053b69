//! The two sides of W11, the same for all: what is written to SQLite, and the clock that must not stop meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// What every write answers.
pub const DONE: &str = "done\n";

/// What is written each time.
const NOTE: &str = "A coracle is a small boat that carries one person, and can be carried by one.";

/// A database with a table of notes; each is on the disk before the next is written.
pub struct Store(Mutex<Connection>);

impl Store {
    /// A new database in this file, as SQLite has it when nobody chooses anything.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(file: &Path) -> Result<Arc<Store>, rusqlite::Error> {
        let connection = Connection::open(file)?;
        connection.execute("create table notes (id integer primary key, text text)", ())?;
        Ok(Arc::new(Store(Mutex::new(connection))))
    }

    /// Adds a note: milliseconds, in which the thread waits.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self) -> Result<&'static str, rusqlite::Error> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connection.prepare_cached("insert into notes (text) values (?)")?.execute([NOTE])?;
        Ok(DONE)
    }
}

/// A clock that is to tick every 5 ms, from when it is first looked at.
pub struct Ticks {
    start: Instant,
    ticking: AtomicBool,
    /// The last interval that had its tick.
    last: AtomicU64,
    kept: AtomicU64,
}

impl Ticks {
    /// How often.
    pub const EVERY: Duration = Duration::from_millis(5);

    /// One that has not begun.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Arc<Ticks> {
        let (last, kept) = (AtomicU64::new(0), AtomicU64::new(0));
        let (start, ticking) = (Instant::now(), AtomicBool::new(false));
        Arc::new(Ticks { start, ticking, last, kept })
    }

    /// How many were kept and how many were due: `KEPT DUE`. Whoever asks first has it begin, by `begin`.
    pub fn look(self: &Arc<Self>, begin: impl FnOnce(Arc<Ticks>)) -> String {
        if !self.ticking.swap(true, Ordering::Relaxed) {
            begin(Arc::clone(self));
        }
        format!("{} {}\n", self.kept.load(Ordering::Relaxed), self.interval())
    }

    /// It ticks, for the interval in which that is: a second one in the same is not kept.
    pub fn tick(&self) {
        self.tick_in(self.interval());
    }

    fn tick_in(&self, interval: u64) {
        if self.last.swap(interval, Ordering::Relaxed) != interval {
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn interval(&self) -> u64 {
        (self.start.elapsed().as_micros() / Ticks::EVERY.as_micros()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_kept_once_in_its_interval() {
        let ticks = Ticks::new();
        [1, 2, 2, 2, 9, 10].iter().for_each(|&interval| ticks.tick_in(interval));
        let mut begun = 0;
        let text = ticks.look(|_| begun += 1) + &ticks.look(|_| begun += 1);
        assert!(text.starts_with("4 ") && text.contains("\n4 "), "{text}");
        assert_eq!(begun, 1, "who asks first has it begin");
    }

    #[test]
    fn notes_are_written() {
        let file = std::env::temp_dir().join(format!("coracle-canary-{}", std::process::id()));
        let store = Store::open(&file).unwrap();
        assert_eq!((store.write(), store.write()), (Ok(DONE), Ok(DONE)));
        assert!(Store::open(&file).is_err(), "it is there already");
        std::fs::remove_file(&file).unwrap();
    }
}
