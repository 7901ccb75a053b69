//! The framer without sockets: compression as the RFC has it, what is kept between messages, and the twins.

use super::decoder::{Decoder, Event};
use super::deflate::{Agreed, Deflater, Inflater, deflate_alone};
use super::encoder::{Encoded, Payload};
use super::{CloseCode, Message, Role};
use proptest::prelude::*;

const KEEPING: Agreed =
    Agreed { window_bits: 15, keeps_own: true, keeps_theirs: true, level: 6, least_bytes: 0 };
const FORGETTING: Agreed = Agreed { keeps_own: false, keeps_theirs: false, ..KEEPING };

fn inflated(inflater: &mut Inflater, agreed: &Agreed, bytes: &[u8]) -> Result<String, u16> {
    let bytes = inflater.inflate(agreed, bytes, 1000).map_err(|wrong| wrong.code.as_u16())?;
    Ok(String::from_utf8(bytes).unwrap())
}

#[test]
fn k3_examples_of_the_rfc_are_read() {
    // RFC 7692, 7.2.3.
    for (bytes, text) in [
        (&[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..], "Hello"),
        (&[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00], "Hello"),
        (&[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00], "Hello"), // its block says it is the last
        (&[0xf2, 0x48, 0x05, 0, 0, 0, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00], "Hello"),
        (&[0x00], ""),
    ] {
        for agreed in [KEEPING, FORGETTING] {
            let mut inflater = Inflater::default();
            for _ in 0..3 {
                assert_eq!(
                    inflated(&mut inflater, &agreed, bytes).as_deref(),
                    Ok(text),
                    "{bytes:x?}"
                );
            }
        }
    }
    // The second refers to the first.
    let (first, second) =
        ([0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], [0xf2, 0x00, 0x11, 0x00, 0x00]);
    let mut inflater = Inflater::default();
    assert_eq!(inflated(&mut inflater, &KEEPING, &first).as_deref(), Ok("Hello"));
    assert_eq!(inflated(&mut inflater, &KEEPING, &second).as_deref(), Ok("Hello"));
    assert_eq!(inflated(&mut inflater, &FORGETTING, &second), Err(1007), "there is none");
    assert_eq!(
        inflated(&mut inflater, &FORGETTING, &first).as_deref(),
        Ok("Hello"),
        "and it goes on"
    );
}

#[test]
fn k3_bomb_is_stopped_at_the_limit() {
    let bomb = deflate_alone(9, 15, &vec![0; 4 << 20]);
    assert!(bomb.len() < 10 << 10);
    for agreed in [KEEPING, FORGETTING] {
        for limit in [0, 1, 1000, 1 << 20] {
            let refused = Inflater::default().inflate(&agreed, &bomb, limit).unwrap_err();
            assert_eq!(refused.code, CloseCode::TOO_BIG);
        }
    }
    let fits = Inflater::default().inflate(&FORGETTING, &bomb, 4 << 20).unwrap();
    assert_eq!(fits.len(), 4 << 20);
}

#[test]
fn k3_broken_data_is_refused() {
    for bytes in [&[0xff, 0xff, 0xff][..], &[0x06, 1, 2, 3], &[0x00, 0x05, 0x00, 0x00]] {
        for agreed in [KEEPING, FORGETTING] {
            let refused = Inflater::default().inflate(&agreed, bytes, 1000).unwrap_err();
            assert_eq!(refused.code, CloseCode::INVALID_DATA, "{bytes:x?}");
        }
    }
}

#[test]
fn k3_kept_context_makes_the_second_message_short() {
    let text = "a message that is very much like the one before it, but for its number: ";
    let mut deflater = Deflater::default();
    let first = deflater.deflate(&KEEPING, format!("{text}1").as_bytes()).unwrap();
    let second = deflater.deflate(&KEEPING, format!("{text}2").as_bytes()).unwrap();
    assert!(second.len() * 4 < first.len(), "{} {}", first.len(), second.len());
}

