//! Row K1 and K3: the case groups of the Autobahn test suite, said again. Its numbers are in the comments.

use crate::client::Client;
use crate::harness::Harness;
use crate::ws_client::{BINARY, CLOSE, Echo, PING, PONG, TEXT, Ws, echoes, frame};
use coracle_http::ws::{Deflate, Settings};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

/// A connection to an echo, in both styles.
fn each(h: &Harness, case: impl Fn(Ws<'_>)) {
    echoes().into_iter().for_each(|echo| case(Ws::open(h, echo)));
}

/// What must end with this code, whatever came before it.
fn refused(h: &Harness, code: u16, bytes: &[u8]) {
    each(h, |ws| {
        ws.client.send(bytes);
        ws.expect_close(code);
    });
}

pub(crate) fn k1_autobahn_1_framing(h: &Harness) {
    each(h, |ws| {
        // 1.1.1 to 1.1.7, 1.2.1 to 1.2.7
        for size in [0, 125, 126, 127, 128, 65_535, 65_536] {
            let payload = vec![b'*'; size];
            for kind in [TEXT, BINARY] {
                ws.send(kind, &payload);
                ws.expect(kind, &payload);
            }
        }
        // 1.1.8, 1.2.8
        let payload = vec![0x7e; 65_536];
        for kind in [TEXT, BINARY] {
            ws.chop(&frame(kind, &payload), 997);
            ws.expect(kind, &payload);
        }
        ws.close();
    });
}

pub(crate) fn k1_autobahn_2_pings_and_pongs(h: &Harness) {
    each(h, |ws| {
        // 2.1 to 2.4
        for payload in [&b""[..], b"Hello, world!", &[0, 0xff, 0xfe, 0xfd], &[0xfe; 125]] {
            ws.send(PING, payload);
            ws.expect(PONG, payload);
        }
        // 2.6
        ws.chop(&frame(PING, &[0xfe; 125]), 1);
        ws.expect(PONG, [0xfe; 125]);
        // 2.7 to 2.9
        ws.send(PONG, "");
        ws.send(PONG, "unsolicited");
        ws.send(PING, "ping");
        ws.expect(PONG, "ping");
        // 2.10, 2.11
        for size in [usize::MAX, 1] {
            let pings: Vec<u8> =
                (0..10).flat_map(|n| frame(PING, format!("payload-{n}").as_bytes())).collect();
            ws.chop(&pings, size.min(pings.len()));
            (0..10).for_each(|n| ws.expect(PONG, format!("payload-{n}")));
        }
        ws.close();
    });
    // 2.5
    refused(h, 1002, &[PING, 0x80 | 126, 0, 126]);
}

pub(crate) fn k1_autobahn_3_reserved_bits(h: &Harness) {
    // 3.1, 3.5 to 3.7
    for bits in 1..8 {
        for kind in [TEXT, BINARY, PING, CLOSE] {
            refused(h, 1002, &frame(kind | bits << 4, b""));
        }
    }
    // 3.2 to 3.4
    each(h, |ws| {
        let bytes = [frame(TEXT, b"Hello"), frame(TEXT | 0x20, b"Hello"), frame(PING, b"")];
        ws.chop(&bytes.concat(), 1);
        ws.expect(TEXT, "Hello");
        ws.expect_close(1002);
    });
}

pub(crate) fn k1_autobahn_4_opcodes(h: &Harness) {
    // 4.1, 4.2
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        refused(h, 1002, &frame(0x80 | opcode, b"reserved opcode"));
    }
    each(h, |ws| {
        ws.client.send([frame(TEXT, b"Hello"), frame(0x83, b""), frame(PING, b"")].concat());
        ws.expect(TEXT, "Hello");
        ws.expect_close(1002);
    });
}

