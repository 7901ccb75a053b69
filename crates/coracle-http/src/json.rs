//! JSON, in and out.

use crate::{IntoResponse, MediaType, Problem, Request, Response, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that is sent as JSON.
///
/// ```
/// use coracle_http::{IntoResponse, Json};
///
/// #[derive(serde::Serialize)]
/// struct Whale {
///     name: &'static str,
///     white: bool,
/// }
///
/// let response = Json(Whale { name: "Moby Dick", white: true }).into_response();
/// assert_eq!(response.headers().get("content-type"), Some("application/json"));
/// assert_eq!(response.body().as_bytes(), Some(&br#"{"name":"Moby Dick","white":true}"#[..]));
/// ```
///
/// A value that JSON cannot say (a map whose keys are no text) is a 500, and the log has the reason.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => {
                let mut response = Response::new(Status::OK).with_body(text);
                response.headers_mut().push_static("content-type", "application/json");
                response
            }
            Err(error) => Problem::from(error).into_response(),
        }
    }
}

impl Request<'_> {
    /// The body, which is JSON, as a value of a type of yours.
    ///
    /// ```
    /// use coracle_http::{OwnedRequest, Problem, Request, Status};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Whale {
    ///     name: String,
    ///     teeth: u8,
    /// }
    ///
    /// fn catch(req: &Request<'_>) -> Result<String, Problem> {
    ///     let whale: Whale = req.json()?;
    ///     Ok(format!("{} has {} teeth\n", whale.name, whale.teeth))
    /// }
    ///
    /// let send = |body: &'static str| {
    ///     let owned = OwnedRequest::new("POST", "/").with_header("Content-Type", "application/json").unwrap();
    ///     catch(&owned.with_body(body).request())
    /// };
    /// assert_eq!(send(r#"{"name":"Moby Dick","teeth":50}"#).unwrap(), "Moby Dick has 50 teeth\n");
    /// let problem = send(r#"{"name":"Moby Dick"}"#).unwrap_err();
    /// assert_eq!(problem.status(), Status::BAD_REQUEST);
    /// assert_eq!(problem.outward(), "the JSON cannot be understood: missing field `teeth` at line 1 column 20");
    /// ```
    ///
    /// # Errors
    /// 415 when the body is not said to be JSON, 400 when it is none or does not fit the type, with the reason and
    /// the place. What is nested deeper than 128 is refused.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let kind = self.header("content-type").and_then(MediaType::parse);
        if !kind.is_some_and(|kind| kind.is_json()) {
            let outward = "send JSON: application/json";
            return Err(Problem::new(Status::UNSUPPORTED_MEDIA_TYPE, outward));
        }
        serde_json::from_slice(self.body()).map_err(|error| {
            let outward =
                format!("the JSON cannot be understood: {}", error.to_string().escape_debug());
            Problem::new(Status::BAD_REQUEST, outward)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnedRequest;
    use std::collections::HashMap;

    fn send(kind: &str, body: impl Into<Vec<u8>>) -> Result<serde_json::Value, Problem> {
        let owned = OwnedRequest::new("POST", "/").with_header("content-type", kind).unwrap();
        owned.with_body(body.into()).request().json()
    }

    #[test]
    fn j8_what_is_no_json_is_400_and_says_where() {
        for body in ["", "{", "{\"a\":}", "[1,]", "nul", "1 2", "\"\\ud800\"", "{\"a\":1}x"] {
            let problem = send("application/json", body).unwrap_err();
            assert_eq!(problem.status(), Status::BAD_REQUEST, "{body}");
            assert!(problem.outward().contains("line 1"), "{}", problem.outward());
        }
        assert!(send("application/json", b"\"\xff\"".to_vec()).is_err());
        assert_eq!(send("application/merge-patch+json", "[1]").unwrap()[0], 1);
    }

    #[test]
    fn j8_json_that_is_nested_too_deep_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(send("application/json", nested(100)).is_ok());
        for depth in [129, 100_000] {
            assert_eq!(
                send("application/json", nested(depth)).unwrap_err().status(),
                Status::BAD_REQUEST
            );
        }
    }

    #[test]
    fn j8_what_is_not_said_to_be_json_is_415() {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "x"] {
            assert_eq!(send(kind, "1").unwrap_err().status(), Status::UNSUPPORTED_MEDIA_TYPE);
        }
    }

    #[test]
    fn j8_a_value_that_json_cannot_say_is_500() {
        let response = Json(HashMap::from([(vec![1], 2)])).into_response();
        assert_eq!(response.status(), Status::INTERNAL_SERVER_ERROR);
    }
}
