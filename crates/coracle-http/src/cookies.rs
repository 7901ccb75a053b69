//! Cookies, as they come: `theme=dark; session=MTIz`.

use crate::Request;

/// So many cookies of a request are looked at. Browsers keep about 180 for a site.
pub(crate) const LIMIT_COOKIES: usize = 200;

impl<'a> Request<'a> {
    /// The value of a cookie; of the first one, if there are several of that name.
    ///
    /// ```
    /// use coracle_http::OwnedRequest;
    ///
    /// let owned = OwnedRequest::new("GET", "/").with_header("Cookie", "theme=dark; size=\"big\"").unwrap();
    /// assert_eq!(owned.request().cookie("theme"), Some("dark"));
    /// assert_eq!(owned.request().cookie("size"), Some("big"));
    /// assert_eq!(owned.request().cookie("Theme"), None);
    /// ```
    ///
    /// Anybody can send any cookie. What must be true is signed: [`Sessions`](crate::Sessions).
    pub fn cookie(&self, name: &str) -> Option<&'a str> {
        self.cookies().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// All cookies, name and value, as they came: the first 200 of them. What is none is left out.
    pub fn cookies(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.headers().get_all("cookie").flat_map(parse).take(LIMIT_COOKIES)
    }
}

/// The cookies in the value of a header field (RFC 6265bis, 5.8.3 the other way round).
pub(crate) fn parse(value: &str) -> impl Iterator<Item = (&str, &str)> {
    value.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = name.trim_matches([' ', '\t']);
        let value = value.trim_matches([' ', '\t']);
        let value =
            value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        (!name.is_empty()).then_some((name, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnedRequest;
    use proptest::prelude::*;

    #[test]
    fn j9_cookies_are_found_and_what_is_none_is_not() {
        let all = |value| parse(value).collect::<Vec<_>>();
        assert_eq!(
            all("a=1; b=2;c = 3 ;d=\"4\";e="),
            [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "")]
        );
        assert_eq!(all("a=b=c; =x; y; ;; z=\""), [("a", "b=c"), ("z", "\"")]);
        assert_eq!(all(""), []);
    }

    #[test]
    fn j9_of_several_the_first_counts() {
        let owned = OwnedRequest::new("GET", "/").with_header("cookie", "a=1; a=2").unwrap();
        let owned = owned.with_header("Cookie", "a=3; b=4").unwrap();
        assert_eq!(owned.request().cookie("a"), Some("1"));
        assert_eq!(owned.request().cookie("b"), Some("4"));
    }

    #[test]
    fn j9_so_many_cookies_are_not_looked_at() {
        let many = (0..10_000).map(|at| format!("c{at}=1")).collect::<Vec<_>>().join("; ");
        let owned = OwnedRequest::new("GET", "/").with_header("cookie", &many).unwrap();
        assert_eq!(owned.request().cookies().count(), LIMIT_COOKIES);
        assert_eq!(owned.request().cookie("c9999"), None);
    }

    proptest! {
        #[test]
        fn j9_cookies_are_those_of_the_twin(text in "[ab=; \"\t]{0,24}") {
            crate::fuzzing::cookies(&text);
        }
    }
}
