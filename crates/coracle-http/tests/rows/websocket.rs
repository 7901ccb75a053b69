//! Rows K1, K2, K4 and K6: WebSockets in both styles, and the other side.

use crate::client::Client;
use crate::harness::Harness;
use crate::ws_client::{BINARY, CLOSE, Echo, PING, PONG, TEXT, Ws, echo, echoes, frame, request};
use coracle_coro::sleep;
use coracle_http::ws::{
    self, Client as Asking, CloseCode, Deflate, Encoded, End, Handle, Message, Origins, Peer, Room,
    Settings, WebSocket, WhenFull,
};
use coracle_http::{App, IntoResponse, Request, Response, Service, Status};
use coracle_net::{Address, Buffer, Layer, Layered, Listener};
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Long enough for nobody to see it.
const NEVER: Duration = Duration::from_secs(100_000);

/// A list of what happened.
type Log = Rc<RefCell<Vec<String>>>;

/// A handler in callbacks that says what it is told.
struct Telling {
    log: Log,
    kept: Rc<RefCell<Option<Handle>>>,
}

impl ws::Handler for Telling {
    fn on_open(&mut self, peer: &mut Peer<'_>) -> io::Result<()> {
        *self.kept.borrow_mut() = Some(peer.handle());
        self.log.borrow_mut().push("open".into());
        Ok(())
    }

    fn on_message(&mut self, peer: &mut Peer<'_>, message: Message) -> io::Result<()> {
        let text = message.as_text().unwrap_or("bytes").to_owned();
        self.log.borrow_mut().push(text.clone());
        match text.as_str() {
            "fail" => return Err(io::Error::other("on purpose")),
            "panic" => std::panic::resume_unwind(Box::new("on purpose")),
            "close" => peer.close(ws::Close::new(4000.into(), "as you like")),
            "pause" => peer.pause(),
            "ping" => peer.ping(b"there?")?,
            _ => peer.send(text)?,
        }
        Ok(())
    }

    fn on_pong(&mut self, _: &mut Peer<'_>, payload: &[u8]) -> io::Result<()> {
        self.log.borrow_mut().push(format!("pong {}", payload.escape_ascii()));
        Ok(())
    }

    fn on_close(&mut self, end: &End) {
        self.log.borrow_mut().push(format!("end {}", end.code()));
    }
}

/// A connection to one of these, its log, and its handle.
fn telling(h: &Harness, settings: Settings) -> (Ws<'_>, Log, Handle) {
    let (log, kept) = (Log::default(), Rc::new(RefCell::new(None)));
    let (note, keep) = (Rc::clone(&log), Rc::clone(&kept));
    let ws = Ws::open(h, move |req: &Request<'_>| {
        let (log, kept) = (Rc::clone(&note), Rc::clone(&keep));
        ws::upgrade(req).settings(settings.clone()).handle(Telling { log, kept })
    });
    let handle = kept.borrow().clone().expect("it is open");
    (ws, log, handle)
}

/// Runs until the log has so many lines.
fn lines(h: &Harness, log: &Log, count: usize) -> Vec<String> {
    h.run_until(log, move |log| log.borrow().len() >= count);
    log.borrow().clone()
}