pub(crate) fn k1_autobahn_5_fragmentation(h: &Harness) {
    // 5.1, 5.2
    refused(h, 1002, &[frame(0x09, b"fragment1"), frame(0x80, b"fragment2")].concat());
    refused(h, 1002, &[frame(0x0a, b"fragment1"), frame(0x80, b"fragment2")].concat());
    each(h, |ws| {
        // 5.3 to 5.5
        let bytes = [frame(0x01, b"fragment1"), frame(0x80, b"fragment2")].concat();
        for size in [bytes.len(), 9, 1] {
            ws.chop(&bytes, size);
            ws.expect(TEXT, "fragment1fragment2");
        }
        // 5.6 to 5.8, 5.19, 5.20
        let bytes = [
            frame(0x01, b"fragment1"),
            frame(0x00, b""),
            frame(PING, b"pongme 1!"),
            frame(0x00, b"fragment2"),
            frame(PING, b"pongme 2!"),
            frame(0x80, b"fragment3"),
        ]
        .concat();
        for size in [bytes.len(), 1] {
            ws.chop(&bytes, size);
            ws.expect(PONG, "pongme 1!");
            ws.expect(PONG, "pongme 2!");
            ws.expect(TEXT, "fragment1fragment2fragment3");
        }
        ws.close();
    });
    // 5.9 to 5.14
    for first in [0x80, 0x00] {
        refused(h, 1002, &[frame(first, b"non-continuation"), frame(TEXT, b"Hello")].concat());
    }
    each(h, |ws| {
        // 5.15
        let whole = [frame(0x01, b"fragment1"), frame(0x80, b"fragment2")].concat();
        ws.client.send([whole, frame(0x00, b"fragment3"), frame(0x01, b"fragment4")].concat());
        ws.expect(TEXT, "fragment1fragment2");
        ws.expect_close(1002);
    });
    // 5.16 to 5.18
    refused(h, 1002, &[frame(0x01, b"fragment1"), frame(TEXT, b"fragment2")].concat());
    refused(h, 1002, &[frame(0x02, b"fragment1"), frame(0x02, b"fragment2")].concat());
}

pub(crate) fn k1_autobahn_6_utf_8(h: &Harness) {
    let hello = "Hello-µ@ßöäüàá-UTF-8!!";
    each(h, |ws| {
        // 6.1
        ws.send(TEXT, "");
        ws.expect(TEXT, "");
        ws.client.send([frame(0x01, b""), frame(0x00, b""), frame(0x80, b"")].concat());
        ws.expect(TEXT, "");
        ws.client.send([frame(0x01, b""), frame(0x00, b"middle"), frame(0x80, b"")].concat());
        ws.expect(TEXT, "middle");
        // 6.2: in the middle of a character, too
        for size in [hello.len(), 12, 1] {
            let pieces: Vec<&[u8]> = hello.as_bytes().chunks(size).collect();
            for (index, piece) in pieces.iter().enumerate() {
                let last = if index + 1 == pieces.len() { 0x80 } else { 0 };
                ws.send(last | u8::from(index == 0), piece);
            }
            ws.expect(TEXT, hello);
        }
        // 6.5, 6.7, 6.9, 6.11, 6.22, 6.23: the first and last of each length, and those that mean nothing
        let valid = "\u{0}\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{fffd}\u{fffe}\u{ffff}\u{10000}\u{1fffe}\
                     \u{10fffe}\u{10ffff}κόσμε";
        ws.send(TEXT, valid);
        ws.expect(TEXT, valid);
        ws.chop(&frame(TEXT, valid.as_bytes()), 1);
        ws.expect(TEXT, valid);
        ws.close();
    });
    // 6.3, 6.6, 6.8, 6.10, 6.12 to 6.21: overlong, surrogates, too large, cut off, alone
    let invalid: [&[u8]; 20] = [
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        b"\xce",
        b"\xce\xba\xe1",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\x80",
        b"\xbf\x80",
        b"\xc0 ",
        b"\xe0\x80",
        b"\xf0\x80\x80",
        b"\xfe",
        b"\xff\xfe",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xed\xa0\x80\xed\xb0\x80",
    ];
    for bytes in invalid {
        refused(h, 1007, &frame(TEXT, bytes));
        each(h, |ws| {
            bytes.iter().enumerate().for_each(|(index, byte)| {
                ws.send(u8::from(index == 0), [*byte]);
            });
            ws.send(0x80, "");
            ws.expect_close(1007);
        });
    }
    // 6.4: it is refused when it is seen, not at the end of the message
    let begin = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90";
    each(h, |ws| {
        ws.send(0x01, begin);
        ws.expect_close(1007);
    });
    each(h, |ws| {
        let whole = frame(TEXT, &[&begin[..], b"\x80\x80edited"].concat());
        ws.client.send(&whole[..whole.len() - 8]);
        ws.expect_close(1007);
    });
    // What is no text may be anything.
    each(h, |ws| {
        ws.send(BINARY, invalid.concat());
        ws.expect(BINARY, invalid.concat());
        ws.close();
    });
}

