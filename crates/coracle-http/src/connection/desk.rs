//! What a callback leaves to the coroutine that it starts: with it, requests that came together are answered by
//! one coroutine, as long as none of their handlers waits, or has others know the coroutine.
//!
//! ```text
//!   callback    reads a head, starts ─┐                                 ┌─► goes on where it has stopped
//!   coroutine                         └► handler, answer, next head, …  ┘
//! ```
//! The desk is at the [`Site`](crate::site::Site) while a handler runs; so if that waits, the callback finds it.

use super::{Phase, Shared};
use crate::exchange::Exchange;
use coracle_coro::{begin_anew, no_park};
use coracle_loop::Loop;
use coracle_net::{Buffer, Conn, LentConn};
use std::panic::resume_unwind;
use std::rc::Rc;

pub(crate) struct Desk {
    conn: LentConn,
    input: Buffer,
    /// How much was written when the callback last looked whether there is room.
    looked: u64,
    /// A request that came next, and is not for this coroutine.
    left: Option<Box<Exchange>>,
}

impl Shared {
    /// Calls `start`, which runs a coroutine at once, with what the callback has at the desk. Gives the request
    /// that the coroutine has left, if it has left one.
    #[inline]
    pub(super) fn with_desk(
        &self,
        conn: &mut Conn<'_>,
        input: &mut Buffer,
        looked: &mut u64,
        start: impl FnOnce(&Loop),
    ) -> Option<Box<Exchange>> {
        let mut desk = None;
        if !input.is_empty() {
            let (conn, input) = (conn.lend(), std::mem::take(input));
            desk = Some(Box::new(Desk { conn, input, looked: *looked, left: None }));
        }
        let is_set = desk.is_some();
        let outer = self.site.desk.replace(desk);
        start(conn.lp());
        match self.site.desk.replace(outer) {
            Some(desk) => {
                let desk = *desk;
                (*input, *looked) = (desk.input, desk.looked);
                desk.left
            }
            None => {
                if is_set {
                    // It has panicked, amid what it was doing with it: as if this callback had.
                    resume_unwind(Box::new("a request has panicked at the desk"));
                }
                None
            }
        }
    }

    /// In the coroutine that a callback has started: answers a request, and goes on with what has come, up to the
    /// next request that this coroutine can handle. If there is no desk, the callback has the answer to send; so
    /// it has if this request has left something behind that the plan of the next could find.
    #[inline]
    pub(crate) fn go_on_at_desk(self: &Rc<Self>, exchange: Box<Exchange>) -> Option<Box<Exchange>> {
        let Some(mut desk) = self.site.desk.take() else {
            self.leave_answer(exchange);
            return None;
        };
        if !begin_anew() {
            self.site.desk.set(Some(desk));
            self.leave_answer(exchange);
            return None;
        }
        let Desk { conn, input, looked, .. } = &mut *desk;
        // As in the callback: nothing may wait.
        no_park(|| {
            conn.with(|conn| {
                self.respond(conn, exchange);
                self.advance(conn, input, looked);
            })
        });
        let mut next = None;
        if self.phase.get() == Phase::Running {
            next = self.exchange.take();
            if next.as_ref().is_some_and(|next| next.plan.inline || next.plan.cancel)
                || !begin_anew()
            {
                desk.left = next.take();
            }
        }
        self.site.desk.set(Some(desk));
        next
    }
}
