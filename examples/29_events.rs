//! Server-sent events: a clock that a browser reads by `EventSource`, and reads on when the connection breaks.
//!
//! ```text
//! cargo run -p coracle --example 29_events -- 127.0.0.1:8080
//! curl -N http://127.0.0.1:8080/events
//! curl -N -H 'Last-Event-ID: 7' http://127.0.0.1:8080/events     # from the eighth on
//! firefox http://127.0.0.1:8080/
//! ```

use coracle::http::sse::{self, Event, EventStream};
use coracle::http::{Html, IntoResponse, Request, Response, Server, Status};
use std::io;
use std::time::Duration;

const PAGE: &str = "<!doctype html><title>ticks</title><h1>-</h1><script>
  const show = event => document.querySelector('h1').textContent = event.data;
  new EventSource('/events').addEventListener('tick', show);
</script>";

fn app(req: &Request<'_>) -> Response {
    match req.segments() {
        [] => Html(PAGE).into_response(),
        ["events"] => ticks(req).into_response(),
        _ => Status::NOT_FOUND.into_response(),
    }
}

fn ticks(req: &Request<'_>) -> EventStream {
    // Where the client was when it lost us.
    let from = req.last_event_id().and_then(|id| id.parse().ok()).map_or(1, |id: u64| id + 1);
    sse::stream(move |events| {
        for number in from.. {
            let event = Event::data(format!("tick {number}")).event("tick");
            events.send(event.id(number.to_string()))?;
            coracle::sleep(Duration::from_millis(500))?;
        }
        Ok(())
    })
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = Server::bind(address.as_str())?;
    server.on_init(|it| println!("events on {}", it.local_addresses()[0])).serve(app)
}
