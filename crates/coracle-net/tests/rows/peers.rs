//! The two sides of a case: protocols that note what happens to them, and a client in plain operations.

use crate::harness::Harness;
use coracle_loop::demux::{Handle, Operation, Outcome};
use coracle_net::{Buffer, Conn, ConnHandle, Protocol, Reason, Settings, attach};
use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

/// What happened, in order, as text.
pub(crate) type Notes = Rc<RefCell<Vec<String>>>;

/// A protocol made of one function, which notes what else happens.
pub(crate) struct Noting<F> {
    pub(crate) notes: Notes,
    pub(crate) on_data: F,
}

impl<F> Protocol for Noting<F>
where
    F: FnMut(&mut Conn<'_>, &mut Buffer) -> io::Result<()> + 'static,
{
    fn on_open(&mut self, _conn: &mut Conn<'_>) -> io::Result<()> {
        self.note("open");
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.note("data");
        (self.on_data)(conn, input)
    }

    fn on_ready(&mut self, _conn: &mut Conn<'_>) -> io::Result<()> {
        self.note("ready");
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.note("end");
        conn.close();
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        self.note(&format!("close: {reason}"));
    }
}

impl<F> Noting<F> {
    fn note(&self, text: &str) {
        let mut notes = self.notes.borrow_mut();
        if notes.last().is_none_or(|last| last != text || text.starts_with("close")) {
            notes.push(text.to_owned());
        }
    }
}

/// Echoes, and that is all.
pub(crate) fn echo(conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
    conn.write(input.take_all());
    Ok(())
}

/// A client and a server that serves it with `on_data`. The notes tell what happened to the server.
pub(crate) struct Pair<'a> {
    pub(crate) h: &'a Harness,
    pub(crate) client: Handle,
    pub(crate) server: ConnHandle,
    pub(crate) notes: Notes,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(
        h: &'a Harness,
        settings: Settings,
        on_data: impl FnMut(&mut Conn<'_>, &mut Buffer) -> io::Result<()> + 'static,
    ) -> Pair<'a> {
        let notes = Notes::default();
        Pair::with(h, settings, Noting { notes: Rc::clone(&notes), on_data }, notes)
    }

    /// With a protocol of the case's own, which writes to `notes`.
    pub(crate) fn with(
        h: &'a Harness,
        settings: Settings,
        protocol: impl Protocol,
        notes: Notes,
    ) -> Pair<'a> {
        let (client, socket) = h.connection();
        let server = attach(&h.lp, socket, settings, protocol).expect("the settings make sense");
        Pair { h, client, server, notes }
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.h.send(self.client, bytes);
    }

    pub(crate) fn receive(&self, count: usize) -> String {
        String::from_utf8(self.h.receive(self.client, count)).expect("text")
    }

    /// Everything until the end of the stream.
    pub(crate) fn receive_all(&self) -> Vec<u8> {
        self.h.receive(self.client, usize::MAX >> 1)
    }

    pub(crate) fn end(&self) {
        let operation = Operation::Shutdown { socket: self.client, how: Shutdown::Write };
        self.h.operate(operation).result.expect("shutdown");
    }

    pub(crate) fn close(&self) {
        self.h.close(self.client);
    }

    /// Runs until the server was told that the connection is over; gives what was noted.
    pub(crate) fn over(&self) -> Vec<String> {
        self.h.run_until(&self.notes, |notes| {
            notes.borrow().last().is_some_and(|last| last.starts_with("close"))
        });
        self.notes.borrow().clone()
    }

    /// Runs until something was noted.
    pub(crate) fn run_until_noted(&self, text: &'static str) {
        self.h.run_until(&self.notes, move |notes| notes.borrow().iter().any(|it| it == text));
    }
}

/// Receives what there is now, at most `count` bytes.
pub(crate) fn receive_some(h: &Harness, socket: Handle, count: usize) -> Vec<u8> {
    let finished = h.operate(Operation::Receive { socket, space: vec![0; count].into() });
    let Ok(Outcome::Count(got)) = finished.result else { return Vec::new() };
    finished.payload.into_vec()[..got].to_vec()
}
