//! The client of the loads that speak TLS: one version, one suite, one curve, so that all servers do the same.
//!
//! It knows the server's certificate, and compares it. The signature of the handshake it checks now and then: that
//! costs a client more than signing costs the server, and the load has to keep the server busy.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, Error,
    HandshakeKind, NamedGroup, SignatureScheme,
};

/// Whom the server is asked for: the name in its certificate, and in `Host`.
pub const NAME: &str = "bench";
/// One signature in this many is checked, the first among them.
const SAMPLE: u64 = 16;
/// Tickets that are kept at most.
const LIMIT_TICKETS: usize = 4096;

/// What a client has in common with itself on all connections.
pub struct TlsClient {
    config: Arc<ClientConfig>,
    tickets: Arc<Tickets>,
}

impl TlsClient {
    /// Trusts this certificate (PEM) alone; goes on with earlier sessions if that is wanted.
    ///
    /// # Errors
    /// There is no such file, or it is none.
    pub fn new(certificate: &Path, resume: bool) -> io::Result<TlsClient> {
        let known = CertificateDer::from_pem_slice(&fs::read(certificate)?);
        let known = known.map_err(|error| io::Error::other(error.to_string()))?;
        let provider = Arc::new(CryptoProvider {
            cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
            kx_groups: vec![ring::kx_group::X25519],
            ..ring::default_provider()
        });
        let verifier =
            Known { known, provider: Arc::clone(&provider), signatures: AtomicU64::new(0) };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let tickets = Arc::new(Tickets { resume, inner: Mutex::default() });
        config.resumption = Resumption::store(Arc::clone(&tickets) as Arc<dyn ClientSessionStore>);
        Ok(TlsClient { config: Arc::new(config), tickets })
    }

    /// A connection that has said nothing yet.
    ///
    /// # Errors
    /// None that is known.
    pub fn connection(&self) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(NAME).expect("it is a name");
        ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)
    }

    /// How many tickets have come so far.
    pub fn tickets(&self) -> u64 {
        self.tickets.lock().came
    }

    /// Whether there are tickets for so many connections.
    pub fn can_resume(&self, connections: usize) -> bool {
        self.tickets.lock().kept.len() >= connections
    }
}

/// Whether a connection that has shaken hands has agreed upon what all are measured with.
///
/// # Errors
/// What is otherwise.
pub fn check(connection: &ClientConnection, wanted: HandshakeKind) -> io::Result<()> {
    let kind = connection.handshake_kind();
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let group = connection.negotiated_key_exchange_group().map(|group| group.name());
    let right = kind == Some(wanted)
        && suite == Some(CipherSuite::TLS13_AES_128_GCM_SHA256)
        && group == Some(NamedGroup::X25519);
    match right {
        true => Ok(()),
        false => Err(io::Error::other(format!("not {wanted:?}: {kind:?}, {suite:?}, {group:?}"))),
    }
}

/// The one certificate that is known.
#[derive(Debug)]
struct Known {
    known: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
    signatures: AtomicU64,
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match *end_entity == self.known {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 was not offered".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if !self.signatures.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// Tickets of one server, each used once; more than rustls' own store keeps, for many connections begin together.
#[derive(Debug)]
struct Tickets {
    resume: bool,
    inner: Mutex<TicketsInner>,
}

#[derive(Debug, Default)]
struct TicketsInner {
    kept: VecDeque<Tls13ClientSessionValue>,
    came: u64,
}

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, TicketsInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut inner = self.lock();
        inner.came += 1;
        if self.resume && inner.kept.len() < LIMIT_TICKETS {
            inner.kept.push_back(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().kept.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use rustls::crypto::ring;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{ClientConnection, HandshakeKind, ServerConfig, ServerConnection};

    use super::{NAME, TlsClient, check};
    use crate::scratch::Scratch;

    type Made = rcgen::CertifiedKey<rcgen::KeyPair>;

    fn made() -> Made {
        rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap()
    }

    fn server(made: &Made) -> Arc<ServerConfig> {
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::from(key));
        Arc::new(config.unwrap())
    }

    /// Passes on what they say, until neither has anything to say.
    fn shake(client: &TlsClient, server: &Arc<ServerConfig>) -> io::Result<ClientConnection> {
        let mut client = client.connection()?;
        let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
        while client.wants_write() || server.wants_write() {
            let mut said = Vec::new();
            client.write_tls(&mut said)?;
            let mut left = &said[..];
            while !left.is_empty() {
                server.read_tls(&mut left)?;
                server.process_new_packets().map_err(io::Error::other)?;
            }
            said.clear();
            server.write_tls(&mut said)?;
            let mut left = &said[..];
            while !left.is_empty() {
                client.read_tls(&mut left)?;
                client.process_new_packets().map_err(io::Error::other)?;
            }
        }
        Ok(client)
    }

    #[test]
    fn another_certificate_is_refused() {
        let (known, other) = (made(), made());
        let scratch = Scratch::new("test-known").unwrap();
        let file = scratch.write("certificate.pem", known.cert.pem()).unwrap();
        let client = TlsClient::new(&file, false).unwrap();
        let good = shake(&client, &server(&known)).unwrap();
        check(&good, HandshakeKind::Full).unwrap();
        assert!(check(&good, HandshakeKind::Resumed).is_err());
        assert!(shake(&client, &server(&other)).is_err());
    }

    #[test]
    fn sessions_are_resumed_when_that_is_wanted() {
        let known = made();
        let scratch = Scratch::new("test-resumed").unwrap();
        let file = scratch.write("certificate.pem", known.cert.pem()).unwrap();
        for (resume, second) in [(false, HandshakeKind::Full), (true, HandshakeKind::Resumed)] {
            let (client, server) = (TlsClient::new(&file, resume).unwrap(), server(&known));
            check(&shake(&client, &server).unwrap(), HandshakeKind::Full).unwrap();
            assert!(client.tickets() > 0);
            assert_eq!(client.can_resume(1), resume);
            check(&shake(&client, &server).unwrap(), second).unwrap();
        }
    }
}
