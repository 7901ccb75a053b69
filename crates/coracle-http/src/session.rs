//! Sessions that the client keeps, and cannot change: a signed cookie.
//!
//! ```text
//!   base64url( expires: 8 bytes │ value: JSON )  .  base64url( HMAC-SHA256(key, name │ 0 │ the left part) )
//! ```
//!
//! The name of the cookie is signed with it, so that the session of one cookie is none in another. The server
//! keeps nothing, so it cannot forget one either: who must be able to end a session before its time puts a number
//! into it that is looked up.

use crate::{Cookie, CookieError, Problem, Request, SameSite};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A session lasts so long unless it is said otherwise.
const AGE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// So many bytes a key has at least: as many as the signature.
const KEY_BYTES: usize = 32;

/// Signs values into cookies, and reads them back. The client can read what is in them, but not change it.
///
/// ```
/// use coracle_http::{IntoResponse, OwnedRequest, SessionKey, Sessions};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct User {
///     name: String,
/// }
///
/// let sessions = Sessions::new("session", SessionKey::generate());
///
/// // After the password was right:
/// let cookie = sessions.cookie(&User { name: "ahab".into() }).unwrap();
/// let value = cookie.value().to_owned();
/// let response = "welcome\n".into_response().with_cookie(cookie);
///
/// // And ever after:
/// let request = OwnedRequest::new("GET", "/").with_header("Cookie", &format!("session={value}")).unwrap();
/// let user: Option<User> = sessions.read(&request.request());
/// assert_eq!(user.unwrap().name, "ahab");
/// # let _ = response;
/// ```
///
/// Keys are changed by signing with a new one and still accepting the old:
/// `Sessions::new("session", new).also_accept(old)`.
pub struct Sessions {
    name: String,
    keys: Vec<SessionKey>,
    age: Duration,
    secure: bool,
    same_site: SameSite,
}

/// What sessions are signed with.
///
/// ```
/// use coracle_http::SessionKey;
///
/// let key = SessionKey::new(b"32 bytes or more, from /dev/urandom".to_vec()).unwrap();
/// assert!(SessionKey::new(b"secret".to_vec()).is_err());
/// # let _ = key;
/// ```
#[derive(Clone)]
pub struct SessionKey(Vec<u8>);

impl SessionKey {
    /// A key, from where you keep it. Random bytes, not a word.
    ///
    /// # Errors
    /// `InvalidInput` when it has fewer than 32 bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> std::io::Result<SessionKey> {
        let bytes = bytes.into();
        if bytes.len() < KEY_BYTES {
            let text =
                format!("a session key has at least {KEY_BYTES} random bytes, not {}", bytes.len());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
        }
        Ok(SessionKey(bytes))
    }

    /// A new key. Sessions that are signed with it end when the program does, and other processes do not accept
    /// them.
    ///
    /// # Panics
    /// When the system has no random numbers to give.
    pub fn generate() -> SessionKey {
        let mut bytes = vec![0; KEY_BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("cannot make a key: getrandom: {error}"),
            }
        }
        SessionKey(bytes)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(secret)")
    }
}

impl Sessions {
    /// Sessions in a cookie of this name, signed with this key.
    ///
    /// # Panics
    /// When the name is none.
    pub fn new(name: impl Into<String>, key: SessionKey) -> Sessions {
        let name = name.into();
        if let Err(error) = Cookie::new(&name, "") {
            panic!("{error}");
        }
        Sessions { name, keys: vec![key], age: AGE, secure: false, same_site: SameSite::Lax }
    }

    /// Sessions that were signed with this key are accepted, too.
    #[must_use]
    pub fn also_accept(mut self, old: SessionKey) -> Sessions {
        self.keys.push(old);
        self
    }

    /// They last so long, instead of two weeks.
    #[must_use]
    pub fn lasting(mut self, age: Duration) -> Sessions {
        self.age = age;
        self
    }

    /// Their cookie is sent over TLS only.
    #[must_use]
    pub fn secure(mut self) -> Sessions {
        self.secure = true;
        self
    }

    /// Their cookie is sent with requests of other sites by this rule, instead of [`SameSite::Lax`].
    #[must_use]
    pub fn same_site(mut self, same_site: SameSite) -> Sessions {
        self.same_site = same_site;
        self
    }

    /// A new session. Everything in it can be read by the client.
    ///
    /// # Errors
    /// 500 when the value cannot be said in JSON, or the cookie would be longer than 4 KiB.
    pub fn cookie<T: Serialize>(&self, value: &T) -> Result<Cookie, Problem> {
        let token = self.seal(&serde_json::to_vec(value)?, SystemTime::now());
        Ok(self.with_attributes(Cookie::new(&self.name, token)?.max_age(self.age)))
    }

    /// The session of a request: none if it has none, or if it is over, was not signed by us, or is of another
    /// type.
    pub fn read<T: DeserializeOwned>(&self, req: &Request<'_>) -> Option<T> {
        let value = self.open(req.cookie(&self.name)?, SystemTime::now())?;
        serde_json::from_slice(&value).ok()
    }

    /// Ends the session, as far as the browser is concerned. Who has kept the cookie can go on sending it until it
    /// is over.
    ///
    /// # Errors
    /// None, with a name that [`Sessions::new`] has accepted.
    pub fn removal(&self) -> Result<Cookie, CookieError> {
        Ok(self.with_attributes(Cookie::removal(&self.name)?))
    }

    fn with_attributes(&self, cookie: Cookie) -> Cookie {
        let cookie = cookie.same_site(self.same_site);
        if self.secure { cookie.secure() } else { cookie }
    }

