//! On which processors a thread may run.
//!
//! A thread starts with the processors of the one that started it. So whoever is pinned to one, and starts
//! threads that are not meant to crowd there, gives them back what it had before.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::io;

thread_local! {
    static UNPINNED: Cell<Option<Processors>> = const { Cell::new(None) };
}

/// A set of processors.
///
/// ```
/// use coracle_demux::Processors;
///
/// let mine = Processors::of_this_thread()?;
/// assert!(!mine.numbers().is_empty());
/// mine.use_for_this_thread()?; // nothing new
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors(CpuSet);

impl Processors {
    /// Those that this thread may run on.
    ///
    /// # Errors
    /// The system's; on machines with more than 1024 processors.
    pub fn of_this_thread() -> io::Result<Processors> {
        Ok(Processors(sched_getaffinity(None)?))
    }

    /// Those that this thread could run on before it was [pinned](pin_thread), if it was.
    pub fn before_pinning() -> Option<Processors> {
        UNPINNED.get()
    }

    /// Lets this thread run on these alone, and threads it starts from now on.
    ///
    /// # Errors
    /// The process may use none of them.
    pub fn use_for_this_thread(&self) -> io::Result<()> {
        Ok(sched_setaffinity(None, &self.0)?)
    }

    /// Their numbers, in order.
    pub fn numbers(&self) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|&number| self.0.is_set(number)).collect()
    }
}

/// Lets this thread run on one processor alone: the `index`-th of those it could run on before, beginning anew
/// when there are not so many. Says which.
///
/// ```
/// use coracle_demux::{Processors, pin_thread};
///
/// let before = Processors::of_this_thread()?;
/// assert_eq!(pin_thread(0)?, before.numbers()[0]);
/// assert_eq!(Processors::of_this_thread()?.numbers().len(), 1);
/// assert_eq!(Processors::before_pinning(), Some(before));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// The system's; a sandbox may forbid it.
pub fn pin_thread(index: usize) -> io::Result<usize> {
    let before = Processors::before_pinning().map_or_else(Processors::of_this_thread, Ok)?;
    let numbers = before.numbers();
    let Some(&number) = numbers.get(index % numbers.len().max(1)) else {
        return Err(io::ErrorKind::NotFound.into()); // no thread has none
    };
    let mut one = CpuSet::new();
    one.set(number);
    Processors(one).use_for_this_thread()?;
    UNPINNED.set(Some(before));
    Ok(number)
}
