//! What the members of a room on one loop are still to be told: messages that go round.
//!
//! A message goes from the member who is next to the one before it. Those that are told meanwhile join it where it
//! is, and a member gets all that go round in one piece: so whoever is slow to be told is told more at a time.
//!
//! ```text
//!               members     0   1   2   3   4   5
//!                           ──────►                the next is 2
//!   "ahoy" began at 4       ●   ●   ·   ·   ●   ●
//!   "gale" begins at 2      ·   ·   ·   ·   ·   ·  2 and 3 get both together; then 4, 5, 0 and 1 get "gale"
//! ```

use super::Encoded;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// So many messages go round at a time.
const LIMIT_ROUND: usize = 64;

/// No message joins so many bytes of others: more in one send is hardly cheaper, and keeps others waiting.
const LIMIT_ROUND_BYTES: usize = 16 << 10;

/// Some members, at least one. It is copied when it changes while somebody is told something: who has the same
/// list has the same members.
pub(super) type Members<M> = Arc<Vec<M>>;

/// What they are still to be told, in order.
pub(super) struct Untold<M> {
    /// What has not begun, and whom it is for.
    waiting: VecDeque<(Encoded, Members<M>)>,
    round: Option<Round<M>>,
}

/// Messages that go round, all of them for the same members.
struct Round<M> {
    members: Members<M>,
    /// The oldest first, each with the member at which it began, where it ends.
    messages: VecDeque<(Encoded, usize)>,
    bytes: usize,
    /// Who is told next.
    next: usize,
}

/// Some members, one after the other, who are told the same.
pub(super) struct Stretch<M> {
    members: Members<M>,
    range: Range<usize>,
    /// With them, all have been told everything that went round.
    ends_round: bool,
    /// What they are told, in order.
    pub(super) messages: Vec<Encoded>,
}

impl<M> Untold<M> {
    pub(super) fn push(&mut self, message: Encoded, members: &Members<M>) {
        self.waiting.push_back((message, Arc::clone(members)));
    }

    /// How many messages have not begun.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether everybody was told everything.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.round.is_none()
    }

    /// Who is to be told what next: at most `limit` members, who count as told from now on.
    pub(super) fn take(&mut self, limit: usize) -> Option<Stretch<M>> {
        if limit == 0 {
            return None;
        }
        self.begin();
        let round = self.round.as_mut()?;
        let stretch = round.take(limit);
        if stretch.ends_round {
            self.round = None; // its list of members may change in its place again
        }
        Some(stretch)
    }

    /// Has what waits join the round, in order, while there is room and it is for the same members.
    fn begin(&mut self) {
        while let Some((message, members)) = self.waiting.pop_front() {
            let round = self.round.get_or_insert_with(|| Round::new(Arc::clone(&members)));
            if round.is_full() || !Arc::ptr_eq(&round.members, &members) {
                return self.waiting.push_front((message, members));
            }
            round.begin(message);
        }
    }
}

impl<M> Round<M> {
    fn new(members: Members<M>) -> Round<M> {
        Round { members, messages: VecDeque::new(), bytes: 0, next: 0 }
    }

    fn is_full(&self) -> bool {
        self.messages.len() >= LIMIT_ROUND || self.bytes >= LIMIT_ROUND_BYTES
    }

    fn begin(&mut self, message: Encoded) {
        self.bytes += message.message().len();
        self.messages.push_back((message, self.next));
    }

    /// The next members, up to where the oldest message ends, or the list.
    fn take(&mut self, limit: usize) -> Stretch<M> {
        let members = Arc::clone(&self.members);
        let messages = self.messages.iter().map(|(message, _)| message.clone()).collect();
        let begin = self.next;
        let ends = self.messages.front().map(|(_, began)| *began).filter(|end| *end > begin);
        let end = ends.unwrap_or(members.len()).min(begin + limit);
        self.next = end % members.len();
        while let Some((message, began)) = self.messages.front()
            && *began == self.next
        {
            self.bytes -= message.message().len();
            self.messages.pop_front();
        }
        let ends_round = self.messages.is_empty();
        Stretch { members, range: begin..end, ends_round, messages }
    }
}

impl<M> Stretch<M> {
    /// Who is told.
    pub(super) fn members(&self) -> &[M] {
        &self.members[self.range.clone()]
    }

    /// How many may be told in the same turn after these, if it were `limit` with them: so many that nobody is
    /// told twice. In the list of another round they may be anywhere.
    pub(super) fn left(&self, limit: usize) -> usize {
        if self.ends_round { 0 } else { limit.min(self.members.len()) - self.range.len() }
    }
}

