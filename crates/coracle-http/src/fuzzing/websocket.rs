//! What must be true of the frames of a WebSocket: they mean the same however they come, what a slow and obvious
//! reader says they mean, and what was written is what is read.

use crate::ws::fuzzing::{Agreed, Decoder, Deflater, Event, Message, Payload, Role};

const LIMIT_FRAME: usize = 300;
const LIMIT_MESSAGE: usize = 500;

/// What was said, up to the end or to what is wrong: the code of that.
type Heard = (Vec<Event>, Option<u16>);

/// Looks at frames that may be anything. The first byte says who reads, the second in which pieces they come.
///
/// # Panics
/// When it depends on the pieces what they mean, or when a reader that knows only the RFC disagrees.
pub fn websocket(bytes: &[u8]) {
    let Some((&[flags, step], stream)) = bytes.split_first_chunk::<2>() else { return };
    let role = if flags & 1 == 0 { Role::Server } else { Role::Client };
    let agreed = (flags & 2 != 0).then_some(Agreed {
        window_bits: 9 + (flags >> 4) % 7,
        keeps_own: flags & 4 != 0,
        keeps_theirs: flags & 8 != 0,
        level: 1,
        least_bytes: 0,
    });
    let whole = read(role, agreed, stream, usize::MAX);
    let pieces = read(role, agreed, stream, usize::from(step).max(1));
    assert_eq!(whole, pieces, "{}", stream.escape_ascii());
    if agreed.is_none() {
        assert_eq!(whole, read_slowly(role, stream), "{}", stream.escape_ascii());
    }
    for event in &whole.0 {
        if let Event::Message(message) = event {
            assert!(message.len() <= LIMIT_MESSAGE);
        }
    }
    round_trip(role, agreed, stream, usize::from(step).max(1));
}

fn read(role: Role, agreed: Option<Agreed>, stream: &[u8], step: usize) -> Heard {
    let mut decoder = Decoder::new(role, LIMIT_FRAME, LIMIT_MESSAGE, agreed);
    let (mut events, mut input, mut fed) = (Vec::new(), Vec::new(), 0);
    loop {
        match decoder.decode(&input) {
            Err(violation) => return (events, Some(violation.code.as_u16())),
            Ok((used, event)) => {
                input.drain(..used);
                let over = event.is_none();
                events.extend(event);
                if over {
                    if fed == stream.len() {
                        return (events, None);
                    }
                    let end = stream.len().min(fed.saturating_add(step));
                    input.extend_from_slice(&stream[fed..end]);
                    fed = end;
                }
            }
        }
    }
}

