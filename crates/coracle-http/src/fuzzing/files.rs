//! Entries for the parsers of whoever sends files: ranges, conditions, paths below a directory.

use super::bare;
use crate::files::{
    Conditions, DotFiles, LIMIT_RANGES, Selection, SitePath, Validators, Verdict, content_range,
    select_ranges,
};
use std::path::{Component, Path};
use std::time::{Duration, UNIX_EPOCH};

/// Files up to this are looked at byte by byte.
const SHORT: u64 = 512;

/// Ranges select what there is, nothing twice, and no sum overflows; of a short file, what a twin finds that asks
/// of each byte whether it is wanted. In front of the field are eight bytes that are the length of the file, and
/// one that makes it shorter.
///
/// # Panics
/// When they do not.
pub fn ranges(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let Some((&shift, field)) = rest.split_first() else { return };
    let length = u64::from_le_bytes(*length) >> (shift % 64);
    let with_unit = [b"bytes=", field].concat();
    for field in [field, &with_unit] {
        let selection = select_ranges(field, length);
        if let Selection::Parts(parts) = &selection {
            assert!((1..=LIMIT_RANGES).contains(&parts.len()));
            let mut sum = 0u64;
            for (at, part) in parts.iter().enumerate() {
                assert!(part.start < part.end && part.end <= length, "{part:?} of {length}");
                sum = sum.checked_add(part.end - part.start).expect("no more than the file");
                let apart =
                    |other: &std::ops::Range<u64>| other.end < part.start || part.end < other.start;
                assert!(parts[at + 1..].iter().all(apart), "{parts:?}");
                content_range(part, length);
            }
            assert!(sum <= length);
        }
        if length <= SHORT {
            let sent = |byte| match &selection {
                Selection::Parts(parts) => parts.iter().any(|part| part.contains(&byte)),
                _ => false,
            };
            let sent: Vec<bool> = (0..length).map(sent).collect();
            let wanted = wanted(field, length);
            assert_eq!(wanted.is_some(), selection != Selection::Whole, "{}", field.escape_ascii());
            assert_eq!(sent, wanted.unwrap_or(vec![false; sent.len()]), "{}", field.escape_ascii());
        }
    }
}

/// Which bytes are asked for, one by one; nothing when it is no list of ranges, or all of an empty file is.
fn wanted(field: &[u8], length: u64) -> Option<Vec<bool>> {
    let text = String::from_utf8(field.to_vec()).ok()?;
    let (unit, list) = text.split_at(text.find('=')?);
    if !bare(unit).eq_ignore_ascii_case("bytes") {
        return None;
    }
    let elements = list[1..].split(',').map(bare);
    let elements: Vec<&str> = elements.filter(|element| !element.is_empty()).collect();
    if !(1..=LIMIT_RANGES).contains(&elements.len()) {
        return None;
    }
    let mut wanted = vec![false; length as usize];
    for element in elements {
        let (first, last) = element.split_once('-')?;
        let numbers = [first, last].map(|text| {
            let digits = text.chars().all(|c| c.is_ascii_digit());
            digits.then(|| {
                text.bytes().fold(0u128, |sum, digit| {
                    sum.saturating_mul(10).saturating_add(u128::from(digit - b'0'))
                })
            })
        });
        let [Some(from), Some(to)] = numbers else { return None };
        let asks: Box<dyn Fn(u128) -> bool> = match (first.is_empty(), last.is_empty()) {
            (true, true) => return None,
            (true, false) if length == 0 && to > 0 => return None,
            (true, false) => Box::new(move |byte| byte.saturating_add(to) >= u128::from(length)),
            (false, true) => Box::new(move |byte| from <= byte),
            (false, false) if from.min(u64::MAX.into()) > to.min(u64::MAX.into()) => return None,
            (false, false) => Box::new(move |byte| from <= byte && byte <= to),
        };
        for (byte, wanted) in (0..).zip(&mut wanted) {
            *wanted |= asks(byte);
        }
    }
    Some(wanted)
}

