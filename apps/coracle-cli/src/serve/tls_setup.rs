//! TLS: which certificates are shown, who is let in, and what becomes of those who come without it.

use super::arguments::Arguments;
use super::config::{self, ClientCertificates as Wanted, Oldest};
use super::mistake::Mistakes;
use coracle::http;
use coracle::http::middleware::Https;
use coracle::net::ToAddresses;
use coracle::tls::{ClientCertificates, Identity, Roots, ServerSettings, TlsVersion};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use toml::Spanned;

/// For how long a certificate of `--self-signed` is that of this process.
static SELF_SIGNED: OnceLock<Identity> = OnceLock::new();

/// What was decided about TLS.
#[derive(Debug, Clone)]
pub(super) struct TlsSetup {
    pub(super) settings: ServerSettings,
    /// Where those are listened to who come without.
    pub(super) redirect: Vec<String>,
    /// Whether a certificate was made by this process.
    pub(super) self_signed: bool,
    /// The files of keys and passwords, which nobody else may read.
    secrets: Vec<PathBuf>,
    hsts: Option<(Duration, bool)>,
}

impl TlsSetup {
    fn new(identities: Vec<Identity>) -> TlsSetup {
        let settings =
            ServerSettings { identities, ..ServerSettings::default() }.speaking(http::ALPN);
        TlsSetup {
            settings,
            redirect: Vec::new(),
            self_signed: false,
            secrets: Vec::new(),
            hsts: None,
        }
    }

    /// Of the table in the file, whose paths begin at `base`.
    pub(super) fn read(
        tls: &Spanned<config::Tls>,
        mistakes: &mut Mistakes,
        base: &Path,
    ) -> TlsSetup {
        let (span, tls) = (tls.span(), tls.get_ref());
        let (mut identities, mut secrets) = (Vec::new(), Vec::new());
        let mut add = |identity: &config::Identity, mistakes: &mut Mistakes| {
            let (Some(certificate), Some(key)) = (&identity.certificate, &identity.key) else {
                let (span, what) = match (&identity.certificate, &identity.key) {
                    (Some(certificate), None) => {
                        (certificate.span(), "`key` is missing: the file of its key")
                    }
                    (None, Some(key)) => {
                        (key.span(), "`certificate` is missing: the file it belongs to")
                    }
                    _ => return,
                };
                return mistakes.add(span, what);
            };
            let password =
                identity.key_password_file.as_ref().map(|file| base.join(file.get_ref()));
            let (certificate_file, key) =
                (base.join(certificate.get_ref()), base.join(key.get_ref()));
            match load(&certificate_file, &key, password.as_deref()) {
                Ok(identity) => identities.push(identity),
                Err(error) => mistakes.add(certificate.span(), error.to_string()),
            }
            secrets.extend([Some(key), password].into_iter().flatten());
        };
        let first = config::Identity {
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            key_password_file: tls.key_password_file.clone(),
        };
        add(&first, mistakes);
        tls.identity.iter().for_each(|identity| add(identity, mistakes));
        if tls.self_signed {
            match self_signed() {
                Ok(identity) => identities.push(identity),
                Err(error) => mistakes.add(span.clone(), error.to_string()),
            }
        }
        let names_one = tls.certificate.is_some() || tls.key.is_some() || !tls.identity.is_empty();
        if identities.is_empty() && !names_one {
            mistakes.add(
                span,
                "there is no certificate: `certificate` and `key`, or `self_signed = true`",
            );
        }
        let mut setup = TlsSetup::new(identities);
        setup.self_signed = tls.self_signed;
        setup.secrets = secrets;
        for address in &tls.redirect {
            if let Err(error) = address.get_ref().as_str().to_addresses() {
                mistakes.add(address.span(), error.to_string());
            }
            setup.redirect.push(address.get_ref().clone());
        }
        let seconds = |value: &Option<Spanned<i64>>, mistakes: &mut Mistakes, most: i64| {
            super::setup::number::<u64>(mistakes, value.as_ref(), 1..=most).map(Duration::from_secs)
        };
        setup.hsts = seconds(&tls.hsts_seconds, mistakes, 10 * 365 * 86_400)
            .map(|age| (age, tls.hsts_subdomains));
        let settings = &mut setup.settings;
        if let Some(time) = seconds(&tls.handshake_seconds, mistakes, 3600) {
            settings.handshake_timeout = time;
        }
        settings.refuse_unknown_names = tls.refuse_unknown_names;
        settings.oldest_version = match tls.oldest_version {
            Oldest::Tls12 => TlsVersion::Tls12,
            Oldest::Tls13 => TlsVersion::Tls13,
        };
        if let Some(file) = &tls.client_roots {
            match Roots::from_file(base.join(file.get_ref())) {
                Ok(roots) => {
                    settings.client_certificates = match tls.client_certificates {
                        Wanted::Require => ClientCertificates::Require(roots),
                        Wanted::Allow => ClientCertificates::Allow(roots),
                    };
                }
                Err(error) => mistakes.add(file.span(), error.to_string()),
            }
        }
        setup
    }

