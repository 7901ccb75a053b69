//! Facts about the wheel, and a slow twin that it has to agree with.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NANOSECOND: Duration = Duration::from_nanos(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn wheel<T>() -> (Wheel<T>, Instant) {
    let start = Instant::now();
    (Wheel::new(start), start)
}

/// Takes everything due at `now`, one shot each.
fn take_all<T>(wheel: &mut Wheel<T>, now: Instant) -> Vec<T> {
    std::iter::from_fn(|| {
        let (id, value) = wheel.take_due(now)?;
        let taken = wheel.nodes[id.index as usize].deadline;
        assert!(wheel.origin + Duration::from_nanos(taken) <= now, "taken early");
        wheel.put_back(id, value, None)
    })
    .collect()
}

/// Small, repeatable and good enough for tests (xorshift).
fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    }
}

#[test]
fn c1_periodic_timer_is_put_back_with_its_id() {
    let (mut wheel, start) = wheel();
    let id = wheel.insert(start, ());
    for turn in 1..100 {
        let now = wheel.next_deadline().unwrap();
        assert_eq!(wheel.take_due(now), Some((id, ())));
        assert_eq!(wheel.put_back(id, (), Some(start + turn * Duration::from_millis(7))), None);
        assert_eq!(wheel.take_due(now), None);
    }
    assert_eq!(wheel.deadline(id), Some(start + Duration::from_millis(99 * 7)));
    assert_eq!(wheel.len(), 1);
}

#[test]
fn c2_removed_timer_never_fires_even_in_the_same_batch() {
    let (mut wheel, start) = wheel();
    let now = start + Duration::from_secs(1);
    let first = wheel.insert(start + Duration::from_millis(1), "first");
    let same_slot = wheel.insert(start + Duration::from_millis(1), "same slot");
    let same_batch = wheel.insert(start + Duration::from_millis(900), "same batch");
    let last = wheel.insert(start + Duration::from_millis(901), "last");

    assert_eq!(wheel.take_due(now), Some((first, "first")));
    assert_eq!(wheel.remove(same_slot), Some("same slot"));
    assert_eq!(wheel.remove(same_batch), Some("same batch"));
    wheel.put_back(first, "first", None);
    assert_eq!(wheel.take_due(now), Some((last, "last")));
    assert_eq!(wheel.take_due(now), None);
}

#[test]
fn c2_rearmed_inside_its_callback_wins_over_put_back() {
    let (mut wheel, start) = wheel();
    let id = wheel.insert(start, "tick");
    let (_, value) = wheel.take_due(start).unwrap();
    assert_eq!(wheel.deadline(id), None);
    assert!(wheel.set_deadline(id, start + Duration::from_secs(9)));
    assert!(wheel.set_deadline(id, start + Duration::from_secs(5)));
    assert_eq!(wheel.deadline(id), Some(start + Duration::from_secs(5)));
    assert_eq!(wheel.next_deadline(), None, "not pending before it is put back");
    assert_eq!(wheel.put_back(id, value, Some(start)), None);

    assert_eq!(wheel.next_deadline(), Some(start + Duration::from_secs(5)));
    assert_eq!(wheel.take_due(start + Duration::from_secs(4)), None);
    assert_eq!(wheel.take_due(start + Duration::from_secs(5)), Some((id, "tick")));
}

#[test]
fn c2_rearmed_inside_its_callback_lives_on_without_next() {
    let (mut wheel, start) = wheel();
    let id = wheel.insert(start, ());
    wheel.take_due(start).unwrap();
    wheel.set_deadline(id, start);
    assert_eq!(wheel.put_back(id, (), None), None);
    assert_eq!(wheel.take_due(start), Some((id, ())));
}

#[test]
fn c2_removed_inside_its_callback_is_gone_and_gives_the_value_back() {
    let (mut wheel, start) = wheel();
    let id = wheel.insert(start, "tick");
    wheel.take_due(start).unwrap();
    wheel.set_deadline(id, start);
    assert_eq!(wheel.remove(id), None);
    assert!(wheel.is_empty());
    assert_eq!(wheel.remove(id), None);
    assert!(!wheel.set_deadline(id, start), "removal is final");
    assert_eq!(wheel.put_back(id, "tick", Some(start)), Some("tick"));
    assert_eq!(wheel.take_due(start), None);
    assert_eq!(wheel.len(), 0);
}