/// What was said by all of these bytes.
fn said(decoder: &mut Decoder, mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (used, event) = decoder.decode(bytes).expect("nothing is wrong");
        bytes = &bytes[used..];
        let Some(Event::Message(message)) = event else { panic!("{event:?}") };
        messages.push(message);
    }
    messages
}

#[test]
fn k6_message_for_many_is_encoded_once_and_read_by_everybody() {
    let text = "the tide is out; ".repeat(20);
    let news = Encoded::new(text.as_str());
    let (plain, _) = news.bytes(None);
    let (deflated, compressed) = news.bytes(Some(&KEEPING));
    assert!(compressed && deflated.len() < plain.len());
    // The same memory, whoever asks.
    assert_eq!(news.clone().bytes(None).0.as_ptr(), plain.as_ptr());
    for agreed in [KEEPING, FORGETTING] {
        assert_eq!(news.bytes(Some(&agreed)).0.as_ptr(), deflated.as_ptr());
    }
    // A small window cannot refer as far as it does; nor is a short message worth it.
    let small = Agreed { window_bits: 9, ..FORGETTING };
    assert_eq!(news.bytes(Some(&small)).0.as_ptr(), plain.as_ptr());
    let long = Agreed { least_bytes: 1000, ..FORGETTING };
    assert!(!news.bytes(Some(&long)).1);

    // Between messages that refer to those before them.
    let mut decoder = Decoder::new(Role::Client, 1 << 20, 1 << 20, Some(KEEPING));
    let mut deflater = Deflater::default();
    for round in 0..5 {
        let own = Message::from(format!("{round}: {text}"));
        let payload = Payload::new(own.clone(), Some(&KEEPING), &mut deflater);
        let frame = payload.frame(Role::Server, 0, payload.len());
        let wire = [&frame.head[..], &frame.payload].concat();
        assert_eq!(said(&mut decoder, &wire), [own]);
        deflater.go_astray();
        assert_eq!(said(&mut decoder, deflated), [Message::from(text.as_str())]);
    }
}

#[test]
fn k1_idle_socket_is_small() {
    let bytes = super::wire::idle_bytes();
    assert!(bytes <= 800, "{bytes}");
}

#[test]
fn k1_closed_decoder_hears_nothing() {
    let mut decoder = Decoder::new(Role::Client, 100, 100, None);
    let bytes = b"\x88\x02\x03\xe8\x81\x01a";
    let (used, event) = decoder.decode(bytes).unwrap();
    assert_eq!((used, event), (4, Some(Event::Close(CloseCode::NORMAL.into()))));
    assert_eq!(decoder.decode(&bytes[4..]), Ok((3, None)));
}

/// Bytes that look like frames often enough.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let frame = (any::<u8>(), 0u8..8, proptest::collection::vec(any::<u8>(), 0..40), any::<bool>());
    let frames = proptest::collection::vec(frame, 0..6);
    (any::<u8>(), 1u8..40, frames).prop_map(|(flags, step, frames)| {
        let mut bytes = vec![flags, step];
        for (odd, kind, payload, whole) in frames {
            let first = match kind {
                0 => odd,
                1 => 0x01,
                2 => 0x00,
                3 => 0x80,
                4 => 0x81,
                5 => 0xc1,
                6 => 0x89,
                _ => 0x82,
            };
            let mask = if flags & 1 == 0 { 0x80 } else { 0 };
            bytes.extend([first, payload.len() as u8 | mask]);
            if mask != 0 {
                bytes.extend([odd, 0, 7, 0]);
            }
            let count = if whole { payload.len() } else { payload.len() / 2 };
            bytes.extend(&payload[..count]);
        }
        bytes
    })
}

proptest! {
    #[test]
    fn k1_frames_mean_what_the_twin_says(bytes in streams()) {
        crate::fuzzing::websocket(&bytes);
    }
}
