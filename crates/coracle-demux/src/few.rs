//! Tokens of which a descriptor mostly has none: eight bytes then.

use crate::Token;
use smallvec::SmallVec;

/// A list that is seldom there. One that has been used keeps its memory.
#[derive(Default)]
pub(crate) struct Few(Option<Box<SmallVec<[Token; 4]>>>);

impl Few {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|few| few.is_empty())
    }

    pub(crate) fn push(&mut self, token: Token) {
        self.0.get_or_insert_default().push(token);
    }

    pub(crate) fn remove(&mut self, token: Token) {
        if let Some(few) = &mut self.0 {
            few.retain(|other| *other != token);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Token> {
        self.0.iter().flat_map(|few| few.iter().copied())
    }

    /// Takes them out.
    pub(crate) fn take(&mut self) -> SmallVec<[Token; 4]> {
        self.0.take().map_or_else(SmallVec::new, |few| *few)
    }
}
