//! From a request to a WebSocket, or to what is wrong with it.

use super::line::Line;
use super::socket::{Inbox, Mailbox};
use super::wire::Wire;
use super::{CloseCode, Handler, Role, Settings, WebSocket, extension, handshake};
use crate::{Headers, IntoResponse, Method, Request, Response, Status, Version, origin};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// Makes a WebSocket of a request: what a handler returns.
///
/// ```
/// use coracle_http::ws::{self, Origins, WebSocket};
/// use coracle_http::{Request, Response};
/// use std::io;
///
/// fn app(req: &Request<'_>) -> Response {
///     ws::upgrade(req)
///         .origins(Origins::same().trust("https://chat.example.org"))
///         .subprotocols(["chat.v2", "chat.v1"])
///         .run(|ws: &WebSocket| {
///             ws.send(format!("you speak {:?}", ws.subprotocol()))?;
///             ws.recv().map(drop)
///         })
/// }
/// # let _ = app;
/// ```
///
/// A request that asks for something else is answered with what it lacks: 426 and the version that is spoken here,
/// 405, 400; and one from a page of another site with 403.
pub fn upgrade<'a>(req: &Request<'a>) -> Upgrade<'a> {
    Upgrade {
        method: req.method(),
        version: req.version(),
        headers: req.headers(),
        host: req.host(),
        is_secure: req.is_secure(),
        settings: Settings::default(),
        origins: Origins::same(),
        subprotocol: None,
    }
}

/// A request that is about to become a WebSocket. See [`upgrade`].
#[derive(Debug)]
pub struct Upgrade<'a> {
    method: Method,
    version: Version,
    headers: &'a Headers,
    host: Option<&'a str>,
    is_secure: bool,
    settings: Settings,
    origins: Origins,
    subprotocol: Option<Box<str>>,
}

impl<'a> Upgrade<'a> {
    /// With these limits and time-outs.
    ///
    /// # Panics
    /// When they make no sense.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        settings.check().unwrap_or_else(|error| panic!("{error}"));
        self.settings = settings;
        self
    }

    /// Which pages may have their browsers ask; only those of this site, unless this says otherwise.
    #[must_use]
    pub fn origins(mut self, origins: Origins) -> Self {
        self.origins = origins;
        self
    }

    /// The sub-protocols that are spoken here, the best first. The first that the client speaks, too, is taken; if
    /// there is none, none is.
    #[must_use]
    pub fn subprotocols<'p>(mut self, ours: impl IntoIterator<Item = &'p str>) -> Self {
        let theirs: Vec<&str> = self
            .headers
            .get_all("sec-websocket-protocol")
            .flat_map(|value| value.split(','))
            .map(|name| name.trim_matches([' ', '\t']))
            .collect();
        self.subprotocol = ours.into_iter().find(|name| theirs.contains(name)).map(Box::from);
        self
    }

    /// The sub-protocol that is taken.
    pub fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    /// Has `talk` run in a coroutine, with the WebSocket. When it returns, that is closed: 1000, or 1011 if it
    /// returns an error or panics.
    pub fn run(self, talk: impl FnOnce(&WebSocket) -> io::Result<()> + 'static) -> Response {
        let start =
            Box::new(|ws: WebSocket| drop(coracle_coro::spawn(move || converse(&ws, talk))));
        self.switch(Mailbox { inbox: Rc::<Inbox>::default(), start: Some(start) }, true)
    }

    /// Has `handler` called when something is said, on the loop: no coroutine, no stack.
    pub fn handle(self, handler: impl Handler) -> Response {
        self.switch(handler, false)
    }

    fn switch(self, handler: impl Handler, in_order: bool) -> Response {
        let key = match self.check() {
            Ok(key) => key,
            Err(response) => return *response,
        };
        let deflate = self.settings.deflate.as_ref();
        let offers = self.headers.get_all("sec-websocket-extensions");
        let (extension, agreed) = deflate.and_then(|it| extension::accept(offers, it)).unzip();
        let subprotocol = self.subprotocol.clone();
        let line = Line::new(Role::Server, self.settings, agreed, self.subprotocol, in_order);
        let mut response = Response::upgrade("websocket", Wire::new(line, handler))
            .with_header("sec-websocket-accept", handshake::answer_to(key));
        if let Some(extension) = extension {
            response = response.with_header("sec-websocket-extensions", extension);
        }
        if let Some(subprotocol) = subprotocol {
            response = response.with_header("sec-websocket-protocol", &*subprotocol);
        }
        response
    }

    /// The key of a request that asks for a WebSocket in the right way, and may.
    fn check(&self) -> Result<&'a str, Box<Response>> {
        let headers = self.headers;
        let refuse = |status: Status, why: &'static str| Box::new((status, why).into_response());
        if self.method != Method::Get {
            let response = refuse(Status::METHOD_NOT_ALLOWED, "a WebSocket is asked for by GET\n");
            return Err(Box::new(response.with_header("allow", "GET")));
        }
        let asked = headers.has_token("upgrade", "websocket")
            && headers.has_token("connection", "upgrade")
            && self.version == Version::Http11;
        let versions: Vec<&str> = headers.get_all("sec-websocket-version").collect();
        if !asked || versions != [handshake::VERSION] {
            let why = match asked {
                true => "only version 13 is spoken here\n",
                false => "this is a WebSocket\n",
            };
            let response = refuse(Status::UPGRADE_REQUIRED, why)
                .with_header("upgrade", "websocket")
                .with_header("sec-websocket-version", handshake::VERSION);
            return Err(Box::new(response));
        }
        let mut keys = headers.get_all("sec-websocket-key");
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return Err(refuse(Status::BAD_REQUEST, "there is not one key\n"));
        };
        if !handshake::is_key(key) {
            return Err(refuse(Status::BAD_REQUEST, "the key is not 16 bytes in base64\n"));
        }
        if !self.origins.allow(headers, self.host, self.is_secure) {
            let why = "this was asked for by a page of another site\n";
            return Err(refuse(Status::FORBIDDEN, why));
        }
        Ok(key)
    }
}

