//! Conditional requests: whether a peer's copy of a file is still good (RFC 9110, 13).
//!
//! ```text
//!   If-Match ───────────► no tag is ours: 412
//!     │ else If-Unmodified-Since ─► changed since: 412
//!     ▼
//!   If-None-Match ──────► a tag is ours: 304 (412, if it is not a GET or HEAD)
//!     │ else If-Modified-Since ───► not changed: 304
//!     ▼
//!   Range and If-Range ─► not ours: the whole
//! ```
//!
//! The order is that of RFC 9110, 13.2.2. What is malformed matches nothing: a condition for sending less is then
//! not met, and a condition for going on is not met either.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// From when on a date has five digits in its year, which HTTP cannot write.
const DATES_END: Duration = Duration::from_secs(253_402_300_800);

/// What tells one state of a file from another.
///
/// ```
/// use coracle_http::files::Validators;
/// use std::time::{Duration, UNIX_EPOCH};
///
/// let file = Validators::new(12, UNIX_EPOCH + Duration::new(784_111_777, 5), 42);
/// assert_eq!(file.etag(), "\"c-ae1b981bc490a05-2a\"");
/// let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
/// assert_eq!(file.last_modified(now).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validators {
    etag: String,
    modified: SystemTime,
}

impl Validators {
    /// Those of a file with so many bytes, changed at that time, with that inode. The tag is a strong one: it
    /// changes when the file is replaced, even by one as long and as old.
    pub fn new(length: u64, modified: SystemTime, inode: u64) -> Validators {
        let nanos = match modified.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        let sign = if nanos < 0 { "n" } else { "" };
        let mut etag = String::with_capacity(48);
        write!(etag, "\"{length:x}-{sign}{:x}-{inode:x}\"", nanos.unsigned_abs())
            .expect("a string takes everything");
        Validators { etag, modified }
    }

    /// The value of `ETag`, with its quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// The value of `Last-Modified`, for an answer that is made `now`. A time to come is told as now; none is
    /// told that a date of HTTP cannot tell.
    pub fn last_modified(&self, now: SystemTime) -> Option<String> {
        let modified = self.modified.min(now);
        let since = modified.duration_since(UNIX_EPOCH).ok()?;
        (since < DATES_END).then(|| httpdate::fmt_http_date(modified))
    }

    /// Whole seconds, as a date of HTTP has them; rounded down, so that it is never later than it was.
    fn modified_seconds(&self) -> i128 {
        seconds(self.modified)
    }
}

/// The conditions of one request: the values of its fields, where it has them.
///
/// A list that came in several fields is one, joined by commas. Of the others, only one that came once counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conditions<'a> {
    /// `If-Match`
    pub if_match: Option<&'a [u8]>,
    /// `If-None-Match`
    pub if_none_match: Option<&'a [u8]>,
    /// `If-Modified-Since`
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`
    pub if_unmodified_since: Option<&'a [u8]>,
    /// `If-Range`
    pub if_range: Option<&'a [u8]>,
}

/// What is to be done with a conditional request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is answered as if there were no conditions; `ranges` says whether `Range` counts.
    Go {
        /// Whether `Range` counts: there is no `If-Range`, or it is about this very state.
        ranges: bool,
    },
    /// What the peer has is still good: 304.
    NotModified,
    /// What the peer expects is not so: 412.
    Failed,
}

impl Conditions<'_> {
    /// Whether they hold for a file in this state, for a request that reads (GET or HEAD) and is answered `now`.
    ///
    /// ```
    /// use coracle_http::files::{Conditions, Validators, Verdict};
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// let file = Validators::new(12, UNIX_EPOCH + Duration::from_secs(784_111_777), 42);
    /// let tags = format!("\"old\", W/{}", file.etag());
    /// let known = Conditions { if_none_match: Some(tags.as_bytes()), ..Conditions::default() };
    /// assert_eq!(known.check(&file, now), Verdict::NotModified);
    /// ```
    pub fn check(&self, file: &Validators, now: SystemTime) -> Verdict {
        if let Some(tags) = self.if_match {
            if !any_tag(tags, |tag| tag.is_strongly(&file.etag)) {
                return Verdict::Failed;
            }
        } else if let Some(date) = self.if_unmodified_since.and_then(date)
            && file.modified_seconds() > seconds(date)
        {
            return Verdict::Failed;
        }
        if let Some(tags) = self.if_none_match {
            if any_tag(tags, |tag| tag.is_weakly(&file.etag)) {
                return Verdict::NotModified;
            }
        } else if let Some(date) = self.if_modified_since.and_then(date)
            && file.modified_seconds() <= seconds(date)
        {
            return Verdict::NotModified;
        }
        Verdict::Go { ranges: self.if_range.is_none_or(|value| is_this_state(value, file, now)) }
    }
}

