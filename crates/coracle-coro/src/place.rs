//! Room for one value of any type: in place if it is small, else in a box.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// What fits in: most closures, and most results.
const WORDS: usize = 6;

/// Room for one value. It does not know of which type it is, nor whether there is one: whoever forgets to take it
/// leaks it.
pub(crate) struct Place(MaybeUninit<[u64; WORDS]>);

impl Place {
    pub(crate) const fn new() -> Place {
        Place(MaybeUninit::uninit())
    }

    const fn fits<V>() -> bool {
        size_of::<V>() <= size_of::<Place>() && align_of::<V>() <= align_of::<Place>()
    }

    /// What was there before is lost.
    #[inline]
    pub(crate) fn put<V>(&mut self, value: V) {
        let room = self.0.as_mut_ptr();
        if const { Place::fits::<V>() } {
            // SAFETY: it is large enough, and aligned well enough.
            unsafe { room.cast::<V>().write(value) };
        } else {
            let boxed = Box::into_raw(Box::new(value));
            // SAFETY: as above, of a pointer.
            unsafe { room.cast::<*mut V>().write(boxed) };
        }
    }

    /// # Safety
    /// What was put there last is a `V`, and was not taken since.
    #[inline]
    pub(crate) unsafe fn take<V>(&mut self) -> V {
        let room = self.0.as_mut_ptr();
        if const { Place::fits::<V>() } {
            // SAFETY: there is a `V`, which is ours from now on.
            unsafe { room.cast::<V>().read() }
        } else {
            // SAFETY: there is a pointer that came from a box of a `V`.
            unsafe { *Box::from_raw(room.cast::<*mut V>().read()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Place;
    use std::rc::Rc;

    #[repr(align(64))]
    struct Aligned(u8);

    /// Puts a value there and takes it out.
    fn through<V>(value: V) -> V {
        let mut place = Place::new();
        place.put(value);
        // SAFETY: this is what was put there.
        unsafe { place.take() }
    }

    #[test]
    fn values_of_any_size_come_out_as_they_went_in() {
        let shared = Rc::new(7);
        assert_eq!(*through(Rc::clone(&shared)), 7);
        assert_eq!(through(vec![Rc::clone(&shared); 18]).len(), 18);
        let large = through([(); 9].map(|()| Rc::clone(&shared)));
        assert_eq!(Rc::strong_count(&shared), 10);
        drop(large);
        assert_eq!(Rc::strong_count(&shared), 1);
        assert_eq!(through(Aligned(3)).0, 3);
        through(());
    }
}
