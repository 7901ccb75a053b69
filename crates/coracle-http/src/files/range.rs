//! Ranges of a file: what `Range` asks for, and what of it there is.
//!
//! ```text
//!   Range: bytes=0-9,5-19,-5   of 100 bytes   ──►   0..20, 95..100   ──►   206, two parts
//! ```
//!
//! Numbers of a peer's meet the length of a file here and nowhere else, and no sum of theirs can overflow. Too
//! many ranges, or what is not understood, is no reason for an error: the whole file is an answer, too (RFC
//! 9110, 14.2).

use std::ops::Range;

/// How many ranges one request may ask for; whoever wants more gets the whole.
pub const LIMIT_RANGES: usize = 16;

/// What is to be sent of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of it: 200.
    Whole,
    /// These stretches, at least one: 206. None is empty, none touches another, none is longer than the file.
    Parts(Vec<Range<u64>>),
    /// Nothing of what was asked for is there: 416.
    Nothing,
}

/// What a `Range` field selects of a file of `length` bytes.
///
/// Stretches that overlap or touch become one; their order is that of the request.
///
/// ```
/// use coracle_http::files::{Selection, select_ranges};
///
/// assert_eq!(select_ranges(b"bytes=0-0", 100), Selection::Parts(vec![0..1]));
/// assert_eq!(select_ranges(b"bytes=95-", 100), Selection::Parts(vec![95..100]));
/// assert_eq!(select_ranges(b"bytes=-5", 100), Selection::Parts(vec![95..100]));
/// assert_eq!(select_ranges(b"bytes=90-500", 100), Selection::Parts(vec![90..100]));
/// assert_eq!(select_ranges(b"bytes=200-300", 100), Selection::Nothing);
/// assert_eq!(select_ranges(b"lines=1-2", 100), Selection::Whole);
/// ```
pub fn select_ranges(field: &[u8], length: u64) -> Selection {
    let Some(specs) = parse(field) else { return Selection::Whole };
    let mut parts: Vec<Range<u64>> = Vec::with_capacity(specs.len());
    for spec in &specs {
        match spec.of(length) {
            Stretch::Some(range) => add(&mut parts, range),
            Stretch::None => {}
            // The last five bytes of nothing are all of it, and no Content-Range can say so.
            Stretch::AllOfNothing => return Selection::Whole,
        }
    }
    if parts.is_empty() { Selection::Nothing } else { Selection::Parts(parts) }
}

/// One element of the list, as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spec {
    /// `first-last`, both included.
    Bounded(u64, u64),
    /// `first-`
    From(u64),
    /// `-count`
    Last(u64),
}

/// What there is of an element.
enum Stretch {
    Some(Range<u64>),
    None,
    AllOfNothing,
}

impl Spec {
    fn of(self, length: u64) -> Stretch {
        let range = match self {
            // `last` is below `length` where one is added to it.
            Spec::Bounded(first, last) => {
                first..last.min(length.saturating_sub(1)).saturating_add(1)
            }
            Spec::From(first) => first..length,
            Spec::Last(0) => return Stretch::None,
            Spec::Last(_) if length == 0 => return Stretch::AllOfNothing,
            Spec::Last(count) => length.saturating_sub(count)..length,
        };
        if range.start < length { Stretch::Some(range) } else { Stretch::None }
    }
}

/// Adds a stretch, where the first stands that it touches.
fn add(parts: &mut Vec<Range<u64>>, new: Range<u64>) {
    let touches = |a: &Range<u64>, b: &Range<u64>| a.start <= b.end && b.start <= a.end;
    let Some(at) = parts.iter().position(|part| touches(part, &new)) else {
        parts.push(new);
        return;
    };
    let mut merged = new.start.min(parts[at].start)..new.end.max(parts[at].end);
    // It may have grown into others that stand behind it. Each round takes one away, and there are 16 at most.
    while let Some(other) = (at + 1..parts.len()).find(|&other| touches(&parts[other], &merged)) {
        let other = parts.remove(other);
        merged = merged.start.min(other.start)..merged.end.max(other.end);
    }
    parts[at] = merged;
}

/// The elements of the field; none if it is not a list of byte ranges, or too long a one.
fn parse(field: &[u8]) -> Option<Vec<Spec>> {
    let field = std::str::from_utf8(field).ok()?;
    let (unit, list) = field.split_once('=')?;
    if !unit.trim_matches(OWS).eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for element in list.split(',').map(|element| element.trim_matches(OWS)) {
        if element.is_empty() {
            continue; // RFC 9110, 5.6.1: a list may have empty elements
        }
        if specs.len() == LIMIT_RANGES {
            return None;
        }
        specs.push(parse_one(element)?);
    }
    (!specs.is_empty()).then_some(specs)
}

