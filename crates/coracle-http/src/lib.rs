//! Requests and responses: HTTP/1.1 and HTTP/2, strict and fast, with handlers that are plain functions.
//!
//! An app is a function of a request. It runs in a coroutine, so it may wait; while it does, the loop serves
//! others.
//!
//! ```no_run
//! use coracle_http::{self as http, IntoResponse, Method::*, Request, Response, Status};
//!
//! fn main() -> std::io::Result<()> {
//!     http::serve("127.0.0.1:8080", app)
//! }
//!
//! fn app(req: &Request) -> Response {
//!     match (req.method(), req.segments()) {
//!         (Get, []) => "ahoy\n".into_response(),
//!         (Get, ["hello", name]) => format!("hello, {name}\n").into_response(),
//!         _ => Status::NOT_FOUND.into_response(),
//!     }
//! }
//! ```

mod accept_encoding;
mod app;
mod body;
mod body_reader;
mod calendar;
mod cgi;
pub mod client;
mod connection;
mod content_length;
mod date;
mod escape;
mod exchange;
mod fastcgi;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
mod h1;
mod h2;
mod handling;
mod headers;
mod http2_settings;
mod idle;
mod into_response;
mod live_settings;
mod method;
mod networks;
mod origin;
mod owned_request;
mod peer;
mod per_address;
mod promise;
pub mod proxy;
mod proxy_protocol;
mod refusal;
mod request;
mod response;
#[cfg(feature = "tls")]
mod secure;
mod server;
mod service;
mod settings;
mod shared_file;
mod site;
pub mod sse;
mod stats;
mod stopping;
mod styles;
mod trailers;
mod turned_away;
mod upload;
pub mod ws;

// What an application needs on top of them.
mod cookies;
mod forms;
mod hosts;
mod json;
mod matched;
mod media_type;
pub mod middleware;
mod multipart;
mod path;
mod problem;
mod router;
mod session;
mod set_cookie;
#[cfg(feature = "templates")]
mod templates;
#[cfg(feature = "tower")]
pub mod tower;

/// TLS: certificates, whom to trust, sessions.
#[cfg(feature = "tls")]
#[doc(no_inline)]
pub use coracle_tls as tls;

pub use accept_encoding::{AcceptEncoding, Coding};
pub use app::{App, Plan};
pub use body::{Body, BodyWriter};
pub use body_reader::BodyReader;
pub use cgi::Cgi;
pub use client::Client;
pub use fastcgi::FastCgi;
pub use files::Files;
pub use headers::{HeaderError, Headers};
/// The status of a response: `Status::OK`, `Status::NOT_FOUND`, …
#[doc(no_inline)]
pub use http::StatusCode as Status;
pub use http2_settings::Http2Settings;
pub use into_response::{Html, IntoResponse, Redirect};
pub use live_settings::LiveSettings;
pub use method::Method;
pub use networks::{Networks, NetworksError};
pub use owned_request::{OwnedRequest, Version};
pub use proxy::Proxy;
pub use proxy_protocol::ProxyProtocol;
pub use refusal::Refusal;
pub use request::Request;
pub use response::Response;
#[cfg(feature = "tls")]
pub use secure::ALPN;
pub use server::{Running, Server, serve, serve_each};
pub use service::Service;
pub use settings::Settings;
pub use stats::Stats;
pub use styles::{
    Asynchronous, Callback, Inline, Responder, Streaming, asynchronous, callback, inline, streaming,
};
pub use trailers::Trailers;

pub use forms::Pairs;
pub use hosts::Hosts;
pub use json::Json;
pub use media_type::MediaType;
pub use multipart::{Multipart, MultipartLimits, Part, SavedFile, Upload};
pub use problem::Problem;
pub use router::Router;
pub use session::{SessionKey, Sessions};
pub use set_cookie::{Cookie, CookieError, SameSite};
#[cfg(feature = "templates")]
pub use templates::{Serde, Templates, context};
