//! An `axum::Router` below a path, beside handlers of our own: on the same loops, without tokio's runtime.
//!
//! ```text
//! cargo run -p coracle --example 34_axum -- 127.0.0.1:8080
//! curl http://127.0.0.1:8080/                        # ours
//! curl http://127.0.0.1:8080/api/hello/ahab          # axum's
//! curl -d '{"a": 20, "b": 22}' -H 'content-type: application/json' http://127.0.0.1:8080/api/add
//! curl --http2-prior-knowledge http://127.0.0.1:8080/api/slow
//! ```

use axum::extract::Path;
use axum::routing::{get, post};
use coracle::http::{Request, Router, Server};
use serde::{Deserialize, Serialize};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = Server::bind(address.as_str())?;
    server.on_init(|it| println!("axum on {}", it.local_addresses()[0])).serve(app())
}

fn app() -> Router<()> {
    Router::new(())
        .get("/", |_: &(), _: &Request<'_>| "a handler of ours; below /api they are axum's\n")
        .mount_service("/api", api())
}

fn api() -> axum::Router {
    axum::Router::new()
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("hello, {name}\n")))
        .route("/add", post(add))
        .route("/slow", get(slow))
}

#[derive(Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Serialize)]
struct Sum {
    sum: i64,
}

async fn add(axum::Json(add): axum::Json<Add>) -> axum::Json<Sum> {
    axum::Json(Sum { sum: add.a.wrapping_add(add.b) })
}

/// What it waits for is this loop's: here, a coroutine. Handlers of axum's are `Send`, and what belongs to a loop
/// is not; so the wait is a coroutine of its own, and what is awaited is its word.
async fn slow() -> &'static str {
    let (done, is_done) = coracle::sync::channel(1);
    coracle::spawn(move || {
        coracle::sleep(Duration::from_millis(100))?;
        let _ = done.send(()); // or nobody waits any more
        std::io::Result::Ok(())
    });
    let _ = is_done.recv_async().await;
    "that took a while\n"
}
