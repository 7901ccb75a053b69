//! One crawler, three times: in callbacks, in coroutines and in futures. They find the same.
//!
//! ```text
//! run:   cargo run -p coracle --example 21_crawler
//! ```
//!
//! It crawls a little site that it serves itself: every page once, three at a time at most, each within a
//! second. One page is not there, one is long, and one never answers. What the three have in common comes first:
//! what is known, and what is in an answer. What is left is the style: who waits for whom, and where the state of
//! a fetch is kept meanwhile.

use coracle::net::{Buffer, Conn, Protocol, Running, Server};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// So many fetches at a time, at most.
const LIMIT_AT_ONCE: usize = 3;

/// So much time each of them has.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pages that were found, what came of each, and how many were fetched at a time.
#[derive(Default)]
struct Known {
    pages: BTreeMap<String, String>,
    busy: usize,
    busy_max: usize,
}

impl Known {
    /// Whether a page was not known yet. Now it is.
    fn is_new(&mut self, path: &str) -> bool {
        !self.pages.contains_key(path) && self.pages.insert(path.into(), String::new()).is_none()
    }

    /// A fetch begins.
    fn begin(&mut self) {
        self.busy += 1;
        self.busy_max = self.busy_max.max(self.busy);
    }

    /// A fetch has ended. Returns those pages that it leads to and that were not known.
    fn end(&mut self, path: &str, answer: io::Result<Vec<u8>>) -> Vec<String> {
        self.busy -= 1;
        let (outcome, links) = match answer.and_then(|answer| read(&answer)) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::TimedOut => ("too late".into(), Vec::new()),
            Err(error) => (error.to_string(), Vec::new()),
        };
        self.pages.insert(path.to_owned(), outcome);
        links.into_iter().filter(|link| self.is_new(link)).collect()
    }

    /// For people.
    fn report(&self) -> String {
        let pages = self.pages.iter().map(|(path, outcome)| format!("  {path:<9} {outcome}\n"));
        let (pages, count): (String, _) = (pages.collect(), self.pages.len());
        format!("{pages}  {count} pages, {} at a time", self.busy_max)
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")
}

/// What is in an answer: a word about it, and where its links lead.
fn read(answer: &[u8]) -> io::Result<(String, Vec<String>)> {
    let wrong = || io::Error::new(ErrorKind::InvalidData, "not an answer");
    let answer = std::str::from_utf8(answer).map_err(|_| wrong())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head.split(' ').nth(1).ok_or_else(wrong)?;
    let length = head.rsplit("Content-Length: ").next().and_then(|length| length.parse().ok());
    if length != Some(body.len()) {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut short"));
    }
    let links = body.split("href=\"").skip(1).filter_map(|link| link.split('"').next());
    Ok((format!("{status}, {} bytes", body.len()), links.map(str::to_owned).collect()))
}

// --- In callbacks ---------------------------------------------------------------------------------------
// The state of a fetch is a value, and the crawl goes on wherever one has ended.

mod in_callbacks {
    use super::{Known, LIMIT_AT_ONCE, PATIENCE, request};
    use coracle::net::{Buffer, Conn, Connector, Protocol, Reason, Settings, attach};
    use coracle::{Loop, Timer};
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::io::{self, ErrorKind};
    use std::net::SocketAddr;
    use std::rc::Rc;
    use std::time::Instant;

    struct Crawl {
        site: SocketAddr,
        known: RefCell<Known>,
        todo: RefCell<VecDeque<String>>,
    }

    pub(super) fn crawl(site: SocketAddr) -> io::Result<Known> {
        let lp = Loop::new()?;
        let crawl = Rc::new(Crawl { site, known: RefCell::default(), todo: RefCell::default() });
        crawl.known.borrow_mut().is_new("/");
        crawl.todo.borrow_mut().push_back("/".to_owned());
        crawl.start_more(&lp);
        lp.run_until_idle()?;
        Ok(crawl.known.take())
    }

    impl Crawl {
        fn start_more(self: &Rc<Crawl>, lp: &Loop) {
            while self.known.borrow().busy < LIMIT_AT_ONCE {
                let Some(path) = self.todo.borrow_mut().pop_front() else { return };
                self.known.borrow_mut().begin();
                self.fetch(lp, path);
            }
        }

