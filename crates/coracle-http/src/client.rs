//! Asking other servers: a client that waits in coroutines, and keeps its connections.
//!
//! ```text
//!   Client ──► RequestBuilder ──send──► pools: a connection ──► Link: one request after the other
//!                   ▲   redirects, attempts                      │  out: head and body, or an Upload
//!                   └────────────── Answer: Read ◄── Incoming ◄──┘  in: h1::reply
//! ```

mod answer;
#[allow(clippy::module_inception)] // the file of `Client`
mod client;
mod decode;
pub(crate) mod link;
pub(crate) mod place;
pub(crate) mod pools;
pub(crate) mod request;
mod settings;
pub(crate) mod stream;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod upload;
pub(crate) mod url;

pub use self::answer::Answer;
pub use self::client::Client;
pub use self::request::RequestBuilder;
pub use self::settings::Settings;
pub use self::stream::{Duplex, Parts, Secure};
