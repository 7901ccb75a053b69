//! The servers of the simulation: each kind of protocol, and what is checked whenever one is called.

use crate::coat::{Coat, HELLO};
use crate::ledger::{Being, Ledger, Life};
use crate::random::Random;
use crate::script::{
    FROM_ANOTHER, GREETING, Kind, NORMAL, SPECIAL, SWITCHED, TAKEN, THEN, UNKNOWN, UPGRADE, URGENT,
    answer, pattern,
};
use bytes::Bytes;
use coracle_loop::Loop;
use coracle_loop::demux::{Handle, Operation, Outcome};
use coracle_net::{Buffer, Conn, Packet, Protocol, RateGroup, RateLimit, Reason, Settings};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A simulated kernel answers within this time, with all its faults.
const MOMENT: Duration = Duration::from_millis(20);

/// What the connections of one server have in common.
pub(crate) struct Rigging {
    pub(crate) settings: Settings,
    /// The keys of the coats that are worn, the innermost first.
    pub(crate) coats: Vec<u8>,
    pub(crate) rate: Option<RateLimit>,
    pub(crate) group: Option<RateGroup>,
    /// A file in which byte `n` is `pattern(n)`, once it is open.
    pub(crate) file: Rc<Cell<Option<Handle>>>,
}

impl Rigging {
    /// Bytes go straight between socket and protocol.
    fn is_bare(&self) -> bool {
        self.coats.is_empty() && self.rate.is_none() && self.group.is_none()
    }
}

/// A connection of any kind.
pub(crate) struct Talker {
    kind: Kind,
    life: Life,
    random: Random,
    rigging: Rc<Rigging>,
    /// How many requests are to come, by the last that came.
    left: Option<u8>,
    /// What a bulk answer has still to send: from where on, and how much.
    bulk: Option<(usize, usize)>,
    answered: usize,
    /// The next protocol is on its way: what comes is for it.
    leaving: bool,
    /// Since when more waits than may.
    over_since: Option<Instant>,
}

impl Talker {
    pub(crate) fn new(
        kind: Kind,
        ledger: &Ledger,
        number: usize,
        random: Random,
        rigging: &Rc<Rigging>,
    ) -> Talker {
        let life = Life::new(ledger, format!("{kind:?} {number}"));
        let rigging = Rc::clone(rigging);
        Talker {
            kind,
            life,
            random,
            rigging,
            left: None,
            bulk: None,
            answered: 0,
            leaving: false,
            over_since: None,
        }
    }

    /// What holds whenever a callback begins.
    fn check(&mut self, conn: &Conn<'_>, what: &str) {
        self.life.callback(what);
        // More than may wait does so for a moment only: until the kernel has said what it takes.
        let (waiting, limit) = (conn.output_bytes(), self.rigging.settings.limit_output_bytes);
        let now = conn.lp().now();
        match self.over_since {
            _ if waiting <= limit => self.over_since = None,
            None => self.over_since = Some(now),
            Some(since) => self.life.expect(now - since < MOMENT, "more waits than may"),
        }
    }

    /// Sends something in one of the ways there are.
    fn write(&mut self, conn: &mut Conn<'_>, bytes: &[u8]) {
        match self.random.below(6) {
            0 => conn.write_slice(bytes),
            1 => conn.write(bytes.to_vec()),
            2 => conn.write(Bytes::copy_from_slice(bytes)),
            3 => conn.write_then(bytes, |_| Ok(())),
            _ => {
                let (a, b) = bytes.split_at(self.random.below(bytes.len() as u64 + 1) as usize);
                conn.write(a);
                conn.write(b);
            }
        }
    }

    /// Another rate, now and then, where there are some.
    fn change_rate(&mut self, conn: &mut Conn<'_>) {
        if self.rigging.is_bare() || self.random.chance(0.9) {
            return;
        }
        match (self.random.below(3), &self.rigging.group) {
            (0, Some(group)) => conn.join_rate_group(group),
            (1, _) => conn.limit_rate(&RateLimit::default()),
            _ => conn.limit_rate(&RateLimit {
                receive_bytes_per_second: Some(5000 + self.random.below(50_000)),
                send_bytes_per_second: Some(5000 + self.random.below(50_000)),
                burst_bytes: 20 + self.random.below(2000),
            }),
        }
    }

