//! What must be true of what scripts say: it means the same however it comes, and what a slow and obvious reader
//! says it means. The header of CGI, and the records of FastCGI.

use crate::cgi::head::{HeadReader, LIMIT_HEAD_BYTES, LIMIT_HEAD_FIELDS, Style};
use crate::fastcgi::record::{self, Decoder, Ending, Event};

/// What a header says: status, location, length, the fields for the client, and the body behind it.
type Said = (Option<u16>, Option<String>, Option<u64>, Vec<(String, Vec<u8>)>, Vec<u8>);

/// Looks at a header that may be anything. The first byte says which script it is of, the second in which pieces
/// it comes.
///
/// # Panics
/// When it depends on the pieces what it means, when a reader that knows only lines disagrees, or when it could
/// not be sent.
pub fn cgi_head(bytes: &[u8]) {
    let Some((&[flags, step], stream)) = bytes.split_first_chunk::<2>() else { return };
    let style = if flags & 1 == 0 { Style::Cgi } else { Style::Nph };
    let whole = read_head(style, stream, usize::MAX);
    let pieces = read_head(style, stream, usize::from(step).max(1));
    assert_eq!(whole, pieces, "{}", stream.escape_ascii());
    assert_eq!(whole, read_head_slowly(style, stream), "{}", stream.escape_ascii());
    if let Ok(Some((status, _, _, fields, _))) = whole {
        assert!(status.is_none_or(|status| (200..600).contains(&status)));
        for (name, value) in fields {
            let bad = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
            assert!(!name.bytes().any(|byte| bad(&byte)) && !value.iter().any(bad));
        }
    }
}

fn read_head(style: Style, stream: &[u8], step: usize) -> Result<Option<Said>, ()> {
    let mut reader = HeadReader::new(style);
    let mut rest = stream;
    loop {
        let (piece, behind) = rest.split_at(rest.len().min(step));
        rest = behind;
        if let Some((head, mut body)) = reader.feed(piece).map_err(drop)? {
            body.extend_from_slice(rest);
            let fields = head.headers.iter();
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
            let status = head.status.map(|status| status.as_u16());
            return Ok(Some((status, head.location, head.content_length, fields, body)));
        }
        if rest.is_empty() {
            return Ok(None);
        }
    }
}

