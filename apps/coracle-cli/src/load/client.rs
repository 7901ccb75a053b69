//! One connection of a load: sends messages, and compares what comes back.

use super::worker::Worker;
use coracle::Loop;
use coracle::demux::Address;
use coracle::net::{Buffer, Conn, ConnHandle, Protocol, Reason};
use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

/// A connection's state. The worker has it too, to say when there is something to send.
pub(super) struct Client {
    worker: Rc<Worker>,
    /// Of all connections of the load.
    number: usize,
    /// Among the open connections of its worker.
    index: usize,
    local: Option<Address>,
    handle: OnceCell<ConnHandle>,
    open: Cell<bool>,
    /// Messages that are due, and not sent.
    owed: Cell<u64>,
    /// Messages that were sent, and those of them that came back.
    sent: Cell<u64>,
    answered: Cell<u64>,
    /// Bytes that came back.
    received: Cell<u64>,
    /// When the last message was sent.
    sent_at: Cell<Instant>,
}

impl Client {
    pub(super) fn new(
        worker: Rc<Worker>,
        number: usize,
        index: usize,
        local: Option<Address>,
    ) -> Client {
        Client {
            worker,
            number,
            index,
            local,
            handle: OnceCell::new(),
            open: Cell::new(true),
            owed: Cell::new(0),
            sent: Cell::new(0),
            answered: Cell::new(0),
            received: Cell::new(0),
            sent_at: Cell::new(Instant::now()),
        }
    }

    /// Tells it how its connection is reached.
    pub(super) fn is_at(&self, handle: ConnHandle) {
        let _ = self.handle.set(handle);
    }

    /// One more message is due. It is sent now, if there is room under way.
    pub(super) fn owe(&self, lp: &Loop) {
        self.owed.set(self.owed.get() + 1);
        if self.under_way() < self.worker.window()
            && let Some(handle) = self.handle.get().filter(|_| self.open.get())
        {
            self.sent_at.set(Instant::now());
            handle.with(lp, |conn| self.send(conn));
        }
    }

    fn under_way(&self) -> u64 {
        self.sent.get() - self.answered.get()
    }

    /// Sends what is due, as far as there is room.
    #[inline]
    fn send(&self, conn: &mut Conn<'_>) {
        let bytes = self.worker.plan.bytes;
        let window = self.worker.window();
        while self.owed.get() > 0 && self.under_way() < window && self.worker.is_running() {
            let position = self.sent.get() * bytes as u64;
            for piece in self.worker.pattern.pieces(self.number, position, bytes) {
                conn.write_slice(piece);
            }
            self.owed.set(self.owed.get() - 1);
            self.sent.set(self.sent.get() + 1);
            self.worker.sent();
        }
    }

    #[inline]
    fn received(&self, conn: &mut Conn<'_>, bytes: &[u8]) {
        let now = Instant::now();
        let position = self.received.get();
        if let Some(mistake) = self.mistake(position, bytes) {
            self.worker.tally.borrow_mut().wrong += 1;
            self.lose("wrong answer", &mistake);
            return conn.abort();
        }
        self.received.set(position + bytes.len() as u64);
        let whole = self.received.get() / self.worker.plan.bytes as u64;
        let came = whole - self.answered.get();
        if came == 0 {
            return;
        }
        let scheduled = self.worker.plan.rate.is_some();
        for message in self.answered.get()..whole {
            let since = if scheduled {
                self.worker.due_of(self.index, message)
            } else {
                self.sent_at.get()
            };
            let latency = now.saturating_duration_since(since);
            self.worker.tally.borrow_mut().answered(latency);
        }
        self.answered.set(whole);
        self.worker.answered(conn.lp(), came, now);
        if !scheduled {
            self.sent_at.set(now);
            self.owed.set(1); // the next one, at once
        }
        self.send(conn);
    }

    /// What is wrong with bytes that came back.
    #[inline]
    fn mistake(&self, position: u64, bytes: &[u8]) -> Option<String> {
        let size = self.worker.plan.bytes as u64;
        let expected = self.sent.get() * size - position;
        let answer = |at: u64| format!("byte {} of answer {}", at % size, at / size);
        let known = &bytes[..bytes.len().min(usize::try_from(expected).unwrap_or(usize::MAX))];
        let wrong = self.worker.pattern.difference(self.number, position, known);
        if let Some((at, sent)) = wrong {
            let place = answer(position + at as u64);
            return Some(format!("{place} is {:#04x}, sent was {sent:#04x}", bytes[at]));
        }
        let excess = bytes.get(known.len())?;
        let place = answer(position + expected);
        Some(format!("{place} is {excess:#04x}, but no such message was sent"))
    }

    // --- Its end ---------------------------------------------------------------------------------------

    /// The connection is over before the load is.
    fn lose(&self, kind: &str, what: &str) {
        if !self.open.replace(false) || self.worker.is_over() {
            return;
        }
        let unanswered = self.under_way();
        let mut tally = self.worker.tally.borrow_mut();
        tally.error(kind, 1, || format!("{}: {what}", self.name()));
        if kind != "wrong answer" {
            tally.lost += 1;
            tally.missing += unanswered;
        }
        tally.unsent += self.unsent();
        drop(tally);
        self.worker.lost(unanswered);
    }

    /// The load is over: what has not come back is missing.
    pub(super) fn account(&self) {
        if !self.open.get() {
            return;
        }
        let unanswered = self.under_way();
        let mut tally = self.worker.tally.borrow_mut();
        tally.unsent += self.unsent();
        if unanswered > 0 {
            tally.missing += unanswered;
            let example = || {
                let first = self.answered.get();
                format!("{}: no answer {first}, or only a part of it", self.name())
            };
            tally.error("missing answer", unanswered, example);
        }
    }

    /// Messages that were due and were not sent. Without a rate none is due: it is sent when the last has come
    /// back.
    fn unsent(&self) -> u64 {
        if self.worker.plan.rate.is_some() { self.owed.get() } else { 0 }
    }

    fn name(&self) -> String {
        match &self.local {
            Some(local @ Address::Ip(_)) => format!("connection {} ({local})", self.number),
            _ => format!("connection {}", self.number),
        }
    }
}

/// The protocol of a connection.
pub(super) struct Conversation(pub(super) Rc<Client>);

impl Protocol for Conversation {
    #[inline]
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        let bytes = input.take_all();
        if !self.0.worker.plan.idle && self.0.open.get() {
            self.0.received(conn, bytes);
        }
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.lose("closed by the server", "the server closed it");
        conn.abort();
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        let text = reason.to_string();
        self.0.lose(&text, &text);
    }
}
