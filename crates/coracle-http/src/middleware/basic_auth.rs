//! A name and a password with each request (RFC 7617).

use super::{Middleware, Next};
use crate::{IntoResponse, Request, Response, Status};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

/// So many bytes a header with a name and a password may have.
const LIMIT_CREDENTIALS_BYTES: usize = 1024;

/// Asks for a name and a password. Where there is no TLS, everybody on the way can read them.
///
/// ```
/// use coracle_http::middleware::{BasicAuth, User};
/// use coracle_http::{App, OwnedRequest, Router, Status};
///
/// let auth = BasicAuth::new("the ship").user("ahab", "thar she blows");
/// let app = Router::new(())
///     .with(auth)
///     .get("/", |_, req| format!("ahoy, {}\n", req.local::<User>().unwrap().name()));
///
/// let ask = |credentials: &str| {
///     let request = OwnedRequest::new("GET", "/").with_header("Authorization", credentials).unwrap();
///     app.call(&request.request())
/// };
/// let right = "Basic YWhhYjp0aGFyIHNoZSBibG93cw=="; // ahab:thar she blows
/// assert_eq!(ask(right).body().as_bytes(), Some(&b"ahoy, ahab\n"[..]));
/// assert_eq!(ask("Basic YWhhYjpoZWxsbw==").status(), Status::UNAUTHORIZED);
/// ```
pub struct BasicAuth {
    challenge: String,
    users: Vec<([u8; 32], [u8; 32])>,
    check: Option<Box<Check>>,
}

type Check = dyn Fn(&str, &str) -> bool + Send + Sync;

/// Who has said a right password, left [with the request](Request::local).
#[derive(Debug, Clone)]
pub struct User(String);

impl User {
    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl BasicAuth {
    /// Nobody yet. The realm is what the browser shows.
    ///
    /// # Panics
    /// When the realm has a quote, a backslash or a control character in it.
    pub fn new(realm: &str) -> BasicAuth {
        let good = realm.chars().all(|c| !c.is_control() && c != '"' && c != '\\');
        assert!(good, "{realm:?} cannot be sent as a realm");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        BasicAuth { challenge, users: Vec::new(), check: None }
    }

    /// This name with this password. How long it takes to refuse another does not depend on how much of it is
    /// right.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> BasicAuth {
        self.users.push((digest(name), digest(password)));
        self
    }

    /// Whoever `check` says yes to: name and password. It may wait; a slow hash belongs into
    /// [`offload`](coracle_coro::offload()).
    #[must_use]
    pub fn check(
        mut self,
        check: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
    ) -> BasicAuth {
        self.check = Some(Box::new(check));
        self
    }

    fn is_right(&self, name: &str, password: &str) -> bool {
        let (name_digest, password_digest) = (digest(name), digest(password));
        let mut right = Choice::from(0);
        for (name, password) in &self.users {
            right |= name.ct_eq(&name_digest) & password.ct_eq(&password_digest);
        }
        bool::from(right) || self.check.as_ref().is_some_and(|check| check(name, password))
    }
}

impl Middleware for BasicAuth {
    fn handle(&self, req: &Request<'_>, next: Next<'_>) -> Response {
        let said = req.header("authorization").and_then(credentials);
        match said.filter(|(name, password)| self.is_right(name, password)) {
            Some((name, _)) => {
                req.set_local(User(name));
                next.run(req)
            }
            None => Status::UNAUTHORIZED
                .into_response()
                .with_header("www-authenticate", &self.challenge),
        }
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("challenge", &self.challenge).finish_non_exhaustive()
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// The name and the password in the value of `Authorization`.
pub(crate) fn credentials(value: &str) -> Option<(String, String)> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || encoded.len() > LIMIT_CREDENTIALS_BYTES {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim_matches(' ')).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    (!text.chars().any(char::is_control)).then(|| (name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{App, OwnedRequest, Router};
    use proptest::prelude::*;

    fn ask(auth: BasicAuth, value: Option<&str>) -> Status {
        let app = Router::new(()).with(auth).get("/", |_, _| "");
        let mut request = OwnedRequest::new("GET", "/");
        if let Some(value) = value {
            request = request.with_header("authorization", value).unwrap();
        }
        let response = app.call(&request.request());
        if response.status() == Status::UNAUTHORIZED {
            assert!(
                response
                    .headers()
                    .get("www-authenticate")
                    .unwrap()
                    .starts_with("Basic realm=\"r\"")
            );
        }
        response.status()
    }

    #[test]
    fn j14_only_a_right_name_with_its_password_is_let_in() {
        let auth =
            || BasicAuth::new("r").user("a", "1").user("b", "2:3").check(|name, _| name == "c");
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for right in ["a:1", "b:2:3", "c:", "c:x"] {
            assert_eq!(ask(auth(), Some(&basic(right))), Status::OK, "{right}");
        }
        for wrong in ["a:2:3", "b:1", "a:", ":1", "a", "", "A:1", "a:1\0", "a:11", "b:2"] {
            assert_eq!(ask(auth(), Some(&basic(wrong))), Status::UNAUTHORIZED, "{wrong}");
        }
        for wrong in [
            "",
            "Basic",
            "Basic ",
            "Basic %%",
            "Bearer YTox",
            "BasicYTox",
            "Basic /w==",
            "Basic YTo",
        ] {
            assert_eq!(ask(auth(), Some(wrong)), Status::UNAUTHORIZED, "{wrong}");
        }
        assert_eq!(ask(auth(), None), Status::UNAUTHORIZED);
        assert_eq!(ask(auth(), Some("bAsIc YTox")), Status::OK, "the scheme has no case");
        let long = basic(&format!("c:{}", "x".repeat(LIMIT_CREDENTIALS_BYTES)));
        assert_eq!(ask(auth(), Some(&long)), Status::UNAUTHORIZED);
    }

    proptest! {
        #[test]
        fn j14_credentials_are_what_was_encoded(name in "[a-zé ]{0,8}", password in "[a-z:é ]{0,8}") {
            let value = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
            prop_assert_eq!(credentials(&value), Some((name, password)));
        }

        #[test]
        fn j14_no_credentials_panic(value in "(Basic )?.{0,20}") {
            let _ = credentials(&value);
        }
    }
}
