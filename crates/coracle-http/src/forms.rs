//! Query strings and forms: `name=ahab&ship=Pequod+II`.

use crate::{MediaType, Problem, Request, Status};
use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// So many pairs a query or a form may have. Browsers send one for each field of a form.
pub(crate) const LIMIT_PAIRS: usize = 1000;

/// The pairs of a query or a form, decoded, in the order they came.
///
/// ```
/// use coracle_http::Pairs;
///
/// let pairs = Pairs::parse("name=Captain+Ahab&leg=%F0%9F%A6%B4&leg=wood").unwrap();
/// assert_eq!(pairs.get("name"), Some("Captain Ahab"));
/// assert_eq!(pairs.get_all("leg").collect::<Vec<_>>(), ["🦴", "wood"]);
/// assert_eq!(pairs.get("whale"), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Pairs<'a> {
    /// Of `a=1&b=2`. What is not UTF-8 becomes U+FFFD; nothing else can be wrong with it.
    ///
    /// # Errors
    /// 400 when there are more than 1,000.
    pub fn parse(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Pairs<'a>, Problem> {
        let text = text.as_ref();
        check_count(text)?;
        Ok(Pairs(form_urlencoded::parse(text).collect()))
    }

    /// The first value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// All values of this name.
    pub fn get_all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        self.iter().filter(move |(other, _)| *other == name).map(|(_, value)| value)
    }

    /// All names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Request<'_> {
    /// The pairs of the query.
    ///
    /// ```
    /// use coracle_http::OwnedRequest;
    ///
    /// let owned = OwnedRequest::new("GET", "/search?q=white+whale&page=2");
    /// let req = owned.request();
    /// let query = req.query_pairs().unwrap();
    /// assert_eq!(query.get("q"), Some("white whale"));
    /// ```
    ///
    /// # Errors
    /// As [`Pairs::parse`].
    pub fn query_pairs(&self) -> Result<Pairs<'_>, Problem> {
        Pairs::parse(self.query().unwrap_or_default())
    }

    /// The query, as a value of a type of yours.
    ///
    /// ```
    /// use coracle_http::{OwnedRequest, Status};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Search {
    ///     q: String,
    ///     #[serde(default)]
    ///     page: u32,
    ///     #[serde(default)]
    ///     tag: Vec<String>,
    /// }
    ///
    /// let owned = OwnedRequest::new("GET", "/search?q=white+whale&tag=a&tag=b");
    /// let search: Search = owned.request().query_as().unwrap();
    /// assert_eq!((search.q.as_str(), search.page, search.tag.len()), ("white whale", 0, 2));
    ///
    /// let owned = OwnedRequest::new("GET", "/search?q=a&page=two");
    /// let problem = owned.request().query_as::<Search>().err().unwrap();
    /// assert_eq!(problem.status(), Status::BAD_REQUEST);
    /// assert_eq!(problem.outward(), "the query cannot be understood: page: invalid digit found in string");
    /// ```
    ///
    /// # Errors
    /// 400 when it is not one, with the reason.
    pub fn query_as<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        typed("the query", self.query().unwrap_or_default().as_bytes())
    }

    /// The pairs of a form that was sent as the body.
    ///
    /// # Errors
    /// 415 when the body is no such form; as [`Pairs::parse`].
    pub fn form_pairs(&self) -> Result<Pairs<'_>, Problem> {
        self.check_form()?;
        Pairs::parse(self.body())
    }

    /// A form that was sent as the body, as a value of a type of yours.
    ///
    /// ```
    /// use coracle_http::{OwnedRequest, Problem, Redirect, Request};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Todo {
    ///     title: String,
    ///     urgent: Option<String>, // a box that was ticked, or nothing at all
    /// }
    ///
    /// fn add(req: &Request<'_>) -> Result<Redirect, Problem> {
    ///     let todo: Todo = req.form()?;
    ///     assert_eq!((todo.title.as_str(), todo.urgent.is_some()), ("find the whale", true));
    ///     Ok(Redirect::to("/"))
    /// }
    ///
    /// let owned = OwnedRequest::new("POST", "/todos")
    ///     .with_header("Content-Type", "application/x-www-form-urlencoded")?
    ///     .with_body("title=find+the+whale&urgent=on");
    /// add(&owned.request()).unwrap();
    /// # Ok::<(), coracle_http::HeaderError>(())
    /// ```
    ///
    /// # Errors
    /// 415 when the body is no such form, 400 when it does not fit the type, with the reason.
    pub fn form<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        self.check_form()?;
        typed("the form", self.body())
    }

    fn check_form(&self) -> Result<(), Problem> {
        let kind = self.header("content-type").and_then(MediaType::parse);
        if kind.is_some_and(|kind| kind.is("application/x-www-form-urlencoded")) {
            return Ok(());
        }
        let outward = "send a form: application/x-www-form-urlencoded";
        Err(Problem::new(Status::UNSUPPORTED_MEDIA_TYPE, outward))
    }
}