#[test]
fn c2_stale_ids_are_harmless() {
    let (mut wheel, start) = wheel();
    let stale = wheel.insert(start, 'a');
    wheel.remove(stale);
    let living = wheel.insert(start, 'b');
    assert_eq!(stale.index, living.index, "this test wants the node reused");

    assert_eq!(wheel.remove(stale), None);
    assert_eq!(wheel.deadline(stale), None);
    assert_eq!(wheel.get_mut(stale), None);
    assert!(!wheel.set_deadline(stale, start));
    assert_eq!(wheel.put_back(stale, 'c', Some(start)), Some('c'));
    assert_eq!(wheel.put_back(living, 'd', Some(start)), Some('d'), "it is not firing");
    assert_eq!(wheel.take_due(start), Some((living, 'b')));
}

#[test]
fn c2_ids_do_not_repeat_when_generations_run_out() {
    let (mut wheel, start) = wheel();
    let id = wheel.insert(start, ());
    wheel.nodes[id.index as usize].generation = NonZeroU32::MAX;
    let last = TimerId { index: id.index, generation: NonZeroU32::MAX };
    assert_eq!(wheel.remove(last), Some(()));
    assert_eq!(wheel.remove(last), None);
    assert_ne!(wheel.insert(start, ()).index, last.index, "the node is retired");
    assert_eq!(wheel.remove(last), None);
    assert_eq!(wheel.put_back(last, (), Some(start)), Some(()));
}

#[test]
fn c2_rearm_within_the_slot_keeps_order_and_minimum() {
    let (mut wheel, start) = wheel();
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let a = wheel.insert(at(20_000), 'a');
    wheel.insert(at(20_500), 'b');
    wheel.set_deadline(a, at(21_000));
    assert_eq!(wheel.next_deadline(), Some(at(20_500)));
    wheel.set_deadline(a, at(20_400));
    assert_eq!(wheel.next_deadline(), Some(at(20_400)));
    wheel.set_deadline(a, at(20_500)); // equal to b, but armed after it
    assert_eq!(take_all(&mut wheel, at(20_500)), ['b', 'a']);
}

#[test]
fn c3_one_million_pending_come_out_in_order() {
    let (mut wheel, start) = wheel();
    let mut random = numbers(7);
    let mut expected: Vec<u64> = (0..1_000_000).map(|_| random() % 60_000_000_000).collect();
    for &deadline in &expected {
        wheel.insert(start + Duration::from_nanos(deadline), deadline);
    }
    assert_eq!(wheel.len(), 1_000_000);
    expected.sort_unstable();
    assert!(take_all(&mut wheel, start + Duration::from_secs(60)) == expected);
    assert!(wheel.is_empty());
}

#[test]
fn c3_next_deadline_does_not_search_a_crowded_slot() {
    // A day away, so that they share one slot. With a search in each round this is 10^11 steps.
    let (mut wheel, start) = wheel();
    let day = start + Duration::from_secs(86_400);
    let ids: Vec<_> = (0..1_000_000).map(|i| wheel.insert(day + i * NANOSECOND, ())).collect();
    for &id in &ids[..100_000] {
        wheel.remove(id); // always the earliest
        assert!(wheel.next_deadline().unwrap() >= day);
    }
    // The bound is early; going there once corrects it.
    assert_eq!(wheel.next_deadline(), Some(day));
    assert_eq!(wheel.take_due(day), None);
    assert!(wheel.next_deadline().unwrap() > day);
}

#[test]
fn c3_memory_is_reused() {
    let (mut wheel, start) = wheel();
    for round in 0..10_000u32 {
        let id = wheel.insert(start + round * Duration::from_micros(3), ());
        wheel.insert(start + round * Duration::from_micros(5), ());
        wheel.remove(id);
        take_all(&mut wheel, start + round * Duration::from_micros(5));
    }
    assert_eq!(wheel.nodes.len(), 2);
}

#[test]
fn c3_overdue_timers_added_and_removed_leave_nothing_behind() {
    let (mut wheel, start) = wheel();
    let kept = wheel.insert(start, ());
    for _ in 0..100_000 {
        let id = wheel.insert(start, ());
        assert!(wheel.remove(id).is_some());
    }
    assert!(wheel.due.len() <= 200, "{} stale entries", wheel.due.len());
    assert_eq!(wheel.take_due(start), Some((kept, ())));
    assert_eq!(wheel.take_due(start), None);
}

#[test]
fn c3_a_timers_record_is_32_bytes_beside_its_value() {
    assert_eq!(size_of::<Node<Box<dyn FnMut()>>>(), 32 + size_of::<Box<dyn FnMut()>>());
    assert_eq!(size_of::<Option<TimerId>>(), 8);
}