        fn fetch(self: &Rc<Crawl>, lp: &Loop, path: String) {
            let (crawl, deadline) = (Rc::clone(self), Instant::now() + PATIENCE);
            Connector::to([self.site]).timeout(PATIENCE).connect(lp, move |lp, connected| {
                let socket = match connected {
                    Ok(socket) => socket,
                    Err(error) => return crawl.ended(lp, &path, Err(error)),
                };
                let fetch = Fetch { crawl, path, answer: Vec::new(), deadline, timer: None };
                attach(lp, socket, Settings::default(), fetch).expect("these settings make sense");
            });
        }

        fn ended(self: &Rc<Crawl>, lp: &Loop, path: &str, answer: io::Result<Vec<u8>>) {
            let links = self.known.borrow_mut().end(path, answer);
            self.todo.borrow_mut().extend(links);
            self.start_more(lp);
        }
    }

    /// A fetch under way.
    struct Fetch {
        crawl: Rc<Crawl>,
        path: String,
        answer: Vec<u8>,
        deadline: Instant,
        timer: Option<Timer>,
    }

    impl Protocol for Fetch {
        fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
            conn.write(request(&self.path));
            let this = conn.handle();
            self.timer = Some(conn.lp().at(self.deadline, move |lp| {
                this.with(lp, |conn| conn.abort());
            }));
            Ok(())
        }

        fn on_data(&mut self, _conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
            self.answer.extend_from_slice(input.take_all());
            Ok(())
        }

        fn on_close(&mut self, reason: &Reason) {
            let answer = match reason {
                Reason::Closed => Ok(std::mem::take(&mut self.answer)),
                Reason::Aborted => Err(ErrorKind::TimedOut.into()),
                other => Err(io::Error::other(format!("{other:?}"))),
            };
            if let Some(timer) = self.timer.take() {
                timer.cancel();
            }
            let lp = Loop::current().expect("a callback has a loop");
            self.crawl.ended(&lp, &self.path, answer);
        }
    }
}

// --- In coroutines --------------------------------------------------------------------------------------
// The state of a fetch is where it is in `fetch`.

mod in_coroutines {
    use super::{Known, LIMIT_AT_ONCE, PATIENCE, request};
    use coracle::coro::Scope;
    use coracle::coro::net::TcpStream;
    use coracle::sync::Semaphore;
    use coracle::{scope, timeout};
    use std::cell::RefCell;
    use std::io::{self, Read, Write};
    use std::net::SocketAddr;

    struct Crawl {
        site: SocketAddr,
        known: RefCell<Known>,
        permits: Semaphore,
    }

    pub(super) fn crawl(site: SocketAddr) -> io::Result<Known> {
        coracle::run(move || {
            let permits = Semaphore::new(LIMIT_AT_ONCE);
            let crawl = Crawl { site, known: RefCell::default(), permits };
            crawl.known.borrow_mut().is_new("/");
            scope(|scope| {
                visit(scope, &crawl, "/".to_owned());
                Ok(())
            })?;
            Ok(crawl.known.take())
        })
    }

