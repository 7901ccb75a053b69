//! HTTPS: a certificate of your own or one for development, plain HTTP beside it that leads there, and a new
//! certificate while it serves.
//!
//! ```text
//! cargo run -p coracle --example 30_tls -- 127.0.0.1:8443
//! curl --insecure https://127.0.0.1:8443/
//! curl --insecure --location http://127.0.0.1:8080/        # is sent to the other
//! cargo run -p coracle --example 30_tls -- 127.0.0.1:8443 fullchain.pem privkey.pem
//! kill -HUP $(pidof 30_tls)                                 # reads them again
//! ```

use coracle::http::middleware::{Https, around};
use coracle::http::{self, Request, Server};
use coracle::tls::{Identity, ServerSettings, ServerTls};
use std::io;

fn app(req: &Request<'_>) -> String {
    match req.tls() {
        Some(tls) => format!("{:?}, {}\n", tls.version(), tls.cipher_suite()),
        None => "without TLS\n".to_owned(),
    }
}

/// What is shown to clients: read from the files, or made up.
fn settings(files: &[String]) -> io::Result<ServerSettings> {
    let identity = match files {
        [certificate, key] => Identity::from_files(certificate, key)?,
        _ => Identity::self_signed(["localhost", "127.0.0.1"])?,
    };
    Ok(ServerSettings::from(identity).speaking(http::ALPN))
}

fn main() -> io::Result<()> {
    const HUP: i32 = 1;
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        arguments.push("127.0.0.1:8443".to_owned());
    }
    let files = arguments.split_off(1);
    let tls = ServerTls::new(settings(&files)?)?;
    let server = Server::bind(arguments[0].as_str())?.tls(&tls);
    let port = server.local_addresses()[0].ip().map_or(443, |address| address.port());
    let reload = move |_: &coracle::Loop| match settings(&files).and_then(|new| tls.replace(new)) {
        Ok(()) => println!("a new certificate, for new connections"),
        Err(error) => println!("the old certificate stays: {error}"),
    };
    let server = server
        .plain(if port == 8443 { "127.0.0.1:8080" } else { "127.0.0.1:0" })?
        .on_thread_start(move |lp, index| {
            let reload = reload.clone();
            if index == 0
                && let Err(error) = lp.on_signal(HUP, move |lp| reload(lp))
            {
                println!("SIGHUP is not heard: {error}");
            }
        })
        .on_init(|it| {
            println!("https on {}, http on {}", it.local_addresses()[0], it.local_addresses()[1])
        });
    server.serve(around(Https::new().port(port), app))
}