impl<M> Default for Untold<M> {
    fn default() -> Untold<M> {
        Untold { waiting: VecDeque::new(), round: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Notes what each member of a stretch is told.
    fn note(stretch: &Stretch<usize>, told: &mut [Vec<String>]) {
        for &member in stretch.members() {
            let texts = stretch.messages.iter().map(|it| it.message().as_text().unwrap().into());
            told[member].extend(texts);
        }
    }

    /// Takes one stretch, and notes what each of its members is told. How many were told something.
    fn tell(untold: &mut Untold<usize>, limit: usize, told: &mut [Vec<String>]) -> usize {
        let Some(stretch) = untold.take(limit) else { return 0 };
        note(&stretch, told);
        stretch.members().len()
    }

    /// The same for all stretches of a turn. Who was told something, in order.
    fn tell_in_a_turn(
        untold: &mut Untold<usize>,
        mut limit: usize,
        told: &mut [Vec<String>],
    ) -> Vec<usize> {
        let mut members = Vec::new();
        while let Some(stretch) = untold.take(limit) {
            note(&stretch, told);
            members.extend(stretch.members());
            limit = stretch.left(limit);
        }
        members
    }

    fn everybody(count: usize) -> Members<usize> {
        Arc::new((0..count).collect())
    }

    #[test]
    fn k6_messages_that_wait_are_told_together() {
        let (mut untold, members) = (Untold::default(), everybody(10));
        let mut told = vec![Vec::new(); 10];
        (0..16).for_each(|number| untold.push(number.to_string().into(), &members));
        assert_eq!(tell(&mut untold, 256, &mut told), 10, "one go is enough");
        assert!(told.iter().all(|texts| texts.len() == 16));
        assert_eq!(tell(&mut untold, 256, &mut told), 0);
        assert_eq!(Arc::strong_count(&members), 1, "nobody has it any more: it is not copied");
    }

    #[test]
    fn k6_message_joins_those_that_are_on_their_way() {
        let (mut untold, members) = (Untold::default(), everybody(6));
        let mut told = vec![Vec::new(); 6];
        untold.push("ahoy".into(), &members);
        assert_eq!(tell(&mut untold, 4, &mut told), 4);
        untold.push("gale".into(), &members);
        assert_eq!(tell(&mut untold, 4, &mut told), 2, "to the end of the list, both");
        assert_eq!(tell(&mut untold, 9, &mut told), 4, "and the rest, the other");
        assert_eq!(tell(&mut untold, 9, &mut told), 0);
        assert!(told.iter().all(|texts| *texts == ["ahoy", "gale"]), "{told:?}");
    }

    #[test]
    fn k6_what_is_told_together_is_limited() {
        let (mut untold, members) = (Untold::default(), everybody(1));
        (0..LIMIT_ROUND + 1).for_each(|_| untold.push("short".into(), &members));
        (0..4).for_each(|_| untold.push("x".repeat(LIMIT_ROUND_BYTES / 2).into(), &members));
        let mut counts = Vec::new();
        while let Some(stretch) = untold.take(256) {
            counts.push(stretch.messages.len());
        }
        assert_eq!(counts, [LIMIT_ROUND, 3, 2]);
    }

    #[test]
    fn k6_nobody_is_told_twice_in_a_turn() {
        let (mut untold, mut members) = (Untold::default(), everybody(6));
        let mut told = vec![Vec::new(); 6];
        untold.push("ahoy".into(), &members);
        assert_eq!(tell_in_a_turn(&mut untold, 4, &mut told), [0, 1, 2, 3]);
        Arc::make_mut(&mut members).swap_remove(1); // 5 is in its place
        untold.push("gale".into(), &members);
        assert_eq!(tell_in_a_turn(&mut untold, 4, &mut told), [4, 5], "the rest of \"ahoy\"");
        assert_eq!(tell_in_a_turn(&mut untold, 4, &mut told), [0, 5, 2, 3]);
        assert_eq!(tell_in_a_turn(&mut untold, 4, &mut told), [4]);
        assert!(untold.is_empty());
    }

    proptest! {
        /// Whoever comes and goes, and whenever somebody is told something: everybody gets all that was told while
        /// it was there, once, in order; and nobody is told twice in a turn.
        #[test]
        fn k6_everybody_is_told_everything_in_order(
            steps in proptest::collection::vec((0..5u8, 0..12usize), 1..200),
        ) {
            let mut members = everybody(4);
            let (mut untold, mut told) = (Untold::default(), vec![Vec::new(); 12]);
            let mut expected = vec![Vec::new(); 12];
            for (number, (step, value)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        untold.push(number.to_string().into(), &members);
                        members.iter().for_each(|&member| expected[member].push(number.to_string()));
                    }
                    2 => {
                        tell(&mut untold, value + 1, &mut told);
                    }
                    3 => {
                        let mut members = tell_in_a_turn(&mut untold, value + 1, &mut told);
                        members.sort_unstable();
                        prop_assert!(members.is_sorted_by(|one, next| one < next), "{:?}", members);
                    }
                    _ => {
                        let list = Arc::make_mut(&mut members);
                        match list.iter().position(|member| *member == value) {
                            Some(at) if list.len() > 1 => drop(list.swap_remove(at)),
                            Some(_) => {}
                            None => list.push(value),
                        }
                    }
                }
            }
            while tell(&mut untold, 3, &mut told) > 0 {}
            prop_assert_eq!(told, expected);
        }
    }
}
