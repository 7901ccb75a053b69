//! A certificate, the chain to who has signed it, and its key: read from files, and looked at before it is used.

use crate::provider::provider;
use crate::x509::{Facts, facts, written};
use pkcs8::der::{Decode, pem::PemLabel};
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// From how long before its end on [`Identity::warning`] tells of it.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Who a server, or a client, is: a certificate, those between it and a root, and the key. Clones share them.
///
/// ```no_run
/// use coracle_tls::Identity;
///
/// let identity = Identity::from_files("fullchain.pem", "privkey.pem")?;
/// println!("for {:?}", identity.names());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    key: Arc<CertifiedKey>,
    facts: Facts,
    /// Where the certificate was read.
    file: Option<PathBuf>,
}

impl Identity {
    /// That of two files in PEM, as certbot, mkcert and openssl write them: the certificate first, then those who
    /// have signed, each by the next; and the key (PKCS#8, SEC1 or PKCS#1).
    ///
    /// # Errors
    /// They cannot be read, or do not go together; the text says which, why, and what to do.
    pub fn from_files(
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> io::Result<Identity> {
        Identity::load(certificate.as_ref(), key.as_ref(), None)
    }

    /// The same, with a key that is encrypted (PKCS#8, `ENCRYPTED PRIVATE KEY`).
    ///
    /// # Errors
    /// As [`from_files`](Identity::from_files); also when it is not the password.
    pub fn from_encrypted_files(
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
        password: impl AsRef<[u8]>,
    ) -> io::Result<Identity> {
        Identity::load(certificate.as_ref(), key.as_ref(), Some(password.as_ref()))
    }

    fn load(certificate: &Path, key: &Path, password: Option<&[u8]>) -> io::Result<Identity> {
        let chain =
            certificates(&read(certificate)?).map_err(|error| named(certificate, &error))?;
        let read_key = private_key(&read(key)?, password).map_err(|error| named(key, &error))?;
        Identity::new(chain, read_key, Some(certificate.to_owned())).map_err(|error| {
            let (certificate, key) = (certificate.display(), key.display());
            io::Error::new(error.kind(), format!("{certificate}, with the key {key}: {error}"))
        })
    }

    /// That of two texts in PEM, which may be one.
    ///
    /// # Errors
    /// As [`from_files`](Identity::from_files).
    pub fn from_pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> io::Result<Identity> {
        Identity::from_der(certificates(certificate.as_ref())?, private_key(key.as_ref(), None)?)
    }

    /// That of what PEM is made of.
    ///
    /// # Errors
    /// `InvalidData`: they do not go together; the text says why.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> io::Result<Identity> {
        Identity::new(chain, key, None)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        file: Option<PathBuf>,
    ) -> io::Result<Identity> {
        let all: Result<Vec<Facts>, String> = chain.iter().map(facts).collect();
        let all = all.map_err(wrong)?;
        let signing = provider().key_provider.load_private_key(key);
        let signing = signing.map_err(|error| wrong(format!("its key cannot be used: {error}")))?;
        // By ourselves: rustls reads certificates of version 3 only.
        let public_key = signing.public_key();
        let matches =
            |facts: &Facts| public_key.as_ref().is_none_or(|key| key.as_ref() == facts.public_key);
        let Some(first) = all.first() else {
            return Err(wrong(
                "there is no certificate: the first of the chain is that of the key",
            ));
        };
        if !matches(first) {
            let text = match all.iter().position(matches) {
                Some(at) => format!(
                    "the certificates are in the wrong order: the key belongs to number {} ({}), which must come \
                     first, before those who have signed",
                    at + 1,
                    all[at].subject
                ),
                None => format!(
                    "the key does not belong to the certificate ({}): take the key with which the certificate \
                     was asked for",
                    first.subject
                ),
            };
            return Err(wrong(text));
        }
        for (number, pair) in all.windows(2).enumerate() {
            if pair[0].issuer != pair[1].subject {
                return Err(wrong(format!(
                    "the certificates are in the wrong order: number {} was signed by {}, but number {} is {}; \
                     each must be followed by who has signed it",
                    number + 1,
                    pair[0].issuer,
                    number + 2,
                    pair[1].subject
                )));
            }
        }
        let key = Arc::new(CertifiedKey::new(chain, signing));
        let facts = all.into_iter().next().expect("a chain has a first");
        Ok(Identity(Arc::new(Inner { key, facts, file })))
    }