#[test]
fn c4_never_early_not_even_by_a_nanosecond() {
    // A deadline in every level, and on both sides of slot borders.
    for bits in 0..63 {
        for deadline in [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1, 3 << (bits - bits.min(1))]
        {
            let (mut wheel, start) = wheel();
            let at = start + Duration::from_nanos(deadline);
            let id = wheel.insert(at, deadline);
            assert_eq!(wheel.next_deadline(), Some(at));
            if deadline > 0 {
                assert_eq!(wheel.take_due(at - NANOSECOND), None);
                assert_eq!(wheel.next_deadline(), Some(at));
            }
            assert_eq!(wheel.take_due(at), Some((id, deadline)));
        }
    }
}

#[test]
fn c4_order_is_exact_below_a_microsecond() {
    let (mut wheel, start) = wheel();
    let base = start + Duration::from_nanos(5 << TICK_BITS);
    for offset in [700, 3, 512, 3, 0, 1023, 1, 700] {
        wheel.insert(base + offset * NANOSECOND, offset);
    }
    assert_eq!(take_all(&mut wheel, base + 2 * NANOSECOND), [0, 1]);
    // The slot is open; what is added to it now still finds its place.
    wheel.insert(base + 600 * NANOSECOND, 600);
    wheel.insert(base + NANOSECOND, 1);
    assert_eq!(wheel.next_deadline(), Some(base + NANOSECOND));
    let rest = take_all(&mut wheel, base + 1023 * NANOSECOND);
    assert_eq!(rest, [1, 3, 3, 512, 600, 700, 700, 1023]);
}

#[test]
fn c4_equal_deadlines_fire_in_order_of_insertion_through_every_level() {
    let (mut wheel, start) = wheel();
    let at = start + 100 * YEAR + Duration::from_nanos(123_456_789);
    // Each is added from another distance, so each has been through other levels.
    let mut expected = Vec::new();
    for bits in (0..62).rev() {
        take_all(
            &mut wheel,
            at - Duration::from_nanos((1 << bits).min(99 * 31_536_000_000_000_000)),
        );
        wheel.insert(at, bits);
        expected.push(bits);
    }
    assert_eq!(take_all(&mut wheel, at), expected);
}