/// Conditions, one on each line, get a verdict whatever they are; and our own tag is found wherever it stands in a
/// list. In front of them are twice eight bytes: the age and the length of the file.
///
/// # Panics
/// When it is not.
pub fn conditions(bytes: &[u8]) {
    let Some((seconds, rest)) = bytes.split_first_chunk() else { return };
    let Some((length, rest)) = rest.split_first_chunk() else { return };
    let seconds = Duration::from_secs(u64::from_le_bytes(*seconds) >> 20);
    let Some(modified) = UNIX_EPOCH.checked_add(seconds) else { return };
    let file = Validators::new(u64::from_le_bytes(*length), modified, 7);
    let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let told = file.last_modified(now);
    let mut lines = rest.split(|&byte| byte == b'\n').map(Some).chain([None; 5]);
    let mut line = || lines.next().flatten();
    let conditions = Conditions {
        if_match: line(),
        if_none_match: line(),
        if_modified_since: line(),
        if_unmodified_since: line(),
        if_range: line(),
    };
    conditions.check(&file, now);

    // What we have told ourselves is known again.
    let told = told.as_ref().map(|date| date.as_bytes());
    let unchanged = Conditions { if_modified_since: told, ..Conditions::default() };
    if told.is_some() && modified <= now {
        assert_eq!(unchanged.check(&file, now), Verdict::NotModified);
    }
    // With our tag in front of whatever it is, and with nothing else.
    let list = [file.etag().as_bytes(), b", ", conditions.if_match.unwrap_or_default()].concat();
    let known = Conditions { if_none_match: Some(&list), ..Conditions::default() };
    assert_eq!(known.check(&file, now), Verdict::NotModified);
    let if_range = Some(file.etag().as_bytes());
    let same = Conditions { if_match: Some(&list), if_range, ..Conditions::default() };
    assert_eq!(same.check(&file, now), Verdict::Go { ranges: true });
}

/// Paths that are let through stay below the directory, and are decoded once.
///
/// # Panics
/// When they do not.
pub fn site_path(path: &str) {
    for dot_files in [DotFiles::Hide, DotFiles::WellKnown, DotFiles::Show] {
        let Ok(parsed) = SitePath::parse(path, dot_files) else { continue };
        let below = parsed.relative();
        let names: Vec<_> = Path::new(below).components().collect();
        assert!(names.iter().all(|name| matches!(name, Component::Normal(_))), "{below:?}");
        assert!(!below.contains(['\0', '\\', '\r', '\n']) && !below.contains("//"), "{below:?}");
        assert!(Path::new("/root").join(below).starts_with("/root"));
        if dot_files == DotFiles::Hide {
            assert!(!below.starts_with('.') && !below.contains("/."), "{below:?}");
        }
        // Written down again, it is the same path: it was decoded once, and not twice.
        let mut again = String::from("/");
        for byte in below.bytes() {
            match byte {
                b'/' => again.push('/'),
                byte => again.push_str(&format!("%{byte:02x}")),
            }
        }
        if parsed.is_directory() && !below.is_empty() {
            again.push('/');
        }
        let again = SitePath::parse(&again, dot_files).expect("what was let through once");
        assert_eq!(again, parsed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn n4_entries_of_the_fuzzer_hold_for_anything(
            numbers in any::<[u8; 16]>(),
            ranges in "(bytes=)?[-0-9, x]{0,20}",
            conditions in "(\"a\"|W/|[*, \n\"]){0,8}",
            path in "/?([.%2fF5cé/]|a|%2e|%2f){0,12}",
        ) {
            super::ranges(&[&numbers[..8], &[60], ranges.as_bytes()].concat());
            super::conditions(&[&numbers, conditions.as_bytes()].concat());
            super::site_path(&path);
        }
    }
}
