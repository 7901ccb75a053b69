//! What a router found out about a request: its route, and the values in its path.

use crate::Request;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

/// A route, as the requests that came by it know it.
#[derive(Debug)]
pub(crate) struct RouteInfo {
    pub(crate) name: String,
    pub(crate) params: Vec<String>,
}

/// The route of a request. A router that is mounted in another leaves its own inside.
#[derive(Debug)]
pub(crate) struct Matched<'a> {
    pub(crate) route: Arc<RouteInfo>,
    pub(crate) values: SmallVec<[Cow<'a, str>; 2]>,
    pub(crate) inner: OnceCell<Box<Matched<'a>>>,
}

impl<'a> Request<'a> {
    /// The value of a parameter of the route, decoded: with the route `/posts/{id}`, the `id` of `/posts/7` is
    /// `7`.
    ///
    /// ```
    /// use coracle_http::{App, OwnedRequest, Router};
    ///
    /// let app = Router::new(())
    ///     .get("/hello/{name}", |_, req| format!("hello, {}\n", req.param("name").unwrap()));
    /// let request = OwnedRequest::new("GET", "/hello/J%C3%BCrgen%2FJr");
    /// assert_eq!(app.call(&request.request()).body().as_bytes(), Some("hello, Jürgen/Jr\n".as_bytes()));
    /// ```
    pub fn param(&self, name: &str) -> Option<&str> {
        let mut found = None;
        let mut matched = self.matched.get();
        while let Some(at) = matched {
            if let Some(index) = at.route.params.iter().position(|param| param == name) {
                found = at.values.get(index).map(|value| &**value);
            }
            matched = at.inner.get().map(|inner| &**inner);
        }
        found
    }

    /// The name of the route by which the request came: its pattern, unless it was
    /// [named](crate::Router::named). There are as many as the program has routes, whatever clients ask for, so
    /// that it can be counted by. None before a router has looked at it, and where there was no route.
    pub fn route(&self) -> Option<&str> {
        let mut last = self.matched.get()?;
        while let Some(inner) = last.inner.get() {
            last = inner;
        }
        Some(&last.route.name)
    }

    pub(crate) fn set_matched(&self, new: Matched<'a>) {
        let Err(new) = self.matched.set(new) else { return };
        let Some(mut last) = self.matched.get() else { return };
        while let Some(inner) = last.inner.get() {
            last = inner;
        }
        // Nobody can have come before us: the loop has just seen that there is none.
        let _ = last.inner.set(Box::new(new));
    }
}
