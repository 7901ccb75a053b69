//! Row N5: methods, types, indexes, redirects, listings.

use crate::client::Client;
use crate::harness::Harness;
use crate::site::Site;
use coracle_http::Router;

pub(crate) fn n5_head_options_and_other_methods(h: &Harness) {
    let site = Site::new();
    site.file("page.html", "a page");
    let client = Client::of(h, site.files());
    client.send("HEAD /page.html HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("6")));
    let get = client.get("/page.html");
    for name in ["etag", "last-modified", "content-type", "accept-ranges"] {
        assert!(head.header(name).is_some() && head.header(name) == get.header(name), "{name}");
    }
    client.send("OPTIONS /page.html HTTP/1.1\r\nHost: a\r\n\r\n");
    let options = client.answer();
    assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
    for method in ["POST", "PUT", "DELETE", "PATCH", "BREW"] {
        client.send(format!(
            "{method} /page.html HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"
        ));
        let refused = client.answer();
        assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
    assert_eq!(client.get("/page.html").text(), "a page");
}

pub(crate) fn n5_index_redirect_and_types(h: &Harness) {
    let site = Site::new();
    site.file("index.html", "top");
    site.file("docs/index.html", "docs");
    site.file("foojs", "no type");
    site.directory("empty");
    let client = Client::of(h, site.files());
    let index = client.get("/");
    assert_eq!(
        (index.text(), index.header("content-type")),
        ("top", Some("text/html; charset=utf-8"))
    );
    assert_eq!(index.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(client.get("/docs/").text(), "docs");
    assert_eq!(client.get("/?a=1").text(), "top", "a query is not a part of the path");
    let redirect = client.get("/docs?a=1");
    assert_eq!((redirect.status, redirect.header("location")), (301, Some("/docs/?a=1")));
    assert_eq!(client.get("/empty/").status, 404);
    assert_eq!(client.get("/docs/index.html/").status, 404);
    assert_eq!(client.get("/foojs").header("content-type"), Some("application/octet-stream"));
}

pub(crate) fn n5_redirect_leads_to_where_it_is_mounted(h: &Harness) {
    let site = Site::new();
    site.file("index.html", "top");
    site.file("docs/index.html", "docs");
    let router = Router::new(())
        .mount("/static", site.files())
        .nest("/users/{id}", |user| user.mount("/files", site.files()));
    let client = Client::of(h, router);
    for (path, location) in [
        ("/static", "/static/"),
        ("/static?a=1", "/static/?a=1"),
        ("/static/docs", "/static/docs/"),
        ("/users/7/files", "/users/7/files/"),
        ("/users/7/files/docs", "/users/7/files/docs/"),
    ] {
        let redirect = client.get(path);
        assert_eq!((redirect.status, redirect.header("location")), (301, Some(location)));
        let there = if location.contains("docs") { "docs" } else { "top" };
        assert_eq!(client.get(location).text(), there);
    }
}

pub(crate) fn n5_listing(h: &Harness) {
    let site = Site::new();
    site.file("docs/<b>&\"name\".txt", "12345");
    site.file("docs/.hidden", "");
    site.file("docs/Zoo/file", "");
    let client = Client::of(h, site.files().listing(true));
    let page = client.get("/docs/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.text();
    assert!(text.contains("<a href=\"./Zoo/\">Zoo/</a>"), "{text}");
    assert!(
        text.contains(
            "<a href=\"./%3Cb%3E%26%22name%22.txt\">&lt;b&gt;&amp;&quot;name&quot;.txt</a>"
        )
    );
    assert!(!text.contains("hidden") && !text.contains("<b>") && !text.contains("<script"));
    assert!(text.contains("prefers-color-scheme: dark"));
    assert_eq!(
        client.get("/docs/%3Cb%3E%26%22name%22.txt").text(),
        "12345",
        "the link leads there"
    );
    assert_eq!(client.get("/docs/Zoo/").status, 200);
}
