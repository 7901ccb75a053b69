//! A connection that shakes hands first, and then is what was agreed upon.
//!
//! ```text
//!   on_open ─► Secure: a layer, a deadline ─► handshake done ─► the protocol that is made for the session
//!                                          └─ too late: cut
//! ```

use crate::{ServerTls, Session, TlsLayer};
use coracle_loop::{Loop, Timer};
use coracle_net::{Address, Buffer, Conn, Protocol, Reason};
use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A protocol behind TLS, which is made when the handshake is done: it may depend on what was agreed upon (ALPN,
/// the client's certificate).
///
/// ```
/// # use coracle_net::{Buffer, Conn};
/// # use coracle_tls::{Identity, Secure, ServerTls};
/// # fn main() -> std::io::Result<()> {
/// # let lp = coracle_loop::Loop::new()?;
/// # let address: coracle_net::Address = "127.0.0.1:0".parse().unwrap();
/// # let settings = coracle_net::Settings::default();
/// let tls = ServerTls::new(Identity::self_signed(["localhost"])?)?;
/// coracle_net::Listener::bind(&lp, &address, settings, move |_peer| {
///     Secure::new(tls.layer(), |session| {
///         let greeting = format!("this is {:?}\n", session.version());
///         move |conn: &mut Conn<'_>, _: &mut Buffer| Ok(conn.write(greeting.clone()))
///     })
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Secure<F> {
    layer: Option<TlsLayer>,
    then: Rc<Then<F>>,
    /// Who is asked who it is, and by whom.
    asked: Option<Box<(Address, ServerTls)>>,
}

/// What happens when the handshake is done.
struct Then<F> {
    make: Cell<Option<F>>,
    session: OnceCell<Arc<Session>>,
    deadline: Cell<Option<Timer>>,
}

impl<P, F> Secure<F>
where
    P: Protocol,
    F: FnOnce(Arc<Session>) -> P + 'static,
{
    /// Shakes hands by `layer`; then `make` makes the protocol.
    pub fn new(layer: TlsLayer, make: F) -> Secure<F> {
        let then = Then {
            make: Cell::new(Some(make)),
            session: OnceCell::new(),
            deadline: Cell::new(None),
        };
        Secure { layer: Some(layer), then: Rc::new(then), asked: None }
    }

    /// Who is at the other end, for a line in the log if it is not let in for its certificate. Without this it is
    /// whom the socket is connected to, which may be a proxy.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn};
    /// # use coracle_tls::{Identity, Secure, ServerTls};
    /// # let tls = ServerTls::new(Identity::self_signed(["localhost"])?)?;
    /// let told_by_the_proxy = "192.0.2.1:50000".parse().unwrap();
    /// let secure = Secure::new(tls.layer(), |_session| |_: &mut Conn<'_>, _: &mut Buffer| Ok(()));
    /// let secure = secure.peer(&told_by_the_proxy);
    /// # drop(secure);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn peer(mut self, peer: &Address) -> Secure<F> {
        let asking = self.layer.as_ref().and_then(TlsLayer::asking);
        self.asked = asking.map(|tls| Box::new((peer.clone(), tls.clone())));
        self
    }
}

impl<F> Then<F> {
    fn forget_deadline(&self) {
        self.deadline.take().inspect(|deadline| _ = deadline.cancel());
    }

    fn go_on<P: Protocol>(&self, conn: &mut Conn<'_>)
    where
        F: FnOnce(Arc<Session>) -> P,
    {
        let Some(session) = self.session.get() else { return };
        self.forget_deadline();
        if let Some(make) = self.make.take() {
            conn.switch(make(Arc::clone(session)));
        }
    }
}

impl<P, F> Protocol for Secure<F>
where
    P: Protocol,
    F: FnOnce(Arc<Session>) -> P + 'static,
{
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        let Some(layer) = self.layer.take() else { return Ok(()) };
        if let (None, Some(tls)) = (&self.asked, layer.asking()) {
            let peer = conn.peer_address();
            self.asked = peer.ok().map(|peer| Box::new((peer, tls.clone())));
        }
        let handle = conn.handle();
        if let Some(timeout) = layer.handshake_timeout() {
            let handle = handle.clone();
            let deadline = conn.lp().after(timeout, move |lp| {
                handle.with(lp, |conn| conn.abort());
            });
            self.then.deadline.set(Some(deadline));
        }
        let then = Rc::downgrade(&self.then);
        conn.push_layer(layer.on_ready(move |session| {
            let Some(then) = then.upgrade() else { return };
            let _ = then.session.set(Arc::clone(session));
            then.forget_deadline();
            let then = Rc::downgrade(&then);
            if let Some(lp) = Loop::current() {
                lp.defer(move |lp| {
                    handle.with(lp, |conn| then.upgrade().inspect(|then| then.go_on(conn)));
                });
            }
        }));
        Ok(())
    }

    /// The first bytes that are for the protocol came with the end of the handshake. They stay for it.
    fn on_data(&mut self, conn: &mut Conn<'_>, _input: &mut Buffer) -> io::Result<()> {
        self.then.go_on(conn);
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        match self.then.session.get() {
            Some(_) => self.then.go_on(conn), // whose business it is
            None => conn.close(),
        }
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        self.then.forget_deadline();
        if let (Some(asked), Reason::Failed(error)) = (&self.asked, reason) {
            let now = Loop::current().map_or_else(Instant::now, |lp| lp.now());
            asked.1.strangers().note(now, &asked.0, error);
        }
    }
}

impl<F> std::fmt::Debug for Secure<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secure").field("session", &self.then.session.get()).finish_non_exhaustive()
    }
}
