//! Server-sent events: a stream that a browser reads by `EventSource`, and asks for again when it breaks.
//!
//! ```no_run
//! use coracle_http::{self as http, Request, sse};
//! use std::time::Duration;
//!
//! fn main() -> std::io::Result<()> {
//!     http::serve("127.0.0.1:8080", |req: &Request<'_>| {
//!         // Where the client was when it lost us.
//!         let from = req.last_event_id().and_then(|id| id.parse().ok()).map_or(0, |id: u64| id + 1);
//!         sse::stream(move |events| {
//!             for number in from.. {
//!                 events.send(sse::Event::data(format!("tick {number}")).id(number.to_string()))?;
//!                 coracle_coro::sleep(Duration::from_secs(1))?;
//!             }
//!             Ok(())
//!         })
//!     })
//! }
//! ```

mod event;

pub use event::Event;

use crate::stopping::Stopping;
use crate::{Body, BodyWriter, IntoResponse, Request, Response, Status};
use coracle_coro::sync::{Receiver, RecvError, Sender, after, channel};
use coracle_coro::{JoinError, select, spawn};
use std::fmt;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::time::Duration;

/// So many events wait until they are sent; then who sends them waits.
const LIMIT_EVENTS: usize = 16;

/// How often something is sent when there is nothing to say, unless [`EventStream::keep_alive`] says otherwise.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A line that means nothing: those between see that the connection is used, and we see when it is gone.
const NOTHING: &[u8] = b":\n\n";

impl<'a> Request<'a> {
    /// The [id](crate::sse::Event::id) of the last event that a client has got, when it comes back for more: the
    /// header `Last-Event-ID`.
    ///
    /// ```
    /// use coracle_http::OwnedRequest;
    ///
    /// let request = OwnedRequest::new("GET", "/events").with_header("Last-Event-ID", "41").unwrap();
    /// assert_eq!(request.request().last_event_id(), Some("41"));
    /// ```
    pub fn last_event_id(&self) -> Option<&'a str> {
        self.header("last-event-id").filter(|id| !id.is_empty())
    }
}

/// The events that `produce` sends, as they come. It runs in a coroutine of its own, which is cancelled when the
/// client is gone, and when the server is about to stop; when it returns, the stream ends, and the client comes
/// back for more after a while.
///
/// ```
/// use coracle_http::{IntoResponse, sse};
///
/// let response = sse::stream(|events| events.send(sse::Event::data("ahoy"))).into_response();
/// assert_eq!(response.headers().get("content-type"), Some("text/event-stream"));
/// ```
pub fn stream(produce: impl FnOnce(&Events) -> io::Result<()> + 'static) -> EventStream {
    EventStream { source: Source::Produced(Box::new(produce)), keep_alive: KEEP_ALIVE }
}

/// Where the events of a [`stream`] go.
#[derive(Debug)]
pub struct Events {
    sender: Sender<Event>,
}

impl Events {
    /// Sends an event; waits while the client does not read those before it.
    ///
    /// # Errors
    /// `InvalidInput`: it cannot be sent. `BrokenPipe`: the client is gone. `ECANCELED`: as for all waits.
    pub fn send(&self, event: Event) -> io::Result<()> {
        event.check()?;
        Ok(self.sender.send(event)?)
    }
}

/// An answer that is a stream of events. See [`stream`].
pub struct EventStream {
    source: Source,
    keep_alive: Duration,
}

enum Source {
    Produced(Produce),
    Received(Receiver<Event>),
}

type Produce = Box<dyn FnOnce(&Events) -> io::Result<()>>;

impl EventStream {
    /// How often a line that means nothing is sent when there is nothing to say: 15 seconds, unless this says
    /// otherwise. That a client is gone is seen no later.
    #[must_use]
    pub fn keep_alive(mut self, period: Duration) -> EventStream {
        self.keep_alive = period;
        self
    }
}

/// The events that come out of a channel, until all its senders are gone, or the server is about to stop.
///
/// ```
/// use coracle_coro::sync::channel;
/// use coracle_http::sse::{Event, EventStream};
///
/// let (sender, receiver) = channel(16);
/// sender.send(Event::data("ahoy")).unwrap();
/// let stream = EventStream::from(receiver);
/// # drop(stream);
/// ```
impl From<Receiver<Event>> for EventStream {
    fn from(receiver: Receiver<Event>) -> EventStream {
        EventStream { source: Source::Received(receiver), keep_alive: KEEP_ALIVE }
    }
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let EventStream { source, keep_alive } = self;
        let body = Body::stream(move |out| match source {
            Source::Received(receiver) => pump(&receiver, out, keep_alive).map(drop),
            Source::Produced(produce) => produce_and_pump(produce, out, keep_alive),
        });
        Response::new(Status::OK)
            .with_header("content-type", "text/event-stream")
            .with_header("cache-control", "no-store")
            .with_header("x-accel-buffering", "no") // nginx would keep it to itself
            .with_body(body)
    }
}

/// Why there are no more events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Whoever sends them has no more.
    Sent,
    /// The server is about to stop.
    Stopping,
}

/// Writes events as they come, until there are no more, or the server is about to stop: the client comes back for
/// more, to whoever is there then.
fn pump(
    events: &Receiver<Event>,
    out: &mut BodyWriter<'_>,
    keep_alive: Duration,
) -> io::Result<End> {
    let never = Stopping::default(); // where there is nothing that could stop
    let stopping = out.stopping().unwrap_or(&never).begun();
    out.flush()?; // the head: the client may know that it is connected
    loop {
        select! {
            event = events => match event {
                Ok(event) => {
                    event.write(out)?;
                    let mut waiting = events.try_iter().take(LIMIT_EVENTS);
                    waiting.try_for_each(|event| event.write(out))?;
                }
                Err(RecvError::Disconnected) => return Ok(End::Sent),
                Err(error) => return Err(error.into()),
            },
            _ = &stopping => {
                // Not those that come meanwhile, which may be without end.
                let mut waiting = events.try_iter().take(events.len());
                waiting.try_for_each(|event| event.write(out))?;
                return Ok(End::Stopping);
            },
            () = after(keep_alive) => out.write_all(NOTHING)?,
        }
        out.flush()?;
    }
}

fn produce_and_pump(
    produce: Produce,
    out: &mut BodyWriter<'_>,
    keep_alive: Duration,
) -> io::Result<()> {
    let (sender, receiver) = channel(LIMIT_EVENTS);
    let producer = spawn(move || produce(&Events { sender }));
    let pumped = pump(&receiver, out, keep_alive);
    drop(receiver);
    if !matches!(pumped, Ok(End::Sent)) {
        producer.cancel();
        return pumped.map(drop); // it ends by itself
    }
    match producer.join() {
        Ok(result) => result,
        Err(JoinError::Panicked(panic)) => resume_unwind(panic),
        Err(JoinError::Lost(why)) => Err(io::Error::other(why)),
        Err(JoinError::TimedOut(producer) | JoinError::Cancelled(producer)) => {
            producer.cancel();
            Err(io::ErrorKind::TimedOut.into())
        }
        Err(other) => Err(io::Error::other(format!("{other:?}"))),
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("keep_alive", &self.keep_alive).finish_non_exhaustive()
    }
}
