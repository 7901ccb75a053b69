//! The configuration file: its keys, as they are read. docs/reference/config.md tells what each does.

use crate::placement::Placement;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use toml::Spanned;

/// All of it. What is not there is as it is without a file.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Config {
    pub(super) listen: Vec<Spanned<String>>,
    pub(super) backend: Option<Spanned<String>>,
    pub(super) threads: Option<Spanned<i64>>,
    pub(super) pin_threads: bool,
    pub(super) processes: Option<Spanned<i64>>,
    pub(super) placement: Option<Placement>,
    pub(super) drain_seconds: Option<Spanned<i64>>,
    pub(super) user: Option<Spanned<String>>,
    pub(super) request_ids: bool,
    pub(super) access_log: Option<AccessLog>,
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    pub(super) http2: Http2,
    pub(super) tls: Option<Spanned<Tls>>,
    pub(super) site: Option<Spanned<Site>>,
    pub(super) host: Vec<Spanned<Site>>,
    pub(super) proxy: Vec<Spanned<Proxy>>,
    pub(super) proxy_protocol: Vec<Spanned<String>>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessLog {
    pub(super) file: Spanned<PathBuf>,
    #[serde(default)]
    pub(super) format: Format,
}

#[derive(Deserialize, clap::ValueEnum, Debug, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Format {
    /// `127.0.0.1 - - [16/Nov/2026:04:56:43 +0000] "GET / HTTP/1.1" 200 5`
    Common,
    /// The same, and the page from which it came, and the name of the browser.
    #[default]
    Combined,
    /// An object per line, with the time it took as well.
    Json,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub(super) connections: Option<Spanned<i64>>,
    pub(super) connections_per_address: Option<Spanned<i64>>,
    pub(super) requests_per_connection: Option<Spanned<i64>>,
    pub(super) header_bytes: Option<Spanned<i64>>,
    pub(super) headers: Option<Spanned<i64>>,
    pub(super) target_bytes: Option<Spanned<i64>>,
    pub(super) body_bytes: Option<Spanned<i64>>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Timeouts {
    pub(super) header_seconds: Option<Spanned<i64>>,
    pub(super) body_seconds: Option<Spanned<i64>>,
    pub(super) idle_seconds: Option<Spanned<i64>>,
    pub(super) write_seconds: Option<Spanned<i64>>,
    pub(super) request_seconds: Option<Spanned<i64>>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Http2 {
    pub(super) prior_knowledge: Option<bool>,
    pub(super) streams: Option<Spanned<i64>>,
    pub(super) resets: Option<Spanned<i64>>,
    pub(super) control_frames: Option<Spanned<i64>>,
    pub(super) stream_window_bytes: Option<Spanned<i64>>,
    pub(super) connection_window_bytes: Option<Spanned<i64>>,
    pub(super) ping_seconds: Option<Spanned<i64>>,
    pub(super) ping_timeout_seconds: Option<Spanned<i64>>,
}

/// TLS on all addresses of `listen`.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tls {
    pub(super) certificate: Option<Spanned<PathBuf>>,
    pub(super) key: Option<Spanned<PathBuf>>,
    pub(super) key_password_file: Option<Spanned<PathBuf>>,
    /// Others, chosen by the name that is asked for.
    pub(super) identity: Vec<Identity>,
    pub(super) self_signed: bool,
    pub(super) refuse_unknown_names: bool,
    pub(super) client_roots: Option<Spanned<PathBuf>>,
    pub(super) client_certificates: ClientCertificates,
    pub(super) oldest_version: Oldest,
    pub(super) handshake_seconds: Option<Spanned<i64>>,
    pub(super) redirect: Vec<Spanned<String>>,
    pub(super) hsts_seconds: Option<Spanned<i64>>,
    pub(super) hsts_subdomains: bool,
}

