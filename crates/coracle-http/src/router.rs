//! Which handler answers which request: a table of patterns, over one value.
//!
//! ```text
//!   path ──► middlewares ──► pattern ──► middlewares of the nest ──► method ──► handler(&state, &request)
//!                               │                                       │
//!                               │                                       └─ none: 405, or the answer to OPTIONS
//!                               └─ none: what is mounted there, the fallback, else 404
//! ```

use crate::matched::{Matched, RouteInfo};
use crate::middleware::{Middleware, Next};
use crate::{App, IntoResponse, Plan, Refusal, Request, Response, Status, path};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

/// An app that is a table of routes, over one value of yours. Handlers are functions of that value and the
/// request, so that methods fit:
///
/// ```
/// use coracle_http::{App, Html, OwnedRequest, Request, Router, Status};
///
/// struct Blog {
///     posts: Vec<String>,
/// }
///
/// impl Blog {
///     fn index(&self, _: &Request<'_>) -> Html<String> {
///         Html(format!("<h1>{} posts</h1>", self.posts.len()))
///     }
///
///     fn show(&self, req: &Request<'_>) -> Option<String> {
///         let id: usize = req.param("id")?.parse().ok()?;
///         self.posts.get(id).cloned() // None is 404
///     }
/// }
///
/// let app = Router::new(Blog { posts: vec!["Call me Ishmael.".into()] })
///     .get("/", Blog::index)
///     .get("/posts/{id}", Blog::show)
///     .get("/ping", |_, _| "pong\n");
///
/// let ask = |method, path| app.call(&OwnedRequest::new(method, path).request());
/// assert_eq!(ask("GET", "/posts/0").body().as_bytes(), Some(&b"Call me Ishmael."[..]));
/// assert_eq!(ask("GET", "/posts/1").status(), Status::NOT_FOUND);
/// assert_eq!(ask("DELETE", "/posts/0").status(), Status::METHOD_NOT_ALLOWED);
/// assert_eq!(ask("DELETE", "/posts/0").headers().get("allow"), Some("GET, HEAD, OPTIONS"));
/// ```
///
/// | in a pattern | matches |
/// |---|---|
/// | `/posts` | itself; `/posts/` is something else |
/// | `{id}` | one segment, not empty, or what is left of it: `/{name}.html` |
/// | `{*rest}` | the rest of the path, not empty; only at the end, and not beside an `{id}` |
/// | `{{`, `}}` | `{` and `}` |
///
/// What is most specific counts, whatever was added first. Escapes are decoded before (`/%61bout` is `/about`) but
/// for slashes: `%2F` is in a parameter, and never between two.
///
/// GET answers HEAD, too, unless there is a handler for it; OPTIONS is answered with the methods there are.
///
/// One router serves all loops if your value can be shared (`Sync`). Where each loop has its own app, it need not.
pub struct Router<S> {
    state: Arc<S>,
    patterns: matchit::Router<usize>,
    routes: Vec<Route<S>>,
    /// Fallbacks and what is mounted, the longest prefix first.
    below: Vec<Below<S>>,
    middlewares: Vec<Arc<dyn Middleware>>,
    /// The route that was added last, for [`Router::named`] and [`Router::planned`].
    last: Option<(usize, usize)>,
    /// Whether a route has a plan, so that there is something to look for when a head is there.
    has_plans: bool,
}