pub(crate) fn k1_request_that_lacks_something_is_told_what(h: &Harness) {
    let app = |req: &Request<'_>| ws::upgrade(req).run(echo);
    let cases: [(u16, &str, &str); 11] = [
        (426, "Upgrade: websocket\r\n", ""),
        (426, "Upgrade: websocket", "Upgrade: tea"),
        (426, "Sec-WebSocket-Version: 13\r\n", ""),
        (426, "Version: 13", "Version: 8"),
        (426, "Version: 13", "Version: 13\r\nSec-WebSocket-Version: 13"),
        (405, "GET /ws", "POST /ws"),
        (400, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
        (400, "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ=="),
        (400, "dGhlIHNhbXBsZSBub25jZQ==", "the sample nonce"),
        (403, "Host: a", "Host: a\r\nOrigin: https://evil.example"),
        (403, "Host: a", "Host: a\r\nOrigin: null"),
    ];
    for (status, from, to) in cases {
        let client = Client::of(h, app);
        let changed = request("").replacen(from, to, 1);
        client.send(&changed);
        let answer = client.answer();
        assert_eq!(answer.status, status, "{changed}");
        if status == 426 {
            assert_eq!(answer.header("sec-websocket-version"), Some("13"));
            assert_eq!(answer.header("upgrade"), Some("websocket"));
            assert_eq!(answer.header("connection"), Some("upgrade"), "{answer:?}");
        }
        client.send(request("")); // and it may ask again
        assert_eq!(client.head().status, 101);
    }
    let old = request("").replace("HTTP/1.1", "HTTP/1.0");
    let client = Client::of(h, app);
    client.send(old);
    assert_eq!(client.answer().status, 426);
}

pub(crate) fn k1_origins_are_looked_at(h: &Harness) {
    let app = |req: &Request<'_>| {
        ws::upgrade(req).origins(Origins::same().trust("https://b.example")).run(echo)
    };
    for origin in ["http://a", "https://A", "https://b.example"] {
        Ws::ask(Client::of(h, app), &format!("Origin: {origin}\r\n")).0.close();
    }
    let open = |req: &Request<'_>| ws::upgrade(req).origins(Origins::any()).run(echo);
    Ws::ask(Client::of(h, open), "Origin: https://anybody\r\n").0.close();
}

pub(crate) fn k1_subprotocol_is_one_that_both_speak(h: &Harness) {
    let app = |req: &Request<'_>| {
        ws::upgrade(req)
            .subprotocols(["chat.v2", "chat.v1"])
            .run(|ws: &WebSocket| ws.send(format!("{:?}", ws.subprotocol())))
    };
    for (offered, taken) in [
        ("Sec-WebSocket-Protocol: chat.v1, chat.v2\r\n", Some("chat.v2")),
        ("Sec-WebSocket-Protocol: other\r\nSec-WebSocket-Protocol: chat.v1\r\n", Some("chat.v1")),
        ("Sec-WebSocket-Protocol: CHAT.V1\r\n", None),
        ("", None),
    ] {
        let (ws, answer) = Ws::ask(Client::of(h, app), offered);
        assert_eq!(answer.header("sec-websocket-protocol"), taken);
        ws.expect(TEXT, format!("{taken:?}"));
        assert_eq!(ws.frame(), (CLOSE, 1000u16.to_be_bytes().to_vec()));
        ws.send(CLOSE, 1000u16.to_be_bytes());
        ws.expect_end();
    }
}

pub(crate) fn k1_what_follows_the_request_is_heard(h: &Harness) {
    for echo in echoes() {
        let client = Client::of(h, echo);
        client.send([request("").into_bytes(), frame(TEXT, b"early")].concat());
        assert_eq!(client.head().status, 101);
        let ws = Ws { client };
        ws.expect(TEXT, "early");
        ws.close();
    }
}

pub(crate) fn k1_unmasked_frames_and_large_ones_are_refused(h: &Harness) {
    let settings =
        Settings { limit_frame_bytes: 1_000, limit_message_bytes: 2_000, ..Settings::default() };
    let fragments = [frame(0x01, &[b'x'; 900]), frame(0, &[b'x'; 900]), frame(0x80, &[b'x'; 201])];
    for (code, bytes) in [
        (1002, b"\x81\x05Hello".to_vec()),
        (1009, frame(TEXT, &[b'x'; 1_001])),
        (1009, [TEXT, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4].to_vec()),
        (1009, fragments.concat()),
    ] {
        for callbacks in [false, true] {
            let ws = Ws::open(h, Echo { callbacks, settings: settings.clone() });
            ws.client.send(&bytes);
            ws.expect_close(code);
        }
    }
}

pub(crate) fn k1_flood_of_pings_is_stopped(h: &Harness) {
    let settings = Settings { limit_controls: 5, ..Settings::default() };
    for callbacks in [false, true] {
        let ws = Ws::open(h, Echo { callbacks, settings: settings.clone() });
        ws.client.send((0..2_000).flat_map(|_| frame(PING, b"!")).collect::<Vec<u8>>());
        let mut pongs = 0;
        let close = loop {
            match ws.frame() {
                (PONG, _) => pongs += 1,
                (_, payload) => break payload,
            }
        };
        assert!((5..2_000).contains(&pongs), "{pongs}");
        assert_eq!(close[..2], 1008u16.to_be_bytes());
        ws.expect_end();
    }
}