    fn echo(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) {
        let bytes = input.take_all().to_vec();
        self.write(conn, &bytes);
        if self.kind == Kind::Pause && self.random.chance(0.4) {
            conn.pause();
            let handle = conn.handle();
            let pause = self.random.duration(Duration::from_millis(20));
            conn.lp().after(pause, move |_| {
                let resume = |conn: &mut Conn<'_>| {
                    conn.resume();
                    Ok(())
                };
                handle.run(resume, || ());
            });
        }
    }

    fn request(&mut self, conn: &mut Conn<'_>, tag: u8, payload: &[u8]) -> io::Result<()> {
        self.answered += 1;
        let reply = answer(tag, payload);
        match (self.kind, tag) {
            (Kind::Panic, SPECIAL) => {
                self.life.ledger.will_panic();
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            (Kind::Bulk, _) => {
                let len = payload.try_into().map(u32::from_le_bytes).expect("four bytes");
                self.bulk = Some((0, len as usize));
                self.produce(conn);
            }
            (Kind::Offload, _) => {
                let payload = payload.to_vec();
                let done = |conn: &mut Conn<'_>, reply: Result<Vec<u8>, _>| {
                    conn.write(reply.expect("it does not panic"));
                    Ok(())
                };
                conn.offload(move || answer(tag, &payload), done)
                    .expect("a simulated pool has room");
            }
            (Kind::Urgent, _) => self.mix(conn, payload),
            (Kind::HalfClose, _) if self.answered > 1 => {} // our side has ended
            (Kind::HalfClose, _) => {
                self.write(conn, &reply);
                conn.close_write();
                conn.write("never sent");
            }
            (Kind::Switch, SPECIAL) => {
                let name = self.life.name().replace("Switch", "Shifted");
                let next = Shifted { life: Life::new(&self.life.ledger, name) };
                self.life.release();
                self.leaving = true;
                match self.random.below(3) {
                    0 => {
                        self.write(conn, &reply);
                        conn.switch(next);
                    }
                    1 => conn.write_then(reply, |conn| {
                        conn.switch(next);
                        Ok(())
                    }),
                    _ => {
                        let done = |conn: &mut Conn<'_>, reply: Result<Vec<u8>, _>| {
                            conn.write(reply.expect("it does not panic"));
                            conn.switch(next);
                            Ok(())
                        };
                        conn.offload(|| reply, done).expect("a simulated pool has room");
                    }
                }
            }
            (Kind::Hijack, SPECIAL) => {
                self.write(conn, &reply);
                self.life.release();
                let (ledger, name) =
                    (self.life.ledger.clone(), self.life.name().replace("Hijack", "Taker"));
                conn.hijack(move |lp, socket, input| {
                    Taker::begin(lp, socket, input, &ledger, name)
                });
            }
            (Kind::Upgrade, SPECIAL) => {
                self.write(conn, &reply);
                conn.push_layer(Coat::new(UPGRADE, self.random.fork()));
            }
            (Kind::Close, SPECIAL) => {
                self.write(conn, &reply);
                conn.close();
                conn.write("never sent");
            }
            (Kind::Refuse, SPECIAL) => {
                self.write(conn, &reply);
                return Err(io::Error::other("no more of this"));
            }
            _ => self.write(conn, &reply),
        }
        Ok(())
    }

    /// Answers three times, one of them urgent and one of them later, and writes to another connection meanwhile.
    fn mix(&mut self, conn: &mut Conn<'_>, payload: &[u8]) {
        let then = answer(THEN, payload);
        let handle = conn.handle();
        let other = self.life.ledger.nth_open_to_all(self.random.below(1000));
        let other = other.filter(|other| !other.is_same(&handle) && self.random.chance(0.5));
        let lp = conn.lp().clone();
        let inside = self.random.chance(0.5);
        let normal_then = |conn: &mut Conn<'_>, then: Vec<u8>| {
            conn.write_then(answer(NORMAL, payload), move |conn| {
                conn.write(then);
                Ok(())
            });
        };
        // Two halves are two packets: where they may not leave together, something urgent may come between them.
        let halves = self.rigging.is_bare() && self.random.chance(0.5);
        if let (Some(other), true, true) = (&other, inside, halves) {
            // Half of it before the other's turn, half of it meanwhile.
            let normal = answer(NORMAL, payload);
            let (first, second) = normal.split_at(self.random.below(normal.len() as u64) as usize);
            conn.write_slice(first);
            let ran = other.with(&lp, |other| {
                other.write(answer(FROM_ANOTHER, b"halfway"));
                conn.write_slice(second);
            });
            if ran.is_none() {
                conn.write_slice(second);
            }
            conn.write_then(b"", move |conn| {
                conn.write(then);
                Ok(())
            });
        } else if let (Some(other), true) = (&other, inside) {
            let ran = other.with(&lp, |other| {
                normal_then(conn, then.clone()); // ours, while it is the other's turn
                other.write(answer(FROM_ANOTHER, b"in between"));
            });
            if ran.is_none() {
                normal_then(conn, then);
            }
        } else {
            normal_then(conn, then);
            if let Some(other) = &other {
                other.with(&lp, |other| other.write(answer(FROM_ANOTHER, b"afterwards")));
            }
        }
        conn.write_urgent(answer(URGENT, payload));
    }

    /// Goes on with a bulk answer while there is room.
    fn produce(&mut self, conn: &mut Conn<'_>) {
        let Some((mut at, len)) = self.bulk else { return };
        let limit = self.rigging.settings.high_mark_bytes + 700;
        while at < len && conn.writable() {
            let end = len.min(at + 1 + self.random.below(700) as usize);
            match self.rigging.file.get().filter(|_| self.random.chance(0.3)) {
                Some(file) => conn.write(Packet::file(file, at as u64, end - at)),
                None => self.write(conn, &(at..end).map(pattern).collect::<Vec<u8>>()),
            }
            at = end;
            self.life.expect(conn.output_bytes() <= limit, "writable is true beyond the high mark");
        }
        self.bulk = Some((at, len));
        if at == len {
            conn.close();
        }
    }
}

