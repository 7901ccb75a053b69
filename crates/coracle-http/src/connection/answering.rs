//! From an answer to bytes on the connection, and what comes after it.

use super::facts::Fact;
use super::{Phase, Shared};
use crate::body::Kind;
use crate::exchange::Exchange;
use crate::h1::Refusal;
use crate::h1::answer::{self, Context, Follow, Written};
use crate::idle::Wait;
use crate::shared_file::SharedFile;
use crate::{IntoResponse, Method, Response, Status, Version};
use bytes::Bytes;
use coracle_net::{Conn, Packet, WriteBuffer};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A body up to this size is sent together with its head, from where both are put together.
const JOIN_BYTES: usize = 16 << 10;

/// So much of a large body is given to the connection at a time.
const PIECE_BYTES: usize = 256 << 10;

impl Shared {
    /// Refuses a request, of which as much is known as is in `exchange`: has the app say so, and closes the
    /// connection.
    #[cold]
    pub(crate) fn refuse(
        &self,
        conn: &mut Conn<'_>,
        exchange: Option<Box<Exchange>>,
        refusal: Refusal,
    ) {
        let mut exchange = exchange.unwrap_or_else(|| {
            let mut exchange = self.site.take_exchange();
            exchange.owned.be_unknown();
            exchange
        });
        self.peer.tell(&mut exchange.owned);
        let response = self.site.refuse(&exchange.owned, refusal);
        self.tell(conn, exchange, refusal, response);
    }

    /// Refuses a request that the app has answered, with what the client cannot be told.
    #[cold]
    pub(super) fn refuse_answer(
        &self,
        conn: &mut Conn<'_>,
        exchange: Box<Exchange>,
        refusal: Refusal,
    ) {
        self.tell(conn, exchange, refusal, refusal.into_response());
    }

    fn tell(
        &self,
        conn: &mut Conn<'_>,
        exchange: Box<Exchange>,
        refusal: Refusal,
        response: Response,
    ) {
        let method = exchange.owned.method;
        self.site.give_back(exchange);
        self.site.stats.count_refused();
        tracing::debug!(
            status = refusal.status.as_u16(),
            why = refusal.why,
            "a request was refused"
        );
        let date = self.site.date.line(conn.lp().now());
        let context = Context { method, modern: true, keep_alive: false, date: &date };
        let (status, headers, body) = response.into_parts();
        conn.write_with(|out| {
            let before = out.len();
            let written = answer::write_head(out, &context, status, &headers, body.len());
            if written.follow != Follow::Nothing {
                out.push(body.as_bytes().unwrap_or_default());
            }
            self.count_written(out.len() - before);
        });
        self.close(conn);
    }

    /// Writes the head of an answer, whose body has `len` bytes if that is known, into `out`: what follows, and
    /// whether the connection goes on after it.
    #[inline(always)] // with every answer
    pub(crate) fn write_head(
        &self,
        now: Instant,
        exchange: &Exchange,
        response: &Response,
        len: Option<u64>,
        out: &mut WriteBuffer,
    ) -> Written {
        let (site, method) = (&self.site, exchange.owned.method);
        let unread = self.with_upload(|upload| !upload.is_over()).unwrap_or(false);
        let modern = exchange.owned.version != Version::Http10;
        let keep_alive = exchange.keep_alive && !unread && !site.stopping.get();
        if let Some(content_type) = response.only_type()
            && let Some(len) = len
            && keep_alive
            && modern
            && method != Method::Head
        {
            site.leads.write_head(out, &site.date, now, content_type, len);
            return Written { follow: Follow::Plain, keep_alive };
        }
        let date = site.date.line(now);
        let context = Context { method, modern, keep_alive, date: &date };
        answer::write_head(out, &context, response.status(), response.headers(), len)
    }

