//! `Client`: who asks, and what it keeps.

use super::pools::Keeping;
use super::{RequestBuilder, Settings};
use coracle_coro::conn_pool::ConnPoolSettings;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Asks servers, in coroutines: a request waits for its answer, and parks only its coroutine. A handle: clones are
/// cheap, and share what is kept. Any thread; connections are kept on the loop that has opened them.
///
/// ```
/// use coracle_http::client::Client;
///
/// # use coracle_coro::net::TcpListener;
/// # use std::io::{Read, Write};
/// coracle_coro::run(|| {
/// #   let listener = TcpListener::bind("127.0.0.1:0")?;
/// #   let url = format!("http://{}/", listener.local_addr()?);
/// #   let server = coracle_coro::spawn(move || -> std::io::Result<()> {
/// #       let (mut stream, _) = listener.accept()?;
/// #       stream.read(&mut [0; 1024])?;
/// #       stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nahoy\n")
/// #   });
///     let client = Client::new();
///     let answer = client.get(&url).send()?;
///     assert_eq!(answer.status(), 200);
///     assert_eq!(answer.text()?, "ahoy\n");
/// #   server.join().unwrap()?;
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # What is tried again
/// A request whose connection could not be opened, after a pause. One whose connection broke before anything of
/// the answer came, if its method is [idempotent](crate::Method::is_idempotent) and its body is in memory: at
/// once, if the connection had been used before and was probably closed meanwhile; else after a pause. Nothing
/// else, and nothing that took too long.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    settings: Settings,
    parsing: crate::Settings,
    keeping: Keeping,
}

impl Client {
    /// With what is usual.
    pub fn new() -> Client {
        Client::made(Settings::default())
    }

    /// With these limits and time-outs.
    ///
    /// # Errors
    /// They make no sense.
    pub fn with(settings: Settings) -> io::Result<Client> {
        settings.check()?;
        Ok(Client::made(settings))
    }

    fn made(settings: Settings) -> Client {
        let pool = ConnPoolSettings {
            limit_connections: settings.limit_connections,
            limit_idle: settings.limit_idle,
            idle_timeout: settings.idle_timeout,
            ..ConnPoolSettings::default()
        };
        let keeping = Keeping::new(pool, settings.connect_timeout, settings.secure.clone());
        Client(Arc::new(Inner { parsing: settings.parsing(), settings, keeping }))
    }

    /// Asks for something.
    pub fn get(&self, url: &str) -> RequestBuilder {
        self.request("GET", url)
    }

    /// Asks what `get` would answer, without the body.
    pub fn head(&self, url: &str) -> RequestBuilder {
        self.request("HEAD", url)
    }

    /// Has something done.
    pub fn post(&self, url: &str) -> RequestBuilder {
        self.request("POST", url)
    }

    /// Has something be.
    pub fn put(&self, url: &str) -> RequestBuilder {
        self.request("PUT", url)
    }

    /// Has something changed.
    pub fn patch(&self, url: &str) -> RequestBuilder {
        self.request("PATCH", url)
    }

    /// Has something be gone.
    pub fn delete(&self, url: &str) -> RequestBuilder {
        self.request("DELETE", url)
    }

    /// A request by any method.
    pub fn request(&self, method: &str, url: &str) -> RequestBuilder {
        RequestBuilder::new(self, method, url)
    }

    /// What was chosen.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(super) fn parsing(&self) -> &crate::Settings {
        &self.0.parsing
    }

    pub(super) fn keeping(&self) -> &Keeping {
        &self.0.keeping
    }
}

impl Default for Client {
    fn default() -> Client {
        Client::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.0.settings).finish()
    }
}
