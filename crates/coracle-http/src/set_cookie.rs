//! Cookies, as they are set: `session=MTIz; Path=/; HttpOnly; SameSite=Lax`.

use crate::Response;
use crate::headers::is_token;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// So many bytes a cookie has at most, with its attributes. Browsers drop those with more.
pub(crate) const LIMIT_COOKIE_BYTES: usize = 4096;

/// A cookie to be set.
///
/// ```
/// use coracle_http::{Cookie, IntoResponse, SameSite};
/// use std::time::Duration;
///
/// let cookie = Cookie::new("theme", "dark")?.max_age(Duration::from_secs(86_400)).same_site(SameSite::Strict);
/// assert_eq!(cookie.to_string(), "theme=dark; Path=/; Max-Age=86400; HttpOnly; SameSite=Strict");
///
/// let response = "it is dark now\n".into_response().with_cookie(cookie);
/// assert!(response.headers().get("set-cookie").unwrap().starts_with("theme=dark;"));
/// # Ok::<(), coracle_http::CookieError>(())
/// ```
///
/// Unless said otherwise, it is for all paths, scripts do not see it (`HttpOnly`), other sites do not send it but
/// by a link (`SameSite=Lax`), and the browser forgets it when it is closed. Where there is TLS, add
/// [`secure`](Cookie::secure), or use [`Cookie::for_host`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie {
    name: String,
    value: String,
    path: String,
    domain: Option<String>,
    max_age: Option<Duration>,
    secure: bool,
    http_only: bool,
    same_site: SameSite,
}

/// When a browser sends a cookie with a request that another site caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    /// Never.
    Strict,
    /// When a link is followed.
    Lax,
    /// Always. Browsers insist on [`Cookie::secure`] then, so that is set, too.
    None,
}

impl Cookie {
    /// A cookie.
    ///
    /// # Errors
    /// The name is no token, the value has something other than visible ASCII in it, or a quote, a comma, a
    /// semicolon or a backslash; or they are too long. Encode such values: by percent signs, or base64.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Result<Cookie, CookieError> {
        let cookie = Cookie {
            name: name.into(),
            value: value.into(),
            path: "/".into(),
            domain: None,
            max_age: None,
            secure: false,
            http_only: true,
            same_site: SameSite::Lax,
        };
        cookie.check()?;
        Ok(cookie)
    }

    /// A cookie that only this host can have set, over TLS: its name begins with `__Host-`, it is
    /// [secure](Cookie::secure), for all paths and no other host. Browsers refuse it from anybody else.
    ///
    /// ```
    /// use coracle_http::Cookie;
    ///
    /// let cookie = Cookie::for_host("id", "7")?;
    /// assert_eq!(cookie.to_string(), "__Host-id=7; Path=/; Secure; HttpOnly; SameSite=Lax");
    /// # Ok::<(), coracle_http::CookieError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Cookie::new`].
    pub fn for_host(name: &str, value: impl Into<String>) -> Result<Cookie, CookieError> {
        Ok(Cookie::new(format!("{HOST}{name}"), value)?.secure())
    }

    /// Makes the browser forget the cookie of this name. One that was set for a [path](Cookie::path) or a
    /// [domain](Cookie::domain) is forgotten only with the same.
    ///
    /// # Errors
    /// As [`Cookie::new`].
    pub fn removal(name: impl Into<String>) -> Result<Cookie, CookieError> {
        let cookie = Cookie::new(name, "")?.max_age(Duration::ZERO);
        let secure = cookie.name.starts_with(HOST) || cookie.name.starts_with(SECURE);
        Ok(if secure { cookie.secure() } else { cookie })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Only for paths below this one.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Cookie {
        self.path = path.into();
        self
    }

    /// For this domain and all below it, instead of this host only.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Cookie {
        self.domain = Some(domain.into());
        self
    }

    /// The browser keeps it so long, even when it is closed meanwhile.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Cookie {
        self.max_age = Some(age);
        self
    }

    /// Only over TLS (and to localhost).
    #[must_use]
    pub fn secure(mut self) -> Cookie {
        self.secure = true;
        self
    }

    /// Scripts of the page may see it.
    #[must_use]
    pub fn visible_to_scripts(mut self) -> Cookie {
        self.http_only = false;
        self
    }

    /// When it is sent with requests that other sites cause.
    #[must_use]
    pub fn same_site(mut self, same_site: SameSite) -> Cookie {
        self.same_site = same_site;
        self.secure |= same_site == SameSite::None;
        self
    }

    /// Whether it can be sent, and a browser would take it.
    fn check(&self) -> Result<(), CookieError> {
        let wrong = |what| Err(CookieError { name: self.name.clone(), what });
        if self.name.is_empty() || !self.name.bytes().all(is_token) {
            return wrong("its name is not one: letters, digits and !#$%&'*+-.^_`|~");
        }
        if !self.value.bytes().all(is_cookie_octet) {
            return wrong("its value has a character that no cookie has; encode it");
        }
        let attribute =
            |text: &str| text.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b';');
        if !self.path.starts_with('/') || !attribute(&self.path) {
            return wrong("its path is none");
        }
        if self.domain.as_deref().is_some_and(|domain| domain.is_empty() || !attribute(domain)) {
            return wrong("its domain is none");
        }
        if self.name.starts_with(HOST) && (self.path != "/" || self.domain.is_some()) {
            return wrong("a __Host- cookie has the path / and no domain");
        }
        if self.to_string().len() > LIMIT_COOKIE_BYTES {
            return wrong("it is longer than 4096 bytes");
        }
        Ok(())
    }
}

