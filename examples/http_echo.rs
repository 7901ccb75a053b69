//! An HTTP server for those who test HTTP servers: it answers every request with what it received.
//!
//! ```text
//! cargo run --release -p coracle --example http_echo -- --listen 127.0.0.1:8080
//! curl -d ahoy 'http://127.0.0.1:8080/any/path?query'       # as JSON
//! curl -d ahoy 'http://127.0.0.1:8080/any/path?raw'         # only the body
//! ```
//!
//! It speaks HTTP/2, too, to who begins with it (`curl --http2-prior-knowledge`), and gRPC: a call comes back as
//! it was, message by message, with the status OK.
//!
//! A request for a WebSocket at `/ws` becomes an echo of messages of up to 16 MiB: in a coroutine; in callbacks at
//! `/ws?callbacks`. They may be compressed, and with `keep` in the query, refer to those before them. Pages of all
//! sites may ask for it.
//!
//! With `--tls-cert FILE --tls-key FILE`, or `--self-signed`, it speaks HTTPS, and its JSON tells of that.
//!
//! Its limits and time-outs can be set: `--limit-header-bytes`, `--limit-body-bytes`, and, in seconds,
//! `--header-timeout`, `--body-timeout`, `--idle-timeout`; also `--backend` and `--threads`. On SIGTERM it
//! finishes what is under way.

use coracle::http::ws::{self, Message, Origins, Peer, WebSocket};
use coracle::http::{
    ALPN, App, Body, IntoResponse, Plan, Request, Response, Server, Settings, Status, Trailers,
};
use coracle::tls::{Identity, ServerSettings, ServerTls};
use std::fmt::Write;
use std::io::{self, Read, Write as _};
use std::str::FromStr;
use std::time::Duration;

fn main() -> io::Result<()> {
    let mut settings = Settings::default();
    let (mut address, mut backend, mut threads) = ("127.0.0.1:8080".to_owned(), None, None);
    let (mut certificate, mut key, mut self_signed) = (None, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--self-signed" {
            self_signed = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| wrong(&name, "needs a value"))?;
        let value = value.as_str();
        match name.as_str() {
            "--listen" => address = value.to_owned(),
            "--limit-header-bytes" => settings.limit_header_bytes = number(&name, value)?,
            "--limit-body-bytes" => settings.limit_body_bytes = number(&name, value)?,
            "--header-timeout" => settings.header_timeout = seconds(&name, value)?,
            "--body-timeout" => settings.body_timeout = seconds(&name, value)?,
            "--idle-timeout" => settings.idle_timeout = seconds(&name, value)?,
            "--tls-cert" => certificate = Some(value.to_owned()),
            "--tls-key" => key = Some(value.to_owned()),
            "--backend" => backend = Some(value.parse()?),
            "--threads" => threads = Some(number(&name, value)?),
            _ => return Err(wrong(&name, "is not an option")),
        }
    }
    let mut server = Server::bind(address.as_str())?.settings(settings);
    if let Some(backend) = backend {
        server = server.backend(backend);
    }
    if let Some(threads) = threads {
        server = server.loops(threads);
    }
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity::from_files(certificate, key)?),
        (None, None) if self_signed => Some(Identity::self_signed(["localhost", "127.0.0.1"])?),
        (None, None) => None,
        _ => return Err(wrong("--tls-cert", "and --tls-key go together")),
    };
    if let Some(identity) = identity {
        server = server.tls(&ServerTls::new(ServerSettings::from(identity).speaking(ALPN))?);
    }
    server.on_init(|it| println!("http_echo on {}", it.local_addresses()[0])).serve(Echo)
}

struct Echo;

impl App for Echo {
    fn call(&self, req: &Request<'_>) -> Response {
        if is_grpc(req) { echo_call(req) } else { echo(req) }
    }

    /// Calls are answered while they are made.
    fn plan(&self, req: &Request<'_>) -> Plan {
        if is_grpc(req) { Plan::default().streamed() } else { Plan::default() }
    }
}

fn is_grpc(req: &Request<'_>) -> bool {
    req.header("content-type").is_some_and(|kind| kind.starts_with("application/grpc"))
}

fn echo_call(req: &Request<'_>) -> Response {
    let trailers = Trailers::new();
    let later = trailers.clone();
    let mut calls = req.owned_body_reader();
    let body = Body::stream(move |out| {
        let mut piece = [0; 4096];
        loop {
            match calls.read(&mut piece)? {
                0 => break,
                count => out.write_all(&piece[..count])?,
            }
            out.flush()?;
        }
        later.insert("grpc-status", "0").map_err(io::Error::other)
    });
    Response::new(Status::OK)
        .with_header("content-type", "application/grpc")
        .with_body(body)
        .with_trailers(trailers)
}

fn echo(req: &Request<'_>) -> Response {
    if req.path() == "/ws" && req.headers().contains("upgrade") {
        return echo_messages(req);
    }
    if req.query() == Some("raw") {
        return req.body().to_vec().into_response();
    }
    let mut json = String::from("{");
    let _ = write!(json, "\"method\":{}", quoted(req.method_name().as_bytes()));
    let _ = write!(json, ",\"path\":{}", quoted(req.path().as_bytes()));
    let query = req.query().map_or("null".into(), |query| quoted(query.as_bytes()));
    let _ = write!(json, ",\"query\":{query},\"version\":\"{:?}\",\"headers\":[", req.version());
    write_fields(&mut json, req.headers().iter());
    json.push_str("],\"trailers\":[");
    write_fields(&mut json, req.trailers().iter());
    let _ = write!(json, "],\"body\":{}", quoted(req.body()));
    if let Some(tls) = req.tls() {
        let (version, suite) = (tls.version(), tls.cipher_suite());
        let _ =
            write!(json, ",\"tls\":{{\"version\":\"{version:?}\",\"cipher_suite\":\"{suite}\"}}");
    }
    json.push('}');
    json.push('\n');
    json.into_response().with_header("content-type", "application/json")
}

fn echo_messages(req: &Request<'_>) -> Response {
    let asked = |word: &str| req.query().is_some_and(|query| query.split('&').any(|it| it == word));
    let deflate = ws::Deflate { keep_context: asked("keep"), ..ws::Deflate::default() };
    let settings = ws::Settings {
        limit_frame_bytes: 16 << 20,
        limit_message_bytes: 16 << 20,
        deflate: Some(deflate),
        ..ws::Settings::default()
    };
    let upgrade =
        ws::upgrade(req).settings(settings).origins(Origins::any()).subprotocols(["echo"]);
    if asked("callbacks") {
        return upgrade.handle(|peer: &mut Peer<'_>, message: Message| peer.send(message));
    }
    upgrade.run(|ws: &WebSocket| {
        for message in ws {
            ws.send(message?)?;
        }
        Ok(())
    })
}

fn write_fields<'a>(json: &mut String, fields: impl Iterator<Item = (&'a str, &'a [u8])>) {
    for (index, (name, value)) in fields.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(json, "{comma}[{},{}]", quoted(name.as_bytes()), quoted(value));
    }
}

/// Bytes as a string of JSON, each as the character of its number: so any bytes can be told.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\u{byte:04x}");
            }
        }
    }
    text.push('"');
    text
}

fn number<T: FromStr>(name: &str, value: &str) -> io::Result<T> {
    value.parse().map_err(|_| wrong(name, "needs a number"))
}

fn seconds(name: &str, value: &str) -> io::Result<Duration> {
    let seconds: f64 = number(name, value)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong(name, "needs a number of seconds"))
}

fn wrong(name: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name} {what}"))
}
