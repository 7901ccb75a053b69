//! Who may read the bytes? TLS 1.2 and 1.3, by rustls.
//!
//! ```text
//!                       ┌── ServerTls / ClientTls: certificates, whom to trust, replaced while it runs
//!                       ▼
//!   socket ◄─► Conn ◄─► TlsLayer ◄─► Protocol        in callbacks: Secure, or Conn::push_layer
//!   socket ◄─────────► TlsStream ◄─► your function   in coroutines and threads: Read and Write
//! ```
//!
//! A server has an [`Identity`] (a certificate, its chain, its key) or several, which it chooses by the name that
//! the client asks for:
//!
//! ```
//! use coracle_net::{Buffer, Conn, Server};
//! use coracle_tls::{Identity, Secure, ServerTls};
//!
//! # fn main() -> std::io::Result<()> {
//! let tls = ServerTls::new(Identity::self_signed(["localhost"])?)?; // or Identity::from_files
//! let server = Server::bind("127.0.0.1:0")?.loops(1);
//! let running = server.start(move |_peer| {
//!     Secure::new(tls.layer(), |_session| |conn: &mut Conn<'_>, input: &mut Buffer| {
//!         conn.write(input.take_all());
//!         Ok(())
//!     })
//! })?;
//! # running.handle().stop();
//! # running.join()
//! # }
//! ```
//!
//! What is not there: TLS 1.1 and older, compression, renegotiation, early data (0-RTT). Which cryptography is
//! used is a feature: `ring`, which is the default, or `aws-lc-rs`.

mod client;
mod engine;
mod identity;
mod layer;
mod names;
mod provider;
mod roots;
mod secure;
mod self_signed;
mod server;
mod session;
mod strangers;
mod stream;
mod x509;

pub use client::{ClientSettings, ClientTls};
pub use identity::Identity;
pub use layer::TlsLayer;
pub use provider::provider_name;
pub use roots::Roots;
pub use secure::Secure;
pub use server::{ClientCertificates, ServerSettings, ServerTls};
pub use session::{Session, TlsVersion};
pub use stream::TlsStream;