/// Optional white space (RFC 9110, 5.6.3).
const OWS: [char; 2] = [' ', '\t'];

fn parse_one(element: &str) -> Option<Spec> {
    let (first, last) = element.split_once('-')?;
    match (first.is_empty(), last.is_empty()) {
        (false, false) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Spec::Bounded(first, last))
        }
        (false, true) => Some(Spec::From(number(first)?)),
        (true, false) => Some(Spec::Last(number(last)?)),
        (true, true) => None,
    }
}

/// Digits only. What does not fit is as good as the largest that does: no file is so long.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// The value of `Content-Range` for a stretch of a file.
///
/// ```
/// assert_eq!(coracle_http::files::content_range(&(0..5), 100), "bytes 0-4/100");
/// ```
pub fn content_range(range: &Range<u64>, length: u64) -> String {
    debug_assert!(range.start < range.end && range.end <= length, "{range:?} of {length}");
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// The head of one part of `multipart/byteranges`, with the boundary before it.
pub(super) fn part_head(
    boundary: &str,
    content_type: &str,
    range: &Range<u64>,
    length: u64,
) -> String {
    format!(
        "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {}\r\n\r\n",
        content_range(range, length)
    )
}

/// What ends the last part.
pub(super) fn last_boundary(boundary: &str) -> String {
    format!("\r\n--{boundary}--\r\n")
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a range is what is meant
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_100(field: &str) -> Selection {
        select_ranges(field.as_bytes(), 100)
    }

    fn parts<const N: usize>(list: [Range<u64>; N]) -> Selection {
        Selection::Parts(list.to_vec())
    }

    #[test]
    fn n4_one_range_of_each_kind() {
        for (field, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-99", 0..100),
            ("bytes=10-19", 10..20),
            ("bytes=95-", 95..100),
            ("bytes=0-", 0..100),
            ("bytes=99-99", 99..100),
            ("bytes=-5", 95..100),
            ("bytes=-100", 0..100),
            ("bytes=-101", 0..100),
            ("bytes=90-500", 90..100),
            ("BYTES=1-2", 1..3),
            ("bytes= 1-2 ", 1..3),
            ("bytes=,,1-2,", 1..3),
        ] {
            assert_eq!(of_100(field), parts([expected]), "{field}");
        }
    }

    #[test]
    fn n4_what_is_not_there_is_416() {
        for field in ["bytes=100-", "bytes=200-300", "bytes=100-100", "bytes=-0", "bytes=-0,500-"] {
            assert_eq!(of_100(field), Selection::Nothing, "{field}");
        }
    }

    #[test]
    fn n4_what_is_not_understood_is_the_whole() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5",
            "bytes=a-b",
            "bytes=5-1",
            "bytes=1-2-3",
            "bytes=+1-2",
            "bytes=1 -2",
            "bytes=0x1-2",
            "bytes=--5",
            "bytes:1-2",
            "lines=1-2",
            "bytes=1-2;3-4",
            "bytes=1-2,x",
            "bytes=\u{661}-2",
        ] {
            assert_eq!(of_100(field), Selection::Whole, "{field}");
        }
        assert_eq!(select_ranges(b"bytes=1-\xff", 100), Selection::Whole);
    }

    #[test]
    fn n4_numbers_that_do_not_fit_are_large_and_not_small() {
        let huge = "99999999999999999999999999";
        assert_eq!(of_100(&format!("bytes=10-{huge}")), parts([10..100]));
        assert_eq!(of_100(&format!("bytes=-{huge}")), parts([0..100]));
        assert_eq!(of_100(&format!("bytes={huge}-")), Selection::Nothing);
        assert_eq!(of_100(&format!("bytes={huge}-{huge}")), Selection::Nothing);
        let max = u64::MAX;
        let all = select_ranges(format!("bytes=0-{max}").as_bytes(), max);
        assert_eq!(all, parts([0..max]));
    }

    #[test]
    fn n4_several_ranges_keep_their_order() {
        assert_eq!(of_100("bytes=50-59, 0-9"), parts([50..60, 0..10]));
        assert_eq!(of_100("bytes=0-0,-1"), parts([0..1, 99..100]));
        assert_eq!(of_100("bytes=0-9,500-,20-29"), parts([0..10, 20..30]));
    }

    #[test]
    fn n4_overlapping_ranges_become_one() {
        assert_eq!(of_100("bytes=0-9,5-19,-5"), parts([0..20, 95..100]));
        assert_eq!(of_100("bytes=0-9,10-19"), parts([0..20]), "they touch");
        assert_eq!(of_100("bytes=0-9,20-29,5-25"), parts([0..30]), "the third joins the others");
        assert_eq!(of_100("bytes=0-,0-,0-,0-"), parts([0..100]));
        assert_eq!(of_100("bytes=20-29,40-49,0-9,5-45"), parts([0..50]));
    }

    #[test]
    fn n4_too_many_ranges_are_the_whole() {
        let list = |count| (0..count).map(|at| format!("{0}-{0}", at * 2)).collect::<Vec<_>>();
        let field = |count| format!("bytes={}", list(count).join(","));
        assert!(
            matches!(of_100(&field(LIMIT_RANGES)), Selection::Parts(parts) if parts.len() == LIMIT_RANGES)
        );
        assert_eq!(of_100(&field(LIMIT_RANGES + 1)), Selection::Whole);
    }

    #[test]
    fn n4_nothing_has_no_ranges() {
        assert_eq!(select_ranges(b"bytes=0-", 0), Selection::Nothing);
        assert_eq!(select_ranges(b"bytes=0-0", 0), Selection::Nothing);
        assert_eq!(select_ranges(b"bytes=-5", 0), Selection::Whole);
        assert_eq!(select_ranges(b"bytes=-0", 0), Selection::Nothing);
    }

    /// The slow twin: which bytes are asked for, one by one.
    fn twin(list: &[(Option<u64>, Option<u64>)], length: u64) -> Vec<bool> {
        let mut wanted = vec![false; length as usize];
        for byte in 0..length {
            wanted[byte as usize] = list.iter().any(|&element| match element {
                (Some(first), Some(last)) => first <= byte && byte <= last,
                (Some(first), None) => first <= byte,
                (None, Some(count)) => u128::from(byte) + u128::from(count) >= u128::from(length),
                (None, None) => unreachable!(),
            });
        }
        wanted
    }

    fn element() -> impl Strategy<Value = (Option<u64>, Option<u64>)> {
        let small = || 0u64..140;
        prop_oneof![
            (small(), 0u64..60).prop_map(|(first, more)| (Some(first), Some(first + more))),
            small().prop_map(|first| (Some(first), None)),
            small().prop_map(|count| (None, Some(count))),
            Just((Some(0), Some(u64::MAX))),
            Just((None, Some(u64::MAX))),
        ]
    }

    proptest! {
        #[test]
        fn n4_agrees_with_the_slow_twin(
            list in prop::collection::vec(element(), 1..=LIMIT_RANGES),
            length in 1u64..120,
        ) {
            let text = |end: Option<u64>| end.map(|end| end.to_string()).unwrap_or_default();
            let text: Vec<_> = list.iter().map(|&(a, b)| format!("{}-{}", text(a), text(b))).collect();
            let wanted = twin(&list, length);
            let mut sent = vec![false; length as usize];
            match select_ranges(format!("bytes={}", text.join(", ")).as_bytes(), length) {
                Selection::Whole => prop_assert!(false, "it is well-formed"),
                Selection::Nothing => {}
                Selection::Parts(parts) => {
                    for part in parts {
                        prop_assert!(part.start < part.end && part.end <= length);
                        prop_assert!(part.start == 0 || !sent[part.start as usize - 1], "none touches another");
                        for byte in part {
                            prop_assert!(!sent[byte as usize], "no byte is sent twice");
                            sent[byte as usize] = true;
                        }
                    }
                }
            }
            prop_assert_eq!(sent, wanted);
        }

        #[test]
        fn n4_whatever_is_sent_selects_what_there_is(
            field in prop::collection::vec(any::<u8>(), 0..60),
            length: u64,
        ) {
            check(&field, length)?;
        }

        #[test]
        fn n4_whatever_resembles_a_range_selects_what_there_is(
            field in "(bytes|b)?=?[-0-9, ]{0,40}",
            length: u64,
        ) {
            check(field.as_bytes(), length)?;
        }
    }

    fn check(field: &[u8], length: u64) -> Result<(), TestCaseError> {
        if let Selection::Parts(parts) = select_ranges(field, length) {
            prop_assert!((1..=LIMIT_RANGES).contains(&parts.len()));
            let sum: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
            prop_assert!(sum <= u128::from(length), "never more than the file");
            for part in &parts {
                prop_assert!(part.start < part.end && part.end <= length);
            }
        }
        Ok(())
    }
}