impl Protocol for Talker {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.life.open();
        for &key in self.rigging.coats.iter().rev() {
            conn.push_layer(Coat::new(key, self.random.fork()));
        }
        if let Some(rate) = &self.rigging.rate {
            conn.limit_rate(rate);
        }
        if let Some(group) = &self.rigging.group {
            conn.join_rate_group(group);
        }
        self.life.ledger.within_reach(conn.handle());
        if self.kind == Kind::HalfClose {
            self.write(conn, GREETING);
        }
        if self.kind == Kind::Urgent {
            self.life.ledger.open_to_all(conn.handle());
        }
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.check(conn, &format!("data, {} bytes", input.len()));
        // What the layers have just said by themselves comes on top.
        let (waiting, high) = (conn.output_bytes(), self.rigging.settings.high_mark_bytes);
        let limit = high + 3 * HELLO.len();
        self.life.expect(waiting <= limit, "a peer that does not read is read");
        self.life.expect(!input.is_empty(), "no data");
        self.change_rate(conn);
        if matches!(self.kind, Kind::Echo | Kind::Pause) {
            self.echo(conn, input);
            return Ok(());
        }
        while !self.leaving
            && let &[tag, left, low, high, ref rest @ ..] = input.unread()
        {
            let len = usize::from(u16::from_le_bytes([low, high]));
            if rest.len() < len {
                break;
            }
            let payload = rest[..len].to_vec();
            input.consume(4 + len);
            self.left = Some(left);
            self.request(conn, tag, &payload)?;
            if tag == SPECIAL
                && !matches!(
                    self.kind,
                    Kind::Framed | Kind::Offload | Kind::HalfClose | Kind::Urgent
                )
            {
                break; // what follows is somebody else's
            }
        }
        Ok(())
    }

    fn on_ready(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.check(conn, "ready");
        self.produce(conn);
        Ok(())
    }

    fn on_idle(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.check(conn, "idle");
        conn.close();
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.check(conn, "end");
        let all = self.leaving || self.left.is_none_or(|left| left == 0 || left == UNKNOWN);
        // A reset may take bytes along that were sent before an orderly end.
        self.life.expect(
            all || !self.life.ledger.is_fair(),
            "the end comes before what was sent before it",
        );
        if self.bulk.is_none() && !self.leaving {
            conn.close(); // otherwise when everything is sent
        }
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        self.life.close(reason);
    }
}

/// What a connection becomes by a switch.
struct Shifted {
    life: Life,
}

impl Protocol for Shifted {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.life.open();
        conn.write(SWITCHED);
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.life.callback("data");
        let bytes: Vec<u8> = input.take_all().iter().map(|byte| byte ^ 0x20).collect();
        conn.write(bytes);
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.life.callback("end");
        conn.close();
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        self.life.close(reason);
    }
}

/// Owns a socket that was a connection's, and echoes in plain operations.
struct Taker {
    socket: Handle,
    ledger: Ledger,
    name: String,
    _being: Being,
}

impl Taker {
    fn begin(lp: &Loop, socket: Handle, mut input: Buffer, ledger: &Ledger, name: String) {
        ledger.note(format!("{name} begins with {} bytes", input.len()));
        let first = [TAKEN, input.take_all()].concat();
        let ledger = ledger.clone();
        let _being = Being::new(&ledger);
        Rc::new(Taker { socket, ledger, name, _being }).send(lp, first);
    }

    fn send(self: Rc<Self>, lp: &Loop, bytes: Vec<u8>) {
        let operation = Operation::Send { socket: self.socket, payload: bytes.into() };
        lp.operate(operation, move |lp, done| match done.result {
            Ok(Outcome::Count(count)) => {
                let left = done.payload.into_vec().split_off(count);
                if left.is_empty() { self.receive(lp) } else { self.send(lp, left) }
            }
            _ => self.close(lp),
        });
    }

    fn receive(self: Rc<Self>, lp: &Loop) {
        let operation = Operation::Receive { socket: self.socket, space: vec![0; 200].into() };
        lp.operate(operation, move |lp, done| match done.result {
            Ok(Outcome::Count(count @ 1..)) => {
                let mut bytes = done.payload.into_vec();
                bytes.truncate(count);
                self.send(lp, bytes);
            }
            _ => self.close(lp),
        });
    }

    fn close(self: Rc<Self>, lp: &Loop) {
        self.ledger.note(format!("{} closes", self.name));
        lp.operate(Operation::Close { handle: self.socket }, move |_, _| drop(self));
    }
}