    /// Sends the answer of an exchange, whose body is there.
    pub(crate) fn respond(self: &Rc<Self>, conn: &mut Conn<'_>, exchange: Box<Exchange>) {
        self.disarm(conn); // nothing of a body is awaited any more
        let Some(response) = &exchange.response else { return };
        let body = response.body().as_bytes();
        let Some(bytes) = body.filter(|bytes| bytes.len() <= JOIN_BYTES) else {
            return self.respond_apart(conn, exchange);
        };
        let now = conn.lp().now();
        let keep_alive = conn.write_with(|out| {
            let before = out.len();
            let len = Some(bytes.len() as u64);
            let written = self.write_head(now, &exchange, response, len, out);
            if written.follow != Follow::Nothing {
                out.push(bytes);
            }
            self.count_written(out.len() - before);
            written.keep_alive
        });
        self.site.give_back(exchange);
        self.end_answer(conn, keep_alive);
    }

    /// The same of one whose body is not sent from where its head is put together.
    #[inline(never)]
    fn respond_apart(self: &Rc<Self>, conn: &mut Conn<'_>, exchange: Box<Exchange>) {
        let Some(response) = &exchange.response else { return };
        if let Kind::Upgrade(_) = response.body().0 {
            return self.switch(conn, exchange);
        }
        let now = conn.lp().now();
        let written = conn.write_with(|out| {
            let before = out.len();
            let written = self.write_head(now, &exchange, response, response.body().len(), out);
            self.count_written(out.len() - before);
            written
        });
        if written.follow == Follow::Nothing {
            self.site.give_back(exchange);
            self.end_answer(conn, written.keep_alive);
        } else {
            self.send_body(conn, exchange, written.keep_alive);
        }
    }

    /// Sends a body behind its head, from where it is.
    fn send_body(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        mut exchange: Box<Exchange>,
        keep_alive: bool,
    ) {
        let body = exchange.response.as_mut().map(Response::take_body).unwrap_or_default();
        self.site.give_back(exchange);
        let rest = match body.0 {
            Kind::Static(bytes) => Bytes::from_static(bytes),
            Kind::Bytes(bytes) => bytes,
            Kind::Vec(bytes) => bytes.into(),
            Kind::File { file, offset, len } => {
                return self.send_file(conn, file, offset, len, keep_alive);
            }
            Kind::Stream { .. } | Kind::Upgrade(_) | Kind::Kept(_) => Bytes::new(), // not here
        };
        self.phase.set(Phase::Sending);
        self.with_rare(|rare| rare.download = Some((rest, keep_alive)));
        self.send_on(conn);
    }

    /// Goes on with an answer that is too big for one go.
    pub(super) fn send_on(&self, conn: &mut Conn<'_>) {
        loop {
            let download = self.if_rare(|rare| rare.download.take()).flatten();
            let Some((mut rest, keep_alive)) = download else { return };
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            let over = rest.is_empty();
            if !over {
                self.with_rare(|rare| rare.download = Some((rest, keep_alive)));
            }
            self.count_written(piece.len());
            conn.write(piece);
            if over {
                break self.answered(conn, keep_alive);
            }
            if !conn.writable() {
                break self.watch(conn); // until `on_ready`
            }
        }
    }

    fn send_file(
        self: &Rc<Self>,
        conn: &mut Conn<'_>,
        file: Arc<SharedFile>,
        offset: u64,
        len: u64,
        keep_alive: bool,
    ) {
        let file = match file.open(conn.lp()) {
            Ok(file) => file,
            Err(error) => {
                tracing::error!("cannot send a file: {error}");
                return conn.abort(); // its head has promised it
            }
        };
        self.phase.set(Phase::Sending);
        let count = usize::try_from(len).unwrap_or(usize::MAX);
        self.count_written(count);
        let shared = Rc::clone(self);
        conn.write_then(Packet::file(file.handle(), offset, count), move |conn| {
            drop(file);
            shared.disarm(conn);
            shared.answered(conn, keep_alive);
            shared.go_on(conn);
            Ok(())
        });
        self.watch(conn);
    }

