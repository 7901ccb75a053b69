//! What a certificate says about itself, as far as a server has to know.

use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

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
    let since = |time: Duration| SystemTime::UNIX_EPOCH + time;
    Ok(Facts {
        subject: read.subject().to_string(),
        issuer: read.issuer().to_string(),
        names,
        not_before: since(read.validity().not_before.to_unix_duration()),
        not_after: since(read.validity().not_after.to_unix_duration()),
    })
}
