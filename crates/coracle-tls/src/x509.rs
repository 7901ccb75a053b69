//! What a certificate says about itself, as far as a server has to know.

use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use x509_cert::der::{DateTime, Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::{Certificate, Version};

/// The parts of a certificate that are looked at here.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// In the form of RFC 4514: `CN=example.org,O=Example`.
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// The names it is for: `example.org`, `*.example.org`, in lower case.
    pub(crate) names: Vec<String>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// The key that it is about (`SubjectPublicKeyInfo`), in DER.
    pub(crate) public_key: Vec<u8>,
    /// Whether it is of the version that has extensions, and so names.
    pub(crate) is_v3: bool,
}

/// Reads a certificate. The error says what is wrong with it.
pub(crate) fn facts(certificate: &CertificateDer<'_>) -> Result<Facts, String> {
    let read = Certificate::from_der(certificate.as_ref());
    let read = read.map_err(|error| format!("it is no X.509 certificate: {error}"))?;
    let read = read.tbs_certificate();
    let alternatives = read.get_extension::<SubjectAltName>();
    let alternatives =
        alternatives.map_err(|error| format!("its names cannot be read: {error}"))?;
    let name = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.to_string().to_ascii_lowercase()),
        _ => None,
    };
    let names =
        alternatives.map_or_else(Vec::new, |(_, all)| all.0.iter().filter_map(name).collect());
    let public_key = read.subject_public_key_info().to_der();
    let public_key = public_key.map_err(|error| format!("its key cannot be read: {error}"))?;
    let since = |time: Duration| SystemTime::UNIX_EPOCH + time;
    Ok(Facts {
        subject: read.subject().to_string(),
        issuer: read.issuer().to_string(),
        names,
        not_before: since(read.validity().not_before.to_unix_duration()),
        not_after: since(read.validity().not_after.to_unix_duration()),
        public_key,
        is_v3: read.version() == Version::V3,
    })
}

/// A time, as it is written: `2026-11-16T20:00:00Z`.
pub(crate) fn written(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Certificates have no others.
    DateTime::from_unix_duration(since).map_or_else(|_| "no date".to_owned(), |it| it.to_string())
}
