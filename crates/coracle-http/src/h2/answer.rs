//! From an answer to what `h2` sends: its head, and the fields behind its body.

use crate::content_length::Lengths;
use crate::into_response::may_have_body;
use crate::{Headers, Method, Status};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The fields of an answer to `method` whose body has `len` bytes, if that is known; and whether the body follows.
pub(super) fn head(
    method: Method,
    status: Status,
    headers: &Headers,
    len: Option<u64>,
    lengths: &Lengths,
    date: impl FnOnce() -> HeaderValue,
) -> (HeaderMap, bool) {
    let mut map = HeaderMap::with_capacity(headers.len() + 2); // and a date and a length
    let (mut has_date, mut length_field) = (false, None);
    for field in &headers.fields {
        let Some((name, value)) = headers.entry(field) else { continue };
        match name {
            header::CONTENT_LENGTH => length_field = Some(value),
            name if is_of_one_connection(&name) => {}
            name => {
                has_date |= name == header::DATE;
                map.append(name, value);
            }
        }
    }
    if !has_date {
        map.append(header::DATE, date());
    }
    let is_head = method == Method::Head;
    if !may_have_body(status) {
        // 304 may tell what 200 would have had, if the handler knows.
        if let (Status::NOT_MODIFIED, Some(length)) = (status, length_field) {
            map.insert(header::CONTENT_LENGTH, length);
        }
        return (map, false);
    }
    match (len, length_field) {
        // Asked for the head only, a handler need not make the body.
        (Some(0), Some(length)) if is_head => {
            map.insert(header::CONTENT_LENGTH, length);
        }
        (Some(len), _) => {
            map.insert(header::CONTENT_LENGTH, lengths.value(len));
        }
        (None, _) => {}
    }
    (map, !is_head)
}

/// The fields behind the body of an answer.
pub(super) fn trailers(fields: &Headers) -> HeaderMap {
    let fields = fields.fields.iter().filter_map(|field| fields.entry(field));
    fields.filter(|(name, _)| !is_of_one_connection(name)).collect()
}

/// What concerns one connection only is HTTP/1's (RFC 9113, 8.2.2).
fn is_of_one_connection(name: &HeaderName) -> bool {
    match *name {
        header::CONNECTION | header::TRANSFER_ENCODING | header::UPGRADE | header::TE => true,
        _ => matches!(name.as_str(), "keep-alive" | "proxy-connection"),
    }
}
