//! A client of https: whom it trusts, how it says who it is, and what it is told when the server is somebody else.
//!
//! ```text
//! cargo run -p coracle --example 35_https_client                                # asks a server of its own
//! cargo run -p coracle --example 35_https_client -- https://example.org/        # trusts whom the system trusts
//! cargo run -p coracle --example 35_https_client -- --roots our-own.pem https://intranet/
//! cargo run -p coracle --example 35_https_client -- --show ahab.pem ahab.key https://crew.example.org/
//! ```

use coracle::http::client::{Client, Settings};
use coracle::http::{self, Request, Server};
use coracle::tls::{ClientSettings, ClientTls, Identity, Roots, ServerSettings, ServerTls};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A client that trusts these and nobody else, and shows who it is to servers that ask.
fn client(roots: Roots, identity: Option<Identity>) -> io::Result<Client> {
    let tls = ClientTls::new(ClientSettings { identity, ..ClientSettings::trusting(roots) })?;
    Client::with(Settings {
        secure: Some(Arc::new(tls)),
        timeout: Some(Duration::from_secs(20)),
        ..Settings::default()
    })
}

/// One answer, or why there is none: whether it is the network, or that nobody vouches for the server.
fn ask(client: &Client, url: &str) {
    match client.get(url).send().and_then(|answer| Ok((answer.status(), answer.text()?))) {
        Ok((status, text)) => println!("{status} {}", text.lines().next().unwrap_or_default()),
        Err(error) => println!("no answer: {error}"),
    }
}

/// A server whose certificate is made up, and vouches for itself.
fn ask_our_own() -> io::Result<()> {
    let ship = Identity::self_signed(["localhost"])?;
    let tls = ServerTls::new(ServerSettings::from(ship.clone()).speaking(http::ALPN))?;
    let server = Server::bind("127.0.0.1:0")?.loops(1).tls(&tls);
    let server = server.start(|req: &Request<'_>| {
        let version = req.tls().map(|tls| tls.version());
        version.map_or("ahoy\n".to_owned(), |version| format!("ahoy, by {version:?}\n"))
    })?;
    let port = server.local_addresses()[0].ip().map_or(443, |address| address.port());
    coracle::run(move || {
        let url = format!("https://localhost:{port}/");
        ask(&client(Roots::identity(&ship)?, None)?, &url);
        let pirates = Roots::identity(&Identity::self_signed(["localhost"])?)?;
        ask(&client(pirates, None)?, &url); // trusts somebody else
        Ok(())
    })?;
    server.stop();
    server.join()
}

fn main() -> io::Result<()> {
    let (mut roots, mut identity, mut urls) = (None, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| io::Error::other("a file is missing"));
        match argument.as_str() {
            "--roots" => roots = Some(Roots::from_file(value()?)?),
            "--show" => identity = Some(Identity::from_files(value()?, value()?)?),
            _ => urls.push(argument),
        }
    }
    if urls.is_empty() {
        return ask_our_own();
    }
    let roots = roots.map_or_else(Roots::system, Ok)?;
    coracle::run(move || {
        let client = client(roots, identity)?;
        urls.iter().for_each(|url| ask(&client, url));
        Ok(())
    })
}