    /// The names of hosts that it is for: `example.org`, `*.example.org`.
    pub fn names(&self) -> &[String] {
        &self.0.facts.names
    }

    /// Whom it is about, as the certificate says: `CN=example.org`.
    pub fn subject(&self) -> &str {
        &self.0.facts.subject
    }

    /// From when on it is valid, and until when.
    pub fn validity(&self) -> (SystemTime, SystemTime) {
        (self.0.facts.not_before, self.0.facts.not_after)
    }

    /// What is wrong with it at `now` although it can be used: it is not valid any more, or not yet, or not for
    /// long; or it is of a version before 3, which has no names. Clients will not trust it. Says in which file it
    /// is, if it was read from one.
    ///
    /// ```
    /// # use coracle_tls::Identity;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let identity = Identity::self_signed(["localhost"]).unwrap();
    /// assert_eq!(identity.warning(SystemTime::now()), None);
    /// let later = SystemTime::now() + Duration::from_secs(60 * 24 * 60 * 60);
    /// assert!(identity.warning(later).unwrap().contains("has expired 30 days ago"));
    /// ```
    pub fn warning(&self, now: SystemTime) -> Option<String> {
        let what = self.flaw(now)?;
        let file = self.0.file.as_ref().map(|file| format!("{}: ", file.display()));
        let (file, subject) = (file.unwrap_or_default(), self.subject());
        Some(format!("{file}the certificate of {subject} {what}"))
    }

    fn flaw(&self, now: SystemTime) -> Option<String> {
        let (from, until) = self.validity();
        let days = |time: Duration| match time.as_secs() / (24 * 60 * 60) {
            0 => "less than a day".to_owned(),
            1 => "1 day".to_owned(),
            days => format!("{days} days"),
        };
        if let Ok(past) = now.duration_since(until) {
            let (past, when) = (days(past), written(until));
            return Some(format!("has expired {past} ago, on {when}: have it renewed"));
        }
        if let Some(wait) = from.duration_since(now).ok().filter(|wait| !wait.is_zero()) {
            let (wait, when) = (days(wait), written(from));
            return Some(format!("is not valid before {wait} from now, on {when}"));
        }
        let left = until.duration_since(now).unwrap_or_default();
        if left < SOON {
            return Some(format!("will expire in {}, on {}", days(left), written(until)));
        }
        (!self.0.facts.is_v3).then(|| {
            "is of a version before 3, and so has no names: many clients do not trust such a one; have it made \
             with subjectAltName"
                .to_owned()
        })
    }

    /// Whether it is not valid at `now`: expired, or not valid yet.
    pub fn is_invalid(&self, now: SystemTime) -> bool {
        let (from, until) = self.validity();
        now >= until || now < from
    }

    /// The certificate in PEM, for who wants to trust it.
    pub fn certificate_pem(&self) -> String {
        let encoded =
            pkcs8::der::pem::encode_string("CERTIFICATE", pkcs8::LineEnding::LF, &self.chain()[0]);
        encoded.unwrap_or_default()
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.key.cert
    }

    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.0.key
    }
}

impl fmt::Debug for Identity {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("subject", &self.subject())
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}

pub(crate) fn wrong(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// The same error, with the name of the file.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| {
        io::Error::new(error.kind(), format!("{} cannot be read: {error}", path.display()))
    })
}

/// All certificates in a text.
pub(crate) fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(format!("it is not whole: {error}")))?;
    if !found.is_empty() {
        return Ok(found);
    }
    Err(wrong(match () {
        () if has_label(pem, "PRIVATE KEY") => {
            "there is a key in it and no certificate: are certificate and key exchanged?"
        }
        () if pem.starts_with(&[0x30]) => {
            "it is DER, and PEM is wanted: openssl x509 -inform der -in FILE -out FILE.pem"
        }
        () => "there is no certificate in it: -----BEGIN CERTIFICATE----- is looked for",
    }))
}