pub(crate) fn k1_callbacks_are_told_everything_in_order(h: &Harness) {
    let (ws, log, _) = telling(h, Settings::default());
    ws.send(TEXT, "one");
    ws.expect(TEXT, "one");
    ws.send(TEXT, "ping");
    ws.expect(PING, "there?");
    ws.send(PONG, "there?");
    ws.send(TEXT, "close");
    assert_eq!(ws.frame(), (CLOSE, [&4000u16.to_be_bytes()[..], b"as you like"].concat()));
    ws.send(TEXT, "it is not heard any more");
    ws.send(CLOSE, 4001u16.to_be_bytes());
    ws.expect_end();
    let told = lines(h, &log, 6);
    assert_eq!(told, ["open", "one", "ping", "pong there?", "close", "end 4001"]);
}

pub(crate) fn k1_error_or_panic_of_a_handler_ends_its_socket_only(h: &Harness) {
    let (other, _, _) = telling(h, Settings::default());
    let (ws, log, _) = telling(h, Settings::default());
    ws.send(TEXT, "fail");
    assert_eq!(ws.frame(), (CLOSE, 1011u16.to_be_bytes().to_vec()));
    ws.send(CLOSE, 1011u16.to_be_bytes());
    ws.expect_end();
    assert_eq!(lines(h, &log, 3), ["open", "fail", "end 1011"]);
    let (ws, log, _) = telling(h, Settings::default());
    ws.send(TEXT, "panic");
    ws.expect_end();
    assert_eq!(lines(h, &log, 3), ["open", "panic", "end 1006"]);
    // In coroutines.
    for (word, code) in [("fail", 1011u16), ("panic", 1011), ("end", 1000)] {
        let ws = Ws::open(h, |req: &Request<'_>| {
            ws::upgrade(req).run(|ws: &WebSocket| {
                match ws.recv()?.as_ref().and_then(Message::as_text) {
                    Some("fail") => Err(io::Error::other("on purpose")),
                    Some("panic") => std::panic::resume_unwind(Box::new("on purpose")),
                    _ => Ok(()),
                }
            })
        });
        ws.send(TEXT, word);
        assert_eq!(ws.frame(), (CLOSE, code.to_be_bytes().to_vec()), "{word}");
        ws.send(CLOSE, code.to_be_bytes());
        ws.expect_end();
    }
    other.send(TEXT, "still there");
    other.expect(TEXT, "still there");
}

pub(crate) fn k1_peer_that_is_paused_is_not_heard(h: &Harness) {
    let (ws, log, handle) = telling(h, Settings::default());
    ws.client.send([frame(TEXT, b"pause"), frame(TEXT, b"later")].concat());
    ws.send(TEXT, "and later");
    handle.send("meanwhile");
    ws.expect(TEXT, "meanwhile");
    assert_eq!(*log.borrow(), ["open", "pause"]);
    // It is closed: then what comes is read again, to find the answer.
    handle.close(CloseCode::GOING_AWAY);
    assert_eq!(ws.frame(), (CLOSE, 1001u16.to_be_bytes().to_vec()));
    ws.send(CLOSE, 1001u16.to_be_bytes());
    ws.expect_end();
    assert_eq!(lines(h, &log, 3), ["open", "pause", "end 1001"]);
}

pub(crate) fn k1_peer_that_does_not_answer_a_close_is_cut(h: &Harness) {
    let settings = Settings { close_timeout: 20 * MS, ..Settings::default() };
    let (ws, log, _) = telling(h, settings.clone());
    ws.send(TEXT, "close");
    assert_eq!(ws.frame().0, CLOSE);
    ws.expect_end();
    assert_eq!(lines(h, &log, 3), ["open", "close", "end 1006"]);
    // Whoever waits for the answer is told.
    let seen = Rc::new(RefCell::new(None));
    let note = Rc::clone(&seen);
    let ws = Ws::open(h, move |req: &Request<'_>| {
        let note = Rc::clone(&note);
        ws::upgrade(req).settings(settings.clone()).run(move |ws: &WebSocket| {
            let closed = ws.close(CloseCode::NORMAL);
            *note.borrow_mut() = Some(closed.unwrap_err().kind());
            Ok(())
        })
    });
    assert_eq!(ws.frame().0, CLOSE);
    h.run_until(&seen, |seen| seen.borrow().is_some());
    assert_eq!(*seen.borrow(), Some(io::ErrorKind::ConnectionReset));
}

