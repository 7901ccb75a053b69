//! What the router answers.

use super::*;
use crate::OwnedRequest;
use proptest::prelude::*;

fn ask<S: 'static>(app: &Router<S>, method: &str, path: &str) -> Response {
    app.call(&OwnedRequest::new(method, path).request())
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(response.body().as_bytes().unwrap()).into_owned()
}

#[test]
fn j6_params_are_decoded_and_slashes_in_them_are_kept() {
    let show = |_: &(), req: &Request<'_>| {
        format!("{}|{}", req.param("a").unwrap(), req.param("b").unwrap_or("none"))
    };
    let app = Router::new(()).get("/{a}", show).get("/{a}/x/{*b}", show);
    for (path, expected) in [
        ("/1", "1|none"),
        ("/a%2Fb", "a/b|none"),
        ("/a%252Fb", "a%2Fb|none"),
        ("/%C3%A4", "ä|none"),
        ("/%ff", "\u{fffd}|none"),
        ("/1/x/2/3%2F4", "1|2/3/4"),
        ("/1/%78/2", "1|2"),
    ] {
        assert_eq!(text(&ask(&app, "GET", path)), expected, "{path}");
    }
    assert_eq!(ask(&app, "GET", "/1/x/").status(), Status::NOT_FOUND);
    assert_eq!(ask(&app, "GET", "/").status(), Status::NOT_FOUND);
}

#[test]
fn j6_a_wrong_method_is_405_with_allow() {
    let app =
        Router::new(()).get("/a", |_, _| "").post("/a", |_, _| "").on("PURGE", "/b", |_, _| "");
    let response = ask(&app, "DELETE", "/a");
    assert_eq!(response.status(), Status::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers().get("allow"), Some("GET, HEAD, POST, OPTIONS"));
    assert_eq!(ask(&app, "PURGE", "/b").status(), Status::OK);
    assert_eq!(ask(&app, "purge", "/b").status(), Status::METHOD_NOT_ALLOWED);
    assert_eq!(ask(&app, "GET", "/b").headers().get("allow"), Some("PURGE, OPTIONS"));
    assert_eq!(ask(&app, "HEAD", "/b").status(), Status::METHOD_NOT_ALLOWED);
}

#[test]
fn j6_head_and_options_come_by_themselves() {
    let app = Router::new(()).get("/a", |_, req| req.method_name().to_owned());
    assert_eq!(text(&ask(&app, "HEAD", "/a")), "HEAD");
    let options = ask(&app, "OPTIONS", "/a");
    assert_eq!(options.status(), Status::NO_CONTENT);
    assert_eq!(options.headers().get("allow"), Some("GET, HEAD, OPTIONS"));

    let own = |_: &(), _: &Request<'_>| "own";
    let app = app.on("HEAD", "/a", own).on("OPTIONS", "/a", own);
    assert_eq!(text(&ask(&app, "HEAD", "/a")), "own");
    assert_eq!(text(&ask(&app, "OPTIONS", "/a")), "own");
}

#[test]
fn j6_any_takes_what_others_leave() {
    let app = Router::new(()).get("/a", |_, _| "get").any("/a", |_, _| "any");
    assert_eq!(text(&ask(&app, "GET", "/a")), "get");
    assert_eq!(text(&ask(&app, "HEAD", "/a")), "get");
    assert_eq!(text(&ask(&app, "BREW", "/a")), "any");
    assert_eq!(text(&ask(&app, "OPTIONS", "/a")), "any");
}

