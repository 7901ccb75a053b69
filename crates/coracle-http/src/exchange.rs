//! One request and its answer, in memory that is used again for the next.

use crate::body::Kind;
use crate::h1::Framing;
use crate::h1::Refusal;
use crate::h1::chunks::{Chunks, Piece};
use crate::h1::head::Facts;
use crate::owned_request::Known;
use crate::site::{Share, Site};
use crate::{Headers, OwnedRequest, Plan, Response, Status};
use bytes::{Bytes, BytesMut};
use coracle_net::Buffer;
use std::cell::OnceCell;

/// More memory than this is not kept for the next request.
const KEEP_BYTES: usize = 16 << 10;

pub(crate) const TOO_LARGE: Refusal =
    Refusal::new(Status::PAYLOAD_TOO_LARGE, "the body is too large");

/// A request while it is received, and while it is answered.
pub(crate) struct Exchange {
    pub(crate) owned: OwnedRequest,
    pub(crate) plan: Plan,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) upgrade: bool,
    /// What the handler has answered, until it is written.
    pub(crate) response: Option<Response>,
    /// Of the body, as far as it has come.
    body: BytesMut,
    chunks: Chunks,
    limit_body_bytes: u64,
    /// What it has of what all bodies may have.
    share: Share,
}

impl Exchange {
    pub(crate) fn new() -> Exchange {
        Exchange {
            owned: OwnedRequest::blank(),
            plan: Plan::default(),
            framing: Framing::None,
            keep_alive: false,
            expects_continue: false,
            upgrade: false,
            response: None,
            body: BytesMut::new(),
            chunks: Chunks::default(),
            limit_body_bytes: 0,
            share: Share::default(),
        }
    }

    /// Notes what follows from the head.
    #[inline]
    pub(crate) fn begin(&mut self, facts: &Facts) {
        self.framing = facts.framing;
        self.keep_alive = facts.keep_alive;
        self.expects_continue = facts.expects_continue;
        self.upgrade = facts.upgrade;
    }

    /// Notes the plan; refuses a body that says it is too long.
    pub(crate) fn follow(&mut self, plan: Plan, limit_body_bytes: u64) -> Result<(), Refusal> {
        self.plan = plan;
        self.limit_body_bytes = plan.limit_body_bytes.unwrap_or(limit_body_bytes);
        match self.framing {
            Framing::Length(length) if length > self.limit_body_bytes => Err(TOO_LARGE),
            _ => Ok(()),
        }
    }

    /// Whether it has an answer that is written while it is sent.
    pub(crate) fn is_streamed(&self) -> bool {
        let body = self.response.as_ref().map(|response| &response.body().0);
        matches!(body, Some(Kind::Stream { .. }))
    }

    pub(crate) fn limit_body_bytes(&self) -> u64 {
        self.limit_body_bytes
    }

    /// How much of the body has come.
    pub(crate) fn received(&self) -> u64 {
        self.body.len() as u64
    }

    /// Takes what has come of the body; true when it is whole.
    pub(crate) fn receive(&mut self, site: &Site, input: &mut Buffer) -> Result<bool, Refusal> {
        match self.framing {
            Framing::None => Ok(true),
            Framing::Length(length) => {
                let missing = length - self.body.len() as u64;
                if self.body.is_empty() && input.len() as u64 >= length {
                    self.count(site, input.len().min(length as usize))?;
                    self.owned.body = input.take_bytes(length as usize);
                    return Ok(true);
                }
                let count = usize::try_from(missing).unwrap_or(usize::MAX).min(input.len());
                self.count(site, count)?;
                self.body.extend_from_slice(&input.unread()[..count]);
                input.consume(count);
                if count as u64 == missing {
                    self.owned.body = self.body.split().freeze();
                }
                Ok(count as u64 == missing)
            }
            Framing::Chunked => self.receive_chunks(site, input),
        }
    }

    fn receive_chunks(&mut self, site: &Site, input: &mut Buffer) -> Result<bool, Refusal> {
        loop {
            let trailers = &mut self.owned.trailers;
            let limit = self.limit_body_bytes;
            match self.chunks.next(input.unread(), limit, &site.settings, trailers)? {
                Piece::More { skip } => {
                    input.consume(skip);
                    return Ok(false);
                }
                Piece::Data { skip, len } => {
                    self.count(site, len)?;
                    self.body.extend_from_slice(&input.unread()[skip..skip + len]);
                    input.consume(skip + len);
                }
                Piece::End { skip } => {
                    input.consume(skip);
                    self.owned.body = self.body.split().freeze();
                    return Ok(true);
                }
            }
        }
    }

    /// Takes a piece of the body, in a protocol that says where the body ends.
    pub(crate) fn receive_piece(&mut self, site: &Site, piece: Bytes) -> Result<(), Refusal> {
        let received = (self.owned.body.len() + self.body.len() + piece.len()) as u64;
        if received > self.limit_body_bytes {
            return Err(TOO_LARGE);
        }
        self.count(site, piece.len())?;
        if self.body.is_empty() && self.owned.body.is_empty() {
            self.owned.body = piece; // mostly all of it
            return Ok(());
        }
        if self.body.is_empty() {
            self.body.extend_from_slice(&std::mem::take(&mut self.owned.body));
        }
        self.body.extend_from_slice(&piece);
        Ok(())
    }

    /// All pieces are there, and these fields behind them.
    pub(crate) fn finish_body(&mut self, trailers: Headers) {
        if !self.body.is_empty() {
            self.owned.body = self.body.split().freeze();
        }
        self.owned.trailers = trailers;
    }

    /// Counts bytes of a body among those of all.
    fn count(&mut self, site: &Site, bytes: usize) -> Result<(), Refusal> {
        if self.share.grow(&site.budget, bytes) {
            Ok(())
        } else {
            Err(Refusal::new(Status::SERVICE_UNAVAILABLE, "there is no memory for the body"))
        }
    }

    /// Makes it as new, but for the memory it has.
    pub(crate) fn recycle(&mut self) {
        self.share = Share::default();
        let owned = &mut self.owned;
        owned.known = Known::Whole;
        owned.headers.clear();
        if owned.headers.text.capacity() > KEEP_BYTES {
            owned.headers.text = Vec::new();
        }
        owned.query = None;
        owned.host = None;
        if !owned.trailers.is_empty() {
            owned.trailers.clear();
        }
        if !owned.body.is_empty() {
            owned.body = Bytes::new();
        }
        if !self.body.is_empty() {
            self.body = BytesMut::new();
        }
        // They are large, and mostly not there.
        if owned.late_trailers.get().is_some() {
            owned.late_trailers = OnceCell::new();
        }
        if owned.decoded.get().is_some() {
            owned.decoded = OnceCell::new();
        }
        self.response = None;
        self.chunks = Chunks::default();
    }
}
