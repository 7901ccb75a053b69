//! What went wrong, in two voices: one for the client, one for the log.

use crate::h1::Refusal;
use crate::{IntoResponse, Response, Status};
use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// Why a handler has no better answer: a status and a sentence for the client, and, apart from them, the reason
/// for the log, which the client never sees.
///
/// ```
/// use coracle_http::{IntoResponse, Problem, Request, Status};
///
/// fn show(req: &Request<'_>) -> Result<String, Problem> {
///     let number = req.segments().last().copied().unwrap_or("");
///     let number: u32 = number.parse().map_err(|_| Problem::new(Status::BAD_REQUEST, "that is no number"))?;
///     // Any error: a 500, and a line in the log.
///     Ok(std::fs::read_to_string(format!("/var/lib/pages/{number}"))?)
/// }
///
/// # let owned = coracle_http::OwnedRequest::new("GET", "/pages/x");
/// let response = show(&owned.request()).into_response();
/// assert_eq!(response.status(), Status::BAD_REQUEST);
/// assert_eq!(response.body().as_bytes(), Some(&b"that is no number\n"[..]));
///
/// # let owned = coracle_http::OwnedRequest::new("GET", "/pages/7");
/// let response = show(&owned.request()).into_response();
/// assert_eq!(response.status(), Status::INTERNAL_SERVER_ERROR);
/// assert_eq!(response.body().as_bytes(), Some(&b"500 Internal Server Error\n"[..])); // not the path
/// ```
///
/// Every error can become one by `?`. For that it must not itself be a [`std::error::Error`].
pub struct Problem {
    status: Status,
    outward: Cow<'static, str>,
    inward: Option<Box<dyn Error>>,
}

impl Problem {
    /// A problem, as the client is told of it. An empty text is the name of the status.
    pub fn new(status: Status, outward: impl Into<Cow<'static, str>>) -> Problem {
        Problem { status, outward: outward.into(), inward: None }
    }

    /// With the reason, as the log is told of it.
    ///
    /// ```
    /// use coracle_http::{Problem, Status};
    ///
    /// let problem = Problem::new(Status::BAD_GATEWAY, "the shop is closed").because("redis: connection refused");
    /// assert_eq!(problem.outward(), "the shop is closed");
    /// assert_eq!(problem.inward().unwrap().to_string(), "redis: connection refused");
    /// ```
    #[must_use]
    pub fn because(mut self, inward: impl Into<Box<dyn Error>>) -> Problem {
        self.inward = Some(inward.into());
        self
    }

    /// The status of the answer.
    pub fn status(&self) -> Status {
        self.status
    }

    /// What the client is told.
    pub fn outward(&self) -> &str {
        &self.outward
    }

    /// What the log is told.
    pub fn inward(&self) -> Option<&(dyn Error + 'static)> {
        self.inward.as_deref()
    }
}

impl<E: Error + 'static> From<E> for Problem {
    /// A 500 that tells the client nothing, and the log everything. A body that could not be read because the
    /// client has sent it wrongly, too slowly or not to its end is a 400, 408 or 413.
    fn from(error: E) -> Problem {
        if let Some(refusal) = Refusal::of(&error) {
            return Problem::new(refusal.status, refusal.why);
        }
        Problem::new(Status::INTERNAL_SERVER_ERROR, "").because(error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if let Some(inward) = &self.inward {
            let inward = Chain(inward.as_ref());
            if self.status.is_server_error() {
                tracing::error!(status = self.status.as_u16(), "a request failed: {inward}");
            } else {
                tracing::info!(status = self.status.as_u16(), "a request was refused: {inward}");
            }
        }
        if self.outward.is_empty() {
            return self.status.into_response();
        }
        (self.status, format!("{}\n", self.outward)).into_response()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.outward.is_empty() {
            write!(f, ": {}", self.outward)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem")
            .field("status", &self.status)
            .field("outward", &self.outward)
            .field("inward", &self.inward)
            .finish()
    }
}

/// An error and what it comes from: `outer: inner`, without line ends, whoever wrote them.
struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut next = Some(self.0);
        let mut separator = "";
        while let Some(error) = next {
            write!(f, "{separator}{}", error.to_string().escape_debug())?;
            separator = ": ";
            next = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn j14_the_client_is_not_told_the_inward_message() {
        let problem = Problem::from(io::Error::other("password is hunter2"));
        assert_eq!(problem.inward().unwrap().to_string(), "password is hunter2");
        let response = problem.into_response();
        let text = String::from_utf8_lossy(response.body().as_bytes().unwrap()).into_owned();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(response.headers().iter().all(|(_, value)| !value.ends_with(b"hunter2")));
    }

    #[test]
    fn j14_a_line_end_in_an_error_makes_no_second_line_in_the_log() {
        let error = io::Error::other("a\nINFO forged");
        assert_eq!(Chain(&error).to_string(), "a\\nINFO forged");
    }
}