type Handler<S> = Arc<dyn Fn(&S, &Request<'_>) -> Response + Send + Sync>;

/// All there is for one pattern.
struct Route<S> {
    pattern: String,
    entries: Vec<Entry<S>>,
    /// The value of `Allow`.
    allow: String,
    /// How many middlewares its first entry has in common with all others: those of the nest they are in.
    common: usize,
}

/// The handler of one method.
struct Entry<S> {
    /// As it is written in a request; [`ANY`] for all that have no other.
    method: Cow<'static, str>,
    info: Arc<RouteInfo>,
    handler: Handler<S>,
    plan: Planning,
    middlewares: Vec<Arc<dyn Middleware>>,
}

/// Who answers what no route does, below a prefix.
struct Below<S> {
    prefix: Vec<String>,
    /// Whether it counts as a route, as what is mounted does.
    is_route: bool,
    entry: Entry<S>,
}

enum Planning {
    Fixed(Plan),
    Ask(usize, Arc<dyn App + Send + Sync>),
}

const ANY: &str = "*";

impl<S: 'static> Router<S> {
    /// No routes yet.
    pub fn new(state: S) -> Router<S> {
        Router::over(Arc::new(state))
    }

    fn over(state: Arc<S>) -> Router<S> {
        Router {
            state,
            patterns: matchit::Router::new(),
            routes: Vec::new(),
            below: Vec::new(),
            middlewares: Vec::new(),
            last: None,
            has_plans: false,
        }
    }

    /// Answers GET, and HEAD.
    ///
    /// # Panics
    /// All that add a route: when there is one already for such paths and this method, or when the pattern is
    /// none. It is the same each time the program starts, and says which.
    #[must_use]
    pub fn get<R: IntoResponse>(
        self,
        pattern: &str,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        self.on("GET", pattern, handler)
    }

    /// Answers POST.
    #[must_use]
    pub fn post<R: IntoResponse>(
        self,
        pattern: &str,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        self.on("POST", pattern, handler)
    }

    /// Answers PUT.
    #[must_use]
    pub fn put<R: IntoResponse>(
        self,
        pattern: &str,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        self.on("PUT", pattern, handler)
    }

    /// Answers PATCH.
    #[must_use]
    pub fn patch<R: IntoResponse>(
        self,
        pattern: &str,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        self.on("PATCH", pattern, handler)
    }

    /// Answers DELETE.
    #[must_use]
    pub fn delete<R: IntoResponse>(
        self,
        pattern: &str,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        self.on("DELETE", pattern, handler)
    }

    /// Answers a method of any name: `on("PROPFIND", "/dav/{*path}", …)`.
    #[must_use]
    pub fn on<R: IntoResponse>(
        self,
        method: &'static str,
        pattern: &str,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        assert!(
            !method.is_empty() && method.bytes().all(crate::headers::is_token) && method != ANY,
            "{method:?} is no method"
        );
        self.entry(method, pattern, answering(handler), Planning::Fixed(Plan::default()))
    }

    /// Answers all methods that have no handler of their own there.
    #[must_use]
    pub fn any<R: IntoResponse>(
        self,
        pattern: &str,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        self.entry(ANY, pattern, answering(handler), Planning::Fixed(Plan::default()))
    }

    /// Answers what no route does, instead of a 404.
    ///
    /// ```
    /// use coracle_http::{App, OwnedRequest, Router, Status};
    ///
    /// let app = Router::new(()).fallback(|_, req| (Status::NOT_FOUND, format!("no {} here\n", req.path())));
    /// let response = app.call(&OwnedRequest::new("GET", "/whale").request());
    /// assert_eq!(response.body().as_bytes(), Some(&b"no /whale here\n"[..]));
    /// ```
    #[must_use]
    pub fn fallback<R: IntoResponse>(
        mut self,
        handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
    ) -> Router<S> {
        self.add_below(Below {
            prefix: Vec::new(),
            is_route: false,
            entry: Entry {
                method: Cow::Borrowed(ANY),
                info: Arc::new(RouteInfo { name: String::new(), params: Vec::new() }),
                handler: answering(handler),
                plan: Planning::Fixed(Plan::default()),
                middlewares: Vec::new(),
            },
        });
        self
    }

    /// Gives the route that was added last a name, which [`Request::route`] tells: for metrics and logs.
    ///
    /// ```
    /// use coracle_http::{App, OwnedRequest, Router};
    ///
    /// let app = Router::new(())
    ///     .get("/a/{id}", |_, req| req.route().unwrap().to_owned())
    ///     .get("/b/{id}", |_, req| req.route().unwrap().to_owned()).named("bees");
    /// let ask = |path| app.call(&OwnedRequest::new("GET", path).request());
    /// assert_eq!(ask("/a/7").body().as_bytes(), Some(&b"/a/{id}"[..]));
    /// assert_eq!(ask("/b/7").body().as_bytes(), Some(&b"bees"[..]));
    /// ```
    ///
    /// # Panics
    /// When no route was added.
    #[must_use]
    pub fn named(mut self, name: &str) -> Router<S> {
        let entry = self.last_entry();
        let params = entry.info.params.clone();
        entry.info = Arc::new(RouteInfo { name: name.to_owned(), params });
        self
    }

    /// Says how requests by the route that was added last are treated: whether their body is streamed, how long it
    /// may be.
    ///
    /// ```
    /// use coracle_http::{BodyReader, Plan, Request, Router};
    /// use std::io;
    ///
    /// fn upload(_: &(), req: &Request<'_>) -> io::Result<String> {
    ///     let bytes = io::copy(&mut req.body_reader(), &mut io::sink())?;
    ///     Ok(format!("{bytes} bytes\n"))
    /// }
    ///
    /// let app = Router::new(())
    ///     .put("/videos/{name}", upload).planned(Plan::default().streamed().limit_body_bytes(1 << 30));
    /// # let _ = app;
    /// ```
    ///
    /// # Panics
    /// When no route was added.
    #[must_use]
    pub fn planned(mut self, plan: Plan) -> Router<S> {
        self.last_entry().plan = Planning::Fixed(plan);
        self.has_plans = true;
        self
    }

    /// Puts a middleware around the whole router: its routes, and what it answers when there is none. The one that
    /// is written first is outermost.
    #[must_use]
    pub fn with(mut self, middleware: impl Middleware) -> Router<S> {
        self.middlewares.push(Arc::new(middleware));
        self
    }

    /// Routes below a prefix, over the same value. Middlewares and a fallback that are set inside are for those
    /// only. Middlewares see what no handler answers for them, too: 405, and OPTIONS.
    ///
    /// ```
    /// use coracle_http::middleware::Next;
    /// use coracle_http::{App, OwnedRequest, Request, Response, Router, Status};
    ///
    /// fn nobody(_: &Request<'_>, _: Next<'_>) -> Status {
    ///     Status::FORBIDDEN
    /// }
    ///
    /// let app = Router::new(())
    ///     .get("/", |_, _| "ahoy\n")
    ///     .nest("/admin", |admin| admin.with(nobody).get("/users", |_, _| "ahab\n"));
    /// let ask = |path| app.call(&OwnedRequest::new("GET", path).request()).status();
    /// assert_eq!([ask("/"), ask("/admin/users")], [Status::OK, Status::FORBIDDEN]);
    /// ```
    ///
    /// # Panics
    /// When the prefix ends in a slash or has a `{*rest}` in it; and as [`Router::get`].
    #[must_use]
    pub fn nest(mut self, prefix: &str, build: impl FnOnce(Router<S>) -> Router<S>) -> Router<S> {
        check_prefix(prefix);
        let inner = build(Router::over(Arc::clone(&self.state)));
        for route in inner.routes {
            let pattern = below(prefix, &route.pattern);
            for mut entry in route.entries {
                let mut middlewares = inner.middlewares.clone();
                middlewares.append(&mut entry.middlewares);
                entry.middlewares = middlewares;
                if entry.info.name == route.pattern {
                    entry.info = info(&pattern);
                } else {
                    entry.info =
                        Arc::new(RouteInfo { name: entry.info.name.clone(), ..params(&pattern) });
                }
                self.insert(&pattern, entry);
            }
        }
        for mut other in inner.below {
            other.prefix.splice(0..0, segments(prefix));
            if let Planning::Ask(_, app) = other.entry.plan {
                (other.entry.handler, other.entry.plan) = mounted(app, other.prefix.len());
            }
            let name = format!("{prefix}{}", other.entry.info.name);
            other.entry.info = Arc::new(RouteInfo { name, params: params_of(&other.prefix) });
            other.entry.middlewares.splice(0..0, inner.middlewares.iter().cloned());
            self.add_below(other);
        }
        self.has_plans |= inner.has_plans;
        self
    }

    /// Another app below a prefix, for what no route is for. It sees the [path](Request::path) and the
    /// [segments](Request::segments) that are below it.
    ///
    /// ```
    /// use coracle_http::{App, OwnedRequest, Request, Router};
    ///
    /// fn wiki(req: &Request<'_>) -> String {
    ///     format!("{} {:?}", req.path(), req.segments())
    /// }
    ///
    /// let app = Router::new(()).mount("/wiki", wiki);
    /// let response = app.call(&OwnedRequest::new("GET", "/wiki/moby/dick").request());
    /// assert_eq!(response.body().as_bytes(), Some(&br#"/moby/dick ["moby", "dick"]"#[..]));
    /// ```
    ///
    /// # Panics
    /// As [`Router::nest`].
    #[must_use]
    pub fn mount(mut self, prefix: &str, app: impl App + Send + Sync) -> Router<S> {
        let prefix = if prefix == "/" { "" } else { prefix };
        if !prefix.is_empty() {
            check_prefix(prefix);
        }
        let prefix_segments = segments(prefix);
        let (handler, plan) = mounted(Arc::new(app), prefix_segments.len());
        self.add_below(Below {
            is_route: true,
            entry: Entry {
                method: Cow::Borrowed(ANY),
                info: Arc::new(RouteInfo {
                    name: format!("{prefix}/*"),
                    params: params_of(&prefix_segments),
                }),
                handler,
                plan,
                middlewares: Vec::new(),
            },
            prefix: prefix_segments,
        });
        self.has_plans = true;
        self
    }

    /// A service of tower's below a prefix, such as an `axum::Router`: [`mount`](Router::mount) of
    /// [`tower::app`](crate::tower::app). It sees the path that is below the prefix.
    ///
    /// # Panics
    /// As [`Router::nest`].
    #[cfg(feature = "tower")]
    #[must_use]
    pub fn mount_service<V, B>(self, prefix: &str, service: V) -> Router<S>
    where
        V: tower_service::Service<
                http::Request<crate::tower::RequestBody>,
                Response = http::Response<B>,
            > + Clone
            + Send
            + Sync
            + 'static,
        V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        B: http_body::Body + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.mount(prefix, crate::tower::app(service))
    }

    fn add_below(&mut self, new: Below<S>) {
        let twice = self.below.iter().any(|other| other.prefix == new.prefix);
        assert!(!twice, "there are two apps for all that is below \"/{}\"", new.prefix.join("/"));
        // The longest prefix first.
        let at = self.below.partition_point(|other| other.prefix.len() >= new.prefix.len());
        self.below.insert(at, new);
    }

    fn entry(
        mut self,
        method: &'static str,
        pattern: &str,
        handler: Handler<S>,
        plan: Planning,
    ) -> Router<S> {
        let entry = Entry {
            method: Cow::Borrowed(method),
            info: info(pattern),
            handler,
            plan,
            middlewares: Vec::new(),
        };
        self.insert(pattern, entry);
        self
    }

    fn insert(&mut self, pattern: &str, entry: Entry<S>) {
        assert!(pattern.starts_with('/'), "a route begins with a slash: {pattern:?}");
        let index = match self.routes.iter().position(|route| route.pattern == pattern) {
            Some(index) => index,
            None => {
                let index = self.routes.len();
                if let Err(error) = self.patterns.insert(pattern, index) {
                    panic!("cannot add the route {pattern:?}: {error}");
                }
                let allow = String::new();
                let (pattern, common) = (pattern.to_owned(), entry.middlewares.len());
                self.routes.push(Route { pattern, entries: Vec::new(), allow, common });
                index
            }
        };
        let route = &mut self.routes[index];
        let twice = route.entries.iter().any(|other| other.method == entry.method);
        assert!(!twice, "there are two routes for {} {pattern}", entry.method);
        let same = |first: &Entry<S>| {
            let pairs = first.middlewares.iter().zip(&entry.middlewares);
            pairs.take_while(|(one, other)| Arc::ptr_eq(one, other)).count()
        };
        route.common = route.common.min(route.entries.first().map_or(route.common, same));
        route.entries.push(entry);
        route.allow = allow(route.entries.iter().map(|entry| &*entry.method));
        self.last = Some((index, route.entries.len() - 1));
    }

    fn last_entry(&mut self) -> &mut Entry<S> {
        let (route, entry) =
            self.last.expect("a route must be added before something is said of it");
        &mut self.routes[route].entries[entry]
    }

    /// Behind the middlewares.
    fn answer(&self, req: &Request<'_>) -> Response {
        match self.find(req) {
            Found::Entry(entry, values) => {
                let matched =
                    Matched { route: Arc::clone(&entry.info), values, inner: OnceCell::new() };
                req.set_matched(matched);
                self.run(entry, req)
            }
            Found::Fallback(entry) => self.run(entry, req),
            Found::Options(allow, middlewares) => {
                let answer = |_: &Request<'_>| {
                    Response::new(Status::NO_CONTENT).with_header("allow", &*allow)
                };
                Next::new(middlewares, &answer).run(req)
            }
            Found::OtherMethods(allow, middlewares) => {
                let answer = |_: &Request<'_>| {
                    Status::METHOD_NOT_ALLOWED.into_response().with_header("allow", allow)
                };
                Next::new(middlewares, &answer).run(req)
            }
            Found::Nothing => Status::NOT_FOUND.into_response(),
        }
    }

    fn refuse_route(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        let (middlewares, plan) = match self.find(req) {
            Found::Entry(entry, _) | Found::Fallback(entry) => {
                (&entry.middlewares[..], Some(&entry.plan))
            }
            Found::Options(_, middlewares) | Found::OtherMethods(_, middlewares) => {
                (middlewares, None)
            }
            Found::Nothing => (&[][..], None),
        };
        let refuse = |req: &Request<'_>| match plan {
            Some(Planning::Ask(segments, app)) => req.below(*segments, || app.refuse(req, refusal)),
            _ => refusal.into_response(),
        };
        Next::refusing(middlewares, &refuse).run(req)
    }

    fn run(&self, entry: &Entry<S>, req: &Request<'_>) -> Response {
        let handler = |req: &Request<'_>| (entry.handler)(&self.state, req);
        Next::new(&entry.middlewares, &handler).run(req)
    }

    fn find<'r, 'a>(&'r self, req: &Request<'a>) -> Found<'r, 'a, S> {
        let path: &'a str = req.path();
        if path == "*" {
            let all = self.routes.iter().flat_map(|route| &route.entries);
            return Found::Options(Cow::Owned(allow(all.map(|entry| &*entry.method))), &[]);
        }
        match path::comparable(path) {
            Cow::Borrowed(path) => {
                let Ok(found) = self.patterns.at(path) else {
                    return self.find_below(path, Cow::Borrowed);
                };
                let values = found.params.iter().map(|(_, value)| Cow::Borrowed(value));
                self.by_method(*found.value, req, values.collect())
            }
            Cow::Owned(path) => {
                let decoded = |value: &str| Cow::Owned(path::value(value));
                let Ok(found) = self.patterns.at(&path) else {
                    return self.find_below(&path, decoded);
                };
                let values = found.params.iter().map(|(_, value)| decoded(value));
                self.by_method(*found.value, req, values.collect())
            }
        }
    }

    /// What is mounted, or falls back, for a path that no route is for.
    fn find_below<'r, 'a, 'p>(
        &'r self,
        path: &'p str,
        value: impl Fn(&'p str) -> Cow<'a, str>,
    ) -> Found<'r, 'a, S> {
        for below in &self.below {
            let mut segments = path.get(1..).unwrap_or_default().split('/');
            let mut values = SmallVec::new();
            let fits = below.prefix.iter().all(|piece| match segments.next() {
                Some(segment) if is_param(piece) && !segment.is_empty() => {
                    values.push(value(segment));
                    true
                }
                segment => segment == Some(piece),
            });
            if fits {
                let entry = &below.entry;
                return if below.is_route {
                    Found::Entry(entry, values)
                } else {
                    Found::Fallback(entry)
                };
            }
        }
        Found::Nothing
    }

    fn by_method<'r, 'a>(
        &'r self,
        route: usize,
        req: &Request<'a>,
        values: SmallVec<[Cow<'a, str>; 2]>,
    ) -> Found<'r, 'a, S> {
        let route = &self.routes[route];
        let method = req.method_name();
        let named = |name: &str| route.entries.iter().find(|entry| entry.method == name);
        let as_get = || if method == "HEAD" { named("GET") } else { None };
        match named(method).or_else(as_get).or_else(|| named(ANY)) {
            Some(entry) => Found::Entry(entry, values),
            None if method == "OPTIONS" => {
                Found::Options(Cow::Borrowed(&route.allow), route.middlewares())
            }
            None => Found::OtherMethods(&route.allow, route.middlewares()),
        }
    }
}

