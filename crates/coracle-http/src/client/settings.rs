//! What can be chosen about a client, and what is chosen for those who do not.

use super::stream::Secure;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Limits and time-outs of a client.
///
/// ```
/// use coracle_http::client::Settings;
/// use std::time::Duration;
///
/// let settings = Settings { timeout: Some(Duration::from_secs(5)), ..Settings::default() };
/// assert!(settings.check().is_ok());
/// ```
#[derive(Clone)]
pub struct Settings {
    /// How long connecting may take, looking up the name included; 10 seconds by default.
    pub connect_timeout: Duration,
    /// How long the head of an answer may take, from when the request is sent; 30 seconds by default. While a
    /// body is streamed to the server, from when that is done.
    pub head_timeout: Duration,
    /// How long nothing may come of a body, or be taken of one that is sent; 30 seconds by default.
    pub body_timeout: Duration,
    /// How long all of it may take: redirects, attempts and the body included. `None`, as by default: as long as
    /// it likes.
    pub timeout: Option<Duration>,
    /// How long the server is given to say that it wants the body, when it is
    /// [asked](super::RequestBuilder::expect_continue); a second by default. Then the body is sent anyhow.
    pub continue_timeout: Duration,
    /// How many bytes the head of an answer may have; 64 KiB by default.
    pub limit_header_bytes: usize,
    /// How many header fields it may have; 128 by default, and no more than 256.
    pub limit_headers: usize,
    /// How many bytes a body may have, decoded; 64 MiB by default. Who reads a longer one piece by piece says so.
    pub limit_body_bytes: u64,
    /// How many redirects are followed; 10 by default. With 0, answers that redirect are answers like others.
    pub limit_redirects: u32,
    /// Whether they may lead from `https` to `http`, where anybody can read what is asked and change what is
    /// answered; by default that is an error.
    pub redirect_to_http: bool,
    /// How often a request is tried, if it is one that [may be](super::Client#what-is-tried-again); 3 by default.
    pub limit_attempts: u32,
    /// How long to wait before the second attempt; twice as long before each that follows. 100 ms by default.
    pub retry_pause: Duration,
    /// How many connections there may be to one server, on each loop; 64 by default. Who wants one more waits.
    pub limit_connections: usize,
    /// How many of them are kept while nobody needs them; 64 by default.
    pub limit_idle: usize,
    /// How long they are kept; 60 seconds by default.
    pub idle_timeout: Duration,
    /// Whether answers may be compressed, and are decoded; they may, with the feature `compression`.
    pub compression: bool,
    /// What the client says it is, in `User-Agent`.
    pub user_agent: String,
    /// Who makes connections secure, for `https`: a `ClientTls` says whom to trust, and
    /// which certificate to show. `None`, as by default: TLS with trust in whom the system trusts, if the
    /// feature `tls` is there.
    #[cfg_attr(
        feature = "tls",
        doc = r#"
```
use coracle_http::client::{Client, Settings};
use coracle_http::tls::{ClientSettings, ClientTls, Identity, Roots};
use std::sync::Arc;

# fn main() -> std::io::Result<()> {
let development = Identity::self_signed(["localhost"])?; // or Roots::from_file
let tls = ClientTls::new(ClientSettings::trusting(Roots::identity(&development)?))?;
let client = Client::with(Settings { secure: Some(Arc::new(tls)), ..Settings::default() })?;
# let _ = client;
# Ok(())
# }
```
"#
    )]
    pub secure: Option<Arc<dyn Secure>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            timeout: None,
            continue_timeout: Duration::from_secs(1),
            limit_header_bytes: 64 << 10,
            limit_headers: 128,
            limit_body_bytes: 64 << 20,
            limit_redirects: 10,
            redirect_to_http: false,
            limit_attempts: 3,
            retry_pause: Duration::from_millis(100),
            limit_connections: 64,
            limit_idle: 64,
            idle_timeout: Duration::from_secs(60),
            compression: cfg!(feature = "compression"),
            user_agent: concat!("coracle/", env!("CARGO_PKG_VERSION")).to_owned(),
            secure: None,
        }
    }
}

impl Settings {
    /// Whether these settings make sense together.
    ///
    /// # Errors
    /// `InvalidInput`, with the name of the setting and what is wrong with it.
    pub fn check(&self) -> io::Result<()> {
        self.parsing().check()?;
        let wrong = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.limit_attempts == 0 {
            return wrong("limit_attempts is 0: nothing would ever be asked");
        }
        if self.limit_connections == 0 {
            return wrong("limit_connections is 0: nobody could ever be asked");
        }
        if crate::Headers::new().insert("user-agent", &self.user_agent).is_err() {
            return wrong("user_agent has a control character in it");
        }
        let times = [
            (Some(self.connect_timeout), "connect_timeout is 0"),
            (Some(self.head_timeout), "head_timeout is 0"),
            (Some(self.body_timeout), "body_timeout is 0"),
            (self.timeout, "timeout is 0"),
        ];
        for (time, text) in times {
            if time.is_some_and(|time| time.is_zero()) {
                return wrong(&format!("{text}: nobody is that fast"));
            }
        }
        Ok(())
    }

    /// What the parsers of the server are to let pass here.
    pub(crate) fn parsing(&self) -> crate::Settings {
        crate::Settings {
            limit_header_bytes: self.limit_header_bytes,
            limit_headers: self.limit_headers,
            ..crate::Settings::default()
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("connect_timeout", &self.connect_timeout)
            .field("head_timeout", &self.head_timeout)
            .field("body_timeout", &self.body_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