    fn visit<'scope>(scope: &'scope Scope<'scope, '_>, crawl: &'scope Crawl, path: String) {
        scope.spawn(move || {
            let permit = crawl.permits.acquire(1)?;
            crawl.known.borrow_mut().begin();
            let answer = timeout(PATIENCE, || fetch(crawl.site, &path));
            let links = crawl.known.borrow_mut().end(&path, answer);
            drop(permit);
            links.into_iter().for_each(|link| visit(scope, crawl, link));
            Ok(())
        });
    }

    fn fetch(site: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(site)?;
        stream.write_all(request(path).as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

// --- In futures -----------------------------------------------------------------------------------------
// As in coroutines, with an `await` wherever it waits; who is waited for is dropped when its time is up.

mod in_futures {
    use super::{Known, LIMIT_AT_ONCE, PATIENCE, request};
    use coracle::future::net::TcpStream;
    use coracle::future::{spawn_future, timeout};
    use coracle::sync::Semaphore;
    use futures::{AsyncReadExt, AsyncWriteExt};
    use std::cell::RefCell;
    use std::io;
    use std::net::SocketAddr;
    use std::rc::Rc;

    struct Crawl {
        site: SocketAddr,
        known: RefCell<Known>,
        permits: Semaphore,
    }

    pub(super) fn crawl(site: SocketAddr) -> io::Result<Known> {
        let permits = Semaphore::new(LIMIT_AT_ONCE);
        let crawl = Rc::new(Crawl { site, known: RefCell::default(), permits });
        crawl.known.borrow_mut().is_new("/");
        let first = Rc::clone(&crawl);
        coracle::run(move || {
            spawn_future(visit(first, "/".to_owned()));
            Ok(()) // `run` returns when all are over
        })?;
        Ok(crawl.known.take())
    }

    async fn visit(crawl: Rc<Crawl>, path: String) {
        let permit = crawl.permits.acquire_async(1).await;
        crawl.known.borrow_mut().begin();
        let answer = timeout(PATIENCE, fetch(crawl.site, &path)).await.and_then(|answer| answer);
        let links = crawl.known.borrow_mut().end(&path, answer);
        drop(permit);
        for link in links {
            spawn_future(visit(Rc::clone(&crawl), link));
        }
    }

    async fn fetch(site: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(site).await?;
        stream.write_all(request(path).as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

// --- The site -------------------------------------------------------------------------------------------

/// How often each page was asked for.
type Asked = Arc<Mutex<BTreeMap<String, usize>>>;

/// A connection to the site.
struct Visitor {
    asked: Asked,
    path: Option<String>,
}

impl Protocol for Visitor {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        while let Some(line) = input.take_line() {
            let line = String::from_utf8_lossy(line);
            match &self.path {
                None => self.path = line.split(' ').nth(1).map(str::to_owned),
                Some(path) if line.is_empty() => {
                    *self.asked.lock().expect("nobody panics").entry(path.clone()).or_default() +=
                        1;
                    answer(conn, path);
                }
                Some(_) => {} // what else is in the head
            }
        }
        Ok(())
    }
}

fn answer(conn: &mut Conn<'_>, path: &str) {
    let link = |path: String| format!("<a href=\"{path}\">{path}</a>\n");
    let (status, body) = match (path, path.trim_start_matches('/').parse::<u32>()) {
        ("/slow", _) => return, // for ever
        ("/", _) => {
            let pages = (1..10).map(|number| format!("/{number}"));
            let pages = pages.chain(["/missing".to_owned(), "/slow".to_owned()]);
            ("200 OK", pages.map(link).collect())
        }
        ("/long", _) => ("200 OK", "all work and no play\n".repeat(5000) + &link("/1".to_owned())),
        (_, Ok(9)) => ("200 OK", link("/".to_owned()) + &link("/long".to_owned())),
        (_, Ok(number)) => ("200 OK", link("/".to_owned()) + &link(format!("/{}", number + 1))),
        _ => ("404 Not Found", String::new()),
    };
    conn.write(format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    conn.close();
}

fn serve(asked: &Asked) -> io::Result<Running> {
    let asked = Arc::clone(asked);
    let server = Server::bind("127.0.0.1:0")?.loops(1);
    server.start(move |_peer| Visitor { asked: Arc::clone(&asked), path: None })
}

fn main() -> io::Result<()> {
    type Style = (&'static str, fn(SocketAddr) -> io::Result<Known>);
    let styles: [Style; 3] = [
        ("callbacks", in_callbacks::crawl),
        ("coroutines", in_coroutines::crawl),
        ("futures", in_futures::crawl),
    ];
    let asked = Asked::default();
    let site = serve(&asked)?;
    let address = site.local_addresses()[0].ip().expect("it listens on an IP address");
    let mut reports = Vec::new();
    for (style, crawl) in styles {
        let report = crawl(address)?.report();
        println!("in {style}:\n{report}");
        let asked = std::mem::take(&mut *asked.lock().expect("nobody panics"));
        let once = asked.values().all(|&times| times == 1);
        println!("  each was asked for {}", if once { "once" } else { "more than once" });
        reports.push(report);
    }
    let same = reports.windows(2).all(|pair| pair[0] == pair[1]);
    println!("all have found {}", if same { "the same" } else { "something else" });
    site.handle().stop();
    site.join()
}
