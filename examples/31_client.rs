//! A client: asks a server, in coroutines, on connections that are kept.
//!
//! ```text
//! cargo run -p coracle --example 31_client                                    # asks a server of its own
//! cargo run -p coracle --example 31_client -- http://127.0.0.1:8080/ http://example.org/
//! ```

use coracle::http::client::{Client, Settings};
use coracle::http::{IntoResponse, Method::*, Request, Response, Server, Status};
use std::io::{self, Read};
use std::time::Duration;

/// Something to ask, if nothing else is there.
fn app(req: &Request<'_>) -> Response {
    match (req.method(), req.segments()) {
        (Get, ["old"]) => coracle::http::Redirect::permanent("/new").into_response(),
        (Get, ["new"]) => "you were sent here\n".into_response(),
        (Post, ["sum"]) => sum(req).into_response(),
        _ => Status::NOT_FOUND.into_response(),
    }
}

fn sum(req: &Request<'_>) -> Result<String, coracle::http::Problem> {
    let numbers: Vec<i64> = req.json()?;
    Ok(format!("{}\n", numbers.iter().sum::<i64>()))
}

/// What a program does with a client: plain calls, each of which waits, and parks only its coroutine.
fn ask(client: &Client, base: &str) -> io::Result<()> {
    // Redirects are followed, and secrets stay with their host.
    let answer = client.get(&format!("{base}/old")).basic_auth("ahab", "whale").send()?;
    print!("{} {}", answer.status(), answer.text()?);

    let answer = client.post(&format!("{base}/sum")).json(&[1, 2, 3]).send()?;
    print!("{} {}", answer.status(), answer.text()?);

    // A body that is read while it is sent, and an answer that is read while it comes.
    let long = io::repeat(b'x').take(100_000);
    let answer = client.post(&format!("{base}/nowhere")).body_reader(long).send()?;
    println!("{}", answer.status());
    Ok(())
}

/// Asks for all of these at the same time.
fn ask_all(client: &Client, urls: &[String]) -> io::Result<()> {
    let asking: Vec<_> = urls
        .iter()
        .map(|url| {
            let (client, url) = (client.clone(), url.clone());
            coracle::spawn(move || -> io::Result<()> {
                let mut answer = client.get(&url).send()?;
                let count = io::copy(&mut answer, &mut io::sink())?;
                println!("{url}: {}, {count} bytes", answer.status());
                Ok(())
            })
        })
        .collect();
    for one in asking {
        if let Err(error) = one.join()? {
            println!("{error}");
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let settings = Settings { timeout: Some(Duration::from_secs(10)), ..Settings::default() };
    let client = Client::with(settings)?;
    let urls: Vec<String> = std::env::args().skip(1).collect();
    if !urls.is_empty() {
        return coracle::run(move || ask_all(&client, &urls));
    }
    let server = Server::bind("127.0.0.1:0")?.loops(1).start(app)?;
    let base = format!("http://{}", server.local_addresses()[0]);
    coracle::run(move || ask(&client, &base))?;
    server.stop();
    server.join()
}