/// What the coroutine of a WebSocket does.
fn converse(ws: &WebSocket, talk: impl FnOnce(&WebSocket) -> io::Result<()>) {
    match catch_unwind(AssertUnwindSafe(|| talk(ws))) {
        Ok(Ok(())) => ws.close_later(CloseCode::NORMAL.into()),
        Ok(Err(error)) if coracle_coro::is_cancelled(&error) => {
            ws.close_later(CloseCode::GOING_AWAY.into());
        }
        Ok(Err(error)) => {
            if ws.is_open() {
                tracing::error!("a handler of a WebSocket failed: {error}");
            }
            ws.close_later(CloseCode::INTERNAL_ERROR.into());
        }
        Err(panic) => {
            ws.close_later(CloseCode::INTERNAL_ERROR.into());
            resume_unwind(panic); // the coroutine ends with it, and the log has it
        }
    }
}

/// The pages whose browsers may ask for a WebSocket.
///
/// A browser lets any page connect to any server, and sends the cookies it has for that: it is for the server to
/// look at the header `Origin`. Whoever is no browser sends none, and may ask.
///
/// ```
/// use coracle_http::OwnedRequest;
/// use coracle_http::ws::Origins;
///
/// let request = OwnedRequest::new("GET", "/ws")
///     .with_header("Host", "example.org")
///     .unwrap()
///     .with_header("Origin", "https://chat.example.org")
///     .unwrap();
/// let req = request.request();
/// assert!(!Origins::same().allows(&req));
/// assert!(Origins::same().trust("https://chat.example.org").allows(&req));
/// assert!(Origins::any().allows(&req));
/// ```
#[derive(Debug, Clone)]
pub struct Origins {
    any: bool,
    trusted: Vec<String>,
}

impl Origins {
    /// Those of the same host; for who came by TLS, by https.
    pub fn same() -> Origins {
        Origins { any: false, trusted: Vec::new() }
    }

    /// All: for what is public, and what does not look at cookies.
    pub fn any() -> Origins {
        Origins { any: true, trusted: Vec::new() }
    }

    /// And those of this one: `https://chat.example.org`.
    #[must_use]
    pub fn trust(mut self, origin: impl Into<String>) -> Origins {
        self.trusted.push(origin.into());
        self
    }

    /// Whether this request may ask.
    pub fn allows(&self, req: &Request<'_>) -> bool {
        self.allow(req.headers(), req.host(), req.is_secure())
    }

    fn allow(&self, headers: &Headers, host: Option<&str>, is_secure: bool) -> bool {
        if self.any || !headers.contains("origin") {
            return true;
        }
        let mut origins = headers.get_all("origin");
        let (Some(origin), None) = (origins.next(), origins.next()) else { return false };
        if self.trusted.iter().any(|trusted| trusted.eq_ignore_ascii_case(origin)) {
            return true;
        }
        origin::is_same(origin, host, is_secure)
    }
}
