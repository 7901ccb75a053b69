//! What may stand between a socket and a protocol: encryption, compression, framing.
//!
//! ```text
//!              wire                      wire │ plain                    plain
//!   socket ──► bytes ──► Layer::receive ──► bytes ──► Layer::receive ──► bytes ──► Protocol::on_data
//!                              │ reply                      │ reply
//!   socket ◄── queue ◄─────────┴─ Layer::send ◄── queue ◄───┴─ Layer::send ◄── queue ◄── Conn::write
//! ```
//!
//! A layer does no I/O and knows no connection: bytes in, bytes out. So it can be tested with two vectors, and it
//! runs on every backend. What is coded waits in a short queue, and only when that has room is more coded: what is
//! urgent overtakes everything that no layer has begun, and a peer that does not read costs no work.

use crate::{Buffer, Conn, Protocol};
use std::io;

/// A transformation of a connection's bytes, in both directions. [`Conn::push_layer`] puts one on a connection,
/// and [`Layered`] on every connection of a service.
///
/// What counts as input that waits ([`limit_input_bytes`](crate::Settings::limit_input_bytes)) is what a layer has
/// decoded and the protocol has not read, and what the layer has not taken. While the connection is paused,
/// nothing is decoded.
///
/// An error of a layer ends the connection ([`Reason::Failed`](crate::Reason::Failed)): what the layer has put
/// into its output before is sent still, what waits for the layer is not. A panic ends it at once.
///
/// ```
/// use coracle_net::{Buffer, Layer};
/// use std::io;
///
/// /// Not a secret.
/// struct Xor(u8);
///
/// impl Layer for Xor {
///     fn receive(&mut self, wire: &mut Buffer, plain: &mut Buffer, _: &mut Vec<u8>) -> io::Result<()> {
///         let bytes: Vec<u8> = wire.take_all().iter().map(|byte| byte ^ self.0).collect();
///         plain.extend_from_slice(&bytes);
///         Ok(())
///     }
///
///     fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
///         wire.extend(plain.iter().map(|byte| byte ^ self.0));
///         Ok(plain.len())
///     }
/// }
///
/// let (mut wire, mut plain) = (Vec::new(), Buffer::new());
/// Xor(7).send(b"ahoy", &mut wire).unwrap();
/// Xor(7).receive(&mut Buffer::from(wire), &mut plain, &mut Vec::new()).unwrap();
/// assert_eq!(plain.unread(), b"ahoy");
/// ```
pub trait Layer: 'static {
    /// Takes from `wire` what it can make something of, and adds to `plain` what that means. What it leaves is
    /// offered again, with more. What it wants to say to the peer's layer meanwhile (a handshake, an alert) it
    /// adds to `reply`.
    ///
    /// Called once with nothing when the layer is put on, so that it may speak first; and again as long as it
    /// takes or gives something. One whose bytes grow gives a piece at a time (64 KiB, say): between two calls it
    /// is seen whether the protocol still wants them.
    ///
    /// # Errors
    /// What the peer has sent is wrong.
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        reply: &mut Vec<u8>,
    ) -> io::Result<()>;

    /// Adds to `wire` what the first bytes of `plain` become, and says how many those were. It may be fewer than
    /// all; none means: not before something was received. Whatever it takes is on the wire when it returns, or at
    /// the latest at the [`end`](Layer::end).
    ///
    /// # Errors
    /// Nothing more can be sent.
    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize>;

    /// Whether it has no need to hear from the peer before plain bytes pass. While it has (a handshake), the
    /// connection is read even if it is paused or being closed.
    ///
    /// [`on_open`](Protocol::on_open) does not wait for it; what is written waits.
    fn is_ready(&self) -> bool {
        true
    }

    /// Everything was sent, and our side ends: adds the last words, if there are any, to `wire`.
    fn end(&mut self, _wire: &mut Vec<u8>) {}

    /// Whether the peer has said, by means of the layer, that nothing more comes. The protocol is told by
    /// [`on_end`](Protocol::on_end); what comes after is thrown away.
    fn has_ended(&self) -> bool {
        false
    }

    /// The wire has ended although the peer's layer [has not](Layer::has_ended), and `unread` bytes of it were not
    /// taken. Fails if something is missing; unless it says otherwise, if `unread` is not zero.
    ///
    /// # Errors
    /// `UnexpectedEof`: the protocol hears of it by [`Reason::Failed`](crate::Reason::Failed), and is not told
    /// that the peer has sent everything.
    fn wire_ended(&mut self, unread: usize) -> io::Result<()> {
        match unread {
            0 => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "the peer ended the stream in the middle of a message, after {unread} bytes of it"
                ),
            )),
        }
    }
}

/// A protocol behind a layer from its first byte on: what a service that always encrypts makes for each
/// connection.
///
/// ```
/// # use coracle_net::{Buffer, Conn, Layer, Layered};
/// # use std::io;
/// # struct Tls;
/// # impl Layer for Tls {
/// #     fn receive(&mut self, _: &mut Buffer, _: &mut Buffer, _: &mut Vec<u8>) -> io::Result<()> { Ok(()) }
/// #     fn send(&mut self, plain: &[u8], _: &mut Vec<u8>) -> io::Result<usize> { Ok(plain.len()) }
/// # }
/// # fn echo(conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
/// #     conn.write(input.take_all());
/// #     Ok(())
/// # }
/// # fn main() -> io::Result<()> {
/// # let lp = coracle_loop::Loop::new()?;
/// # let address: coracle_net::Address = "127.0.0.1:0".parse().unwrap();
/// # let settings = coracle_net::Settings::default();
/// coracle_net::Listener::bind(&lp, &address, settings, |_peer| Layered::new(Tls, echo))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Layered<L, P>(Option<(L, P)>);

impl<L: Layer, P: Protocol> Layered<L, P> {
    /// `protocol`, behind `layer`.
    pub fn new(layer: L, protocol: P) -> Layered<L, P> {
        Layered(Some((layer, protocol)))
    }
}

impl<L: Layer, P: Protocol> Protocol for Layered<L, P> {
    /// Puts both in place, and is gone: the connection calls the protocol itself from here on.
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        if let Some((layer, protocol)) = self.0.take() {
            conn.push_layer(layer);
            conn.switch(protocol);
        }
        Ok(())
    }

    fn on_data(&mut self, _conn: &mut Conn<'_>, _input: &mut Buffer) -> io::Result<()> {
        Ok(())
    }
}
