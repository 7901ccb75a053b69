//! A directory, served: beside routes of one's own.
//!
//! ```text
//! cargo run --release -p coracle --example 25_files -- --listen 127.0.0.1:8080 docs
//! curl -i http://127.0.0.1:8080/README.md
//! curl -i -r -100 http://127.0.0.1:8080/README.md   # the last hundred bytes
//! curl -i http://127.0.0.1:8080/api/time
//! ```

use coracle::http::files::Files;
use coracle::http::{self, App, IntoResponse, Method::*, Request, Response};
use std::time::SystemTime;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, directory) = match &arguments[..] {
        [flag, address, directory] if flag == "--listen" => (address.as_str(), directory.as_str()),
        [directory] => ("127.0.0.1:8080", directory.as_str()),
        _ => ("127.0.0.1:8080", "."),
    };
    let files = Files::new(directory)?.listing(true).cache_control("no-cache");
    let server = http::Server::bind(address)?;
    server
        .on_init(|it| println!("files on {}", it.local_addresses()[0]))
        .serve(move |req: &Request<'_>| app(&files, req))
}

/// Routes first, and files for all the rest.
fn app(files: &Files, req: &Request<'_>) -> Response {
    match (req.method(), req.segments()) {
        (Get, ["api", "time"]) => format!("{:?}\n", SystemTime::now()).into_response(),
        _ => files.call(req),
    }
}