/// The same, slow and obvious: by RFC 6455, 5 to 8, on the whole stream, without extensions.
fn read_slowly(role: Role, stream: &[u8]) -> Heard {
    let mut events = Vec::new();
    let mut rest = stream;
    let mut message: Option<(bool, Vec<u8>)> = None;
    loop {
        let mut take = |count: u64| -> Option<Vec<u8>> {
            let taken = rest.get(..usize::try_from(count).ok()?)?;
            rest = &rest[taken.len()..];
            Some(taken.to_vec())
        };
        let Some(begin) = take(2) else { return (events, None) };
        let (last, reserved, opcode) = (begin[0] >= 128, begin[0] / 16 % 8, begin[0] % 16);
        let (masked, short) = (begin[1] >= 128, u64::from(begin[1] % 128));
        // All that is wrong whatever follows; a compressed frame needs its whole header to be seen as one.
        let control = opcode >= 8;
        let known = [0, 1, 2, 8, 9, 10].contains(&opcode);
        if reserved % 4 != 0 || !known || (control && (!last || short > 125)) {
            return (events, Some(1002));
        }
        let long = match short {
            126 => take(2),
            127 => take(8),
            _ => Some(vec![]),
        };
        let Some(long) = long else { return (events, None) };
        let length = match short {
            0..126 => short,
            _ => long.iter().fold(0, |sum: u64, &byte| (sum << 8) | u64::from(byte)),
        };
        let least = match short {
            126 => 126,
            127 => 65_536,
            _ => 0,
        };
        if length >= 1 << 63 || length < least {
            return (events, Some(1002));
        }
        let key = if masked { take(4) } else { Some(vec![0; 4]) };
        let Some(key) = key else { return (events, None) };
        if masked != (role == Role::Server) {
            return (events, Some(1002));
        }
        if control {
            let Some(payload) = take(length) else { return (events, None) };
            let payload: Vec<u8> =
                payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            if reserved != 0 {
                return (events, Some(1002));
            }
            match opcode {
                9 => events.push(Event::Ping(payload)),
                10 => events.push(Event::Pong(payload)),
                _ => {
                    let code = match payload.len() {
                        0 => 1005,
                        1 => return (events, Some(1002)),
                        _ => u16::from(payload[0]) * 256 + u16::from(payload[1]),
                    };
                    let valid = match code {
                        1005 => payload.is_empty(),
                        1000..=1003 | 1007..=1014 | 3000..=4999 => true,
                        _ => false,
                    };
                    if !valid {
                        return (events, Some(1002));
                    }
                    let Ok(reason) = String::from_utf8(payload.into_iter().skip(2).collect())
                    else {
                        return (events, Some(1007));
                    };
                    events.push(Event::Close(crate::ws::Close { code: code.into(), reason }));
                    return (events, None); // nothing behind it is looked at
                }
            }
            continue;
        }
        if reserved != 0 || (opcode == 0) != message.is_some() {
            return (events, Some(1002));
        }
        let (text, data) = message.get_or_insert((opcode == 1, vec![]));
        if length > LIMIT_FRAME as u64 || data.len() as u64 + length > LIMIT_MESSAGE as u64 {
            return (events, Some(1009));
        }
        let payload = &rest[..rest.len().min(length as usize)];
        rest = &rest[payload.len()..];
        let missing = length - payload.len() as u64;
        data.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        let broken = match std::str::from_utf8(data) {
            Ok(_) => false,
            Err(error) => error.error_len().is_some() || (last && missing == 0),
        };
        if *text && broken {
            return (events, Some(1007));
        }
        if missing > 0 {
            return (events, None);
        }
        if last && let Some((text, data)) = message.take() {
            events.push(Event::Message(match text {
                true => Message::Text(String::from_utf8(data).unwrap_or_default()),
                false => Message::Binary(data.into()),
            }));
        }
    }
}

/// Sends the stream as messages, cut where its bytes say, and reads them again on the other side.
fn round_trip(reader: Role, agreed: Option<Agreed>, stream: &[u8], step: usize) {
    let writer = if reader == Role::Server { Role::Client } else { Role::Server };
    // What one side keeps is what the other may refer to.
    let mirrored = agreed.map(|it| Agreed { keeps_theirs: it.keeps_own, ..it });
    let mut deflater = Deflater::default();
    let mut decoder = Decoder::new(reader, 1 << 20, 1 << 20, mirrored);
    for bytes in stream.chunks(step * 3) {
        let message = match std::str::from_utf8(bytes) {
            Ok(text) => Message::from(text),
            Err(_) => Message::from(bytes),
        };
        let payload = Payload::new(message.clone(), agreed.as_ref(), &mut deflater);
        let mut wire = Vec::new();
        let mut begin = 0;
        loop {
            let end = payload.len().min(begin + step);
            let frame = payload.frame(writer, begin, end);
            wire.extend_from_slice(&frame.head);
            wire.extend_from_slice(&frame.payload);
            begin = end;
            if end == payload.len() {
                break;
            }
        }
        let (used, event) = decoder.decode(&wire).expect("what we write can be read");
        assert_eq!((used, event), (wire.len(), Some(Event::Message(message))));
    }
}