    fn seal(&self, value: &[u8], now: SystemTime) -> String {
        let expires = seconds(now).saturating_add(self.age.as_secs());
        let mut bytes = expires.to_be_bytes().to_vec();
        bytes.extend_from_slice(value);
        let mut token = URL_SAFE_NO_PAD.encode(bytes);
        let signature = self.signature(&self.keys[0], &token).finalize().into_bytes();
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }

    fn open(&self, token: &str, now: SystemTime) -> Option<Vec<u8>> {
        let (value, signature) = token.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // `verify_slice` takes as long for a wrong signature as for a right one.
        let is_ours = |key| self.signature(key, value).verify_slice(&signature).is_ok();
        if !self.keys.iter().any(is_ours) {
            return None;
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(value).ok()?;
        let expires = u64::from_be_bytes(*bytes.first_chunk()?);
        (seconds(now) < expires).then(|| bytes.split_off(8))
    }

    fn signature(&self, key: &SessionKey, token: &str) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes keys of any length");
        mac.update(self.name.as_bytes());
        mac.update(&[0]);
        mac.update(token.as_bytes());
        mac
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("name", &self.name)
            .field("age", &self.age)
            .finish_non_exhaustive()
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnedRequest;
    use proptest::prelude::*;

    fn key(byte: u8) -> SessionKey {
        SessionKey::new([byte; KEY_BYTES]).unwrap()
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    #[test]
    fn j9_a_session_is_over_when_its_time_is() {
        let sessions = Sessions::new("s", key(1)).lasting(Duration::from_secs(60));
        let token = sessions.seal(b"1", now());
        let after = |seconds| sessions.open(&token, now() + Duration::from_secs(seconds));
        assert_eq!(after(0).as_deref(), Some(&b"1"[..]));
        assert_eq!(after(59).as_deref(), Some(&b"1"[..]));
        assert_eq!(after(60), None);
        assert_eq!(after(1 << 40), None);
    }

    #[test]
    fn j9_keys_can_be_changed() {
        let old = Sessions::new("s", key(1)).seal(b"1", now());
        let both = Sessions::new("s", key(2)).also_accept(key(1));
        assert!(both.open(&old, now()).is_some());
        let new = both.seal(b"1", now());
        assert!(Sessions::new("s", key(2)).open(&new, now()).is_some(), "signed with the new one");
        assert!(Sessions::new("s", key(2)).open(&old, now()).is_none());
        assert!(Sessions::new("s", key(1)).open(&new, now()).is_none());
    }

    #[test]
    fn j9_a_session_of_one_cookie_is_none_in_another() {
        let token = Sessions::new("user", key(1)).seal(b"1", now());
        assert!(Sessions::new("admin", key(1)).open(&token, now()).is_none());
        assert!(Sessions::new("user", key(1)).open(&token, now()).is_some());
    }

    #[test]
    fn j9_the_signature_is_that_of_the_standard() {
        // As `printf 's\0AAAAAAAAAAAx' | openssl dgst -sha256 -mac HMAC -macopt hexkey:01…01` says.
        let sessions = Sessions::new("s", key(1));
        let signature =
            sessions.signature(&sessions.keys[0], "AAAAAAAAAAAx").finalize().into_bytes();
        let hex: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "8f931330c9b928d630be3cf557b273829d3eeff766eb128fe47310dd9116d555");
    }

    #[test]
    fn j9_requests_without_a_session_have_none() {
        let sessions = Sessions::new("s", key(1));
        for cookie in ["", "s=", "s=.", "s=a.b", "t=1", "s=AAAAAAAAAAA.AAAA", "s=%%%.%%%"] {
            let owned = OwnedRequest::new("GET", "/").with_header("cookie", cookie).unwrap();
            assert_eq!(sessions.read::<u32>(&owned.request()), None, "{cookie}");
        }
        let good = sessions.cookie(&7_u32).unwrap();
        let owned = OwnedRequest::new("GET", "/")
            .with_header("cookie", &format!("s={}", good.value()))
            .unwrap();
        assert_eq!(sessions.read::<u32>(&owned.request()), Some(7));
        assert_eq!(sessions.read::<String>(&owned.request()), None, "another type");
    }

    #[test]
    fn j9_a_session_that_is_too_long_is_an_error() {
        let sessions = Sessions::new("s", key(1));
        let problem = sessions.cookie(&"x".repeat(4096)).unwrap_err();
        assert_eq!(problem.status(), crate::Status::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn j9_keys_are_not_in_the_log() {
        let sessions = Sessions::new(
            "s",
            SessionKey::new(b"a secret of more than 32 bytes, really".to_vec()).unwrap(),
        );
        assert!(!format!("{sessions:?} {:?}", sessions.keys).contains("secret of"));
        assert!(!format!("{sessions:?} {:?}", sessions.keys).contains("97, 32"));
    }

    proptest! {
        /// Whatever is changed, cut or added: it is a session of ours only if it is the same.
        #[test]
        fn j9_a_session_cannot_be_changed(
            value in proptest::collection::vec(any::<u8>(), 0..40),
            at in any::<proptest::sample::Index>(),
            new in "[A-Za-z0-9_.=-]{0,2}",
        ) {
            let sessions = Sessions::new("s", key(1));
            let token = sessions.seal(&value, now());
            prop_assert_eq!(sessions.open(&token, now()), Some(value));
            let at = at.index(token.len());
            let mut forged = token.clone();
            forged.replace_range(at..=at, &new);
            if forged != token {
                prop_assert_eq!(sessions.open(&forged, now()), None);
            }
        }
    }
}
