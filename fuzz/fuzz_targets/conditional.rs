//! Conditions: any bytes get a verdict, and our own tag is found wherever it stands in a list.
#![no_main]

use coracle_http::files::{Conditions, Validators, Verdict};
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, UNIX_EPOCH};

fuzz_target!(|data: (u64, u64, [&[u8]; 5])| {
    let (seconds, length, [a, b, c, d, e]) = data;
    let Some(modified) = UNIX_EPOCH.checked_add(Duration::from_secs(seconds >> 20)) else { return };
    let file = Validators::new(length, modified, 7);
    let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    file.last_modified(now);
    let conditions = Conditions {
        if_match: Some(a),
        if_none_match: Some(b),
        if_modified_since: Some(c),
        if_unmodified_since: Some(d),
        if_range: Some(e),
    };
    conditions.check(&file, now);

    // With our tag in front of whatever it is, and with nothing else.
    let list = [file.etag().as_bytes(), b", ", a].concat();
    let known = Conditions { if_none_match: Some(&list), ..Conditions::default() };
    assert_eq!(known.check(&file, now), Verdict::NotModified);
    let if_range = Some(file.etag().as_bytes());
    let same = Conditions { if_match: Some(&list), if_range, ..Conditions::default() };
    assert_eq!(same.check(&file, now), Verdict::Go { ranges: true });
});
