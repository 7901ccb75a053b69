//! A client in plain operations, which shakes hands by the layer that is also a client's; and authorities.

use crate::harness::Harness;
use coracle_loop::demux::{Handle, Operation, Outcome};
use coracle_net::{Buffer, Conn, ConnHandle, Layer, Protocol, Reason, Settings, attach};
use coracle_tls::{
    ClientSettings, ClientTls, Identity, Roots, Secure, ServerTls, Session, TlsLayer,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

/// Who signs certificates of servers and clients.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let params = authority_params(name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// One that this one has signed.
    pub(crate) fn below(&self, name: &str) -> Authority {
        let params = authority_params(name);
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::from_pem(self.pem.as_bytes()).unwrap()
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Certificate and key, in PEM.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        self.sign_until(name, None)
    }

    fn sign_until(&self, name: &str, end: Option<SystemTime>) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(end) = end {
            params.not_after = end.into();
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        let (certificate, key) = self.sign(name);
        Identity::from_pem(certificate, key).unwrap()
    }

    /// One whose certificate is valid until then.
    pub(crate) fn identity_until(&self, name: &str, end: SystemTime) -> Identity {
        let (certificate, key) = self.sign_until(name, Some(end));
        Identity::from_pem(certificate, key).unwrap()
    }

    /// A client that trusts it.
    pub(crate) fn client(&self) -> ClientTls {
        ClientTls::new(ClientSettings::trusting(self.roots())).unwrap()
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// What happened to a server's connection, in order.
pub(crate) type Notes = Rc<RefCell<Vec<String>>>;

/// Echoes, and notes what else happens.
pub(crate) struct Echo(pub(crate) Notes);

impl Protocol for Echo {
    fn on_open(&mut self, _conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.borrow_mut().push("open".into());
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        conn.write(input.take_all());
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.borrow_mut().push("end".into());
        conn.close();
        Ok(())
    }

    fn on_close(&mut self, reason: &Reason) {
        self.0.borrow_mut().push(format!("close: {reason}"));
    }
}

/// A connection before its handshake, which notes how it ends.
struct Before<S>(S, Notes);

impl<S: Protocol> Protocol for Before<S> {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.on_open(conn)
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        self.0.on_data(conn, input)
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.0.on_end(conn)
    }

    fn on_close(&mut self, reason: &Reason) {
        self.0.on_close(reason);
        self.1.borrow_mut().push(format!("close: {reason}"));
    }
}

/// A client's side of a connection to a server.
pub(crate) struct Client<'a> {
    pub(crate) h: &'a Harness,
    pub(crate) socket: Handle,
    #[allow(dead_code)]
    pub(crate) server: ConnHandle,
    pub(crate) notes: Notes,
    /// Of the server, once it is there.
    pub(crate) session: Rc<RefCell<Option<Arc<Session>>>>,
    pub(crate) layer: RefCell<TlsLayer>,
    wire: RefCell<Buffer>,
    plain: RefCell<Buffer>,
    /// How many bytes are sent at once.
    pub(crate) step: usize,
}

impl<'a> Client<'a> {
    /// Connects to an echo behind `tls`. Nothing is said yet.
    pub(crate) fn new(h: &'a Harness, tls: &ServerTls, layer: TlsLayer) -> Client<'a> {
        Client::with(h, tls, layer, Settings::default(), Echo)
    }

    pub(crate) fn with<P: Protocol>(
        h: &'a Harness,
        tls: &ServerTls,
        layer: TlsLayer,
        settings: Settings,
        make: impl FnOnce(Notes) -> P + 'static,
    ) -> Client<'a> {
        let (socket, accepted) = h.connection();
        let (notes, session) = (Notes::default(), Rc::<RefCell<Option<_>>>::default());
        let (tell, keep) = (Rc::clone(&notes), Rc::clone(&session));
        let secure = Secure::new(tls.layer().plain_answer(b"speak TLS\n"), move |agreed| {
            *keep.borrow_mut() = Some(agreed);
            make(tell)
        });
        let secure = Before(secure, Rc::clone(&notes));
        let server = attach(&h.lp, accepted, settings, secure).expect("the settings make sense");
        Client {
            h,
            socket,
            server,
            notes,
            session,
            layer: RefCell::new(layer),
            wire: RefCell::default(),
            plain: RefCell::default(),
            step: usize::MAX,
        }
    }