pub(crate) fn k1_close_is_answered_though_nobody_listens(h: &Harness) {
    let settings = Settings { close_timeout: 20 * MS, ..Settings::default() };
    let seen = Rc::new(RefCell::new(None));
    let note = Rc::clone(&seen);
    let ws = Ws::open(h, move |req: &Request<'_>| {
        let note = Rc::clone(&note);
        ws::upgrade(req).settings(settings.clone()).run(move |ws: &WebSocket| {
            let ended = loop {
                if let Err(error) = ws.send("tick") {
                    break error.kind();
                }
                sleep(MS)?;
            };
            *note.borrow_mut() = Some((ended, ws.recv()?, ws.recv()?));
            Ok(())
        })
    });
    ws.expect(TEXT, "tick");
    ws.client.send([frame(TEXT, b"never mind"), frame(CLOSE, &1000u16.to_be_bytes())].concat());
    let close = loop {
        match ws.frame() {
            (TEXT, _) => {}
            (_, payload) => break payload,
        }
    };
    assert_eq!(close, 1000u16.to_be_bytes());
    ws.expect_end();
    h.run_until(&seen, |seen| seen.borrow().is_some());
    // What was said before the close can still be heard.
    let expected = (io::ErrorKind::BrokenPipe, Some(Message::from("never mind")), None);
    assert_eq!(*seen.borrow(), Some(expected));
}

pub(crate) fn k1_socket_that_is_not_closed_but_lost_is_an_error(h: &Harness) {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&seen);
    let service = Service::new(
        move |req: &Request<'_>| {
            let note = Rc::clone(&note);
            ws::upgrade(req).run(move |ws: &WebSocket| {
                for message in ws {
                    let told = message.as_ref().map(|it| it.len()).map_err(io::Error::kind);
                    note.borrow_mut().push(told);
                    message?;
                }
                Ok(())
            })
        },
        coracle_http::Settings::default(),
    )
    .unwrap();
    let ws = Ws::to(h, &service);
    ws.client.send([frame(TEXT, b"four"), frame(TEXT, b"half")[..8].to_vec()].concat());
    ws.client.end();
    ws.expect_end();
    h.run_until(&seen, |seen| seen.borrow().len() == 2);
    assert_eq!(*seen.borrow(), [Ok(4), Err(io::ErrorKind::ConnectionReset)]);
    // Whoever has closed may end its side, and still gets the answers to what it said before.
    let ws = Ws::open(h, Echo { callbacks: false, settings: Settings::default() });
    ws.client.send([frame(TEXT, b"last"), frame(CLOSE, &1000u16.to_be_bytes())].concat());
    ws.client.end();
    ws.expect(TEXT, "last");
    ws.expect_close(1000);
}

pub(crate) fn k1_sender_waits_for_a_peer_that_does_not_read(h: &Harness) {
    const MESSAGES: usize = 600;
    const SIZE: usize = 64 << 10;
    let sent = Rc::new(Cell::new(0));
    let count = Rc::clone(&sent);
    let ws = Ws::open(h, move |req: &Request<'_>| {
        let count = Rc::clone(&count);
        ws::upgrade(req).run(move |ws: &WebSocket| {
            for number in 0..MESSAGES {
                ws.send(vec![number as u8; SIZE])?;
                count.set(number + 1);
            }
            Ok(())
        })
    });
    // It goes on for as long as there is room, and then no more.
    let still = |h: &Harness| {
        let before = sent.get();
        h.run_for(10 * MS);
        sent.get() == before && before > 0
    };
    while !still(h) {}
    assert!(sent.get() < MESSAGES, "it waits");
    for number in 0..MESSAGES {
        ws.expect(BINARY, vec![number as u8; SIZE]);
    }
    assert_eq!(ws.frame().0, CLOSE);
}

