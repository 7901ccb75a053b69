//! From a file and a request to an answer: which coding, whether at all, and how much of it. Nothing here waits.

use super::conditional::{Conditions, Verdict};
use super::range::{self, Selection};
use super::site::{Contents, Entry, Variant};
use crate::body::{Kept, Kind, copy};
use crate::{AcceptEncoding, Body, Coding, Headers, IntoResponse, Method, Response, Status};
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The fields of a request that matter here, in one look.
#[derive(Default)]
struct Wishes<'a> {
    if_match: Option<Cow<'a, [u8]>>,
    if_none_match: Option<Cow<'a, [u8]>>,
    if_modified_since: Once<'a>,
    if_unmodified_since: Once<'a>,
    if_range: Once<'a>,
    range: Once<'a>,
    codings: AcceptEncoding,
}

/// A field that may be there once.
#[derive(Default, Clone, Copy)]
enum Once<'a> {
    #[default]
    Absent,
    Value(&'a [u8]),
    /// It is there twice, which means nothing.
    Twice,
}

/// Answers a GET or HEAD with a file.
pub(super) fn answer(
    entry: &Entry,
    method: Method,
    headers: &Headers,
    now: SystemTime,
) -> io::Result<Response> {
    let wishes = Wishes::new(headers);
    let variant = choose(entry, &wishes.codings);
    match wishes.conditions().check(&variant.validators, now) {
        Verdict::Failed => Ok(Status::PRECONDITION_FAILED.into_response()),
        Verdict::NotModified => Ok(not_modified(variant)),
        Verdict::Go { ranges } => {
            let range = match wishes.range {
                // A range is of what GET would send; HEAD sends nothing (RFC 9110, 14.2).
                Once::Value(range) if ranges && method == Method::Get => range,
                _ => return whole(variant),
            };
            match range::select_ranges(range, variant.length) {
                Selection::Whole => whole(variant),
                Selection::Nothing => Ok(unsatisfiable(variant)),
                Selection::Parts(parts) => match &parts[..] {
                    [part] => one_part(variant, part),
                    parts => several_parts(variant, parts),
                },
            }
        }
    }
}

/// The variant that the peer likes best.
fn choose<'a>(entry: &'a Entry, codings: &AcceptEncoding) -> &'a Variant {
    let plain = &entry.variants[0];
    let mut offered = [Coding::Br; Coding::ALL.len()];
    let mut count = 0;
    for coding in entry.variants.iter().filter_map(|variant| variant.coding) {
        offered[count] = coding;
        count += 1;
    }
    match codings.choose(&offered[..count]) {
        None => plain,
        chosen => entry.variants.iter().find(|each| each.coding == chosen).unwrap_or(plain),
    }
}

fn whole(variant: &Variant) -> io::Result<Response> {
    let body = variant.contents.body(0..variant.length)?;
    Ok(with(Status::OK, variant.headers.clone(), body))
}

fn not_modified(variant: &Variant) -> Response {
    let mut headers = Headers::new();
    for name in ["etag", "last-modified", "vary", "cache-control"] {
        if let Some(value) = variant.headers.get(name) {
            add(&mut headers, name, value);
        }
    }
    let kept = Kept::new(&variant.headers, false, Some(variant.length));
    with(Status::NOT_MODIFIED, headers, Body(Kind::Kept(Box::new(kept))))
}

fn unsatisfiable(variant: &Variant) -> Response {
    let mut response = Status::RANGE_NOT_SATISFIABLE.into_response();
    add(response.headers_mut(), "content-range", &format!("bytes */{}", variant.length));
    add(response.headers_mut(), "accept-ranges", "bytes");
    response
}

fn one_part(variant: &Variant, part: &Range<u64>) -> io::Result<Response> {
    let mut headers = variant.headers.clone();
    add(&mut headers, "content-range", &range::content_range(part, variant.length));
    Ok(with(Status::PARTIAL_CONTENT, headers, variant.contents.body(part.clone())?))
}