/// The first key in a text.
fn private_key(pem: &[u8], password: Option<&[u8]>) -> io::Result<PrivateKeyDer<'static>> {
    if has_label(pem, pkcs8::EncryptedPrivateKeyInfoRef::PEM_LABEL) {
        return decrypted(pem, password);
    }
    if contains(pem, "Proc-Type: 4,ENCRYPTED") {
        return Err(wrong(
            "the key is encrypted in an old way that is not supported: openssl pkcs8 -topk8 -in FILE -out \
             FILE.new writes it in the new one",
        ));
    }
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let (kind, der) = section.map_err(|error| wrong(format!("it is not whole: {error}")))?;
        if let Some(key) = PrivateKeyDer::from_pem(kind, der) {
            return Ok(key);
        }
    }
    Err(wrong(match () {
        () if has_label(pem, "CERTIFICATE") => {
            "there is a certificate in it and no key: are certificate and key exchanged?"
        }
        () if pem.starts_with(&[0x30]) => {
            "it is DER, and PEM is wanted: openssl pkey -inform der -in FILE -out FILE.pem"
        }
        () => "there is no key in it: -----BEGIN PRIVATE KEY----- is looked for",
    }))
}

fn decrypted(pem: &[u8], password: Option<&[u8]>) -> io::Result<PrivateKeyDer<'static>> {
    let Some(password) = password else {
        return Err(wrong(
            "the key is encrypted: give its password (Identity::from_encrypted_files), or write it without: \
             openssl pkey -in FILE -out FILE.new",
        ));
    };
    let text = std::str::from_utf8(pem).map_err(|_| wrong("it is no text"))?;
    let begin = text.find("-----BEGIN ENCRYPTED PRIVATE KEY-----").unwrap_or(0);
    let (_, der) = pkcs8::SecretDocument::from_pem(&text[begin..])
        .map_err(|error| wrong(format!("it is not whole: {error}")))?;
    let encrypted = pkcs8::EncryptedPrivateKeyInfoRef::from_der(der.as_bytes())
        .map_err(|error| wrong(format!("the encrypted key cannot be read: {error}")))?;
    let plain = encrypted
        .decrypt(password)
        .map_err(|_| wrong("the key cannot be decrypted: is it this password?"))?;
    Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec())))
}

/// Whether there is something of a kind in PEM, or of one whose name ends so.
fn has_label(pem: &[u8], label: &str) -> bool {
    let text = String::from_utf8_lossy(pem);
    let end = format!("{label}-----");
    text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&end))
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_cert::der::{Any, Encode, Tagged};

    #[test]
    fn m2_key_without_a_certificate_is_an_error() {
        let key = rcgen::KeyPair::generate().unwrap().serialize_der();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let error = Identity::from_der(Vec::new(), key).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }

    /// A certificate of version 1, as `openssl x509 -req` makes one that is told of no extensions; and its key.
    fn version_1() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut parts = Vec::<Any>::from_der(certificate.der()).unwrap();
        let mut facts = Vec::<Any>::from_der(&parts[0].to_der().unwrap()).unwrap();
        // Its version and its extensions. The signature is wrong then, at which nobody looks.
        facts.retain(|part| !part.tag().is_context_specific());
        parts[0] = Any::from_der(&facts.to_der().unwrap()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        (CertificateDer::from(parts.to_der().unwrap()), key)
    }

    #[test]
    fn m2_certificate_of_version_1_needs_its_own_key() {
        let ((certificate, key), (_, other)) = (version_1(), version_1());
        let error = Identity::from_der(vec![certificate.clone()], other).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(
            error.to_string().contains("the key does not belong to the certificate"),
            "{error}"
        );
        // It can be shown; who sees it is another matter.
        let identity = Identity::from_der(vec![certificate], key).unwrap();
        let warning = identity.warning(SystemTime::now()).unwrap();
        assert!(warning.contains("is of a version before 3"), "{warning}");
    }
}
