//! The side that asks: to whom, for what, and what it says about itself.

use super::dialing::{Dialing, Slot};
use super::socket::{Inbox, Mailbox};
use super::{Handle, Handler, Settings, WebSocket};
use crate::headers::is_token;
use crate::{HeaderError, Headers};
use coracle_loop::Loop;
use coracle_loop::demux::Operation;
use coracle_net::{Address, Connector, Layer, Layered, Protocol, attach};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// How long all of connecting may take, unless [`Client::timeout`] says otherwise.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Connects to a WebSocket, in a coroutine: [`Client`] with what is usual.
///
/// ```no_run
/// coracle_coro::run(|| {
///     let ws = coracle_http::ws::connect("ws://127.0.0.1:8080/ws")?;
///     ws.send("ahoy")?;
///     println!("{:?}", ws.recv()?);
///     ws.close(coracle_http::ws::CloseCode::NORMAL)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`Client::new`] and [`Client::connect`].
pub fn connect(url: &str) -> io::Result<WebSocket> {
    Client::new(url)?.connect()
}

/// Asks a server for a WebSocket.
///
/// ```no_run
/// use coracle_http::ws::{Client, Deflate, Settings};
///
/// coracle_coro::run(|| {
///     let ws = Client::new("ws://chat.example.org/room/7")?
///         .subprotocols(["chat.v2", "chat.v1"])
///         .header("Authorization", "Bearer 4711")
///         .expect("it can be sent")
///         .settings(Settings { deflate: Some(Deflate::default()), ..Settings::default() })
///         .connect()?;
///     println!("it speaks {:?}", ws.subprotocol());
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Client {
    tls: bool,
    /// As the header says it: with a port, if that is not the usual one.
    host: String,
    /// With the port.
    authority: String,
    target: String,
    headers: Headers,
    subprotocols: Vec<String>,
    settings: Settings,
    timeout: Duration,
    addresses: Vec<Address>,
    /// Whom to trust, if not whom the system does.
    #[cfg(feature = "tls")]
    trust: Option<coracle_tls::ClientTls>,
}

impl Client {
    /// For this place: `ws://host/path`, `ws://host:8080/path?query`.
    ///
    /// # Errors
    /// `InvalidInput`: it is no such URL.
    pub fn new(url: &str) -> io::Result<Client> {
        let wrong =
            |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{url:?}: {why}"));
        if url.contains('#') {
            return Err(wrong("the URL of a WebSocket has no fragment (#)"));
        }
        const NO_URL: &str = "it is no URL: write ws://HOST:PORT/PATH or wss://HOST/PATH";
        let uri: http::Uri = url.parse().map_err(|_| wrong(NO_URL))?;
        let (tls, usual) = match uri.scheme_str() {
            Some("ws") => (false, 80),
            Some("wss") => (true, 443),
            Some(_) => return Err(wrong("the URL of a WebSocket begins with ws:// or wss://")),
            None => return Err(wrong(NO_URL)),
        };
        let Some(authority) = uri.authority().filter(|it| !it.as_str().contains('@')) else {
            return Err(wrong("it names no host, or a user: write ws://HOST/PATH"));
        };
        let port = match authority.port() {
            Some(port) => {
                port.as_str().parse().map_err(|_| wrong("its port is no number up to 65535"))?
            }
            None if authority.as_str() != authority.host() => {
                return Err(wrong("there is no port behind its colon"));
            }
            None => usual,
        };
        let name = authority.host();
        let host = if port == usual { name.to_owned() } else { format!("{name}:{port}") };
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Ok(Client {
            tls,
            host,
            authority: format!("{name}:{port}"),
            target: if target.starts_with('/') { target.into() } else { format!("/{target}") },
            headers: Headers::new(),
            subprotocols: Vec::new(),
            settings: Settings::default(),
            timeout: TIMEOUT,
            addresses: Vec::new(),
            #[cfg(feature = "tls")]
            trust: None,
        })
    }

