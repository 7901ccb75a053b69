//! What is sent: for each connection an endless stream of bytes that tells where it is from.
//!
//! The streams are one circle of random bytes, begun at another place for each connection. Its length is a prime,
//! so no message but one of just that length fits into it: an answer that is late, doubled, or another
//! connection's does not look like the right one.

/// A prime.
const LENGTH: usize = 65_521;

/// How far apart two connections begin.
const STEP: usize = 7_919;

/// The circle.
pub(super) struct Pattern(Vec<u8>);

impl Pattern {
    pub(super) fn new() -> Pattern {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64; // xorshift: the same every time
        let random = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        });
        Pattern(random.take(LENGTH).collect())
    }

    /// Gives `count` bytes of a connection's stream, from `position` on, piece by piece.
    pub(super) fn pieces(
        &self,
        connection: usize,
        position: u64,
        count: usize,
    ) -> impl Iterator<Item = &[u8]> {
        let mut start = self.start(connection, position);
        let mut left = count;
        std::iter::from_fn(move || {
            let piece = &self.0[start..LENGTH.min(start + left)];
            left -= piece.len();
            start = (start + piece.len()) % LENGTH;
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// Where `bytes` differ from a connection's stream at `position`: how many are right before it, and what
    /// should have been there.
    pub(super) fn difference(
        &self,
        connection: usize,
        position: u64,
        bytes: &[u8],
    ) -> Option<(usize, u8)> {
        let mut at = 0;
        for piece in self.pieces(connection, position, bytes.len()) {
            let got = &bytes[at..at + piece.len()];
            if got != piece {
                let right = got.iter().zip(piece).take_while(|(got, sent)| got == sent).count();
                return Some((at + right, piece[right]));
            }
            at += piece.len();
        }
        None
    }

    fn start(&self, connection: usize, position: u64) -> usize {
        let begin = (connection % LENGTH) * STEP % LENGTH;
        (begin + (position % LENGTH as u64) as usize) % LENGTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pattern: &Pattern, connection: usize, position: u64, count: usize) -> Vec<u8> {
        pattern.pieces(connection, position, count).collect::<Vec<_>>().concat()
    }

    #[test]
    fn streams_go_on_where_they_were() {
        let pattern = Pattern::new();
        let whole = stream(&pattern, 5, 0, 200_000);
        assert_eq!(whole.len(), 200_000);
        for (position, count) in [(0, 1), (65_520, 3), (131_000, 69_000), (65_521, 65_521)] {
            let part = stream(&pattern, 5, position, count);
            assert!(part == whole[position as usize..][..count], "{position}");
            assert_eq!(pattern.difference(5, position, &part), None);
        }
    }

    #[test]
    fn every_kind_of_wrong_answer_differs() {
        let pattern = Pattern::new();
        let mut bytes = stream(&pattern, 1, 64, 64);
        assert!(pattern.difference(2, 64, &bytes).is_some(), "another connection's");
        assert!(pattern.difference(1, 0, &bytes).is_some(), "early");
        assert!(pattern.difference(1, 128, &bytes).is_some(), "late");
        let sent = bytes[17];
        bytes[17] ^= 1;
        assert_eq!(pattern.difference(1, 64, &bytes), Some((17, sent)));
    }
}