pub(crate) fn k1_socket_in_callbacks_holds_no_stack(h: &Harness) {
    let (ws, _, _) = telling(h, Settings::default());
    ws.send(TEXT, "hello");
    ws.expect(TEXT, "hello");
    let counted = Rc::new(Cell::new(None));
    let note = Rc::clone(&counted);
    h.lp.defer(move |_| note.set(Some(coracle_coro::coroutines().len())));
    h.run_until(&counted, |counted| counted.get().is_some());
    assert_eq!(counted.get(), Some(0));
}

pub(crate) fn k1_halves_are_used_by_two_coroutines(h: &Harness) {
    let ws = Ws::open(h, |req: &Request<'_>| {
        ws::upgrade(req).run(|ws: &WebSocket| {
            let (receiver, sender) = ws.split();
            let (inlet, outlet) = coracle_coro::sync::channel::<String>(4);
            let writer = coracle_coro::spawn(move || {
                outlet.iter().try_for_each(|text| sender.send(text.to_uppercase()))
            });
            for message in &receiver {
                inlet.send(message?.as_text().unwrap_or_default().to_owned())?;
            }
            drop(inlet);
            writer.join().expect("it does not panic")
        })
    });
    for word in ["one", "two", "three"] {
        ws.send(TEXT, word);
        ws.expect(TEXT, word.to_uppercase());
    }
    ws.close();
}

pub(crate) fn k2_silent_peer_is_asked_and_let_go(h: &Harness) {
    let ping_interval = Some(10 * MS);
    // One that answers is not, however long it says nothing else.
    let settings = Settings { ping_interval, pong_timeout: NEVER, ..Settings::default() };
    for callbacks in [false, true] {
        let ws = Ws::open(h, Echo { callbacks, settings: settings.clone() });
        for _ in 0..5 {
            ws.expect(PING, "");
            ws.send(PONG, "");
        }
        ws.send(TEXT, "here");
        while ws.frame() != (TEXT, b"here".to_vec()) {
            ws.send(PONG, ""); // it may have asked again
        }
    }
    let settings = Settings { ping_interval, pong_timeout: 20 * MS, ..Settings::default() };
    let (ws, log, _) = telling(h, settings.clone());
    ws.expect(PING, "");
    ws.expect_end();
    assert_eq!(lines(h, &log, 2), ["open", "end 1006"]);
    let seen = Rc::new(RefCell::new(None));
    let note = Rc::clone(&seen);
    let _ws = Ws::open(h, move |req: &Request<'_>| {
        let note = Rc::clone(&note);
        ws::upgrade(req).settings(settings.clone()).run(move |ws: &WebSocket| {
            *note.borrow_mut() = Some(ws.recv().unwrap_err().kind());
            Ok(())
        })
    });
    h.run_until(&seen, |seen| seen.borrow().is_some());
    assert_eq!(*seen.borrow(), Some(io::ErrorKind::TimedOut));
}

pub(crate) fn k2_times_are_exact(h: &Harness) {
    let seconds = Duration::from_secs;
    let (ping_interval, pong_timeout) = (Some(seconds(30)), seconds(20));
    let settings = Settings { ping_interval, pong_timeout, ..Settings::default() };
    let (ws, log, _) = telling(h, settings);
    let begin = h.lp.now();
    ws.expect(PING, "");
    let asked = h.lp.now() - begin;
    assert!(asked >= seconds(30) && asked < seconds(31), "{asked:?}");
    ws.send(PONG, "");
    ws.expect(PING, "");
    let again = h.lp.now() - begin;
    assert!(again >= seconds(60) && again < seconds(62), "{again:?}");
    ws.expect_end();
    let cut = h.lp.now() - begin;
    assert!(cut >= seconds(80) && cut < seconds(83), "{cut:?}");
    assert_eq!(lines(h, &log, 3), ["open", "pong ", "end 1006"]);
}

/// An address at which this app listens.
fn listening(h: &Harness, app: impl App) -> Address {
    let service = Service::new(app, coracle_http::Settings::default()).expect("a service");
    let settings = service.connection_settings();
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&h.lp, &any, settings, move |peer| service.connection(peer));
    listener.expect("it listens").local_address(&h.lp).expect("an address")
}