    /// The sub-protocols that are spoken here, the best first. Each is a word: letters, digits, and of signs those
    /// that the name of a header field may have.
    #[must_use]
    pub fn subprotocols<'p>(mut self, ours: impl IntoIterator<Item = &'p str>) -> Client {
        self.subprotocols = ours.into_iter().map(str::to_owned).collect();
        self
    }

    /// And this header field.
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn header(mut self, name: &str, value: &str) -> Result<Client, HeaderError> {
        self.headers.append(name, value)?;
        Ok(self)
    }

    /// With these limits and time-outs.
    ///
    /// # Panics
    /// When they make no sense.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Client {
        settings.check().unwrap_or_else(|error| panic!("{error}"));
        self.settings = settings;
        self
    }

    /// How long all of it may take: looking up the name, connecting, and the answer. 20 seconds, unless this says
    /// otherwise.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Client {
        self.timeout = timeout;
        self
    }

    /// Connects there, whatever the URL says: to a Unix socket, say. Several are tried one after the other.
    #[must_use]
    pub fn at(mut self, address: impl Into<Address>) -> Client {
        self.addresses.push(address.into());
        self
    }

    /// Connects, and waits until that is done. In a coroutine.
    ///
    /// # Errors
    /// - Of connecting: `ConnectionRefused`, and what else there is.
    /// - `InvalidInput` if a [sub-protocol](Client::subprotocols) is no word.
    /// - `InvalidData` if the answer is no WebSocket, or not the one that was asked for; the text says why.
    /// - `TimedOut` if it takes too long; `ECANCELED`.
    /// - `Unsupported` for `wss` without the feature `tls`. With it, `InvalidData` if the server is not who it
    ///   should be, as the system has it, or `Client::tls`.
    pub fn connect(self) -> io::Result<WebSocket> {
        if self.tls {
            let layer = self.layer()?;
            return self.connect_through(layer);
        }
        let inbox = Rc::<Inbox>::default();
        let mailbox = Mailbox { inbox: Rc::clone(&inbox), start: None };
        let handle = self.dial((mailbox, true), |dialing| dialing)?;
        Ok(WebSocket::new(handle.line, inbox))
    }

    /// For `wss`: with this TLS, and trust in whom it trusts. Without it, in whom the system trusts. HTTP/1.1 is
    /// spoken above, whatever else it speaks elsewhere.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: &coracle_tls::ClientTls) -> Client {
        self.trust = Some(tls.clone());
        self
    }

    /// The same through a layer of your own, which encrypts: what `wss` is.
    ///
    /// # Errors
    /// As [`connect`](Client::connect).
    pub fn connect_through(self, layer: impl Layer) -> io::Result<WebSocket> {
        let inbox = Rc::<Inbox>::default();
        let mailbox = Mailbox { inbox: Rc::clone(&inbox), start: None };
        let handle = self.dial((mailbox, true), |dialing| Layered::new(layer, dialing))?;
        Ok(WebSocket::new(handle.line, inbox))
    }

    /// Connects, and has `handler` called when something is said: only connecting needs a coroutine.
    ///
    /// # Errors
    /// As [`connect`](Client::connect).
    pub fn connect_with(self, handler: impl Handler) -> io::Result<Handle> {
        if self.tls {
            let layer = self.layer()?;
            return self.dial((handler, false), |dialing| Layered::new(layer, dialing));
        }
        self.dial((handler, false), |dialing| dialing)
    }

    /// What encrypts, for a URL of `wss`.
    #[cfg(feature = "tls")]
    fn layer(&self) -> io::Result<coracle_tls::TlsLayer> {
        let name = match self.host.rfind(']') {
            Some(end) => &self.host[..=end],
            None => self.host.split(':').next().unwrap_or_default(),
        };
        let system;
        let tls = match &self.trust {
            Some(tls) => tls,
            None => {
                system = coracle_tls::ClientTls::system()?;
                &system
            }
        };
        tls.speaking(["http/1.1"]).layer(name)
    }

    #[cfg(not(feature = "tls"))]
    fn layer(&self) -> io::Result<NoLayer> {
        let text = format!(
            "wss://{} needs TLS: enable the feature `tls`, or see connect_through",
            self.host
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    fn dial<H: Handler, P: Protocol>(
        self,
        handler: (H, bool),
        wrap: impl FnOnce(Dialing<H>) -> P,
    ) -> io::Result<Handle> {
        let Some(lp) = Loop::current() else {
            return Err(io::Error::other("a WebSocket needs a loop: connect it in a coroutine"));
        };
        if let Some(name) = self.subprotocols.iter().find(|name| !is_word(name)) {
            let text = format!("{name:?} is no name of a sub-protocol: it has to be one word");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (timeout, host) = (self.timeout, self.host.clone());
        let connected = coracle_coro::timeout(timeout, || self.dial_on(&lp, handler, wrap));
        connected.map_err(|error| {
            let kind = error.kind();
            match error.raw_os_error() {
                Some(_) if kind != io::ErrorKind::TimedOut => error, // a cancel must be seen as one
                _ => io::Error::new(kind, format!("no WebSocket at {host}: {error}")),
            }
        })
    }

    fn dial_on<H: Handler, P: Protocol>(
        mut self,
        lp: &Loop,
        handler: (H, bool),
        wrap: impl FnOnce(Dialing<H>) -> P,
    ) -> io::Result<Handle> {
        if self.addresses.is_empty() {
            let found = coracle_coro::lookup_host(&self.authority)?;
            self.addresses.extend(found.into_iter().map(Address::Ip));
        }
        let socket = Slot::new();
        let found = Rc::clone(&socket);
        let connector = Connector::to(std::mem::take(&mut self.addresses)).timeout(self.timeout);
        let connecting = connector.connect(lp, move |lp, connected| {
            // Nobody waits for it any more.
            if let Err(Ok(handle)) = found.put(connected) {
                lp.operate(Operation::Close { handle }, |_, _| ());
            }
        });
        let socket = socket.wait().inspect_err(|_| connecting.cancel(lp))?;
        let answer = Slot::new();
        let settings = coracle_net::Settings {
            limit_input_bytes: 4 << 20,
            read_when_full: true,
            ..coracle_net::Settings::default()
        };
        let dialing = Dialing::new(
            &self.host,
            &self.target,
            &self.headers,
            self.subprotocols,
            self.settings,
            handler,
            Rc::clone(&answer),
        );
        let conn = attach(lp, socket, settings, wrap(dialing))?;
        answer.wait().inspect_err(|_| {
            conn.with(lp, |conn| conn.abort()); // or it is gone
        })
    }
}

/// Whether it can be in a list of names (a token: RFC 9110, 5.6.2).
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token)
}

/// What encrypts where there is no TLS: nothing.
#[cfg(not(feature = "tls"))]
enum NoLayer {}

#[cfg(not(feature = "tls"))]
impl Layer for NoLayer {
    fn receive(
        &mut self,
        _wire: &mut coracle_net::Buffer,
        _plain: &mut coracle_net::Buffer,
        _reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        match *self {}
    }

    fn send(&mut self, _plain: &[u8], _wire: &mut Vec<u8>) -> io::Result<usize> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k4_what_is_no_url_is_told_with_what_is_wanted() {
        for (url, told) in [
            ("", "\"\": it is no URL: write ws://HOST:PORT/PATH or wss://HOST/PATH"),
            ("b:80", "\"b:80\": it is no URL: write ws://HOST:PORT/PATH or wss://HOST/PATH"),
            ("http://b/", "\"http://b/\": the URL of a WebSocket begins with ws:// or wss://"),
            ("ws://b:/", "\"ws://b:/\": there is no port behind its colon"),
            ("ws://b/#c", "\"ws://b/#c\": the URL of a WebSocket has no fragment (#)"),
        ] {
            assert_eq!(Client::new(url).map(drop).unwrap_err().to_string(), told);
        }
    }
}