/// A certificate, and its key.
#[derive(Deserialize, Debug, Default, Clone)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Identity {
    pub(super) certificate: Option<Spanned<PathBuf>>,
    pub(super) key: Option<Spanned<PathBuf>>,
    pub(super) key_password_file: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ClientCertificates {
    /// Who shows none is refused.
    #[default]
    Require,
    /// Who shows none is let in all the same.
    Allow,
}

#[derive(Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Oldest {
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// A site: that of everybody, or that of a host.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Site {
    /// Of a host, and only there.
    pub(super) names: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) directory: Option<Spanned<PathBuf>>,
    pub(super) index: Option<Vec<Spanned<String>>>,
    pub(super) listing: bool,
    pub(super) welcome: Option<bool>,
    pub(super) hidden: Hidden,
    pub(super) symlinks: Symlinks,
    pub(super) precompressed: Option<bool>,
    pub(super) compression: bool,
    pub(super) cache_control: Option<Spanned<String>>,
    pub(super) content_types: BTreeMap<String, Spanned<String>>,
    pub(super) error_pages: BTreeMap<Spanned<String>, Spanned<PathBuf>>,
    pub(super) redirect: Vec<Redirect>,
    pub(super) cgi: Vec<Cgi>,
    pub(super) fastcgi: Vec<FastCgi>,
}

#[derive(Deserialize, clap::ValueEnum, Debug, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Hidden {
    /// They are not there.
    #[default]
    Hide,
    /// Only /.well-known/ is there.
    WellKnown,
    /// They are served like others.
    Show,
}

#[derive(Deserialize, clap::ValueEnum, Debug, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Symlinks {
    /// They are followed as long as they stay inside the directory.
    #[default]
    Inside,
    /// They are not there.
    Never,
    /// They are followed wherever they lead.
    Anywhere,
}

/// What scripts are told besides.
pub(super) type Variables = BTreeMap<Spanned<String>, String>;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Cgi {
    pub(super) path: Spanned<String>,
    pub(super) directory: Spanned<PathBuf>,
    pub(super) timeout_seconds: Option<Spanned<i64>>,
    pub(super) limit_processes: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) pass_authorization: bool,
    #[serde(default)]
    pub(super) variables: Variables,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct FastCgi {
    pub(super) path: Spanned<String>,
    pub(super) directory: Spanned<PathBuf>,
    pub(super) address: Spanned<String>,
    #[serde(default)]
    pub(super) files: bool,
    pub(super) front_controller: Option<String>,
    pub(super) directory_there: Option<PathBuf>,
    pub(super) timeout_seconds: Option<Spanned<i64>>,
    pub(super) limit_connections: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) pass_authorization: bool,
    #[serde(default)]
    pub(super) variables: Variables,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Redirect {
    pub(super) from: Spanned<String>,
    pub(super) to: Spanned<String>,
    pub(super) status: Option<Spanned<i64>>,
}

/// A path, and the servers that answer what is below it.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxy {
    pub(super) path: Spanned<String>,
    pub(super) to: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) balance: Balance,
    pub(super) host: Option<Spanned<String>>,
    pub(super) roots: Option<Spanned<PathBuf>>,
    pub(super) x_forwarded: Option<bool>,
    #[serde(default)]
    pub(super) forwarded: bool,
    #[serde(default)]
    pub(super) trusted: Vec<Spanned<String>>,
    pub(super) health: Option<Spanned<String>>,
    pub(super) health_seconds: Option<Spanned<i64>>,
    pub(super) connect_seconds: Option<Spanned<i64>>,
    pub(super) head_seconds: Option<Spanned<i64>>,
    pub(super) body_seconds: Option<Spanned<i64>>,
    pub(super) body_bytes: Option<Spanned<i64>>,
    pub(super) send_proxy: Option<ProxyVersion>,
}

#[derive(Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Whoever has the fewest requests.
    LeastConnections,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ProxyVersion {
    V1,
    V2,
}