/// Runs a coroutine to its end, whatever else runs.
fn run<T: 'static>(h: &Harness, f: impl FnOnce() -> T + 'static) -> T {
    let result = Rc::new(RefCell::new(None));
    let note = Rc::clone(&result);
    h.lp.defer(move |_| {
        drop(coracle_coro::spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(f));
            *note.borrow_mut() = Some(ended);
        }));
    });
    h.run_until(&result, |result| result.borrow().is_some());
    result.take().expect("it is over").unwrap_or_else(|panic| resume_unwind(panic))
}

pub(crate) fn k4_client_talks_to_a_server(h: &Harness) {
    for (callbacks, deflate, keep_context) in
        [(false, false, false), (true, true, false), (false, true, true)]
    {
        let deflate = deflate.then(|| Deflate { keep_context, ..Deflate::default() });
        let large = 3 << 19;
        let settings = Settings {
            deflate,
            limit_message_bytes: large,
            limit_frame_bytes: large,
            ..Settings::default()
        };
        let address = listening(h, Echo { callbacks, settings: settings.clone() });
        run(h, move || {
            let asking = Asking::new("ws://a/ws").unwrap().at(address).settings(settings);
            let ws = asking.connect().unwrap();
            let tide = "the tide is out ".repeat(large / 16);
            for (round, largest) in [5_000, large, 5_000].into_iter().enumerate() {
                for size in [0, 1, 125, 126, 70_000, largest] {
                    let text = &tide[..size];
                    ws.send(text).unwrap();
                    let echoed = ws.recv().unwrap().expect("it is not closed");
                    assert!(echoed.as_text() == Some(text), "{round} {size}");
                }
                ws.send(vec![0xff; 10]).unwrap();
                assert_eq!(ws.recv().unwrap(), Some(Message::from(vec![0xff; 10])));
            }
            ws.ping(b"").unwrap();
            ws.close(ws::Close::new(4321.into(), "that was all")).unwrap();
            assert_eq!(ws.end().map(|end| end.code().as_u16()), Some(4321));
            assert_eq!(ws.recv().unwrap(), None);
            assert_eq!(ws.send("late").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        });
    }
}

pub(crate) fn k4_client_in_callbacks_and_one_that_is_dropped(h: &Harness) {
    let address = listening(h, |req: &Request<'_>| {
        ws::upgrade(req).subprotocols(["b"]).run(|ws: &WebSocket| {
            ws.send("welcome")?;
            for message in ws {
                ws.send(message?)?;
            }
            Ok(())
        })
    });
    let there = address.clone();
    let said = run(h, move || {
        let (inlet, outlet) = coracle_coro::sync::channel(4);
        let asking = Asking::new("ws://a/ws").unwrap().at(there).subprotocols(["a", "b"]);
        let handle = asking
            .connect_with(move |peer: &mut Peer<'_>, message: Message| {
                assert_eq!(peer.subprotocol(), Some("b"));
                inlet.try_send(message).map_err(|_| io::Error::other("full"))?;
                Ok(())
            })
            .unwrap();
        handle.send("ahoy");
        [outlet.recv().unwrap(), outlet.recv().unwrap()]
    });
    assert_eq!(said, [Message::from("welcome"), Message::from("ahoy")]);
    // A socket that is dropped is closed.
    let over = Rc::new(RefCell::new(None));
    let note = Rc::clone(&over);
    let address = listening(h, move |req: &Request<'_>| {
        let note = Rc::clone(&note);
        ws::upgrade(req).run(move |ws: &WebSocket| {
            let heard = ws.recv()?;
            *note.borrow_mut() = Some((heard, ws.end().map(|end| end.code())));
            Ok(())
        })
    });
    run(h, move || drop(Asking::new("ws://a/ws").unwrap().at(address).connect().unwrap()));
    h.run_until(&over, |over| over.borrow().is_some());
    assert_eq!(*over.borrow(), Some((None, Some(CloseCode::NORMAL))));
}

/// Else it could add lines to the request.
pub(crate) fn k4_client_sends_no_subprotocol_that_is_no_word(h: &Harness) {
    let address = listening(h, |req: &Request<'_>| ws::upgrade(req).run(echo));
    for wrong in ["a\r\nX-Role: admin", "a b", "a,b", "", "caf\u{e9}"] {
        let at = address.clone();
        let error = run(h, move || {
            let asking = Asking::new("ws://a.example/").unwrap().at(at);
            asking.subprotocols(["chat.v1", wrong]).connect().map(drop).expect_err("it is refused")
        });
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong:?}: {error}");
    }
}