#[test]
fn j6_a_nest_has_its_own_middlewares_fallback_and_names() {
    let mark = |req: &Request<'_>, next: Next<'_>| next.run(req).with_header("x-inner", "1");
    let name =
        |_: &(), req: &Request<'_>| format!("{} {:?}", req.route().unwrap(), req.param("id"));
    let app =
        Router::new(()).get("/", |_, _| "top").fallback(|_, _| "outer").nest("/u/{id}", |nest| {
            nest.with(mark).get("/", name).get("/x", name).named("the x").fallback(|_, _| "inner")
        });
    assert_eq!(text(&ask(&app, "GET", "/u/7")), "/u/{id} Some(\"7\")");
    assert_eq!(text(&ask(&app, "GET", "/u/7/x")), "the x Some(\"7\")");
    assert_eq!(text(&ask(&app, "GET", "/u/7/y/z")), "inner");
    assert_eq!(text(&ask(&app, "GET", "/v")), "outer");
    assert_eq!(ask(&app, "POST", "/u/7/x").status(), Status::METHOD_NOT_ALLOWED);
    assert_eq!(ask(&app, "GET", "/u/7/y").headers().get("x-inner"), Some("1"));
    assert_eq!(ask(&app, "GET", "/").headers().get("x-inner"), None);
}

#[test]
fn j6_middlewares_of_a_nest_see_what_no_handler_answers() {
    let mark = |name: &'static str| {
        move |req: &Request<'_>, next: Next<'_>| next.run(req).with_header(name, "1")
    };
    let app = Router::new(())
        .nest("/api", |api| {
            api.with(mark("x-outer")).nest("/v1", |v1| {
                v1.with(mark("x-inner")).get("/a", |_, _| "a").post("/a", |_, _| "a")
            })
        })
        .put("/api/v1/a", |_, _| "outside")
        .nest("/only", |only| only.with(mark("x-inner")).get("/a", |_, _| "a"));
    let marks = |method: &str, path: &str| {
        let response = ask(&app, method, path);
        let has = |name| response.headers().contains(name);
        (response.status().as_u16(), has("x-outer"), has("x-inner"))
    };
    assert_eq!(marks("GET", "/api/v1/a"), (200, true, true));
    assert_eq!(marks("DELETE", "/api/v1/a"), (405, false, false), "one of them is in no nest");
    assert_eq!(marks("OPTIONS", "/only/a"), (204, false, true));
    assert_eq!(marks("DELETE", "/only/a"), (405, false, true));
}

#[test]
fn j6_preflight_in_a_nest_is_answered() {
    let cors = crate::middleware::Cors::new().origin("https://app.example");
    let app = Router::new(()).nest("/api", |api| api.with(cors).put("/a", |_, _| "a"));
    let request = OwnedRequest::new("OPTIONS", "/api/a")
        .with_header("Origin", "https://app.example")
        .and_then(|request| request.with_header("Access-Control-Request-Method", "PUT"))
        .unwrap();
    let response = app.call(&request.request());
    let allowed = response.headers().get("access-control-allow-origin");
    assert_eq!(allowed, Some("https://app.example"));
}

