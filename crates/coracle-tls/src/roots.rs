//! Whom to trust.

use crate::Identity;
use crate::identity::{certificates, named, read, wrong};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Certificates of authorities: who shows one that they have signed is who they say.
///
/// ```
/// use coracle_tls::{Identity, Roots};
///
/// let development = Identity::self_signed(["localhost"]).unwrap();
/// let roots = Roots::identity(&development).unwrap(); // trusts this one alone
/// assert_eq!(roots.len(), 1);
/// ```
#[derive(Clone)]
pub struct Roots(pub(crate) Arc<RootCertStore>);

impl Roots {
    /// Those that the system trusts.
    ///
    /// # Errors
    /// `NotFound`: there are none.
    pub fn system() -> io::Result<Roots> {
        let found = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(found.certs);
        if store.is_empty() {
            let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
            let text = format!(
                "this system trusts nobody{why}: install its package of certificates (ca-certificates), or \
                 say whom to trust"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(Roots(Arc::new(store)))
    }

    /// Those in a file, in PEM.
    ///
    /// # Errors
    /// It cannot be read, or there are none in it.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Roots> {
        let path = path.as_ref();
        Roots::from_pem(&read(path)?).map_err(|error| named(path, &error))
    }

    /// Those in a text, in PEM.
    ///
    /// # Errors
    /// `InvalidData`: there are none in it.
    pub fn from_pem(pem: &[u8]) -> io::Result<Roots> {
        Roots::of(certificates(pem)?)
    }

    /// This one alone, which is [self-signed](Identity::self_signed).
    ///
    /// # Errors
    /// It cannot be one.
    pub fn identity(identity: &Identity) -> io::Result<Roots> {
        Roots::of(vec![identity.chain()[0].clone().into_owned()])
    }

    fn of(certificates: Vec<CertificateDer<'static>>) -> io::Result<Roots> {
        let mut store = RootCertStore::empty();
        for certificate in certificates {
            store
                .add(certificate)
                .map_err(|error| wrong(format!("one of its certificates is no root: {error}")))?;
        }
        Ok(Roots(Arc::new(store)))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Roots {
    fn eq(&self, other: &Roots) -> bool {
        self.0.roots == other.0.roots
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({})", self.len())
    }
}
