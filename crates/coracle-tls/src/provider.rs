//! Which cryptography is used: ring or aws-lc-rs, by feature.

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, OnceLock};

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("coracle-tls needs cryptography: enable its feature `ring` or `aws-lc-rs`");

#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs as chosen;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use rustls::crypto::ring as chosen;

/// What everything here uses, whatever the process has installed as rustls' own default.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(chosen::default_provider())))
}

/// Keys for tickets, which are made anew every few hours.
pub(crate) fn ticketer() -> Result<Arc<dyn rustls::server::ProducesTickets>, rustls::Error> {
    chosen::Ticketer::new()
}

/// The cryptography that is built in: `ring` or `aws-lc-rs`.
///
/// ```
/// assert!(["ring", "aws-lc-rs"].contains(&coracle_tls::provider_name()));
/// ```
pub fn provider_name() -> &'static str {
    if cfg!(feature = "aws-lc-rs") { "aws-lc-rs" } else { "ring" }
}