/// What there is for a request.
enum Found<'r, 'a, S> {
    Entry(&'r Entry<S>, SmallVec<[Cow<'a, str>; 2]>),
    Fallback(&'r Entry<S>),
    Options(Cow<'r, str>, &'r [Arc<dyn Middleware>]),
    OtherMethods(&'r str, &'r [Arc<dyn Middleware>]),
    Nothing,
}

impl<S: 'static> App for Router<S> {
    fn call(&self, req: &Request<'_>) -> Response {
        Next::new(&self.middlewares, &|req| self.answer(req)).run(req)
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        if !self.has_plans {
            return Plan::default();
        }
        match self.find(req) {
            Found::Entry(entry, _) => match &entry.plan {
                Planning::Fixed(plan) => *plan,
                Planning::Ask(segments, app) => req.below(*segments, || app.plan(req)),
            },
            _ => Plan::default(),
        }
    }

    /// Those that stand around all routes see it, and those around the route that it would have had.
    fn refuse(&self, req: &Request<'_>, refusal: &Refusal) -> Response {
        Next::refusing(&self.middlewares, &|req| self.refuse_route(req, refusal)).run(req)
    }
}

impl<S> fmt::Debug for Router<S> {
    /// The routes, as they are looked for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.routes.iter().map(|route| (&route.pattern, &route.allow));
        f.debug_map().entries(routes).finish()
    }
}

