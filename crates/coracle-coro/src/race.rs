//! Several at the same time, of which the first to end is enough.

use crate::scope::{Scope, scope};
use std::cell::RefCell;
use std::io;
use std::panic::Location;

/// Runs both as coroutines. The first to end, in whatever way, cancels the other, and its result is the result. It
/// returns when *both* are over.
///
/// They may borrow, as in a [`scope`](scope()). What the other one makes of being cancelled is dropped.
///
/// # Errors
/// That of the first to end; that it has panicked. `TimedOut` if a [`timeout`](crate::timeout) around it is over
/// before, and what they made of it if the coroutine that called this is cancelled: both are cancelled then.
///
/// # Panics
/// As [`scope`](scope()).
///
/// ```
/// use coracle_coro::{race, sleep, sync::channel};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let (_sender, messages) = channel::<String>(1);
///     let printing = || {
///         for message in &messages {
///             println!("{message}");
///         }
///         Ok("it has ended")
///     };
///     let waiting = || {
///         sleep(Duration::from_millis(1))?;
///         Ok("it has taken too long")
///     };
///     assert_eq!(race(printing, waiting)?, "it has taken too long");
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn race<'a, T: 'a>(
    one: impl FnOnce() -> io::Result<T> + 'a,
    other: impl FnOnce() -> io::Result<T> + 'a,
) -> io::Result<T> {
    let (spawned, course) = (Location::caller(), Course::new());
    let ended = scope(|scope| {
        scope.spawn_at(spawned, || course.run(scope, one));
        scope.spawn_at(spawned, || course.run(scope, other));
        Ok(())
    });
    course.end(ended)
}

/// As [`race`], of any number.
///
/// # Errors
/// As [`race`]; `InvalidInput` if there are none.
///
/// # Panics
/// As [`scope`](scope()).
///
/// ```
/// use coracle_coro::{race_all, sleep};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let racers = [30, 1, 20].map(|ms| move || sleep(Duration::from_millis(ms)).map(|()| ms));
///     assert_eq!(race_all(racers)?, 1);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn race_all<'a, T, F>(racers: impl IntoIterator<Item = F>) -> io::Result<T>
where
    F: FnOnce() -> io::Result<T> + 'a,
    T: 'a,
{
    let (spawned, course) = (Location::caller(), Course::new());
    let ended = scope(|scope| {
        for racer in racers {
            let course = &course;
            scope.spawn_at(spawned, move || course.run(scope, racer));
        }
        Ok(())
    });
    course.end(ended)
}

/// Where a race is run.
struct Course<T> {
    first: RefCell<Option<Arrival<T>>>,
}

/// The first to end.
struct Arrival<T> {
    /// It was cancelled before, and not by another who was first.
    late: bool,
    result: io::Result<T>,
}

impl<T> Course<T> {
    fn new() -> Course<T> {
        Course { first: RefCell::new(None) }
    }

    fn run(&self, scope: &Scope<'_, '_>, racer: impl FnOnce() -> io::Result<T>) -> io::Result<()> {
        let result = racer();
        let mut first = self.first.borrow_mut();
        if first.is_none() {
            *first = Some(Arrival { late: scope.is_cancelled(), result });
            drop(first);
            scope.cancel();
        } else {
            drop(first); // before the result, whose destructor may wait
            drop(result);
        }
        Ok(())
    }

    /// What came of it, if the scope around it has ended like this.
    fn end(self, ended: io::Result<()>) -> io::Result<T> {
        match (self.first.into_inner(), ended) {
            (Some(Arrival { late: false, result }), _) => result,
            (_, Err(error)) => Err(error),
            (Some(late), Ok(())) => late.result, // whoever called is cancelled
            (None, Ok(())) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a race without racers has no winner: give it at least one",
            )),
        }
    }
}
