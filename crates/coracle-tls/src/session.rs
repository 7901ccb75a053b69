//! What was agreed upon in a handshake.

use crate::names::{covers, host_name};
use crate::server::Names;
use rustls::pki_types::CertificateDer;
use rustls::{Connection, HandshakeKind, ProtocolVersion};
use std::fmt;
use std::sync::Arc;

/// What both sides know of each other when the handshake is done.
#[derive(Clone)]
pub struct Session {
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    version: TlsVersion,
    cipher_suite: &'static str,
    peer_certificates: Box<[CertificateDer<'static>]>,
    resumed: bool,
    /// Those of the server's certificate, on its side.
    names: Option<Arc<Names>>,
}

/// Which TLS is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2
    Tls12,
    /// TLS 1.3
    Tls13,
}

impl Session {
    pub(crate) fn of(connection: &Connection, names: Option<Arc<Names>>) -> Session {
        let server_name = match connection {
            Connection::Server(server) => server.server_name().map(Into::into),
            Connection::Client(_) => None,
        };
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        };
        let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        let certificates = connection.peer_certificates().unwrap_or_default();
        Session {
            alpn: connection.alpn_protocol().map(Into::into),
            server_name,
            version,
            cipher_suite: suite.unwrap_or("unknown"),
            peer_certificates: certificates.iter().map(|each| each.clone().into_owned()).collect(),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            names,
        }
    }

    /// The protocol that is spoken above, if there was talk of one (ALPN): `http/1.1`, `h2`.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.alpn.as_deref()
    }

    /// The name of the host that the client has asked for (SNI), if it did; on the side of the server.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Which TLS is spoken.
    pub fn version(&self) -> TlsVersion {
        self.version
    }

    /// The name of the cipher suite: `TLS13_AES_256_GCM_SHA384`.
    pub fn cipher_suite(&self) -> &'static str {
        self.cipher_suite
    }

    /// The peer's certificate, in DER: on a server, that of a client which has shown one that is trusted.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.peer_certificates.first().map(AsRef::as_ref)
    }

    /// The peer's certificate and those that it has sent with it.
    pub fn peer_certificates(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.peer_certificates.iter().map(AsRef::as_ref)
    }

    /// Whom the peer's certificate is about: `CN=ahab,O=Pequod`.
    pub fn peer_subject(&self) -> Option<String> {
        let certificate = self.peer_certificates.first()?;
        crate::x509::facts(certificate).ok().map(|facts| facts.subject)
    }

    /// Whether an earlier session was gone on with, which saves both sides work.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Whether a request for `host` (a `Host` field) does not belong on this connection: the client has asked for
    /// another server by name, whose certificate is not for this one (HTTP's 421).
    pub fn is_misdirected(&self, host: &str) -> bool {
        let (Some(asked), Some(names)) = (self.server_name(), &self.names) else { return false };
        let host = host_name(host);
        host != asked.to_ascii_lowercase()
            && !names.chosen(asked).iter().any(|name| covers(name, &host))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("version", &self.version)
            .field("cipher_suite", &self.cipher_suite)
            .field("alpn", &self.alpn.as_deref().map(String::from_utf8_lossy))
            .field("server_name", &self.server_name)
            .field("resumed", &self.resumed)
            .finish_non_exhaustive()
    }
}