fn typed<T: DeserializeOwned>(what: &str, text: &[u8]) -> Result<T, Problem> {
    check_count(text)?;
    let parsed = serde_html_form::Deserializer::new(form_urlencoded::parse(text));
    serde_path_to_error::deserialize(parsed).map_err(|error| {
        // `page: invalid digit`, or without the field, if none is at fault: `missing field`.
        let error = error.to_string();
        let error = error.strip_prefix(".: ").unwrap_or(&error);
        let outward = format!("{what} cannot be understood: {}", error.escape_debug());
        Problem::new(Status::BAD_REQUEST, outward)
    })
}

fn check_count(text: &[u8]) -> Result<(), Problem> {
    // Before anything is decoded, or kept.
    if memchr::memchr_iter(b'&', text).count() < LIMIT_PAIRS {
        return Ok(());
    }
    let outward = format!("more than {LIMIT_PAIRS} fields");
    Err(Problem::new(Status::BAD_REQUEST, outward))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OwnedRequest;
    use proptest::prelude::*;

    const FORM: &str = "application/x-www-form-urlencoded; charset=UTF-8";

    fn post(kind: &str, body: &str) -> OwnedRequest {
        let request = OwnedRequest::new("POST", "/").with_header("content-type", kind).unwrap();
        request.with_body(body.to_owned())
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Whale {
        name: String,
        #[serde(default)]
        teeth: u8,
        #[serde(default)]
        scar: Vec<String>,
    }

    #[test]
    fn j8_a_form_is_a_value() {
        let request = post(FORM, "name=Moby+Dick&teeth=50&scar=left&scar=right&more=ignored");
        let whale: Whale = request.request().form().unwrap();
        let scar = vec!["left".to_owned(), "right".to_owned()];
        assert_eq!(whale, Whale { name: "Moby Dick".into(), teeth: 50, scar });
        assert_eq!(request.request().form_pairs().unwrap().get_all("scar").count(), 2);
    }

    #[test]
    fn j8_a_form_that_does_not_fit_is_400_and_says_why() {
        for (body, why) in
            [("", "name"), ("name=a&teeth=256", "too large"), ("name=a&teeth=", "teeth")]
        {
            let problem = post(FORM, body).request().form::<Whale>().unwrap_err();
            assert_eq!(problem.status(), Status::BAD_REQUEST);
            assert!(problem.outward().contains(why), "{body}: {}", problem.outward());
        }
    }

    #[test]
    fn j8_something_else_is_415() {
        for kind in ["application/json", "text/plain", "", "multipart/form-data; boundary=x"] {
            let problem = post(kind, "name=a").request().form::<Whale>().unwrap_err();
            assert_eq!(problem.status(), Status::UNSUPPORTED_MEDIA_TYPE);
        }
        let none = OwnedRequest::new("POST", "/").with_body("name=a");
        assert_eq!(
            none.request().form_pairs().unwrap_err().status(),
            Status::UNSUPPORTED_MEDIA_TYPE
        );
    }

    #[test]
    fn j8_too_many_fields_are_refused() {
        let body = |count: usize| vec!["a=1"; count].join("&");
        assert_eq!(Pairs::parse(&body(LIMIT_PAIRS)).unwrap().len(), LIMIT_PAIRS);
        assert_eq!(Pairs::parse(&body(LIMIT_PAIRS + 1)).unwrap_err().status(), Status::BAD_REQUEST);
        let request = post(FORM, &format!("name=a&{}", body(LIMIT_PAIRS)));
        assert_eq!(request.request().form::<Whale>().unwrap_err().status(), Status::BAD_REQUEST);
    }

    /// By the letter of the URL standard, 5.1, slowly.
    fn twin(text: &[u8]) -> Vec<(String, String)> {
        fn decoded(text: &[u8]) -> String {
            let mut bytes = Vec::new();
            let mut at = 0;
            while at < text.len() {
                let digit = |at: usize| text.get(at).and_then(|byte| (*byte as char).to_digit(16));
                match (text[at], digit(at + 1), digit(at + 2)) {
                    (b'+', ..) => bytes.push(b' '),
                    (b'%', Some(high), Some(low)) => {
                        bytes.push((high * 16 + low) as u8);
                        at += 2;
                    }
                    (byte, ..) => bytes.push(byte),
                }
                at += 1;
            }
            String::from_utf8_lossy(&bytes).into_owned()
        }
        let pieces = text.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty());
        let split = |piece: &[u8]| match piece.iter().position(|byte| *byte == b'=') {
            Some(at) => (decoded(&piece[..at]), decoded(&piece[at + 1..])),
            None => (decoded(piece), String::new()),
        };
        pieces.map(split).collect()
    }

    proptest! {
        #[test]
        fn j8_pairs_are_those_of_the_standard(text in proptest::collection::vec(
            prop_oneof![Just(b'&'), Just(b'='), Just(b'%'), Just(b'+'), Just(b'4'), Just(b'f'), any::<u8>()],
            0..40,
        )) {
            let ours = Pairs::parse(&text).unwrap();
            let ours: Vec<(String, String)> =
                ours.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(ours, twin(&text));
        }
    }
}