pub(crate) fn k1_autobahn_7_closing(h: &Harness) {
    let close = |code: u16, reason: &[u8]| [&code.to_be_bytes()[..], reason].concat();
    each(h, |ws| {
        // 7.1.1 to 7.1.4: nothing behind a close is looked at
        let behind = [frame(CLOSE, b""), frame(PING, b""), frame(TEXT, b"Hello"), frame(0x83, b"")];
        ws.client.send([frame(TEXT, b"Hello"), frame(CLOSE, &close(1000, b""))].concat());
        ws.client.send(behind.concat());
        ws.expect(TEXT, "Hello");
        ws.expect_close(1000);
    });
    each(h, |ws| {
        // 7.1.5
        ws.client.send([frame(0x01, b"fragment1"), frame(CLOSE, &close(1000, b""))].concat());
        ws.expect_close(1000);
    });
    each(h, |ws| {
        // 7.1.6
        let large = vec![b'B'; 256 << 10];
        ws.client.send([frame(TEXT, &large), frame(TEXT, b"Hello")].concat());
        ws.client.send([frame(CLOSE, &close(1000, b"")), frame(PING, b"")].concat());
        ws.expect(TEXT, large);
        ws.expect(TEXT, "Hello");
        ws.expect_close(1000);
    });
    // 7.3.1 to 7.3.6
    refused(h, 1005, &frame(CLOSE, b""));
    refused(h, 1002, &frame(CLOSE, b"a"));
    refused(h, 1000, &frame(CLOSE, &close(1000, b"Hello World!")));
    refused(h, 1000, &frame(CLOSE, &close(1000, &[b'*'; 123])));
    refused(h, 1002, &frame(CLOSE, &close(1000, &[b'*'; 124])));
    // 7.5.1
    let broken = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited";
    refused(h, 1007, &frame(CLOSE, &close(1000, broken)));
    // 7.7, 7.9, 7.13
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        refused(h, code, &frame(CLOSE, &close(code, b"")));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        refused(h, 1002, &frame(CLOSE, &close(code, b"")));
    }
}

pub(crate) fn k1_autobahn_9_and_10_large_messages(h: &Harness) {
    const SIZE: usize = 2 << 20;
    let settings =
        Settings { limit_frame_bytes: SIZE, limit_message_bytes: SIZE, ..Settings::default() };
    for callbacks in [false, true] {
        let ws = Ws::open(h, Echo { callbacks, settings: settings.clone() });
        // 9.1, 9.2, 9.7, 9.8: whole
        let large = vec![b'*'; SIZE];
        ws.send(BINARY, &large);
        let mut echoed = Vec::new();
        loop {
            let (first, payload) = ws.frame(); // a coroutine sends it in several
            echoed.extend(payload);
            if first & 0x80 != 0 {
                break;
            }
        }
        assert!(echoed == large);
        // 9.3, 9.4: in fragments; 10.1: in those of a size that a network likes
        for (size, fragment) in [(64 << 10, 64), (256 << 10, 4 << 10), (65_536, 1_300)] {
            let payload = vec![b'x'; size];
            let pieces = payload.chunks(fragment).enumerate();
            let last = size.div_ceil(fragment) - 1;
            let bytes: Vec<u8> = pieces
                .flat_map(|(index, piece)| {
                    frame(u8::from(index == 0) | u8::from(index == last) << 7, piece)
                })
                .collect();
            ws.client.send(&bytes);
            ws.expect(TEXT, &payload);
        }
        // 9.5, 9.6: in pieces of a stream
        let payload = vec![b'y'; 128 << 10];
        ws.chop(&frame(TEXT, &payload), 2_048);
        ws.expect(TEXT, &payload);
        ws.close();
    }
}

/// The other end of permessage-deflate, by flate2 alone.
struct Deflated {
    compress: Compress,
    decompress: Decompress,
    client_forgets: bool,
    server_forgets: bool,
}

impl Deflated {
    fn deflate(&mut self, text: &[u8]) -> Vec<u8> {
        if self.client_forgets {
            self.compress.reset();
        }
        let mut out = Vec::with_capacity(2 * text.len() + 100);
        self.compress.compress_vec(text, &mut out, FlushCompress::Sync).unwrap();
        assert_eq!(out.split_off(out.len() - 4), [0, 0, 0xff, 0xff]);
        out
    }

    fn inflate(&mut self, bytes: &[u8], size: usize) -> Vec<u8> {
        if self.server_forgets {
            self.decompress.reset(false);
        }
        let mut out = Vec::with_capacity(size + 100);
        let bytes = [bytes, &[0, 0, 0xff, 0xff]].concat();
        self.decompress.decompress_vec(&bytes, &mut out, FlushDecompress::Sync).unwrap();
        out
    }
}

