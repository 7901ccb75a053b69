//! Requests and responses: HTTP/1.1, strict and fast, with handlers that are plain functions.

mod app;
mod body;
mod body_reader;
mod date;
mod h1;
mod headers;
mod into_response;
mod method;
mod owned_request;
mod request;
mod response;
mod settings;

pub use app::{App, Plan};
pub use body::{Body, BodyWriter};
pub use body_reader::BodyReader;
pub use headers::{HeaderError, Headers};
/// The status of a response: `Status::OK`, `Status::NOT_FOUND`, …
#[doc(no_inline)]
pub use http::StatusCode as Status;
pub use into_response::{Html, IntoResponse, Redirect};
pub use method::Method;
pub use owned_request::{OwnedRequest, Version};
pub use request::Request;
pub use response::Response;
pub use settings::Settings;