#[test]
fn timers_cascade_through_all_levels_in_order() {
    let (mut wheel, start) = wheel();
    let mut expected = Vec::new();
    for level in 0..LEVELS as u32 {
        for slot in [1u64, 2, 33, 63] {
            expected.push((slot << (GROUP_BITS * level)) << TICK_BITS);
        }
    }
    for &deadline in expected.iter().rev() {
        wheel.insert(start + Duration::from_nanos(deadline), deadline);
    }
    // One by one, as a loop that sleeps until each does it: `next_deadline` is exact every time.
    for &deadline in &expected {
        let next = wheel.next_deadline().unwrap();
        assert_eq!(next, start + Duration::from_nanos(deadline));
        let (id, value) = wheel.take_due(next).unwrap();
        assert_eq!(wheel.put_back(id, value, None), Some(deadline));
    }
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn a_clock_that_jumps_by_years_delivers_each_once_and_in_order() {
    let (mut wheel, start) = wheel();
    let mut random = numbers(3);
    let mut expected: Vec<u64> = (0..100_000).map(|_| random() >> (random() % 54)).collect();
    for &deadline in &expected {
        wheel.insert(start + Duration::from_nanos(deadline), deadline);
    }
    expected.sort_unstable();
    // Tick by tick this would be 2^54 steps: the test ends only if the wheel jumps.
    assert!(take_all(&mut wheel, start + Duration::from_nanos(u64::MAX)) == expected);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn a_periodic_timer_catches_up_in_order_after_a_jump() {
    let (mut wheel, start) = wheel();
    wheel.insert(start + Duration::from_millis(10), 10);
    wheel.insert(start + Duration::from_millis(25), 25);
    let mut seen = Vec::new();
    while let Some((id, period)) = wheel.take_due(start + Duration::from_millis(50)) {
        let times = seen.iter().filter(|p| **p == period).count() as u64 + 1;
        seen.push(period);
        wheel.put_back(id, period, Some(start + Duration::from_millis(period * (times + 1))));
    }
    // At 50 the 25 was armed (at time 25) before the 10 (at time 40).
    assert_eq!(seen, [10, 10, 25, 10, 10, 25, 10]);
}

#[test]
fn past_deadlines_are_due_at_once_and_in_order() {
    let (mut wheel, start) = wheel();
    let now = start + Duration::from_secs(10);
    assert_eq!(wheel.take_due(now), None);
    for milliseconds in [5_000, 20_000, 1_000, 9_999, 1_000] {
        wheel.insert(start + Duration::from_millis(milliseconds), milliseconds);
    }
    assert_eq!(wheel.next_deadline(), Some(start + Duration::from_secs(1)));
    assert_eq!(take_all(&mut wheel, now), [1_000, 1_000, 5_000, 9_999]);
    assert_eq!(wheel.len(), 1);
}

#[test]
fn deadlines_before_the_origin_count_as_the_origin() {
    let start = Instant::now();
    let mut wheel = Wheel::new(start + Duration::from_secs(10));
    let id = wheel.insert(start, ());
    assert_eq!(wheel.deadline(id), Some(start + Duration::from_secs(10)));
    assert!(wheel.take_due(start).is_some(), "and so do clocks");
}

#[test]
fn deadlines_in_the_far_future_are_clamped() {
    let (mut wheel, start) = wheel();
    let mut furthest = start;
    let mut step = Duration::MAX;
    while step > NANOSECOND {
        match furthest.checked_add(step) {
            Some(later) => furthest = later,
            None => step /= 2,
        }
    }
    let id = wheel.insert(furthest, ());
    let clamped = wheel.next_deadline().unwrap();
    assert!(clamped > start + 584 * YEAR && clamped <= furthest);
    assert_eq!(wheel.deadline(id), Some(clamped));
    assert_eq!(wheel.take_due(start + 584 * YEAR), None);
    assert!(wheel.set_deadline(id, furthest));
    assert_eq!(wheel.take_due(furthest), Some((id, ())));
}

#[test]
fn a_late_origin_does_not_overflow() {
    let (_, start) = wheel::<()>();
    let mut origin = start;
    let mut step = Duration::MAX;
    while step > NANOSECOND {
        match origin.checked_add(step) {
            Some(later) => origin = later,
            None => step /= 2,
        }
    }
    let mut wheel = Wheel::new(origin);
    wheel.insert(start, 1);
    wheel.insert(origin, 2);
    assert_eq!(wheel.next_deadline(), Some(origin));
    assert_eq!(take_all(&mut wheel, origin), [1, 2]);
}

#[test]
fn iter_shows_pending_timers_only() {
    let (mut wheel, start) = wheel();
    wheel.insert(start, 'a');
    let b = wheel.insert(start + Duration::from_secs(1), 'b');
    wheel.take_due(start);
    let shown: Vec<_> = wheel.iter().collect();
    assert_eq!(shown, [(b, start + Duration::from_secs(1), &'b')]);
    assert_eq!(wheel.len(), 2, "firing ones count");
}

// The twin: a sorted map, obviously right.

#[derive(Debug, Clone)]
enum Step {
    Insert { at: Offset },
    Remove { which: usize },
    SetDeadline { which: usize, at: Offset },
    Advance { by: u64 },
    Sleep,
    Take,
    PutBack { which: usize, next: Option<Offset> },
}

/// A deadline relative to the clock, past or future, of any magnitude; often a round number, so
/// that equal deadlines are common.
#[derive(Debug, Clone, Copy)]
struct Offset(i64);

fn offset() -> impl Strategy<Value = Offset> {
    let future = (0u32..62, any::<u64>()).prop_map(|(bits, n)| (n & ((1 << bits) - 1)) as i64);
    let past = (0u32..34, any::<u64>()).prop_map(|(bits, n)| -((n & ((1 << bits) - 1)) as i64));
    let round = (0i64..8).prop_map(|n| n * 1_000_000);
    let near = -2_000i64..4_000;
    prop_oneof![4 => future, 1 => past, 3 => round, 3 => near].prop_map(Offset)
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<usize>();
    let advance = (0u32..58, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1));
    prop_oneof![
        6 => offset().prop_map(|at| Step::Insert { at }),
        2 => which.prop_map(|which| Step::Remove { which }),
        2 => (which, offset()).prop_map(|(which, at)| Step::SetDeadline { which, at }),
        2 => advance.prop_map(|by| Step::Advance { by }),
        2 => Just(Step::Sleep),
        6 => Just(Step::Take),
        4 => (which, prop::option::of(offset()))
            .prop_map(|(which, next)| Step::PutBack { which, next }),
    ]
}

#[derive(Default)]
struct Twin {
    /// Pending timers, by (deadline, order of insertion).
    pending: BTreeMap<(u64, u64), TimerId>,
    /// Firing ones, with the deadline they were given meanwhile; `None` inside means removed.
    firing: Vec<(TimerId, Option<Rearm>)>,
    /// Every id ever given out, to try stale ones too.
    known: Vec<TimerId>,
    sequence: u64,
}

/// Not re-armed, or re-armed at a deadline with its place in the order.
type Rearm = Option<(u64, u64)>;

impl Twin {
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn arm(&mut self, id: TimerId, deadline: u64) {
        let sequence = self.next_sequence();
        self.pending.insert((deadline, sequence), id);
    }

    fn key(&self, id: TimerId) -> Option<(u64, u64)> {
        self.pending.iter().find(|(_, pending)| **pending == id).map(|(key, _)| *key)
    }

    fn firing(&mut self, id: TimerId) -> Option<&mut Option<Rearm>> {
        self.firing.iter_mut().find(|(firing, _)| *firing == id).map(|(_, rearm)| rearm)
    }

    fn len(&self) -> usize {
        self.pending.len() + self.firing.iter().filter(|(_, rearm)| rearm.is_some()).count()
    }
}

/// Wheel and twin, side by side, and the clock of both. The value of a timer is its number in
/// `known`.
struct Pair {
    wheel: Wheel<usize>,
    twin: Twin,
    now: u64,
    /// More timers in a slot than are searched, so `next_deadline` may be early after a removal.
    crowded: bool,
    cancelled: bool,
}

impl Pair {
    fn new(start: u64) -> Pair {
        let mut wheel = Wheel::new(Instant::now());
        wheel.take_due(wheel.instant(start));
        Pair { wheel, twin: Twin::default(), now: start, crowded: false, cancelled: false }
    }

    fn at(&self, offset: Offset) -> (u64, Instant) {
        let deadline = self.now.saturating_add_signed(offset.0);
        (deadline, self.wheel.instant(deadline))
    }

    fn known(&self, which: usize) -> Option<TimerId> {
        let known = &self.twin.known;
        (!known.is_empty()).then(|| known[which % known.len()])
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert { at } => self.insert(at),
            Step::Remove { which } => self.remove(which),
            Step::SetDeadline { which, at } => self.set_deadline(which, at),
            Step::Advance { by } => self.now = self.now.saturating_add(by),
            Step::Sleep => {
                if let Some(((deadline, _), _)) = self.twin.pending.first_key_value() {
                    self.now = self.now.max(*deadline);
                }
            }
            Step::Take => self.take(),
            Step::PutBack { which, next } => self.put_back(which, next),
        }
        self.compare();
    }

    fn insert(&mut self, at: Offset) {
        let (deadline, instant) = self.at(at);
        let id = self.wheel.insert(instant, self.twin.known.len());
        assert!(!self.twin.known.contains(&id), "an id came up twice");
        self.twin.known.push(id);
        self.twin.arm(id, deadline);
    }

    fn remove(&mut self, which: usize) {
        let Some(id) = self.known(which) else { return };
        let removed = self.wheel.remove(id);
        let expected = match (self.twin.key(id), self.twin.firing(id)) {
            (Some(key), _) => {
                self.cancelled = true;
                self.twin.pending.remove(&key);
                Some(which % self.twin.known.len())
            }
            (None, Some(rearm)) => {
                *rearm = None;
                None
            }
            (None, None) => None,
        };
        assert_eq!(removed, expected);
    }

    fn set_deadline(&mut self, which: usize, at: Offset) {
        let Some(id) = self.known(which) else { return };
        let (deadline, instant) = self.at(at);
        let sequence = self.twin.next_sequence();
        let expected = match (self.twin.key(id), self.twin.firing(id)) {
            (Some(key), _) => {
                self.cancelled = true;
                self.twin.pending.remove(&key);
                self.twin.pending.insert((deadline, sequence), id);
                true
            }
            (None, Some(Some(rearm))) => {
                *rearm = Some((deadline, sequence));
                true
            }
            (None, _) => false,
        };
        assert_eq!(self.wheel.set_deadline(id, instant), expected);
    }

    fn take(&mut self) {
        let taken = self.wheel.take_due(self.wheel.instant(self.now));
        let first = self.twin.pending.first_key_value().map(|(key, id)| (*key, *id));
        let due = first.filter(|((deadline, _), _)| *deadline <= self.now);
        assert_eq!(taken.map(|(id, _)| id), due.map(|(_, id)| id));
        let Some(((id, value), (key, _))) = taken.zip(due) else {
            // Progress: the loop never wakes a second time for the same moment.
            let now = self.wheel.instant(self.now);
            assert!(self.wheel.next_deadline().is_none_or(|next| next > now));
            return;
        };
        assert_eq!(self.twin.known[value], id);
        self.twin.pending.remove(&key);
        self.twin.firing.push((id, Some(None)));
    }

    fn put_back(&mut self, which: usize, next: Option<Offset>) {
        if self.twin.firing.is_empty() {
            return;
        }
        let (id, rearm) = self.twin.firing.swap_remove(which % self.twin.firing.len());
        let value = self.twin.known.iter().position(|known| *known == id).unwrap();
        let next = next.map(|at| self.at(at));
        let armed = match (rearm, next) {
            (Some(Some(key)), _) => {
                self.twin.pending.insert(key, id);
                true
            }
            (Some(None), Some((deadline, _))) => {
                self.twin.arm(id, deadline);
                true
            }
            _ => false,
        };
        let given_back = self.wheel.put_back(id, value, next.map(|(_, instant)| instant));
        assert_eq!(given_back, (!armed).then_some(value));
    }

    fn compare(&mut self) {
        let (wheel, twin) = (&mut self.wheel, &mut self.twin);
        self.crowded |= twin.pending.len() > LIMIT_SEARCH as usize;
        assert_eq!(wheel.len(), twin.len());
        assert_eq!(wheel.is_empty(), twin.len() == 0);
        let first = twin.pending.keys().next().map(|(deadline, _)| wheel.instant(*deadline));
        let next = wheel.next_deadline();
        if self.crowded && self.cancelled {
            assert!(next <= first && next.is_some() == first.is_some());
        } else {
            assert_eq!(next, first);
        }
        let mut shown: Vec<_> = wheel.iter().map(|(id, deadline, _)| (deadline, id)).collect();
        let expected = twin.pending.iter().map(|((deadline, _), id)| (*deadline, *id));
        let mut expected: Vec<_> = expected.map(|(d, id)| (wheel.instant(d), id)).collect();
        shown.sort_unstable_by_key(|(deadline, id)| (*deadline, id.index));
        expected.sort_unstable_by_key(|(deadline, id)| (*deadline, id.index));
        assert_eq!(shown, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn agrees_with_a_sorted_map(
        start in prop_oneof![Just(0u64), 0u64..1 << 61],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut pair = Pair::new(start);
        for step in steps {
            pair.step(step);
        }
    }

    /// Many timers close together, so that slots are crowded and minima become bounds.
    #[test]
    fn agrees_with_a_sorted_map_when_slots_are_crowded(
        offsets in prop::collection::vec(10_000_000i64..11_000_000, 100..300),
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let mut pair = Pair::new(0);
        for offset in offsets {
            pair.insert(Offset(offset));
        }
        for step in steps {
            pair.step(step);
        }
    }

    /// A loop that only ever sleeps until `next_deadline` gets everything on time, with few
    /// wake-ups.
    #[test]
    fn sleeping_until_next_deadline_serves_all_with_few_wakeups(
        deadlines in prop::collection::vec(offset(), 1..300),
        removed in prop::collection::vec(any::<bool>(), 300),
    ) {
        let (mut wheel, start) = wheel();
        let deadlines: Vec<u64> = deadlines.iter().map(|at| at.0.max(0) as u64).collect();
        let at = |deadline| start + Duration::from_nanos(deadline);
        let ids: Vec<_> = deadlines.iter().map(|d| wheel.insert(at(*d), *d)).collect();
        let mut expected = Vec::new();
        for (index, id) in ids.into_iter().enumerate() {
            if removed[index] {
                wheel.remove(id);
            } else {
                expected.push(deadlines[index]);
            }
        }
        expected.sort_unstable();
        let (mut taken, mut early) = (Vec::new(), 0);
        while let Some(next) = wheel.next_deadline() {
            let due = take_all(&mut wheel, next);
            prop_assert!(due.iter().all(|deadline| at(*deadline) == next), "late");
            early += usize::from(due.is_empty());
            taken.extend(due);
        }
        prop_assert_eq!(taken, expected);
        prop_assert!(early <= removed.len(), "{} early wake-ups", early);
    }
}
