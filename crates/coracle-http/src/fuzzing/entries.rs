//! The entries by the names of their targets: what a fuzzer has found is tried again by an ordinary test.

/// Something that takes any bytes, and panics when what must be true of them is not.
pub type Entry = fn(&[u8]);

/// Every target of `fuzz/fuzz_targets`, and what it does with its input.
pub const ENTRIES: &[(&str, Entry)] = &[
    ("accept_encoding", super::accept_encoding),
    ("cgi_head", super::cgi_head),
    ("conditional", super::conditions),
    ("fastcgi", super::fastcgi),
    ("http_chunks", |bytes| {
        if let Some((&step, body)) = bytes.split_first() {
            super::chunks(body, step.into());
        }
    }),
    ("http_cookies", |bytes| with_text(bytes, super::cookies)),
    ("http_forms", super::pairs),
    ("http_head", super::head),
    ("http_multipart", |bytes| {
        if let Some((sizes, body)) = bytes.split_first_chunk::<3>() {
            super::multipart(body, &sizes.map(usize::from));
        }
    }),
    ("http_paths", |bytes| with_text(bytes, super::path)),
    ("http_reply", |bytes| {
        if let Some((&step, bytes)) = bytes.split_first() {
            super::reply(bytes, step.into());
        }
    }),
    ("http_target", super::target),
    ("http_values", |bytes| with_text(bytes, super::values)),
    ("proxy_header", super::proxy_header),
    ("range", super::ranges),
    ("site_path", |bytes| with_text(bytes, super::site_path)),
    ("websocket", super::websocket),
];

fn with_text(bytes: &[u8], entry: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        entry(text);
    }
}

/// Does what the target of that name does.
///
/// # Panics
/// When there is none, or what must be true is not.
pub fn enter(target: &str, bytes: &[u8]) {
    let entry = ENTRIES.iter().find(|(name, _)| *name == target);
    entry.unwrap_or_else(|| panic!("there is no target {target}")).1(bytes);
}