    /// Hands the connection to another protocol.
    fn switch(&self, conn: &mut Conn<'_>, mut exchange: Box<Exchange>) {
        if !exchange.upgrade {
            let refusal = Refusal::new(Status::UPGRADE_REQUIRED, "this needs an upgrade");
            return self.refuse_answer(conn, exchange, refusal);
        }
        if self.with_upload(|upload| upload.is_over()) == Some(false) {
            // What follows is still of this protocol.
            let refusal = Refusal::bad("a request whose body is not read cannot be an upgrade");
            return self.refuse_answer(conn, exchange, refusal);
        }
        if self.site.stopping.get() {
            // Nobody would tell the other protocol that it is about to end.
            let refusal = Refusal::new(Status::SERVICE_UNAVAILABLE, "the server is about to stop");
            return self.refuse_answer(conn, exchange, refusal);
        }
        let Some(response) = exchange.response.take() else { return };
        let (_, mut headers, body) = response.into_parts();
        let Kind::Upgrade(upgrade) = body.0 else { return };
        // It has no body (RFC 9110, 8.6), and what concerns the connection is ours.
        for name in ["connection", "content-length", "transfer-encoding"] {
            headers.remove(name);
        }
        conn.write_with(|out| {
            out.push(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n");
            for (name, value) in headers.iter() {
                answer::write_field(out, name.as_bytes(), value);
            }
            out.push(b"\r\n");
        });
        self.site.give_back(exchange);
        self.phase.set(Phase::Switched);
        self.if_rare(|rare| rare.total = None);
        conn.set_idle_timeout(None);
        if self.facts.set(Fact::Paused, false) {
            conn.resume();
        }
        let addresses = self.site.addresses.get();
        upgrade(conn, addresses.map(|it| it.hold(&self.peer.address())));
    }

    /// The answer is written, in a callback that goes on with what has come.
    pub(crate) fn answered(&self, conn: &mut Conn<'_>, keep_alive: bool) {
        self.disarm(conn);
        self.end_answer(conn, keep_alive);
    }

    /// The same, if nothing is awaited on this connection any more.
    #[inline(always)] // with every answer
    fn end_answer(&self, conn: &mut Conn<'_>, keep_alive: bool) {
        if let Some(rare) = self.rare.take() {
            if let Some(total) = rare.total.clone() {
                conn.write_then(Bytes::new(), move |_| {
                    total.end_first();
                    Ok(())
                });
            }
            self.rare.set(rare.outlast_answer()); // nobody waits for anything any more
        }
        if keep_alive {
            self.phase.set(Phase::Head);
            self.facts.set(Fact::Answered, true);
        } else {
            self.close(conn);
        }
    }

    /// Nothing is left to be answered: waits for the next request, which has its time from now on. Once for all
    /// requests that came together.
    #[inline]
    pub(super) fn wait_for_next(&self, conn: &Conn<'_>) {
        if self.facts.set(Fact::Answered, false) {
            self.begin_phase(conn);
            self.site.idle.wait(conn.lp(), &self.site, self.place.get(), Wait::Next);
        }
    }

    /// After an answer that was not written by a callback with the input in its hands: has that looked at.
    pub(crate) fn go_on(&self, conn: &mut Conn<'_>) {
        if self.phase.get() != Phase::Head {
            return;
        }
        match self.facts.is(Fact::Left) || self.facts.is(Fact::Paused) {
            true => {
                self.wait_for_next(conn);
                conn.show_again();
            }
            false => self.rest(conn),
        }
    }

    pub(crate) fn count_written(&self, count: usize) {
        self.written.set(self.written.get() + count as u64);
    }

    /// Closes the connection when everything is sent, as long as the client takes it at the least rate. The time
    /// to [drain](crate::Settings::drain) begins then.
    pub(crate) fn close(&self, conn: &mut Conn<'_>) {
        self.phase.set(Phase::Closing);
        if conn.unsent_bytes() == 0 {
            return conn.close();
        }
        self.disarm(conn);
        conn.write_then(Bytes::new(), |conn| {
            conn.close();
            Ok(())
        });
        self.begin_phase(conn);
        self.site.idle.wait(conn.lp(), &self.site, self.place.get(), Wait::Next);
    }
}
