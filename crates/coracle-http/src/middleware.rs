//! Around an app: what is done before it is called, and with its answer.
//!
//! ```text
//!   request ──► access log ──► rate limit ──► compression ──► app
//!   answer  ◄──────────────────────────────────────────────── ┘     the first one is outermost
//! ```
//!
//! ```
//! use coracle_http::middleware::{AccessLog, LogFormat, RequestIds, SameOrigin, catch_panics, etag};
//! use coracle_http::Router;
//!
//! let app = Router::new(())
//!     .with(RequestIds::new())
//!     .with(AccessLog::to_writer(std::io::stderr(), LogFormat::Combined))
//!     .with(catch_panics)
//!     .with(SameOrigin::new())
//!     .with(etag)
//!     .get("/", |_, _| "ahoy\n");
//! # let _ = app;
//! ```
//!
//! | who | does |
//! |---|---|
//! | [`RequestIds`] | gives each request a name, for the log and the answer |
//! | [`AccessLog`] | writes a line for each answer |
//! | [`catch_panics`] | makes a 500 of a panic, which those further out see |
//! | [`ErrorPages`] | makes pages of bare errors |
//! | [`RateLimit`] | refuses those who ask too often |
//! | [`BasicAuth`] | asks for a name and a password |
//! | [`SameOrigin`] | refuses changes that another site asks for |
//! | [`Https`] | sends those who come without TLS to where there is TLS (HSTS) |
//! | [`Cors`] | allows other sites to ask |
//! | [`etag`] | answers 304 when the client has it already |
//! | `Compression` | makes answers shorter (feature `compression`) |

mod access_log;
pub(crate) mod basic_auth;
mod catch_panics;
mod cors;
mod error_pages;
mod etag;
mod https;
mod next;
pub(crate) mod rate_limit;
mod request_id;
mod same_origin;
mod vary;

pub use access_log::{AccessLog, LogFormat};
pub use basic_auth::{BasicAuth, User};
pub use catch_panics::catch_panics;
pub use cors::Cors;
pub use error_pages::ErrorPages;
pub use etag::etag;
pub use https::Https;
pub use next::{Around, Middleware, Next, around};
pub use rate_limit::RateLimit;
pub use request_id::RequestIds;
pub use same_origin::SameOrigin;

#[cfg(feature = "compression")]
mod compression;
#[cfg(feature = "compression")]
pub use compression::Compression;
