//! Ranges: nothing that is not there, nothing twice, and no sum that overflows.
#![no_main]

use coracle_http::files::{LIMIT_RANGES, Selection, content_range, select_ranges};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u64, u8, &[u8])| {
    let (length, shift, field) = data;
    let length = length >> (shift % 64);
    let with_unit = [b"bytes=", field].concat();
    for field in [field, &with_unit] {
        let Selection::Parts(parts) = select_ranges(field, length) else { continue };
        assert!((1..=LIMIT_RANGES).contains(&parts.len()));
        let mut sum = 0u64;
        for (at, part) in parts.iter().enumerate() {
            assert!(part.start < part.end && part.end <= length, "{part:?} of {length}");
            sum = sum.checked_add(part.end - part.start).expect("no more than the file");
            let apart = |other: &std::ops::Range<u64>| other.end < part.start || part.end < other.start;
            assert!(parts[at + 1..].iter().all(apart), "{parts:?}");
            content_range(part, length);
        }
        assert!(sum <= length);
    }
});