const HOST: &str = "__Host-";
const SECURE: &str = "__Secure-";

/// RFC 6265, 4.1.1.
fn is_cookie_octet(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\')
}

impl fmt::Display for Cookie {
    /// The value of `Set-Cookie`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}; Path={}", self.name, self.value, self.path)?;
        if let Some(domain) = &self.domain {
            write!(f, "; Domain={domain}")?;
        }
        if let Some(age) = self.max_age {
            write!(f, "; Max-Age={}", age.as_secs())?;
        }
        if self.secure || self.name.starts_with(HOST) || self.name.starts_with(SECURE) {
            f.write_str("; Secure")?;
        }
        if self.http_only {
            f.write_str("; HttpOnly")?;
        }
        f.write_str(match self.same_site {
            SameSite::Strict => "; SameSite=Strict",
            SameSite::Lax => "; SameSite=Lax",
            SameSite::None => "; SameSite=None",
        })
    }
}

impl Response {
    /// With this cookie set, beside others.
    ///
    /// A cookie that no browser would take, because of its path or domain, is a mistake of the program: a 500 is
    /// sent in place of the response, and the log says why.
    #[must_use]
    pub fn with_cookie(mut self, cookie: Cookie) -> Response {
        let set = cookie.check().map_err(|error| error.to_string()).and_then(|()| {
            let set = self.headers_mut().append("set-cookie", cookie.to_string());
            set.map_err(|error| error.to_string())
        });
        match set {
            Ok(()) => self,
            Err(error) => {
                tracing::error!("a response is replaced by a 500: {error}");
                Response::new(crate::Status::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

/// Why a cookie is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CookieError {
    name: String,
    what: &'static str,
}

impl fmt::Display for CookieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot set the cookie {:?}: {}", self.name, self.what)
    }
}

impl Error for CookieError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IntoResponse, Status, cookies};
    use proptest::prelude::*;

    fn set(cookie: Cookie) -> (Status, Option<String>) {
        let response = "".into_response().with_cookie(cookie);
        (response.status(), response.headers().get("set-cookie").map(str::to_owned))
    }

    #[test]
    fn j9_attributes_are_as_browsers_want_them() {
        let cookie = Cookie::new("a", "1").unwrap();
        let (_, text) =
            set(cookie.clone().path("/x").domain("example.org").secure().visible_to_scripts());
        assert_eq!(text.unwrap(), "a=1; Path=/x; Domain=example.org; Secure; SameSite=Lax");
        let (_, text) = set(cookie.same_site(SameSite::None));
        assert_eq!(text.unwrap(), "a=1; Path=/; Secure; HttpOnly; SameSite=None");
        let (_, text) = set(Cookie::removal("__Host-a").unwrap());
        assert_eq!(text.unwrap(), "__Host-a=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax");
    }

    #[test]
    fn j9_values_that_cannot_be_sent_are_refused() {
        for value in ["a b", "a;b", "a,b", "\"a\"", "a\\b", "a\r\nb", "é", "a\0"] {
            assert!(Cookie::new("a", value).is_err(), "{value:?}");
        }
        for name in ["", "a b", "a=b", "a;", "é", "a\n"] {
            assert!(Cookie::new(name, "1").is_err(), "{name:?}");
        }
        assert!(Cookie::new("a", "x".repeat(LIMIT_COOKIE_BYTES)).is_err());
        let cookie = Cookie::new("a", "1").unwrap();
        for wrong in
            [cookie.clone().path("/;x"), cookie.clone().path("x"), cookie.domain("a\r\nb: c")]
        {
            assert_eq!(set(wrong), (Status::INTERNAL_SERVER_ERROR, None));
        }
    }

    #[test]
    fn j9_a_cookie_for_the_host_stays_one() {
        let cookie = Cookie::for_host("a", "1").unwrap();
        assert_eq!(set(cookie.clone()).0, Status::OK);
        assert_eq!(set(cookie.clone().domain("example.org")).0, Status::INTERNAL_SERVER_ERROR);
        assert_eq!(set(cookie.path("/x")).0, Status::INTERNAL_SERVER_ERROR);
        let by_hand = Cookie::new("__Host-a", "1").unwrap();
        assert!(by_hand.to_string().contains("; Secure"));
    }

    #[test]
    fn j9_several_cookies_are_set_side_by_side() {
        let response = "".into_response();
        let response = response.with_cookie(Cookie::new("a", "1").unwrap());
        let response = response.with_cookie(Cookie::new("b", "2").unwrap());
        assert_eq!(response.headers().get_all("set-cookie").count(), 2);
    }

    proptest! {
        /// What is accepted comes back as it was, and is one line.
        #[test]
        fn j9_what_is_set_is_what_comes_back(name in "[!-~]{1,8}", value in "[ -~]{0,16}") {
            if let Ok(cookie) = Cookie::new(&name, &value) {
                let text = format!("{name}={value}");
                prop_assert_eq!(cookies::parse(&text).collect::<Vec<_>>(), [(name.as_str(), value.as_str())]);
                prop_assert!(cookie.to_string().split(';').next() == Some(text.as_str()));
            }
        }
    }
}