#[test]
fn j6_an_app_that_is_mounted_sees_the_path_below() {
    fn inner(req: &Request<'_>) -> String {
        format!("{} {:?} {}", req.path(), req.segments(), req.full_path())
    }
    let deep = Router::new(()).get("/y/{b}", |_, req| {
        format!("{:?} {:?} {}", req.param("a"), req.param("b"), req.route().unwrap())
    });
    let app = Router::new(())
        .mount("/in", inner)
        .mount("/{a}/deep", deep)
        .get("/after", |_, req| req.path().to_owned());
    for (path, expected) in [
        ("/in", r#"/ [] /in"#),
        ("/in/", r#"/ [] /in/"#),
        ("/in/a%2Fb/c", r#"/a%2Fb/c ["a/b", "c"] /in/a%2Fb/c"#),
        ("/%69n/a", r#"/a ["a"] /%69n/a"#),
        ("/in//a", r#"//a ["", "a"] /in//a"#),
        ("/1/deep/y/2", r#"Some("1") Some("2") /y/{b}"#),
        ("/after", "/after"),
    ] {
        assert_eq!(text(&ask(&app, "GET", path)), expected, "{path}");
    }
    assert_eq!(ask(&app, "GET", "/inn").status(), Status::NOT_FOUND);
}

#[test]
fn j6_routes_come_before_what_is_mounted_and_longer_prefixes_before_shorter() {
    let name = |name: &'static str| move |req: &Request<'_>| format!("{name} {}", req.path());
    let app = Router::new(())
        .mount("/", name("root"))
        .mount("/a", name("a"))
        .mount("/a/b", name("b"))
        .get("/a/{id}", |_, _| "route");
    for (path, expected) in [
        ("/", "root /"),
        ("/x/y", "root /x/y"),
        ("/a/x/y", "a /x/y"),
        ("/a/b/c", "b /c"),
        ("/a/x", "route"),
    ] {
        assert_eq!(text(&ask(&app, "GET", path)), expected, "{path}");
    }
    assert_eq!(ask(&app, "POST", "/a/x").status(), Status::METHOD_NOT_ALLOWED);
}

#[test]
fn j6_an_app_that_is_mounted_in_a_nest_sees_the_path_below_both() {
    fn inner(req: &Request<'_>) -> String {
        format!("{} {:?} {:?} {}", req.path(), req.segments(), req.param("a"), req.route().unwrap())
    }
    let streamed = Router::new(()).put("/s", |_, _| "").planned(Plan::default().streamed());
    let app = Router::new(()).nest("/x/{a}", |nest| {
        nest.nest("/y", |nest| nest.mount("/z", inner))
            .mount("/p", streamed)
            .fallback(|_, _| "none")
    });
    let expected = r#"/b/c ["b", "c"] Some("1") /x/{a}/y/z/*"#;
    assert_eq!(text(&ask(&app, "GET", "/x/1/y/z/b/c")), expected);
    assert_eq!(text(&ask(&app, "GET", "/x/1/y/w")), "none");
    let plan = app.plan(&OwnedRequest::new("PUT", "/x/1/p/s").request());
    assert_eq!(plan, Plan::default().streamed());
}

#[test]
#[should_panic(expected = "two apps for all that is below \"/a\"")]
fn j6_two_apps_at_one_place_are_refused() {
    let other = |_: &Request<'_>| "";
    let _ = Router::new(()).mount("/a", other).nest("/a", |nest| nest.fallback(|_, _| ""));
}

#[test]
fn j6_a_panic_in_a_mounted_app_leaves_the_path_as_it_was() {
    fn inner(_: &Request<'_>) -> String {
        panic!("as it is meant to")
    }
    let app = Router::new(()).mount("/in", inner);
    let owned = OwnedRequest::new("GET", "/in/x");
    let req = owned.request();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| app.call(&req)));
    assert!(panicked.is_err());
    assert_eq!(req.path(), "/in/x");
}

#[test]
fn j6_the_first_middleware_is_outermost() {
    let mark = |letter: &'static str| {
        move |req: &Request<'_>, next: Next<'_>| {
            let mut response = next.run(req);
            let inner = response.headers().get("x").unwrap_or("").to_owned();
            response.headers_mut().insert("x", format!("{letter}{inner}")).unwrap();
            response
        }
    };
    let app = Router::new(())
        .with(mark("a"))
        .with(mark("b"))
        .nest("/n", |nest| nest.with(mark("c")).with(mark("d")).get("/", |_, _| ""));
    assert_eq!(ask(&app, "GET", "/n").headers().get("x"), Some("abcd"));
    assert_eq!(ask(&app, "GET", "/none").headers().get("x"), Some("ab"), "around the 404, too");
}

#[test]
fn j6_plans_are_found_by_route() {
    let long = Plan::default().limit_body_bytes(7);
    let streamed = Plan::default().streamed();
    let inner = Router::new(()).put("/s", |_, _| "").planned(streamed);
    let app = Router::new(())
        .post("/a", |_, _| "")
        .planned(long)
        .get("/a", |_, _| "")
        .nest("/n", |nest| nest.post("/", |_, _| "").planned(long))
        .mount("/m", inner);
    let plan = |method, path| app.plan(&OwnedRequest::new(method, path).request());
    assert_eq!(plan("POST", "/a"), long);
    assert_eq!(plan("POST", "/n"), long);
    assert_eq!(plan("PUT", "/m/s"), streamed);
    for (method, path) in
        [("GET", "/a"), ("POST", "/x"), ("PUT", "/a"), ("GET", "/m/s"), ("GET", "/m")]
    {
        assert_eq!(plan(method, path), Plan::default(), "{method} {path}");
    }
}

#[test]
#[should_panic(expected = "two routes for GET /a")]
fn j6_the_same_route_twice_is_refused() {
    let _ = Router::new(()).get("/a", |_, _| "").get("/a", |_, _| "");
}

#[test]
#[should_panic(expected = "cannot add the route \"/{b}\"")]
fn j6_a_route_that_is_another_by_another_name_is_refused() {
    let _ = Router::new(()).get("/{a}", |_, _| "").get("/{b}", |_, _| "");
}

#[test]
fn j6_a_router_is_shared_by_threads_if_its_state_can_be() {
    fn shared(_: &(impl Send + Sync)) {}
    shared(&Router::new(String::new()).get("/", |_, _| ""));
}

/// Patterns and paths over two letters: the slow twin goes through all patterns and takes the most specific.
fn twin<'p>(patterns: &[&'p str], path: &str) -> Option<&'p str> {
    let path: Vec<&str> = path[1..].split('/').collect();
    let fits = |pattern: &str| {
        let pattern: Vec<&str> = pattern[1..].split('/').collect();
        let mut rank = Vec::new();
        for (index, piece) in pattern.iter().enumerate() {
            if *piece == "{*r}" {
                rank.push(2);
                let rest = path.get(index..).filter(|rest| !rest.is_empty() && *rest != [""]);
                return rest.map(|_| rank);
            }
            match path.get(index) {
                Some(segment) if segment == piece => rank.push(0),
                Some(segment) if piece.starts_with("{p") && !segment.is_empty() => rank.push(1),
                _ => return None,
            }
        }
        (pattern.len() == path.len()).then_some(rank)
    };
    let ranked = patterns.iter().filter_map(|pattern| Some((fits(pattern)?, *pattern)));
    ranked.min().map(|(_, pattern)| pattern)
}

