//! The streams of a connection that wait: for a body, a handler, or room for an answer.
//!
//! Each has a place, as long as it waits, and each place a waker, which is used again for the next. So no stream
//! is a task of its own; its connection polls those that were [woken](super::notice).

use super::notice::Notice;
use super::stream::Stream;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

#[derive(Default)]
pub(super) struct Waiting {
    places: Vec<Place>,
    /// The numbers of places where nobody is.
    free: Vec<usize>,
}

struct Place {
    stream: Option<Rc<Stream>>,
    waker: Waker,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Rc<Stream>> {
        self.places.iter().filter_map(|place| place.stream.as_ref())
    }

    /// Gives it a place: the number of it.
    pub(super) fn enter(&mut self, stream: &Rc<Stream>, notice: &Arc<Notice>) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            let number = self.places.len();
            self.places.push(Place { stream: None, waker: notice.waker_of(number) });
            number
        });
        self.places[number].stream = Some(Rc::clone(stream));
        number
    }

    pub(super) fn leave(&mut self, number: usize) -> Option<Rc<Stream>> {
        let stream = self.places.get_mut(number)?.stream.take()?;
        self.free.push(number);
        Some(stream)
    }

    /// Who is there, if it is still the one that was woken or another, and its waker.
    pub(super) fn get(&self, number: usize) -> Option<(Rc<Stream>, Waker)> {
        let place = self.places.get(number)?;
        Some((Rc::clone(place.stream.as_ref()?), place.waker.clone()))
    }

    /// All of them; nobody waits any more.
    pub(super) fn take_all(&mut self) -> Vec<Rc<Stream>> {
        (0..self.places.len()).filter_map(|number| self.leave(number)).collect()
    }
}