/// Whether `If-Range` is about this very state: its strong tag, or its date, if that can be trusted to tell two
/// states apart. A file that was changed less than a second ago may be changed again in the same second.
fn is_this_state(value: &[u8], file: &Validators, now: SystemTime) -> bool {
    if let Some((tag, rest)) = Tag::parse(value) {
        return trim(rest).is_empty() && tag.is_strongly(&file.etag);
    }
    let settled = seconds(now) > file.modified_seconds();
    settled && date(value).is_some_and(|date| seconds(date) == file.modified_seconds())
}

/// One entity tag of a list.
pub(crate) enum Tag<'a> {
    /// `*`
    Any,
    /// With its quotes.
    Strong(&'a [u8]),
    /// Without the `W/`, with its quotes.
    Weak(&'a [u8]),
}

impl<'a> Tag<'a> {
    /// The tag in front, and what comes behind it. No `*`.
    fn parse(text: &'a [u8]) -> Option<(Tag<'a>, &'a [u8])> {
        let text = trim(text);
        let opaque = text.strip_prefix(b"W/");
        let quoted = opaque.unwrap_or(text);
        let inside = quoted.strip_prefix(b"\"")?;
        let end = inside.iter().position(|&byte| !is_etagc(byte))?;
        if inside[end] != b'"' {
            return None;
        }
        let (tag, rest) = quoted.split_at(end + 2);
        Some((if opaque.is_some() { Tag::Weak(tag) } else { Tag::Strong(tag) }, rest))
    }

    pub(crate) fn is_strongly(&self, etag: &str) -> bool {
        match self {
            Tag::Any => true,
            Tag::Strong(tag) => *tag == etag.as_bytes(),
            Tag::Weak(_) => false,
        }
    }

    pub(crate) fn is_weakly(&self, etag: &str) -> bool {
        match self {
            Tag::Any => true,
            Tag::Strong(tag) | Tag::Weak(tag) => *tag == etag.as_bytes(),
        }
    }
}

/// Whether a tag of the list fits. The list ends where it is malformed.
pub(crate) fn any_tag(list: &[u8], fits: impl Fn(&Tag<'_>) -> bool) -> bool {
    let mut rest = trim(list);
    if rest == b"*" {
        return fits(&Tag::Any);
    }
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(b",") {
            rest = trim(behind);
            continue;
        }
        let Some((tag, behind)) = Tag::parse(rest) else { return false };
        let behind = trim(behind);
        if !(behind.is_empty() || behind.starts_with(b",")) {
            return false;
        }
        if fits(&tag) {
            return true;
        }
        rest = behind;
    }
    false
}

/// What may be between the quotes of an entity tag (RFC 9110, 8.8.3).
fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// A date of HTTP, in one of its three spellings.
fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(trim(text)).ok()?).ok()
}