/// The same, slow and obvious: line by line, on the whole of it.
fn read_head_slowly(style: Style, stream: &[u8]) -> Result<Option<Said>, ()> {
    let mut lines: Vec<Vec<u8>> = vec![vec![]];
    let mut body = None;
    for (at, &byte) in stream.iter().enumerate() {
        if byte != b'\n' {
            lines.last_mut().unwrap().push(byte);
            continue;
        }
        if lines.last().unwrap().last() == Some(&b'\r') {
            lines.last_mut().unwrap().pop();
        }
        if lines.last().unwrap().is_empty() {
            if at >= LIMIT_HEAD_BYTES {
                return Err(());
            }
            lines.pop();
            body = Some(stream[at + 1..].to_vec());
            break;
        }
        lines.push(vec![]);
    }
    let Some(body) = body else {
        return if stream.len() >= LIMIT_HEAD_BYTES { Err(()) } else { Ok(None) };
    };
    let status_of = |text: &[u8]| -> Result<u16, ()> {
        let digits: Vec<u8> = text.iter().copied().take_while(|byte| *byte != b' ').collect();
        let text = String::from_utf8(digits).map_err(drop)?;
        let number: u16 = text.parse().map_err(drop)?;
        let plain = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        if plain && (200..600).contains(&number) { Ok(number) } else { Err(()) }
    };
    let mut lines = lines.into_iter();
    let (mut status, mut location, mut length, mut fields) = (None, None, None, vec![]);
    if style == Style::Nph {
        let line = lines.next().unwrap_or_default();
        let begins = line.starts_with(b"HTTP/1.0 ") || line.starts_with(b"HTTP/1.1 ");
        status = Some(status_of(if begins { &line[9..] } else { return Err(()) })?);
    }
    let mut types = 0;
    for (number, line) in lines.enumerate() {
        if number >= LIMIT_HEAD_FIELDS {
            return Err(());
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(())?;
        let name = String::from_utf8(line[..colon].to_vec()).map_err(drop)?;
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let value = line[colon + 1..].trim_ascii().to_vec();
        let is_plain = |byte: &u8| *byte == b'\t' || (*byte >= 32 && *byte != 127);
        if name.is_empty() || !name.chars().all(is_token) || !value.iter().all(is_plain) {
            return Err(());
        }
        match name.to_lowercase().as_str() {
            "status" if status.is_none() => status = Some(status_of(&value)?),
            "location" if location.is_none() && !value.is_empty() => {
                let text = String::from_utf8(value).map_err(drop)?;
                let is_url = text.chars().all(|c| c > ' ' && c < '\u{7f}');
                location = Some(if is_url { text } else { return Err(()) });
            }
            "content-length" if length.is_none() => {
                let text = String::from_utf8(value).map_err(drop)?;
                let digits = text.chars().all(|c| c.is_ascii_digit());
                length = Some(if digits { text.parse().map_err(drop)? } else { return Err(()) });
            }
            "status" | "location" | "content-length" => return Err(()),
            "transfer-encoding" if style == Style::Nph => return Err(()),
            "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer"
            | "transfer-encoding" | "upgrade" => {}
            "content-type" if types == 1 => return Err(()),
            lower => {
                types += usize::from(lower == "content-type");
                fields.push((name, value));
            }
        }
    }
    if types == 0 && status.is_none() && location.is_none() {
        return Err(());
    }
    Ok(Some((status, location, length, fields, body)))
}

/// What records say: each byte, and of what; and whether it ended in nonsense.
type Heard = (Vec<(char, u8)>, bool);

/// Looks at records that may be anything. The first byte says in which pieces they come, the second how much is
/// taken of them at a time.
///
/// # Panics
/// When it depends on that what they mean, when a reader that knows only whole records disagrees, or when what is
/// written cannot be read again.
pub fn fastcgi(bytes: &[u8]) {
    let Some((&[step, limit], stream)) = bytes.split_first_chunk::<2>() else { return };
    let (step, limit) = (usize::from(step).max(1), usize::from(limit).max(1));
    let whole = hear(stream, usize::MAX, usize::MAX);
    assert_eq!(whole, hear(stream, step, limit), "{}", stream.escape_ascii());
    assert_eq!(whole, hear_slowly(stream), "{}", stream.escape_ascii());
    // What we write is what they are: read by a reader that knows only whole records.
    let mut written = Vec::new();
    record::params(&mut written, stream.chunks(step * 2).map(|pair| pair.split_at(pair.len() / 2)));
    let mut pairs = stream.chunks(step * 2).map(|pair| pair.split_at(pair.len() / 2));
    let mut content = Vec::new();
    let mut rest = &written[..];
    loop {
        let length = usize::from(rest[4]) * 256 + usize::from(rest[5]);
        assert_eq!(rest[..4], [1, 4, 0, 1]);
        content.extend_from_slice(&rest[8..8 + length]);
        rest = &rest[8 + length + usize::from(rest[6])..];
        if length == 0 {
            break;
        }
    }
    assert!(rest.is_empty());
    let mut rest = &content[..];
    while !rest.is_empty() {
        let mut lengths = [0; 2];
        for length in &mut lengths {
            let wide = rest[0] >= 128;
            *length = match wide {
                true => {
                    rest[..4].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
                        & 0x7fff_ffff
                }
                false => rest[0].into(),
            };
            rest = &rest[if wide { 4 } else { 1 }..];
        }
        let (name, behind) = rest.split_at(lengths[0]);
        let (value, behind) = behind.split_at(lengths[1]);
        assert_eq!(Some((name, value)), pairs.next());
        rest = behind;
    }
    assert_eq!(pairs.next(), None);
}

fn hear(stream: &[u8], step: usize, limit: usize) -> Heard {
    let (mut heard, mut decoder, mut input) = (Vec::new(), Decoder::default(), Vec::new());
    for piece in stream.chunks(step) {
        input.extend_from_slice(piece);
        loop {
            let Ok((used, event)) = decoder.next(&input, limit) else { return (heard, true) };
            match event {
                Some(Event::Stdout(piece)) => heard.extend(piece.iter().map(|byte| ('o', *byte))),
                Some(Event::Stderr(piece)) => heard.extend(piece.iter().map(|byte| ('e', *byte))),
                Some(Event::End { status, how }) => {
                    heard.extend(status.to_be_bytes().map(|byte| ('s', byte)));
                    let how = match how {
                        Ending::Complete => 0,
                        Ending::CannotMultiplex => 1,
                        Ending::Overloaded => 2,
                        Ending::UnknownRole => 3,
                        Ending::Other(other) => other,
                    };
                    heard.push(('p', how));
                }
                None => {}
            }
            assert!(event.is_none() || used > 0, "it goes on");
            let over = event.is_none();
            input.drain(..used);
            if over {
                break;
            }
        }
    }
    (heard, false)
}

fn hear_slowly(stream: &[u8]) -> Heard {
    let (mut heard, mut rest) = (Vec::new(), stream);
    while rest.len() >= 8 {
        let (kind, id) = (rest[1], u16::from(rest[2]) * 256 + u16::from(rest[3]));
        let length = usize::from(rest[4]) * 256 + usize::from(rest[5]);
        let known = match kind {
            6 | 7 => id == 1,
            3 => id == 1 && length == 8,
            10 | 11 => id == 0,
            _ => false,
        };
        if rest[0] != 1 || !known {
            return (heard, true);
        }
        let padding = usize::from(rest[6]);
        rest = &rest[8..];
        let content = &rest[..rest.len().min(length)];
        match kind {
            6 => heard.extend(content.iter().map(|byte| ('o', *byte))),
            7 => heard.extend(content.iter().map(|byte| ('e', *byte))),
            3 if content.len() == 8 => {
                heard.extend(content[..4].iter().map(|byte| ('s', *byte)));
                heard.push(('p', content[4]));
            }
            _ => {}
        }
        rest = rest.get(length + padding..).unwrap_or_default();
    }
    (heard, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A line of a header, or something like one.
    fn line() -> impl Strategy<Value = String> {
        let name =
            "(?i)(status|location|content-(type|length)|connection|transfer-encoding|x-a| x|:)";
        let value = "(200 OK|404|99|/a|//b|http://c/|[0-9]{1,21}|[ a-z\t\r\u{e9}\u{1}]{0,6})";
        let end = "(\n|\r\n|\n\n|\r\n\r\n|\r)";
        (name, "(:|: |)", value, end).prop_map(|(a, b, c, d)| a + &b + &c + &d)
    }

    /// A record, or something like one.
    fn record() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop_oneof![Just(6u8), Just(7), Just(3), Just(11), any::<u8>()];
        let content = prop_oneof![prop::collection::vec(any::<u8>(), 0..20), Just(vec![0; 8])];
        (kind, 0u8..3, content, 0u8..9, 0u8..30).prop_map(|(kind, id, content, padding, wrong)| {
            let version = if wrong == 0 { 2 } else { 1 };
            let id = if wrong < 3 { id } else { u8::from(kind != 11) };
            let mut record = vec![version, kind, 0, id, 0, content.len() as u8, padding, 0];
            record.extend_from_slice(&content);
            record.resize(record.len() + usize::from(padding), 0);
            record
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn o1_headers_agree_with_the_slow_twin(
            flags in 0u8..2,
            step in 1u8..20,
            first in "(HTTP/1\\.[01] 200 OK\r?\n)?",
            lines in prop::collection::vec(line(), 0..6),
            body in "(\n)?[a\n]{0,3}",
        ) {
            let text = first + &lines.concat() + &body;
            cgi_head(&[&[flags, step][..], text.as_bytes()].concat());
        }

        #[test]
        fn o2_records_agree_with_the_slow_twin(
            step in any::<u8>(),
            limit in any::<u8>(),
            records in prop::collection::vec(record(), 0..6),
            cut in 0usize..20,
        ) {
            let mut stream = records.concat();
            stream.truncate(stream.len().saturating_sub(cut));
            fastcgi(&[&[step, limit][..], &stream].concat());
        }
    }
}