pub(crate) fn k3_autobahn_12_and_13_compression(h: &Harness) {
    // 13.1 to 13.7: what is offered; the window of the client, of the server
    for (offer, window) in [
        ("permessage-deflate", 15),
        ("permessage-deflate; client_no_context_takeover", 15),
        ("permessage-deflate; server_no_context_takeover; client_max_window_bits", 15),
        ("permessage-deflate; server_max_window_bits=9", 9),
        ("permessage-deflate; client_max_window_bits=10, permessage-deflate", 15),
        (
            "permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=12",
            12,
        ),
    ] {
        for (callbacks, keep_context) in [(false, false), (true, true)] {
            let deflate = Some(Deflate { keep_context, least_bytes: 0, ..Deflate::default() });
            let settings = Settings { deflate, ..Settings::default() };
            let client = Client::of(h, Echo { callbacks, settings });
            let fields = format!("Sec-WebSocket-Extensions: {offer}\r\n");
            let (ws, answer) = Ws::ask(client, &fields);
            let agreed = answer.header("sec-websocket-extensions").expect("an extension");
            assert_eq!(agreed.contains("server_max_window_bits=9"), window == 9, "{agreed}");
            let mut peer = Deflated {
                compress: Compress::new_with_window_bits(Compression::new(1), false, 10),
                decompress: Decompress::new_with_window_bits(false, window),
                client_forgets: agreed.contains("client_no_context_takeover"),
                server_forgets: agreed.contains("server_no_context_takeover"),
            };
            assert_eq!(peer.client_forgets, !keep_context || offer.contains("client_no"));
            assert_eq!(peer.server_forgets, !keep_context || offer.contains("server_no"));
            // 12.1 to 12.5: sizes, kinds of text; and what cannot be compressed
            let mut random = 1u32;
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 24) as u8
            })
            .take(600)
            .collect();
            let prose =
                "{\"from\": \"ann\", \"text\": \"the tide is out, and it will come again\"}";
            for (round, size) in [16, 300, 20_000, 0, 300].into_iter().enumerate() {
                let text: Vec<u8> = prose.bytes().cycle().skip(round).take(size).collect();
                for (kind, payload) in [(TEXT, &text), (BINARY, &noise)] {
                    if payload.is_empty() {
                        continue;
                    }
                    let sent = peer.deflate(payload);
                    let cut = sent.len() / 2;
                    let (first, second) = sent.split_at(cut); // in two
                    ws.client
                        .send([frame(kind & 0x0f | 0x40, first), frame(0x80, second)].concat());
                    let (first, bytes) = ws.frame();
                    let echoed = match first {
                        first if first == kind => bytes, // as it is, since that is shorter
                        _ => {
                            assert_eq!(first, kind | 0x40);
                            peer.inflate(&bytes, payload.len())
                        }
                    };
                    assert!(echoed == *payload, "{size} bytes, {offer}");
                }
            }
            ws.send(TEXT, "as it is");
            let (first, bytes) = ws.frame();
            let echoed = if first == TEXT { bytes } else { peer.inflate(&bytes, 8) };
            assert_eq!(echoed, b"as it is");
            // What is compressed is the beginning of a message, or nothing.
            ws.send(0x41, &peer.deflate(b"a")[..1]);
            ws.send(0xc0, b"");
            ws.expect_close(1002);
        }
    }
    // A message that is small and becomes large; one that is broken; a compressed ping.
    let deflate = Some(Deflate::default());
    let settings = Settings { deflate, limit_message_bytes: 10_000, ..Settings::default() };
    let mut compress = Compress::new(Compression::new(9), false);
    let mut bomb = Vec::with_capacity(10_000);
    compress.compress_vec(&[0; 100_000], &mut bomb, FlushCompress::Sync).unwrap();
    for (first, payload, code) in
        [(0xc2, &bomb[..], 1009), (0xc2, &[0xff, 0xff, 0xff], 1007), (0xc9, b"", 1002)]
    {
        for callbacks in [false, true] {
            let client = Client::of(h, Echo { callbacks, settings: settings.clone() });
            let (ws, _) = Ws::ask(client, "Sec-WebSocket-Extensions: permessage-deflate\r\n");
            ws.send(first, payload);
            ws.expect_close(code);
        }
    }
}