impl<S> Route<S> {
    /// Those around all of its entries.
    fn middlewares(&self) -> &[Arc<dyn Middleware>] {
        self.entries.first().map_or(&[], |entry| &entry.middlewares[..self.common])
    }
}

fn answering<S, R: IntoResponse>(
    handler: impl Fn(&S, &Request<'_>) -> R + Send + Sync + 'static,
) -> Handler<S> {
    Arc::new(move |state, req| handler(state, req).into_response())
}

/// How an app is called, and asked, that is so many segments below.
fn mounted<S>(app: Arc<dyn App + Send + Sync>, depth: usize) -> (Handler<S>, Planning) {
    let called = Arc::clone(&app);
    let handler: Handler<S> = Arc::new(move |_, req| req.below(depth, || called.call(req)));
    (handler, Planning::Ask(depth, app))
}

fn info(pattern: &str) -> Arc<RouteInfo> {
    Arc::new(params(pattern))
}

/// A pattern and the names of its parameters, in their order.
fn params(pattern: &str) -> RouteInfo {
    let mut params = Vec::new();
    // `{{` is no beginning of a name.
    let plain = pattern.replace("{{", "").replace("}}", "");
    for piece in plain.split('{').skip(1) {
        let name = piece.split('}').next().unwrap_or_default();
        params.push(name.trim_start_matches('*').to_owned());
    }
    RouteInfo { name: pattern.to_owned(), params }
}

fn segments(prefix: &str) -> Vec<String> {
    prefix.split('/').skip(1).map(str::to_owned).collect()
}

fn is_param(segment: &str) -> bool {
    segment.starts_with('{') && segment.ends_with('}') && !segment.starts_with("{{")
}

fn params_of(prefix: &[String]) -> Vec<String> {
    let params = prefix.iter().filter(|segment| is_param(segment));
    params.map(|segment| segment[1..segment.len() - 1].to_owned()).collect()
}

fn below(prefix: &str, pattern: &str) -> String {
    if pattern == "/" { prefix.to_owned() } else { format!("{prefix}{pattern}") }
}

fn check_prefix(prefix: &str) {
    let whole = |segment: &String| is_param(segment) || !segment.contains(['{', '}']);
    let good = prefix.starts_with('/') && !prefix.ends_with('/') && !prefix.contains("{*");
    assert!(
        good && segments(prefix).iter().all(whole),
        "a prefix is like \"/admin\" or \"/users/{{id}}\": {prefix:?}"
    );
}

/// The value of `Allow`: what there is, and what follows from it.
fn allow<'m>(methods: impl Iterator<Item = &'m str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    let mut add = |method| {
        if !all.contains(&method) {
            all.push(method);
        }
    };
    for method in methods.filter(|method| *method != ANY) {
        add(method);
        if method == "GET" {
            add("HEAD");
        }
    }
    add("OPTIONS");
    all.join(", ")
}

#[cfg(test)]
mod tests;