proptest! {
    #[test]
    fn j6_routes_are_found_as_by_looking_at_all(
        chosen in proptest::collection::btree_set("(/(a|b|\\{p\\})){1,3}(/\\{\\*r\\})?", 1..8),
        paths in proptest::collection::vec("(/(a|b|c)?){1,4}", 1..20),
    ) {
        // A pattern does not have two parameters of one name.
        let number = |pattern: &String| {
            let pieces = pattern.split('/').enumerate();
            let named = pieces.map(|(at, piece)| piece.replace("{p}", &format!("{{p{at}}}")));
            named.collect::<Vec<String>>().join("/")
        };
        let chosen: Vec<String> = chosen.iter().map(number).collect();
        // `{*r}` and `{p}` are not behind the same prefix: that is refused.
        let mut accepted = matchit::Router::new();
        let mut patterns: Vec<&str> = chosen.iter().map(String::as_str).collect();
        patterns.retain(|pattern| accepted.insert(*pattern, ()).is_ok());
        let mut app = Router::new(());
        for pattern in &patterns {
            app = app.get(pattern, |_, req| req.route().unwrap().to_owned());
        }
        for path in paths {
            let response = ask(&app, "GET", &path);
            let found = (response.status() == Status::OK).then(|| text(&response));
            prop_assert_eq!(found.as_deref(), twin(&patterns, &path), "{} in {:?}", path, patterns);
        }
    }
}