fn seconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::from(since.as_secs()),
        Err(before) => {
            let before = before.duration();
            -i128::from(before.as_secs()) - i128::from(before.subsec_nanos() > 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const GO: Verdict = Verdict::Go { ranges: true };

    fn modified() -> SystemTime {
        UNIX_EPOCH + Duration::new(784_111_777, 500)
    }

    fn file() -> Validators {
        Validators { etag: "\"ours\"".to_owned(), modified: modified() }
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000_000)
    }

    fn check(fields: &[(&str, &str)]) -> Verdict {
        let field =
            |name| fields.iter().find(|field| field.0 == name).map(|field| field.1.as_bytes());
        Conditions {
            if_match: field("If-Match"),
            if_none_match: field("If-None-Match"),
            if_modified_since: field("If-Modified-Since"),
            if_unmodified_since: field("If-Unmodified-Since"),
            if_range: field("If-Range"),
        }
        .check(&file(), now())
    }

    #[test]
    fn n3_etag_is_quoted_and_tells_states_apart() {
        let tag = |length, nanos, inode| {
            let modified = UNIX_EPOCH + Duration::from_nanos(nanos);
            Validators::new(length, modified, inode).etag().to_owned()
        };
        let tags = [tag(1, 2, 3), tag(2, 2, 3), tag(1, 3, 3), tag(1, 2, 4), tag(0, 0x10, 0x203)];
        for (at, one) in tags.iter().enumerate() {
            assert!(one.starts_with('"') && one.ends_with('"') && one.len() > 2, "{one}");
            let (parsed, rest) = Tag::parse(one.as_bytes()).unwrap();
            assert!(parsed.is_strongly(one) && rest.is_empty());
            assert!(tags[at + 1..].iter().all(|other| other != one));
        }
        let before = Validators::new(1, UNIX_EPOCH - Duration::from_nanos(2), 3);
        assert_ne!(before.etag(), tags[0], "before 1970 is another time than after");
    }

    #[test]
    fn n3_last_modified_is_never_in_the_future_and_never_a_panic() {
        let at = |modified| Validators::new(1, modified, 1).last_modified(now());
        assert_eq!(at(modified()).as_deref(), Some(MODIFIED));
        assert_eq!(
            at(now() + Duration::from_secs(9)).as_deref(),
            Some("Sun, 09 Sep 2001 01:46:40 GMT")
        );
        assert_eq!(at(UNIX_EPOCH - Duration::from_secs(1)), None);
        let far = Validators::new(1, UNIX_EPOCH + DATES_END, 1);
        assert_eq!(far.last_modified(UNIX_EPOCH + DATES_END), None);
    }

    #[test]
    fn n3_if_none_match_compares_weakly() {
        for tags in [
            "\"ours\"",
            "W/\"ours\"",
            "\"a\", \"ours\"",
            "*",
            " * ",
            "\"a,b\",W/\"x\" ,\t\"ours\"",
            ",,\"ours\"",
        ] {
            assert_eq!(check(&[("If-None-Match", tags)]), Verdict::NotModified, "{tags}");
        }
        for tags in [
            "",
            "\"other\"",
            "ours",
            "'ours'",
            "\"ours",
            "ours\"",
            "w/\"ours\"",
            "\"OURS\"",
            "\"a\" \"ours\"",
            "x, \"ours\"",
            "\"o urs\"",
            "**",
            "\"a\", *",
            "W/ \"ours\"",
            "\"ours\"x",
        ] {
            assert_eq!(check(&[("If-None-Match", tags)]), GO, "{tags}");
        }
    }

    #[test]
    fn n3_if_match_compares_strongly() {
        for tags in ["\"ours\"", "*", "\"a\", \"ours\""] {
            assert_eq!(check(&[("If-Match", tags)]), GO, "{tags}");
        }
        for tags in ["W/\"ours\"", "\"other\"", "ours", "", "\"ours"] {
            assert_eq!(check(&[("If-Match", tags)]), Verdict::Failed, "{tags}");
        }
    }

    #[test]
    fn n3_dates_compare_in_whole_seconds() {
        for (date, since, unmodified) in [
            (EARLIER, GO, Verdict::Failed),
            (MODIFIED, Verdict::NotModified, GO),
            (LATER, Verdict::NotModified, GO),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Verdict::NotModified, GO),
            ("Sun Nov  6 08:49:37 1994", Verdict::NotModified, GO),
            ("yesterday", GO, GO),
            ("", GO, GO),
        ] {
            assert_eq!(check(&[("If-Modified-Since", date)]), since, "{date}");
            assert_eq!(check(&[("If-Unmodified-Since", date)]), unmodified, "{date}");
        }
    }

    #[test]
    fn n3_tags_go_before_dates() {
        // RFC 9110, 13.2.2: a date is not looked at where there is a tag.
        let none = |tags| check(&[("If-None-Match", tags), ("If-Modified-Since", MODIFIED)]);
        assert_eq!(none("\"other\""), GO);
        assert_eq!(none("\"ours\""), Verdict::NotModified);
        let all = |tags| check(&[("If-Match", tags), ("If-Unmodified-Since", EARLIER)]);
        assert_eq!(all("\"ours\""), GO);
        assert_eq!(all("\"other\""), Verdict::Failed);
    }

    #[test]
    fn n3_preconditions_go_before_what_the_peer_has() {
        let both = check(&[("If-Match", "\"other\""), ("If-None-Match", "\"ours\"")]);
        assert_eq!(both, Verdict::Failed);
        let both = check(&[("If-Match", "\"ours\""), ("If-None-Match", "\"ours\"")]);
        assert_eq!(both, Verdict::NotModified);
        let both = check(&[("If-Unmodified-Since", EARLIER), ("If-None-Match", "\"ours\"")]);
        assert_eq!(both, Verdict::Failed);
        let both = check(&[("If-None-Match", "\"ours\""), ("If-Range", "\"other\"")]);
        assert_eq!(both, Verdict::NotModified);
    }

    #[test]
    fn n3_if_range_wants_this_very_state() {
        for value in ["\"ours\"", " \"ours\" ", MODIFIED] {
            assert_eq!(check(&[("If-Range", value)]), Verdict::Go { ranges: true }, "{value}");
        }
        for value in ["\"other\"", "W/\"ours\"", "ours", "*", EARLIER, LATER, "", "\"ours\", \"x\""]
        {
            assert_eq!(check(&[("If-Range", value)]), Verdict::Go { ranges: false }, "{value}");
        }
    }

    #[test]
    fn n3_if_range_does_not_trust_a_date_of_this_second() {
        let conditions =
            Conditions { if_range: Some(MODIFIED.as_bytes()), ..Conditions::default() };
        let at = |now| conditions.check(&file(), now);
        assert_eq!(at(modified()), Verdict::Go { ranges: false });
        assert_eq!(at(modified() + Duration::from_secs(1)), Verdict::Go { ranges: true });
    }

    #[test]
    fn n3_times_before_1970_are_rounded_down() {
        assert_eq!(seconds(UNIX_EPOCH - Duration::from_millis(1)), -1);
        assert_eq!(seconds(UNIX_EPOCH - Duration::from_secs(1)), -1);
        assert_eq!(seconds(UNIX_EPOCH), 0);
    }

    /// The slow twin of the list: split outside of quotes, then compare each as text.
    fn twin(list: &str, etag: &str) -> bool {
        let mut elements = vec![String::new()];
        let mut inside = false;
        for c in list.chars() {
            inside ^= c == '"';
            match c {
                ',' if !inside => elements.push(String::new()),
                c => elements.last_mut().unwrap().push(c),
            }
        }
        let element = |text: &str| {
            let text = text.trim_matches([' ', '\t']);
            let bare = text.strip_prefix("W/").unwrap_or(text);
            let inside = bare.strip_prefix('"').and_then(|bare| bare.strip_suffix('"'));
            match inside {
                Some(inside) if !inside.contains(['"', ' ', '\t']) => Some(bare == etag),
                _ => None,
            }
        };
        for text in elements {
            if text.trim_matches([' ', '\t']).is_empty() {
                continue;
            }
            match element(&text) {
                Some(false) => {}
                Some(true) => return true,
                None => return false,
            }
        }
        false
    }

    proptest! {
        #[test]
        fn n3_list_of_tags_agrees_with_the_slow_twin(list in r#"((W/)?"?[a-b ,]{0,2}"?|,| |"a"|W/"a"|"b"){0,6}"#) {
            let ours = any_tag(list.as_bytes(), |tag| tag.is_weakly("\"a\""));
            prop_assert_eq!(ours, twin(&list, "\"a\""), "{}", list);
        }

        #[test]
        fn n3_whatever_is_sent_gets_a_verdict(a: Vec<u8>, b: Vec<u8>, c: Vec<u8>, nanos: u64) {
            let conditions = Conditions {
                if_match: Some(&a),
                if_none_match: Some(&b),
                if_modified_since: Some(&c),
                if_unmodified_since: Some(&a),
                if_range: Some(&b),
            };
            let file = Validators::new(1, UNIX_EPOCH + Duration::from_nanos(nanos), 1);
            conditions.check(&file, now());
        }
    }
}
