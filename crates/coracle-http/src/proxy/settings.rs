//! What can be chosen about a proxy, and what is chosen for those who do not.

use crate::Networks;
use crate::client::Secure;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Limits, time-outs and habits of a [`Proxy`](super::Proxy).
///
/// ```
/// use coracle_http::proxy::{Balance, HealthCheck, Settings};
/// use std::time::Duration;
///
/// let settings = Settings {
///     balance: Balance::LeastConnections,
///     health: Some(HealthCheck { path: "/health".into(), ..HealthCheck::default() }),
///     trusted: "10.0.0.0/8".parse().unwrap(),
///     ..Settings::default()
/// };
/// assert!(settings.check().is_ok());
/// ```
#[derive(Clone)]
pub struct Settings {
    /// How long connecting may take (504); 5 seconds by default.
    pub connect_timeout: Duration,
    /// How long the head of an answer may take, from when the request is sent (504); a minute by default.
    pub head_timeout: Duration,
    /// How long nothing may come of a body, or be taken of one that is sent; a minute by default. Then the
    /// connection is cut.
    pub body_timeout: Duration,
    /// How many bytes the head of an answer may have (502); 64 KiB by default.
    pub limit_header_bytes: usize,
    /// How many header fields it may have (502); 128 by default, and no more than 256.
    pub limit_headers: usize,
    /// How many bytes the body of a request may have (413); as many as it likes by default, for it is not kept.
    pub limit_body_bytes: u64,
    /// How many connections each loop has to each upstream; 1,024 by default. Who wants one more waits. Those that
    /// are used once are not counted: of WebSockets, and [with the PROXY protocol](Settings::send_proxy).
    pub limit_connections: usize,
    /// How many wait at most (503); 1,024 by default.
    pub limit_waiters: usize,
    /// How many connections are kept while nobody needs them; by default all that
    /// [there are](Settings::limit_connections).
    pub limit_idle: usize,
    /// How long they are kept; 30 seconds by default. Less than the upstream does.
    pub idle_timeout: Duration,
    /// How many upstreams are tried for one request; 2 by default.
    pub limit_attempts: u32,
    /// Who is asked next.
    pub balance: Balance,
    /// What the upstream is told of the host that was asked.
    pub host: HostPolicy,
    /// Whether the upstream is told who asks by `X-Forwarded-For`, `-Host` and `-Proto`; it is by default.
    pub x_forwarded: bool,
    /// Whether it is told by `Forwarded` (RFC 7239); it is not by default.
    pub forwarded: bool,
    /// Whose word is taken for who asks; nobody's by default. To what such a peer says in `X-Forwarded-For` and
    /// `Forwarded`, who it is itself is added; the other fields of that kind (`X-Forwarded-*`, `X-Real-IP`) are
    /// handed on as they are, if there are to be [any](Settings::x_forwarded). What others say there is thrown
    /// away, and so are names of that kind with a `_` in them.
    pub trusted: Networks,
    /// By what clients have connected who did not come by TLS, for those fields: `http` by default. `https` where
    /// somebody in front of this server takes TLS off. Who came by TLS has come by `https`.
    pub scheme: &'static str,
    /// After so many failures on end an upstream is not asked for a [while](Settings::fail_pause), if there are
    /// others; 3 by default.
    pub fail_limit: u32,
    /// How long; 10 seconds by default.
    pub fail_pause: Duration,
    /// Whether upstreams are asked now and then how they are.
    pub health: Option<HealthCheck>,
    /// Whether each connection begins by saying for whom it is (the PROXY protocol). Then it is used for one
    /// request.
    pub send_proxy: Option<ProxyVersion>,
    /// Who makes connections secure, for upstreams by `https`:
    /// [as for clients](crate::client::Settings::secure).
    pub secure: Option<Arc<dyn Secure>>,
}

/// Who is asked next, of those who can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Whoever has the fewest requests.
    LeastConnections,
}

/// What the upstream is told of the host that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HostPolicy {
    /// What the client has said.
    #[default]
    Keep,
    /// The host of the upstream's own URL.
    Upstream,
    /// Always this.
    Fixed(String),
}

/// Which PROXY protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Bytes.
    V2,
}

/// A question that only one who is well can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for, by GET; `/` by default. Well is who answers below 400.
    pub path: String,
    /// How often; every 5 seconds by default.
    pub interval: Duration,
    /// How long an answer may take; 2 seconds by default.
    pub timeout: Duration,
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck {
            path: "/".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connect_timeout: Duration::from_secs(5),
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            limit_header_bytes: 64 << 10,
            limit_headers: 128,
            limit_body_bytes: u64::MAX,
            limit_connections: 1024,
            limit_waiters: 1024,
            limit_idle: usize::MAX,
            idle_timeout: Duration::from_secs(30),
            limit_attempts: 2,
            balance: Balance::default(),
            host: HostPolicy::default(),
            x_forwarded: true,
            forwarded: false,
            trusted: Networks::none(),
            scheme: "http",
            fail_limit: 3,
            fail_pause: Duration::from_secs(10),
            health: None,
            send_proxy: None,
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
        if self.limit_attempts == 0 || self.limit_connections == 0 {
            return wrong("limit_attempts or limit_connections is 0: nobody could ever be asked");
        }
        if !matches!(self.scheme, "http" | "https") {
            return wrong("scheme is neither http nor https");
        }
        if let HostPolicy::Fixed(host) = &self.host
            && crate::h1::target::check_host(host.as_bytes()).is_err()
        {
            return wrong("host is none");
        }
        if let Some(health) = &self.health {
            let plain = health.path.bytes().all(|byte| byte.is_ascii_graphic());
            if !health.path.starts_with('/') || !plain {
                return wrong("the path of the health check is none: write `/health`");
            }
            if health.interval.is_zero() || health.timeout.is_zero() {
                return wrong("a time of the health check is 0");
            }
        }
        let times = [
            (self.connect_timeout, "connect_timeout is 0"),
            (self.head_timeout, "head_timeout is 0"),
            (self.body_timeout, "body_timeout is 0"),
        ];
        for (time, text) in times {
            if time.is_zero() {
                return wrong(&format!("{text}: nobody is that fast"));
            }
        }
        Ok(())
    }

    /// What the parsers of the server are to let pass here.
    pub(super) fn parsing(&self) -> crate::Settings {
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
            .field("balance", &self.balance)
            .field("host", &self.host)
            .field("trusted", &self.trusted)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}