pub(crate) fn k4_client_refuses_what_is_no_answer(h: &Harness) {
    // What a server says in place of the right thing, and a part of the error.
    let answers = |req: &Request<'_>| -> Response {
        let right = || ws::upgrade(req).run(echo);
        match req.path() {
            "/key" => right().with_header("sec-websocket-accept", "dGhlIHNhbXBsZSBub25jZQ=="),
            "/protocol" => right().with_header("sec-websocket-protocol", "unheard"),
            "/extension" => right().with_header("sec-websocket-extensions", "permessage-deflate"),
            "/tea" => right().with_header("upgrade", "tea"),
            "/slow" => {
                let _ = sleep(NEVER);
                Status::OK.into_response()
            }
            _ => Status::NOT_FOUND.into_response(),
        }
    };
    let address = listening(h, answers);
    for (path, part) in [
        ("/", "404 Not Found"),
        ("/key", "not to the key"),
        ("/protocol", "sub-protocol that was not offered"),
        ("/extension", "an extension was not offered"),
        ("/tea", "another protocol"),
        ("/slow", ""),
    ] {
        let at = address.clone();
        let error = run(h, move || {
            let timeout = if path == "/slow" { 20 * MS } else { NEVER };
            let url = format!("ws://a.example:8080{path}");
            let asking = Asking::new(&url).unwrap().at(at).timeout(timeout);
            asking.connect().expect_err("it is refused")
        });
        assert!(error.to_string().contains(part), "{path}: {error}");
        assert!(error.to_string().contains("no WebSocket at a.example:8080"), "{path}: {error}");
        let kind =
            if path == "/slow" { io::ErrorKind::TimedOut } else { io::ErrorKind::InvalidData };
        assert_eq!(error.kind(), kind, "{path}: {error}");
    }
    for wrong in
        ["http://a/", "ws:///", "ws://a/#b", "ws://u@a/", "ws://a:x/", "ws://a:99999/", "a"]
    {
        assert_eq!(Asking::new(wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{wrong}");
    }
    let nobody: Address = "127.0.0.1:1".parse().unwrap();
    let refused = run(h, move || Asking::new("ws://a/").unwrap().at(nobody).connect().unwrap_err());
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
}

/// What is between both sides of `wss`, but for the secret.
pub(crate) struct Xor;

impl Layer for Xor {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        _: &mut Vec<u8>,
    ) -> io::Result<()> {
        let bytes: Vec<u8> = wire.take_all().iter().map(|byte| byte ^ 0x55).collect();
        plain.extend_from_slice(&bytes);
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        wire.extend(plain.iter().map(|byte| byte ^ 0x55));
        Ok(plain.len())
    }
}

pub(crate) fn k4_client_talks_through_a_layer(h: &Harness) {
    for echo in echoes() {
        let service = Service::new(echo, coracle_http::Settings::default()).expect("a service");
        let (any, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
        let layered = move |peer: &Address| Layered::new(Xor, service.connection(peer));
        let listener = Listener::bind(&h.lp, &any, settings, layered).expect("it listens");
        let address = listener.local_address(&h.lp).expect("an address");
        run(h, move || {
            let ws = Asking::new("wss://a/ws").unwrap().at(address).connect_through(Xor).unwrap();
            for size in [0, 5, 300_000] {
                ws.send(vec![1; size]).unwrap();
                assert!(ws.recv().unwrap() == Some(Message::from(vec![1; size])));
            }
            ws.close(CloseCode::NORMAL).unwrap();
        });
    }
}

pub(crate) fn k4_client_that_is_cancelled_hears_of_it(h: &Harness) {
    let begun = Rc::new(Cell::new(false));
    let note = Rc::clone(&begun);
    let address = listening(h, move |_: &Request<'_>| {
        note.set(true);
        sleep(NEVER).map(|()| "it is over")
    });
    let error = run(h, move || {
        let asking = Asking::new("ws://a/").unwrap().at(address).timeout(NEVER);
        let connecting = coracle_coro::spawn(move || asking.connect().map(drop));
        while !begun.get() {
            sleep(MS).unwrap();
        }
        connecting.cancel();
        connecting.join().expect("it does not panic").expect_err("it is cancelled")
    });
    assert!(coracle_coro::is_cancelled(&error), "{error}");
}

