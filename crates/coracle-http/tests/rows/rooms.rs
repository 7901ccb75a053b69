//! Row K6: what the members of a room are told, and by how many sends.

use crate::client::Client;
use crate::harness::Harness;
use crate::peers::run;
use crate::websocket::Xor;
use crate::ws_client::{BINARY, CLOSE, TEXT, Ws};
use coracle_coro::sleep;
use coracle_http::ws::{
    self, Client as Asking, CloseCode, Encoded, End, Handle, Message, Peer, Room, Settings,
    WhenFull,
};
use coracle_http::{Request, Service};
use coracle_loop::demux::Backend;
use coracle_net::{Address, Buffer, Layer, Layered, Listener};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A service whose sockets are all in this room.
fn gathering(room: &Arc<Room>, settings: Settings) -> Service {
    let room = Arc::clone(room);
    let app = move |req: &Request<'_>| {
        let upgrade = ws::upgrade(req).settings(settings.clone());
        upgrade.handle(Member { room: Arc::clone(&room), handle: None })
    };
    Service::new(app, coracle_http::Settings::default()).expect("a service")
}

/// Somebody in a room.
struct Member {
    room: Arc<Room>,
    handle: Option<Handle>,
}

impl ws::Handler for Member {
    fn on_open(&mut self, peer: &mut Peer<'_>) -> io::Result<()> {
        self.room.enter(self.handle.insert(peer.handle()));
        Ok(())
    }

    fn on_message(&mut self, peer: &mut Peer<'_>, _: Message) -> io::Result<()> {
        peer.close(CloseCode::NORMAL);
        Ok(())
    }

    fn on_close(&mut self, _: &End) {
        self.handle.iter().for_each(|handle| self.room.leave(handle));
    }
}

/// Runs until so many are in the room.
fn gathered(h: &Harness, room: &Arc<Room>, count: usize) {
    h.run_until(&(Arc::clone(room), count), |(room, count)| room.len() == *count);
}

pub(crate) fn k6_messages_that_wait_for_a_member_are_sent_together(h: &Harness) {
    const MESSAGES: usize = 40;
    let room = Arc::new(Room::new());
    let service = gathering(&room, Settings::default());
    let client = || match h.is_simulated() {
        true => Client::to(h, &service),
        false => Client::by_packets(h, &service),
    };
    let members: Vec<Ws<'_>> = (0..3).map(|_| Ws::ask(client(), "").0).collect();
    gathered(h, &room, members.len());
    for round in 0..3 {
        let before = h.is_simulated().then(|| h.kernel().operations());
        let texts: Vec<String> = (0..MESSAGES).map(|it| format!("{round}: {it}")).collect();
        texts.iter().for_each(|text| room.tell(text.as_str()));
        if let Some(before) = before {
            h.run_for(MS); // nobody receives yet
            let sends = h.kernel().operations() - before;
            assert!(sends < MESSAGES as u64, "{sends} sends of {MESSAGES} messages to 3");
        }
        for member in &members {
            if !h.is_simulated() {
                assert!(member.client.receive(), "the stream ended");
                let bytes: usize = texts.iter().map(|text| 2 + text.len()).sum();
                assert_eq!(member.client.received(), bytes, "all of them by one send");
            }
            texts.iter().for_each(|text| member.expect(TEXT, text));
        }
    }
    // And a close comes behind what was told before it.
    room.tell("the last");
    members[0].send(TEXT, "enough");
    members[0].expect(TEXT, "the last");
    assert_eq!(members[0].frame().0, CLOSE);
    members[0].send(CLOSE, 1000u16.to_be_bytes());
    gathered(h, &room, 2);
}

pub(crate) fn k6_who_reads_is_not_behind_with_what_was_not_sent(h: &Harness) {
    if h.backend == Backend::Uring {
        return; // what was written in a turn waits for its end, whoever has written it
    }
    let (room, text) = (Arc::new(Room::new()), "not much, but several of them");
    let settings = Settings { limit_backlog_bytes: 100, ..Settings::default() };
    let member = Ws::to(h, &gathering(&room, settings));
    gathered(h, &room, 1);
    (0..40).for_each(|_| room.tell(text));
    (0..40).for_each(|_| member.expect(TEXT, text));
    assert_eq!(room.len(), 1);
}

pub(crate) fn k6_room_is_told_through_a_layer(h: &Harness) {
    const MESSAGES: usize = 40;
    let (room, sends) = (Arc::new(Room::new()), Rc::new(Cell::new(0)));
    let (service, count) = (gathering(&room, Settings::default()), Rc::clone(&sends));
    let (any, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
    let layered =
        move |peer: &Address| Layered::new(Counting(Rc::clone(&count)), service.connection(peer));
    let listener = Listener::bind(&h.lp, &any, settings, layered).expect("it listens");
    let address = listener.local_address(&h.lp).expect("an address");
    run(h, move || {
        let asking = Asking::new("wss://a/ws").unwrap().at(address);
        let ws = asking.connect_through(Xor).unwrap();
        while room.is_empty() {
            sleep(MS).unwrap();
        }
        let before = sends.get();
        (0..MESSAGES).for_each(|number| room.tell(number.to_string()));
        for number in 0..MESSAGES {
            assert_eq!(ws.recv().unwrap(), Some(Message::from(number.to_string())));
        }
        assert_eq!(sends.get() - before, 1, "all of them are encrypted together");
        ws.close(CloseCode::NORMAL).unwrap();
    });
}

/// The same layer, which counts what it is given to send.
struct Counting(Rc<Cell<usize>>);

impl Layer for Counting {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        Xor.receive(wire, plain, reply)
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        self.0.set(self.0.get() + usize::from(!plain.is_empty()));
        Xor.send(plain, wire)
    }
}

pub(crate) fn k6_room_does_not_wait_for_who_does_not_read(h: &Harness) {
    const MESSAGES: usize = 10_000; // more than a kernel has room for
    for when_full in [WhenFull::Close, WhenFull::Skip] {
        let settings = Settings { limit_backlog_bytes: 50_000, when_full, ..Settings::default() };
        let room = Arc::new(Room::new());
        let service = gathering(&room, settings);
        let slow = Ws::to(h, &service);
        gathered(h, &room, 1);
        let message = Encoded::new(vec![7; 3000]);
        (0..MESSAGES).for_each(|_| room.tell(message.clone()));
        // Who comes later is told later.
        let late = Ws::to(h, &service);
        gathered(h, &room, 2);
        room.tell("that was all");
        late.expect(TEXT, "that was all");
        let mut heard = 0;
        let end = loop {
            match slow.frame() {
                (BINARY, payload) => {
                    assert!(payload == [7; 3000]);
                    heard += 1;
                }
                (CLOSE, payload) => break payload,
                (TEXT, payload) => break payload,
                other => panic!("{other:?}"),
            }
            if when_full == WhenFull::Skip {
                room.tell("there is room again");
            }
        };
        match when_full {
            WhenFull::Close => assert_eq!(end[..2], 1013u16.to_be_bytes()),
            WhenFull::Skip => assert_eq!(end, b"there is room again"),
        }
        assert!((1..MESSAGES).contains(&heard), "{heard}");
    }
}
