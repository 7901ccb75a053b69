//! A directory of scripts: CGI, beside a page of one's own.
//!
//! ```text
//! cargo run --release -p coracle --example 33_cgi -- 127.0.0.1:8080
//! curl -i http://127.0.0.1:8080/cgi-bin/hello.sh/world?how=are+you
//! curl -i --data-binary @README.md http://127.0.0.1:8080/cgi-bin/hello.sh/world
//! ```
//!
//! The script is [`cgi-bin/hello.sh`](cgi-bin/hello.sh), eight lines of sh. What one says on its standard error
//! is in the log.

use coracle::http::{self, Cgi, Html, Request, Router};
use std::time::Duration;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cgi-bin");

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--listen"); // as others want it
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let scripts = arguments.next().unwrap_or_else(|| SCRIPTS.to_owned());
    let cgi = Cgi::new(scripts)?.timeout(Duration::from_secs(10)).limit_processes(8);
    let app = Router::new(()).get("/", home).mount("/cgi-bin", cgi);
    let server = http::Server::bind(address.as_str())?;
    server.on_init(|it| println!("scripts on {}", it.local_addresses()[0])).serve(app)
}

fn home(_: &(), _: &Request<'_>) -> Html<&'static str> {
    Html("<a href=\"/cgi-bin/hello.sh/world?how=are+you\">Say hello</a>")
}