pub(crate) fn k6_room_tells_everybody_in_order(h: &Harness) {
    let deflate = Some(Deflate { keep_context: true, ..Deflate::default() });
    let settings = Settings { deflate, ..Settings::default() };
    let room = Arc::new(Room::new());
    let members = Rc::new(RefCell::new(Vec::new()));
    let (enter, keep) = (Arc::clone(&room), Rc::clone(&members));
    let service = Service::new(
        move |req: &Request<'_>| {
            let (room, members) = (Arc::clone(&enter), Rc::clone(&keep));
            ws::upgrade(req).settings(settings.clone()).run(move |ws: &WebSocket| {
                room.enter(&ws.handle());
                members.borrow_mut().push(ws.handle());
                let ended = echo(ws);
                room.leave(&ws.handle());
                ended
            })
        },
        coracle_http::Settings::default(),
    )
    .unwrap();
    let plain = Ws::to(h, &service);
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    let (deflating, _) = Ws::ask(Client::to(h, &service), offer);
    let entered = (Arc::clone(&room), 2);
    h.run_until(&entered, |(room, count)| room.len() == *count);
    let mut inflater = flate2::Decompress::new(false);
    let mut inflated = |bytes: &[u8]| {
        let mut out = Vec::with_capacity(10_000);
        let bytes = [bytes, &[0, 0, 0xff, 0xff]].concat();
        inflater.decompress_vec(&bytes, &mut out, flate2::FlushDecompress::Sync).unwrap();
        String::from_utf8(out).unwrap()
    };
    for round in 0..4 {
        let text = format!("{round}: {}", "the tide is out; ".repeat(10));
        room.tell(text.as_str());
        room.tell(Encoded::new("short"));
        plain.expect(TEXT, &text);
        plain.expect(TEXT, "short");
        let (first, bytes) = deflating.frame();
        assert_eq!((first, inflated(&bytes)), (TEXT | 0x40, text.clone()));
        deflating.expect(TEXT, "short");
        // What is said to one of them alone refers to nothing that it does not know.
        deflating.send(TEXT, &text);
        let (first, bytes) = deflating.frame();
        assert_eq!((first, inflated(&bytes)), (TEXT | 0x40, text));
    }
    plain.close();
    let left = (Arc::clone(&room), 1);
    h.run_until(&left, |(room, count)| room.len() == *count);
    room.tell("for those who are left");
    deflating.expect(TEXT, "for those who are left");
    assert!(!members.borrow()[0].send_now(&h.lp, &"it is gone".into()));
}

pub(crate) fn k6_slow_reader_is_let_go_or_misses_some(h: &Harness) {
    let message = Encoded::new(vec![7; 100_000]);
    for when_full in [WhenFull::Close, WhenFull::Skip] {
        let settings = Settings { limit_backlog_bytes: 300_000, when_full, ..Settings::default() };
        let (ws, log, handle) = telling(h, settings);
        for _ in 0..300 {
            assert!(handle.send_now(&h.lp, &message) || when_full == WhenFull::Close);
        }
        let mut heard = 0;
        if when_full == WhenFull::Skip {
            // It has missed some, and is told on.
            loop {
                handle.send_now(&h.lp, &"the last".into());
                match ws.frame() {
                    (BINARY, payload) => {
                        assert_eq!(payload.len(), 100_000);
                        heard += 1;
                    }
                    (TEXT, _) => break,
                    other => panic!("{other:?}"),
                }
            }
        } else {
            let close = loop {
                match ws.frame() {
                    (CLOSE, payload) => break payload,
                    _ => heard += 1,
                }
            };
            assert_eq!(close[..2], 1013u16.to_be_bytes());
            ws.send(CLOSE, 1013u16.to_be_bytes());
            ws.expect_end();
            assert_eq!(lines(h, &log, 2), ["open", "end 1013"]);
        }
        assert!((1..300).contains(&heard), "{heard}");
    }
}
