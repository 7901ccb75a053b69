//! Certificates for development, made when they are wanted.

use crate::identity::{Identity, wrong};
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io;
use std::time::{Duration, SystemTime};

/// How long one is valid: long enough for a day of work, and for nobody to grow fond of it.
const VALID: Duration = Duration::from_secs(30 * 24 * 60 * 60);

impl Identity {
    /// A certificate that nobody has signed but itself, for names or addresses: for development. Clients do not
    /// trust it unless they are [told to](crate::Roots::identity). It lasts thirty days.
    ///
    /// ```
    /// use coracle_tls::Identity;
    ///
    /// let identity = Identity::self_signed(["localhost", "127.0.0.1"]).unwrap();
    /// assert_eq!(identity.names(), ["localhost"]);
    /// assert!(identity.certificate_pem().starts_with("-----BEGIN CERTIFICATE-----"));
    /// ```
    ///
    /// # Errors
    /// `InvalidData`: a name cannot be in a certificate.
    pub fn self_signed<'n>(names: impl IntoIterator<Item = &'n str>) -> io::Result<Identity> {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let (chain, key) =
            make(names).map_err(|error| wrong(format!("no certificate can be made: {error}")))?;
        Identity::from_der(vec![chain], key)
    }
}

fn make(
    names: Vec<String>,
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "coracle, self-signed for development");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(60 * 60)).into(); // clocks differ
    params.not_after = (now + VALID).into();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((certificate.der().clone(), key))
}
