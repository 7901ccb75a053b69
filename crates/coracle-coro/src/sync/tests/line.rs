//! Lines of waiters: who joins, leaves and is first.

use crate::future::wait::FutureWait;
use crate::sync::line::{Line, Ticket};
use proptest::prelude::*;

/// Joins, with a number; the wait, and its place.
fn join(line: &mut Line<usize>, number: usize) -> (FutureWait, Ticket) {
    let wait = FutureWait::begin();
    let ticket = line.join(wait.waker(), number);
    (wait, ticket)
}

fn claim(line: &mut Line<usize>) -> Option<usize> {
    line.claim_first().map(|(_, number, _told)| number)
}

#[test]
fn s24_place_that_was_left_is_nobody_elses() {
    let mut line = Line::new();
    let (_one, first) = join(&mut line, 1);
    assert_eq!(line.leave(first), Some(1));
    let (_other, second) = join(&mut line, 2);
    assert_ne!(first, second);
    assert_eq!(line.leave(first), None, "it has left before");
    assert_eq!(claim(&mut line), Some(2));
    assert_eq!(line.leave(second), None, "it was woken");
    assert!(line.is_empty());
}

proptest! {
    /// Whoever joins and leaves, and whose waits have ended elsewhere: as in a list, from which they go.
    #[test]
    fn s24_first_who_joined_is_first(
        steps in proptest::collection::vec((0..6u8, 0..64usize), 1..200),
    ) {
        let mut line = Line::new();
        // All that was ever given, by number; and who is in the line, each with whether it is gone.
        let (mut places, mut model) = (Vec::new(), Vec::<(usize, bool)>::new());
        let (mut ended, mut most) = (std::collections::HashSet::new(), 0);
        for (step, value) in steps {
            let chosen = value.checked_rem(places.len());
            match (step, chosen) {
                (0..=2, _) | (_, None) => {
                    model.push((places.len(), false));
                    places.push(join(&mut line, places.len()));
                }
                (3, Some(number)) => {
                    let at = model.iter().position(|(other, _)| *other == number);
                    let expected = at.map(|at| model.remove(at).0);
                    prop_assert_eq!(line.leave(places[number].1), expected);
                }
                (4, Some(number)) => {
                    if places[number].0.waker().claim() {
                        ended.insert(number);
                    }
                }
                _ => {
                    let first = model.iter().position(|(other, _)| !ended.contains(other));
                    let passed = first.unwrap_or(model.len());
                    model[..passed].iter_mut().for_each(|(_, gone)| *gone = true);
                    let expected = first.map(|at| model.remove(at).0);
                    prop_assert_eq!(claim(&mut line), expected);
                }
            }
            most = most.max(model.len());
            let numbers: Vec<usize> = line.entries().map(|entry| entry.item).collect();
            let expected: Vec<usize> = model.iter().map(|(number, _)| *number).collect();
            prop_assert_eq!(numbers, expected);
            prop_assert_eq!(line.has(|_| true), model.iter().any(|(_, gone)| !gone));
            prop_assert_eq!(line.is_empty(), model.is_empty());
        }
        prop_assert_eq!(line.slots.len(), most, "whoever leaves makes room");
    }
}
