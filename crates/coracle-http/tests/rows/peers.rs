//! Servers for clients to ask: real ones, and some that say what they were told to say.

use crate::harness::Harness;
use coracle_http::{App, Service, Settings};
use coracle_net::{Address, Buffer, Conn, ConnHandle, Listener, Protocol};
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// Serves an app: where.
pub(crate) fn listening(h: &Harness, app: impl App) -> Address {
    counted(h, app).0
}

/// The same, and how many connections there were.
pub(crate) fn counted(h: &Harness, app: impl App) -> (Address, Rc<Cell<u32>>) {
    let service = Service::new(app, Settings::default()).expect("a service");
    let settings = service.connection_settings();
    let accepted = Rc::new(Cell::new(0));
    let note = Rc::clone(&accepted);
    let listener = Listener::bind(&h.lp, &any(), settings, move |peer| {
        note.set(note.get() + 1);
        service.connection(peer)
    });
    let address = listener.expect("it listens").local_address(&h.lp).expect("an address");
    (address, accepted)
}

fn any() -> Address {
    "127.0.0.1:0".parse().expect("an address")
}

/// An address at which nobody listens.
pub(crate) fn nobody() -> Address {
    "127.0.0.1:1".parse().expect("an address")
}

/// Runs a coroutine to its end, whatever else runs.
pub(crate) fn run<T: 'static>(h: &Harness, f: impl FnOnce() -> T + 'static) -> T {
    let result = Rc::new(RefCell::new(None));
    let note = Rc::clone(&result);
    h.lp.defer(move |_| {
        drop(coracle_coro::spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(f));
            *note.borrow_mut() = Some(ended);
        }));
    });
    h.run_until(&result, |result| result.borrow().is_some());
    result.take().expect("it is over").unwrap_or_else(|panic| resume_unwind(panic))
}

/// What is said on one connection: an answer for each request.
#[derive(Clone)]
pub(crate) struct Script {
    answers: Vec<String>,
    /// What must have come before something is said.
    until: &'static str,
    /// What happens behind the last answer.
    end: Ending,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Close,
    /// Nothing: it is neither closed nor read.
    Open,
}

impl Script {
    /// Says this to a request, and closes the connection.
    pub(crate) fn answer(text: &str) -> Script {
        Script { answers: vec![text.to_owned()], until: "\r\n\r\n", end: Ending::Close }
    }

    /// And says this to the next.
    pub(crate) fn then(mut self, text: &str) -> Script {
        self.answers.push(text.to_owned());
        self
    }

    /// Does not close it.
    pub(crate) fn open(mut self) -> Script {
        self.end = Ending::Open;
        self
    }

    /// Says nothing before this has come.
    pub(crate) fn until(mut self, text: &'static str) -> Script {
        self.until = text;
        self
    }
}

/// A server that says on its first connection what the first script says, and so on; then it closes them. Where,
/// and how many answers it has given.
pub(crate) fn scripted(h: &Harness, scripts: Vec<Script>) -> (Address, Rc<Cell<u32>>) {
    let (address, asked, _) = overheard(h, scripts);
    (address, asked)
}

/// The same, and what it was asked.
pub(crate) fn overheard(
    h: &Harness,
    scripts: Vec<Script>,
) -> (Address, Rc<Cell<u32>>, Rc<RefCell<String>>) {
    let (address, seen) = speaking(h, scripts);
    (address, seen.asked, seen.heard)
}

/// Its side of each connection that it has had, in their order.
pub(crate) type Held = Rc<RefCell<Vec<ConnHandle>>>;

/// The same, and its connections.
pub(crate) fn held(h: &Harness, scripts: Vec<Script>) -> (Address, Held) {
    let (address, seen) = speaking(h, scripts);
    (address, seen.held)
}

fn speaking(h: &Harness, scripts: Vec<Script>) -> (Address, Seen) {
    let seen = Seen::default();
    let note = seen.clone();
    let scripts = RefCell::new(scripts.into_iter());
    let settings = coracle_net::Settings::default();
    let listener = Listener::bind(&h.lp, &any(), settings, move |_| Speaker {
        script: scripts.borrow_mut().next(),
        seen: note.clone(),
    });
    let address = listener.expect("it listens").local_address(&h.lp).expect("an address");
    (address, seen)
}

/// A server that takes connections, and neither reads nor says anything.
pub(crate) fn deaf(h: &Harness) -> Address {
    struct Deaf;
    impl Protocol for Deaf {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.pause();
            Ok(())
        }

        fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
            Ok(())
        }
    }
    let settings = coracle_net::Settings::default();
    let listener = Listener::bind(&h.lp, &any(), settings, |_| Deaf);
    listener.expect("it listens").local_address(&h.lp).expect("an address")
}

/// What such a server has seen.
#[derive(Clone, Default)]
struct Seen {
    asked: Rc<Cell<u32>>,
    heard: Rc<RefCell<String>>,
    held: Held,
}

struct Speaker {
    script: Option<Script>,
    seen: Seen,
}

impl Protocol for Speaker {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        self.seen.held.borrow_mut().push(conn.handle());
        Ok(())
    }

    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        let Some(script) = &mut self.script else {
            conn.close();
            return Ok(());
        };
        let text = String::from_utf8_lossy(input.unread()).into_owned();
        if !text.contains(script.until) {
            return Ok(());
        }
        if script.answers.is_empty() {
            input.take_all();
            return Ok(());
        }
        self.seen.asked.set(self.seen.asked.get() + 1);
        self.seen.heard.borrow_mut().push_str(&text);
        input.take_all();
        conn.write(script.answers.remove(0));
        if script.answers.is_empty() {
            match script.end {
                Ending::Close => conn.close(),
                Ending::Open => conn.pause(),
            }
        }
        Ok(())
    }
}