    /// What the command line says counts.
    pub(super) fn adopt(
        setup: Option<TlsSetup>,
        arguments: &Arguments,
    ) -> io::Result<Option<TlsSetup>> {
        let password = arguments.tls_key_password_file.as_deref();
        let identity = match (&arguments.tls_cert, &arguments.tls_key) {
            (Some(certificate), Some(key)) => Some(load(certificate, key, password)?),
            _ if arguments.self_signed => Some(self_signed()?),
            _ => None,
        };
        let mut setup = match (setup, identity) {
            (Some(mut setup), Some(identity)) => {
                setup.settings.identities = vec![identity];
                setup
            }
            (None, Some(identity)) => TlsSetup::new(vec![identity]),
            (setup, None) => return Ok(setup),
        };
        setup.self_signed = arguments.self_signed;
        // Those of the file are secrets, though others are used now.
        let secrets = [arguments.tls_key.as_deref(), password];
        setup.secrets.extend(secrets.into_iter().flatten().map(Path::to_owned));
        if !arguments.tls_redirect.is_empty() {
            setup.redirect.clone_from(&arguments.tls_redirect);
        }
        Ok(Some(setup))
    }

    /// Keeps of `now` what cannot be changed while it serves: whether TLS is spoken, and where those are listened
    /// to who come without. What is listened to must not come to be served in clear because it is not named any
    /// more.
    pub(super) fn keep_fixed(now: Option<&TlsSetup>, new: &mut Option<TlsSetup>) {
        match (now, &mut *new) {
            (Some(now), Some(new)) => new.redirect.clone_from(&now.redirect),
            (now, _) => *new = now.cloned(),
        }
    }

    /// What is done for every request, if there is something to do. Others are sent to this port.
    pub(super) fn middleware(&self, port: u16) -> Option<Https> {
        if self.redirect.is_empty() && self.hsts.is_none() {
            return None;
        }
        let https = Https::new().port(port);
        Some(match self.hsts {
            Some((age, subdomains)) => https.hsts(age, subdomains),
            None => https,
        })
    }

    /// The first file of a key or a password that is in this directory, or below it; or that is reached through
    /// it, by links which might be followed for others, too.
    pub(super) fn secret_in(&self, directory: &Path) -> Option<&Path> {
        let directory = directory.canonicalize().ok()?;
        let is_inside =
            |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&directory));
        let is_there = |file: &&PathBuf| {
            let Ok(file) = std::path::absolute(file) else { return false };
            // What is before `..` was left again.
            file.ancestors().take_while(|path| path.file_name().is_some()).any(is_inside)
        };
        self.secrets.iter().find(is_there).map(PathBuf::as_path)
    }

    /// What clients will not like about the certificates.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let now = SystemTime::now();
        self.settings.identities.iter().filter_map(move |identity| identity.warning(now))
    }

    /// Fails if one of them is not valid now.
    pub(super) fn check(&self) -> io::Result<()> {
        let now = SystemTime::now();
        let invalid = self.settings.identities.iter().find(|identity| identity.is_invalid(now));
        match invalid.and_then(|identity| identity.warning(now)) {
            Some(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
            None => Ok(()),
        }
    }
}

fn load(certificate: &Path, key: &Path, password: Option<&Path>) -> io::Result<Identity> {
    let Some(file) = password else {
        if is_encrypted(key) {
            let text = format!(
                "{key}: the key is encrypted: name the file with its password, by key_password_file in the \
                 configuration or --tls-key-password-file on the command line; or write the key without: \
                 openssl pkey -in {key} -out FILE",
                key = key.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        return Identity::from_files(certificate, key);
    };
    let password = fs::read_to_string(file).map_err(|error| {
        let text = format!("the password in {} cannot be read: {error}", file.display());
        io::Error::new(error.kind(), text)
    })?;
    Identity::from_encrypted_files(certificate, key, password.trim_end_matches(['\r', '\n']))
}

fn is_encrypted(key: &Path) -> bool {
    fs::read_to_string(key).is_ok_and(|pem| pem.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----"))
}

/// The same one as long as the process lives, so that who has trusted it need not do so again.
fn self_signed() -> io::Result<Identity> {
    if let Some(identity) = SELF_SIGNED.get() {
        return Ok(identity.clone());
    }
    let identity = Identity::self_signed(["localhost", "127.0.0.1", "::1"])?;
    Ok(SELF_SIGNED.get_or_init(|| identity).clone())
}