/// `multipart/byteranges`: a head before each part, in one body.
fn several_parts(variant: &Variant, parts: &[Range<u64>]) -> io::Result<Response> {
    let boundary = boundary();
    let head = |part| range::part_head(&boundary, &variant.content_type, part, variant.length);
    let heads: Vec<String> = parts.iter().map(head).collect();
    let last = range::last_boundary(&boundary);
    let length = heads.iter().map(|head| head.len() as u64).sum::<u64>()
        + parts.iter().map(|part| part.end - part.start).sum::<u64>()
        + last.len() as u64;
    let body = match &variant.contents {
        Contents::Memory(bytes) => {
            let mut all = Vec::with_capacity(length as usize);
            for (head, part) in heads.iter().zip(parts) {
                all.extend_from_slice(head.as_bytes());
                all.extend_from_slice(&bytes[part.start as usize..part.end as usize]);
            }
            all.extend_from_slice(last.as_bytes());
            Body::from(all)
        }
        Contents::File(file) => {
            let file = Arc::clone(file);
            let parts = parts.to_vec();
            Body::stream_exact(length, move |out| {
                for (head, part) in heads.iter().zip(parts) {
                    out.write_all(head.as_bytes())?;
                    copy(&file, part, out)?;
                }
                out.write_all(last.as_bytes())
            })
        }
    };
    let mut headers = variant.headers.clone();
    let content_type = format!("multipart/byteranges; boundary={boundary}");
    headers.insert("content-type", content_type).expect("a header made of letters");
    Ok(with(Status::PARTIAL_CONTENT, headers, body))
}

impl Contents {
    fn body(&self, range: Range<u64>) -> io::Result<Body> {
        Ok(match self {
            Contents::Memory(bytes) => {
                Body::from(bytes.slice(range.start as usize..range.end as usize))
            }
            Contents::File(file) => {
                Body::shared_file(Arc::clone(file), range.start, range.end - range.start)
            }
        })
    }
}

fn with(status: Status, headers: Headers, body: Body) -> Response {
    let mut response = Response::new(status).with_body(body);
    *response.headers_mut() = headers;
    response
}

fn add(headers: &mut Headers, name: &str, value: &str) {
    headers.append(name, value).expect("a header made of numbers, or one that was sent before");
}

/// Something that is in no file, because nobody could know it before.
fn boundary() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static KEYS: std::sync::OnceLock<[RandomState; 2]> = std::sync::OnceLock::new();
    let keys = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{:016x}{:016x}", keys[0].hash_one(number), keys[1].hash_one(number))
}

impl<'a> Wishes<'a> {
    fn new(headers: &'a Headers) -> Wishes<'a> {
        let mut wishes = Wishes::default();
        for (name, value) in headers.iter() {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            match name.as_bytes().first().map(u8::to_ascii_lowercase) {
                Some(b'i') if is("if-none-match") => join(&mut wishes.if_none_match, value),
                Some(b'i') if is("if-modified-since") => wishes.if_modified_since.set(value),
                Some(b'i') if is("if-range") => wishes.if_range.set(value),
                Some(b'i') if is("if-match") => join(&mut wishes.if_match, value),
                Some(b'i') if is("if-unmodified-since") => wishes.if_unmodified_since.set(value),
                Some(b'r') if is("range") => wishes.range.set(value),
                Some(b'a') if is("accept-encoding") => wishes.codings.add_field(value),
                _ => {}
            }
        }
        wishes
    }

    fn conditions(&self) -> Conditions<'_> {
        Conditions {
            if_match: self.if_match.as_deref(),
            if_none_match: self.if_none_match.as_deref(),
            if_modified_since: self.if_modified_since.value(),
            if_unmodified_since: self.if_unmodified_since.value(),
            if_range: match self.if_range {
                Once::Twice => Some(b""), // nothing is like both of them
                once => once.value(),
            },
        }
    }
}

impl<'a> Once<'a> {
    fn set(&mut self, value: &'a [u8]) {
        *self = if matches!(self, Once::Absent) { Once::Value(value) } else { Once::Twice };
    }

    fn value(self) -> Option<&'a [u8]> {
        match self {
            Once::Value(value) => Some(value),
            Once::Absent | Once::Twice => None,
        }
    }
}

/// A list that came in several fields is one (RFC 9110, 5.3).
fn join<'a>(list: &mut Option<Cow<'a, [u8]>>, value: &'a [u8]) {
    match list {
        None => *list = Some(Cow::Borrowed(value)),
        Some(before) => {
            let before = before.to_mut();
            before.extend_from_slice(b", ");
            before.extend_from_slice(value);
        }
    }
}
