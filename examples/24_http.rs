//! HTTP: an app is a function, and routing is `match`.
//!
//! ```text
//! cargo run --release -p coracle --example 24_http -- --listen 127.0.0.1:8080
//! curl -i http://127.0.0.1:8080/hello/J%C3%BCrgen
//! curl -i -d ahoy http://127.0.0.1:8080/echo
//! curl -i http://127.0.0.1:8080/slow     # only this request waits
//! curl -N http://127.0.0.1:8080/ticks    # a line every 100 ms
//! ```

use coracle::http::{self, Body, Html, IntoResponse, Method::*, Request, Response, Status};
use std::io::Write;
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let address = std::env::args().skip_while(|it| it != "--listen").nth(1);
    let server = http::Server::bind(address.as_deref().unwrap_or("127.0.0.1:8080"))?;
    server.on_init(|it| println!("http on {}", it.local_addresses()[0])).serve(app)
}

fn app(req: &Request<'_>) -> Response {
    match (req.method(), req.segments()) {
        (Get, []) => Html("<h1>coracle</h1>").into_response(),
        (Get, ["hello", name]) => format!("hello, {name}\n").into_response(),
        (Post, ["echo"]) => (Status::CREATED, req.body().to_vec()).into_response(),
        (Get, ["slow"]) => slow().into_response(),
        (Get, ["ticks"]) => ticks().into_response(),
        _ => Status::NOT_FOUND.into_response(),
    }
}

/// A handler may wait. Others are served meanwhile, on the same thread.
fn slow() -> std::io::Result<&'static str> {
    coracle::sleep(Duration::from_millis(100))?;
    Ok("that took a while\n")
}

/// A body that is written while it is sent.
fn ticks() -> Body {
    Body::stream(|out| {
        for tick in 1..=5 {
            writeln!(out, "tick {tick}")?;
            out.flush()?;
            coracle::sleep(Duration::from_millis(100))?;
        }
        Ok(())
    })
}
