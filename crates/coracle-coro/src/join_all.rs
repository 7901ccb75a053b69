//! Several at the same time, all of which are needed.

use crate::scope::scope;
use std::cell::Cell;
use std::io;
use std::panic::Location;

/// Runs all of them as coroutines, and returns what each has returned, in their order. The first error cancels the
/// others; it returns when *all* are over.
///
/// They may borrow, as in a [`scope`](scope()).
///
/// # Errors
/// The first of one of them; that one has panicked. `TimedOut` if a [`timeout`](crate::timeout) around it is over
/// before.
///
/// # Panics
/// As [`scope`](scope()).
///
/// ```
/// use coracle_coro::{join_all, sleep};
/// use std::time::Duration;
///
/// coracle_coro::run(|| {
///     let words = ["one".to_owned(), "three".to_owned()];
///     let lengths = join_all(words.iter().map(|word| {
///         move || {
///             sleep(Duration::from_millis(1))?; // both at the same time
///             Ok(word.len())
///         }
///     }))?;
///     assert_eq!(lengths, [3, 5]);
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn join_all<'a, T, F>(all: impl IntoIterator<Item = F>) -> io::Result<Vec<T>>
where
    F: FnOnce() -> io::Result<T> + 'a,
    T: 'a,
{
    let spawned = Location::caller();
    let all: Vec<F> = all.into_iter().collect();
    let places: Vec<Cell<Option<T>>> = all.iter().map(|_| Cell::new(None)).collect();
    scope(|scope| {
        for (place, one) in places.iter().zip(all) {
            scope.spawn_at(spawned, move || {
                place.set(Some(one()?));
                Ok(())
            });
        }
        Ok(())
    })?;
    let value =
        |place: Cell<Option<T>>| place.into_inner().expect("without an error it has a value");
    Ok(places.into_iter().map(value).collect())
}
