//! A reverse proxy: two servers behind one, one after the other, with a question about their health.
//!
//! ```text
//! cargo run -p coracle --example 32_proxy -- 127.0.0.1:8080      # and two servers of its own behind it
//! curl http://127.0.0.1:8080/api/hello                            # again and again
//! cargo run -p coracle --example 32_proxy -- 127.0.0.1:8080 http://127.0.0.1:9001 unix:/run/app.sock
//! ```

use coracle::http::proxy::{Balance, HealthCheck, Settings};
use coracle::http::{Proxy, Request, Router, Running, Server};
use std::io;

/// A server to be asked, if none is named.
fn upstream(name: &'static str) -> io::Result<Running> {
    Server::bind("127.0.0.1:0")?.loops(1).start(move |req: &Request<'_>| {
        let asked_by = req.header("x-forwarded-for").unwrap_or("nobody");
        format!("{name} was asked for {} by {asked_by}\n", req.path())
    })
}

fn proxy(upstreams: &[String]) -> io::Result<Proxy> {
    let settings = Settings {
        balance: Balance::LeastConnections,
        health: Some(HealthCheck { path: "/health".into(), ..HealthCheck::default() }),
        ..Settings::default()
    };
    Proxy::to(upstreams.iter().map(String::as_str))?.settings(settings)
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let mut urls: Vec<String> = arguments.collect();
    let mut own = Vec::new();
    if urls.is_empty() {
        own = vec![upstream("port")?, upstream("starboard")?];
        urls.extend(own.iter().map(|it| format!("http://{}", it.local_addresses()[0])));
    }
    let app = Router::new(()).mount("/api", proxy(&urls)?).get("/", |(), _| "ask for /api/hello\n");
    let server = Server::bind(address.as_str())?;
    server.on_init(|it| println!("proxy on {}", it.local_addresses()[0])).serve(app)?;
    own.iter().for_each(Running::stop);
    Ok(())
}
