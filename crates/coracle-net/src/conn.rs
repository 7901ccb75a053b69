//! One open connection, as its protocol sees it.
//!
//! [`Conn`] is a view that lives as long as a callback; what is behind it is a [`Link`](crate::link::Link), which
//! the loop keeps. Nothing here waits and nothing fails: `write` queues, and whatever goes wrong is told once, by
//! [`on_close`](crate::Protocol::on_close).

use crate::hub::ConnHandle;
use crate::lent_conn::LentConn;
use crate::link::{Link, Pause};
use crate::listener::Busy;
use crate::{Buffer, Layer, Packet, Protocol, RateGroup, RateLimit, Reason, WriteBuffer};
use coracle_loop::demux::{Address, Handle, SocketOption, TcpInfo};
use coracle_loop::{Loop, OffloadError, Overloaded};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// An open connection. Loop thread only; it is lent to a callback and cannot be kept.
pub struct Conn<'a> {
    pub(crate) lp: &'a Loop,
    pub(crate) link: &'a Rc<Link>,
}

impl Conn<'_> {
    /// Sends something: when the callback returns, as far as the peer has room, and the rest when it has.
    ///
    /// All writes of a callback go out together. What waits is bounded: over the high mark the peer is not read
    /// until it has taken its answers, over [`limit_output_bytes`](crate::Settings::limit_output_bytes) the
    /// connection ends.
    pub fn write(&mut self, packet: impl Into<Packet>) {
        self.link.write(packet.into());
    }

    /// Sends bytes that are borrowed. The cheapest way for a small answer: nothing is allocated for it.
    #[inline]
    pub fn write_slice(&mut self, bytes: &[u8]) {
        self.link.write_slice(bytes);
    }

    /// Sends what `f` writes, which is put together where it is sent from: for what consists of many pieces. It
    /// may find something there already, which is sent before it.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn};
    /// # use std::io;
    /// fn on_data(conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
    ///     while let Some(name) = input.take_line() {
    ///         conn.write_with(|out| {
    ///             out.push(b"ahoy, ");
    ///             out.push(name);
    ///             out.push(b"!\n");
    ///         });
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = on_data;
    /// ```
    #[inline]
    pub fn write_with<T>(&mut self, f: impl FnOnce(&mut WriteBuffer) -> T) -> T {
        self.link.write_with(f)
    }

    /// Sends something before everything that has not begun to be sent; never between the bytes of one packet.
    pub fn write_urgent(&mut self, packet: impl Into<Packet>) {
        self.link.write_urgent(packet.into());
    }

    /// Sends something, and calls `then` when it and everything before it has been given to the kernel. If the
    /// connection ends before that, `then` is dropped. While it closes, what `then` writes is sent like everything
    /// that was written before.
    pub fn write_then(
        &mut self,
        packet: impl Into<Packet>,
        then: impl FnOnce(&mut Conn<'_>) -> io::Result<()> + 'static,
    ) {
        self.link.write(packet.into());
        self.link.mark(Box::new(then));
    }

    /// Has `work` done on a thread of the worker pool, and `done` called here with its result. The results of one
    /// connection come in the order in which the work was given, however long each took; a connection that is
    /// [closed](Conn::close), or whose [side is ended](Conn::close_write), meanwhile sends the answers first.
    ///
    /// # Errors
    /// The pool's queue is full; neither closure is called then.
    pub fn offload<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Conn<'_>, Result<T, OffloadError>) -> io::Result<()> + 'static,
    ) -> Result<(), Overloaded> {
        self.link.offload(self.lp, work, done)
    }

    /// Whether there is room for more output. False from the high mark on, until
    /// [`on_ready`](Protocol::on_ready) is called: whoever produces a long answer stops at false and goes on
    /// there.
    pub fn writable(&self) -> bool {
        self.link.is_writable()
    }

    /// How many bytes wait in memory to be sent; what waits in files does not count.
    pub fn output_bytes(&self) -> usize {
        self.link.output_bytes()
    }

    /// How many bytes wait to be sent, in memory and in [files](crate::Packet::file).
    pub fn unsent_bytes(&self) -> usize {
        self.link.unsent_bytes()
    }

    /// Closes it: sends what waits, ends our side, waits for the peer to end its own, then closes. Nothing more is
    /// read. In order, and with a deadline: the peer has [`write_timeout`](crate::Settings::write_timeout) to take
    /// a little, and [`drain`](crate::Settings::drain) to end its side when everything is sent.
    pub fn close(&mut self) {
        self.link.close(Reason::Closed);
    }

    /// Ends it now: what waits is thrown away.
    pub fn abort(&mut self) {
        self.link.abort(Reason::Aborted);
    }

    /// Turns the peer away, as a service does with those for whom it has no room: tells it
    /// [so](crate::Settings::busy_message), and closes. The protocol is dropped without
    /// [`on_close`](Protocol::on_close). Until it is gone the connection takes no place from others; if too many
    /// are being told already, it is aborted without a word.
    ///
    /// For who decides by something else than how many connections there are, in [`on_open`](Protocol::on_open):
    ///
    /// ```
    /// # use coracle_net::{Address, Buffer, Conn, Protocol};
    /// # use std::io;
    /// struct Members;
    ///
    /// # fn is_member(_: &Address) -> bool { true }
    /// impl Protocol for Members {
    ///     fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
    ///         if !is_member(&conn.peer_address()?) {
    ///             conn.turn_away();
    ///         }
    ///         Ok(())
    ///     }
    ///
    ///     fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
    ///         conn.write_slice(input.take_all());
    ///         Ok(())
    ///     }
    /// }
    /// # let _ = Members;
    /// ```
    pub fn turn_away(&mut self) {
        match Busy::of(self.link.service()) {
            Some(busy) => self.switch(busy),
            None => self.abort(),
        }
    }

    /// Ends our side of the stream once everything is sent, the answers of [offloaded](Conn::offload) work
    /// included; the peer may go on sending. What is written after this is not sent.
    pub fn close_write(&mut self) {
        self.link.close_write();
    }

    /// Reads no more, until [`resume`](Conn::resume): neither bytes nor their end are told. The peer notices when
    /// its buffers and ours are full.
    pub fn pause(&mut self) {
        self.link.pause(self.lp, Pause::USER);
    }

    /// Reads again.
    pub fn resume(&mut self) {
        self.link.resume(self.lp, Pause::USER);
    }

    /// Has [`on_data`](Protocol::on_data) called again, when this callback has returned, with what waits to be
    /// read, if there is any: for who left it because of something that is over now. Nothing more is received
    /// for it, and the connection may be [paused](Conn::pause).
    pub fn show_again(&mut self) {
        self.link.show_again(self.lp);
    }

    /// Hands the connection, and what of the input is not read, to another protocol when this callback returns.
    /// The new one is told by [`on_open`](Protocol::on_open); the old one is dropped without
    /// [`on_close`](Protocol::on_close), for the connection goes on. If the peer has sent everything, the new one
    /// is told that too.
    pub fn switch(&mut self, protocol: impl Protocol) {
        self.link.switch(Box::new(protocol));
    }

    /// Puts a layer between the connection and this protocol, above those that are there. What was written before
    /// goes below it, what is written from here on through it. What of the input is not read when this callback
    /// returns was meant for the layer, and is decoded by it: so an upgrade in the middle of a stream (STARTTLS)
    /// reads its line, writes its answer, pushes, and returns.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn, Layer};
    /// # use std::io;
    /// fn on_data(conn: &mut Conn<'_>, input: &mut Buffer, tls: impl Layer) -> io::Result<()> {
    ///     if input.take_line() == Some(b"STARTTLS") {
    ///         conn.write("220 go ahead\r\n"); // as it is
    ///         conn.push_layer(tls); // and from here on encrypted
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// What is written waits until the layer [takes](Layer::send) it. A [file](Packet::file) that is written is
    /// read piece by piece and passes through it. Layers stay until the connection ends; it cannot be
    /// [taken over](Conn::hijack) any more. On a connection that is being closed nothing happens.
    pub fn push_layer(&mut self, layer: impl Layer) {
        self.link.push_layer(self.lp, Box::new(layer));
    }

    /// Limits how fast the connection is, from now on; [`RateLimit::default`] ends that.
    ///
    /// # Panics
    /// When a rate or the burst is zero: nothing would ever pass.
    pub fn limit_rate(&mut self, limit: &RateLimit) {
        self.link.limit_rate(self.lp, limit);
    }

    /// Lets the connection share the rate of `group`, which is of the same loop, besides a limit of its own; it
    /// leaves the group it was in.
    pub fn join_rate_group(&mut self, group: &RateGroup) {
        self.link.join_rate_group(self.lp, group);
    }

    /// Lets the peer pass descriptors, on a Unix socket (SCM_RIGHTS): up to `limit` of them may wait until they
    /// are [taken](Conn::take_descriptors), more end the connection ([`Reason::InputLimit`]). None are accepted
    /// unless this is called, in [`on_open`](Protocol::on_open): the kernel closes those that come before. Such a
    /// connection keeps 16 KiB to receive into.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn, Protocol};
    /// # use std::io;
    /// struct Heir;
    ///
    /// impl Protocol for Heir {
    ///     fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
    ///         conn.accept_descriptors(1);
    ///         Ok(())
    ///     }
    ///
    ///     fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
    ///         if input.take_line() == Some(b"a listening socket") {
    ///             let socket = conn.take_descriptors().pop().ok_or(io::ErrorKind::InvalidData)?;
    ///             println!("inherited {socket:?}");
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// # let _ = Heir;
    /// ```
    pub fn accept_descriptors(&mut self, limit: usize) {
        self.link.accept_descriptors(self.lp, limit);
    }

    /// The descriptors that have come with what was received so far, and were not taken. Whatever a peer passes
    /// may be something else than it says. To pass some: [`Packet::descriptors`].
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.link.take_descriptors()
    }

    /// Takes the socket out of the connection once everything written is sent: `taker` gets it, with what was
    /// received and not read, and owns it from then on. The protocol is dropped without
    /// [`on_close`](Protocol::on_close). A connection with [layers](Conn::push_layer) is closed instead, with an
    /// error.
    pub fn hijack(&mut self, taker: impl FnOnce(&Loop, Handle, Buffer) + 'static) {
        self.link.hijack(Box::new(taker));
    }

    /// Changes after how long without input [`on_idle`](Protocol::on_idle) is called; `None`: never.
    pub fn set_idle_timeout(&mut self, timeout: Option<Duration>) {
        self.link.set_idle_timeout(self.lp, timeout);
    }

    /// Counts as input: the idle time-out begins anew.
    pub fn touch(&mut self) {
        self.link.touch();
    }

    /// Sends what a service says that has no room.
    pub(crate) fn write_busy_message(&mut self) {
        let settings = &self.link.service().settings;
        if let Some(told) = &settings.on_turned_away {
            told.tell(self);
        }
        let message = settings.busy_message.clone();
        self.write(message);
    }

    /// A name for this connection that can be kept and sent to other threads.
    pub fn handle(&self) -> ConnHandle {
        ConnHandle::new(self.lp.handle(), self.link.key())
    }

    /// Calls `f` with another connection at once, if that lives on the same loop, is open, and is not in a
    /// callback of its own: how a proxy's two sides talk to each other. What `f` writes is sent when it returns.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn, ConnHandle};
    /// # use std::io;
    /// fn on_data(conn: &mut Conn<'_>, input: &mut Buffer, other: &ConnHandle) -> io::Result<()> {
    ///     let room = conn.with(other, |other| {
    ///         other.write_slice(input.take_all());
    ///         other.writable()
    ///     });
    ///     match room {
    ///         Some(true) => {}
    ///         Some(false) => conn.pause(), // the other says when there is room: `on_ready`
    ///         None => conn.close(),
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = on_data;
    /// ```
    #[inline]
    pub fn with<T>(&self, other: &ConnHandle, f: impl FnOnce(&mut Conn<'_>) -> T) -> Option<T> {
        other.with_of(&*self.link.service().hub()?, self.lp, f)
    }

    /// The same connection, for a shorter time: for who puts it into a value of their own during a call.
    #[inline]
    pub fn reborrow(&mut self) -> Conn<'_> {
        Conn { lp: self.lp, link: self.link }
    }

    /// The name of the service it belongs to.
    pub fn service(&self) -> &str {
        self.link.service().name()
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// When the kernel does not know any more, because the connection is gone.
    pub fn peer_address(&self) -> io::Result<Address> {
        self.lp.peer_address(self.link.socket())
    }

    /// This end's address.
    ///
    /// # Errors
    /// When the kernel does not know any more, because the connection is gone.
    pub fn local_address(&self) -> io::Result<Address> {
        self.lp.local_address(self.link.socket())
    }

    /// Sets an option of the socket. Most are better set once, for all connections of a service, by
    /// [`ListenOptions`](crate::ListenOptions).
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn, SocketOption};
    /// # use std::io;
    /// # use std::time::Duration;
    /// fn on_data(conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
    ///     if input.take_line() == Some(b"SUBSCRIBE") {
    ///         // It will be silent from here on: find out when it is gone.
    ///         conn.set_option(SocketOption::KeepAlive(Some(Duration::from_secs(60).into())))?;
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = on_data;
    /// ```
    ///
    /// # Errors
    /// The system's: the socket has no such option, or not that value.
    pub fn set_option(&mut self, option: SocketOption) -> io::Result<()> {
        self.lp.set_option(self.link.socket(), option)
    }

    /// What the kernel knows of a TCP connection: round-trip times, windows, losses. A system call.
    ///
    /// # Errors
    /// It is not TCP, or simulated.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        self.lp.tcp_info(self.link.socket())
    }

    /// How many bytes the kernel has sent, or is to send, that the peer has not acknowledged. What waits here to
    /// be sent is [beside](Conn::unsent_bytes) that. A system call.
    ///
    /// # Errors
    /// It is gone.
    pub fn unacknowledged_bytes(&self) -> io::Result<usize> {
        self.lp.unacknowledged_bytes(self.link.socket())
    }

    /// For a coroutine that this callback runs at once, and which cannot borrow the connection.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn};
    /// # use std::io;
    /// fn on_data(conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
    ///     let (lent, line) = (conn.lend(), input.take_all().to_vec());
    ///     let work = move || lent.with(|conn| conn.write_slice(&line)); // owns all it needs
    ///     work();
    ///     Ok(())
    /// }
    /// # let _ = on_data;
    /// ```
    #[inline]
    pub fn lend(&self) -> LentConn {
        LentConn::new(self.lp, self.link)
    }

    /// The loop this connection lives on.
    #[inline]
    pub fn lp(&self) -> &Loop {
        self.lp
    }
}

impl fmt::Debug for Conn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("output_bytes", &self.output_bytes()).finish_non_exhaustive()
    }
}