    /// Gives the layer what there is, and sends what it says.
    pub(crate) fn work(&self) -> io::Result<()> {
        let mut reply = Vec::new();
        let (mut wire, mut plain) = (self.wire.borrow_mut(), self.plain.borrow_mut());
        let mut layer = self.layer.borrow_mut();
        let done = loop {
            let before = wire.len();
            let done = layer.receive(&mut wire, &mut plain, &mut reply);
            if done.is_err() || wire.len() == before {
                break done;
            }
        };
        drop(layer);
        drop((wire, plain));
        self.send_wire(&reply);
        done
    }

    /// Sends bytes as they are.
    pub(crate) fn send_wire(&self, bytes: &[u8]) {
        bytes.chunks(self.step.max(1)).for_each(|piece| self.h.send(self.socket, piece));
    }

    /// Receives something; false at the end of the wire.
    pub(crate) fn receive_wire(&self, count: usize) -> bool {
        let space = vec![0; count].into();
        let finished = self.h.operate(Operation::Receive { socket: self.socket, space });
        let Ok(Outcome::Count(count @ 1..)) = finished.result else { return false };
        self.wire.borrow_mut().extend_from_slice(&finished.payload.into_vec()[..count]);
        true
    }

    /// What has come and nobody has looked at.
    pub(crate) fn unread_wire(&self) -> Vec<u8> {
        self.wire.borrow().unread().to_vec()
    }

    /// Shakes hands.
    pub(crate) fn shake_hands(&self) -> io::Result<()> {
        self.work()?;
        while !self.layer.borrow().is_ready() {
            if !self.receive_wire(64 << 10) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.work()?;
        }
        Ok(())
    }

    /// Encrypted, not sent.
    pub(crate) fn encrypted(&self, bytes: &[u8]) -> Vec<u8> {
        let mut wire = Vec::new();
        let mut left = bytes;
        while !left.is_empty() {
            let taken = self.layer.borrow_mut().send(left, &mut wire).expect("it is encrypted");
            left = &left[taken..];
        }
        wire
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.send_wire(&self.encrypted(bytes));
    }

    /// Receives so many bytes, or what there is before the end.
    pub(crate) fn receive(&self, count: usize) -> io::Result<Vec<u8>> {
        while self.plain.borrow().len() < count && !self.layer.borrow().has_ended() {
            if !self.receive_wire(64 << 10) {
                let unread = self.wire.borrow().len();
                self.layer.borrow_mut().wire_ended(unread)?;
                break;
            }
            self.work()?;
        }
        let mut plain = self.plain.borrow_mut();
        let count = count.min(plain.len());
        Ok(plain.take_exact(count).unwrap_or_default().to_vec())
    }

    /// How much is decrypted and not taken.
    pub(crate) fn plain_len(&self) -> usize {
        self.plain.borrow().len()
    }

    /// Says the end.
    pub(crate) fn end(&self) {
        let mut wire = Vec::new();
        self.layer.borrow_mut().end(&mut wire);
        self.send_wire(&wire);
    }

    /// Ends the wire, without a word.
    pub(crate) fn end_wire(&self) {
        let operation = Operation::Shutdown { socket: self.socket, how: Shutdown::Write };
        self.h.operate(operation).result.expect("shutdown");
    }

    /// Ends the wire, and runs until the server's connection is over; gives what was noted.
    pub(crate) fn over(&self) -> Vec<String> {
        let operation = Operation::Shutdown { socket: self.socket, how: Shutdown::Write };
        let _ = self.h.operate(operation); // it may be gone
        self.cut()
    }

    /// The same, and it is the server that ends it.
    pub(crate) fn cut(&self) -> Vec<String> {
        self.h.run_until(&self.notes, |notes| {
            notes.borrow().last().is_some_and(|last| last.starts_with("close"))
        });
        self.notes.borrow().clone()
    }

    /// Runs until the server's side is done with the handshake.
    pub(crate) fn server_session(&self) -> Arc<Session> {
        self.h.run_until(&self.session, |session| session.borrow().is_some());
        self.session.borrow().clone().expect("it is there")
    }

    /// Sends something and sees it come back.
    pub(crate) fn check_echo(&self) {
        self.send(b"ahoy");
        assert_eq!(self.receive(4).expect("an echo"), b"ahoy");
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.h.close(self.socket);
        }
    }
}
