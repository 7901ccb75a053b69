//! Lengths, as a header of HTTP/2 says them: those that were said last are kept, for many answers are alike.

use http::HeaderValue;
use std::cell::RefCell;

/// How many are kept.
const KEEP: usize = 16;

#[derive(Default)]
pub(crate) struct Lengths(RefCell<[Option<(u64, HeaderValue)>; KEEP]>);

impl Lengths {
    /// What is behind the colon.
    pub(crate) fn value(&self, len: u64) -> HeaderValue {
        let mut kept = self.0.borrow_mut();
        let place = &mut kept[(len % KEEP as u64) as usize];
        match place {
            Some((known, value)) if *known == len => value.clone(),
            _ => place.insert((len, HeaderValue::from(len))).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j13_each_length_is_said_as_it_is() {
        let lengths = Lengths::default();
        for len in [0, 13, 13, 29, 13, u64::MAX, 15, 16, 0] {
            assert_eq!(lengths.value(len), len.to_string());
        }
    }
}
