//! Servers with several loops, real sockets and threads: starting, stopping, and what goes wrong at that.

#[path = "rows/http2_frames.rs"]
mod http2_frames;

use coracle_http::middleware::{AccessLog, LogFormat, around};
use coracle_http::{IntoResponse, LiveSettings, Request, Running, Server, Settings, sse, ws};
use coracle_loop::demux::Backend;
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// No case takes longer than this, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(300);

const BACKENDS: [Backend; 4] = [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select];

/// A request for a WebSocket.
const WEBSOCKET: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn address(running: &Running) -> SocketAddr {
    running.local_addresses()[0].ip().expect("an IP address")
}

fn connect(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(address(running)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

/// How many connections it has accepted.
fn opened(running: &Running) -> u64 {
    running.handle().stats().opened
}

/// Waits until it is so.
fn eventually(is_so: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "it never is");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What comes until the end.
fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it ends, and is text");
    text
}

/// What comes until the body of the next answer is there.
fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"!") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the answer ends in !");
        text.push(byte[0]);
    }
    String::from_utf8(text).expect("text")
}

#[test]
fn q4_stopping_server_finishes_what_is_under_way() {
    for backend in BACKENDS {
        let begun = Arc::new(AtomicUsize::new(0));
        let stopped = Arc::new(AtomicBool::new(false));
        let (count, may_end) = (Arc::clone(&begun), Arc::clone(&stopped));
        let server = Server::bind("127.0.0.1:0").unwrap().loops(2).backend(backend);
        let (idle_timeout, stop_timeout) = (10 * PATIENCE, PATIENCE);
        let settings = Settings { idle_timeout, stop_timeout, ..Settings::default() };
        let running = server
            .settings(settings)
            .drain(10 * PATIENCE)
            .start(move |req: &Request<'_>| {
                count.fetch_add(1, Ordering::SeqCst);
                while req.path() == "/slow" && !may_end.load(Ordering::SeqCst) {
                    coracle_coro::sleep(Duration::from_millis(1)).expect("it is not cancelled");
                }
                "done!"
            })
            .unwrap();
        let mut idle = connect(&running);
        idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(answer(&mut idle).ends_with("\r\n\r\ndone!"));
        let mut new = connect(&running);
        let mut slow = connect(&running);
        slow.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        eventually(|| begun.load(Ordering::SeqCst) == 2 && opened(&running) == 3);
        running.stop();
        assert_eq!(rest(idle), "", "who waits for nothing is told at once");
        let address = address(&running);
        eventually(|| TcpStream::connect(address).is_err()); // every loop has been told
        stopped.store(true, Ordering::SeqCst);
        new.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        for text in [rest(slow), rest(new)] {
            assert!(text.contains("\r\nconnection: close\r\n"), "{text}");
            assert!(text.ends_with("\r\n\r\ndone!"), "{text}");
        }
        let requests = running.stats().requests;
        running.join().unwrap();
        assert_eq!(requests, 3, "{backend}");
    }
}

#[test]
fn q4_stopping_server_does_not_wait_for_who_says_nothing() {
    for backend in BACKENDS {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(2).backend(backend);
        let settings = Settings {
            stop_timeout: Duration::from_millis(1),
            header_timeout: 10 * PATIENCE,
            idle_timeout: 10 * PATIENCE,
            ..Settings::default()
        };
        let running = server.settings(settings).drain(100 * PATIENCE).start(|_: &Request<'_>| "");
        let running = running.unwrap();
        let silent = connect(&running);
        eventually(|| opened(&running) == 1);
        running.stop();
        assert_eq!(rest(silent), "");
        running.join().unwrap();
    }
}

#[test]
fn g1_each_loop_may_have_an_app_of_its_own() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(3);
    let running = server
        .start_each(move || {
            let own = Rc::new(count.fetch_add(1, Ordering::SeqCst)); // it cannot leave its thread
            Ok(move |_: &Request<'_>| format!("app {own}!"))
        })
        .unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 3);
    for _ in 0..20 {
        let mut stream = connect(&running);
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(rest(stream).contains("\r\n\r\napp "));
    }
    assert_eq!(running.stats().requests, 20);
    running.stop();
    running.join().unwrap();
}

#[test]
fn g1_app_that_cannot_be_made_stops_the_server() {
    type App = fn(&Request<'_>) -> &'static str;
    let count = AtomicUsize::new(0);
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2);
    let server = server.on_init(|_| panic!("it does not begin"));
    let refused = server.start_each(move || match count.fetch_add(1, Ordering::SeqCst) {
        0 => Ok((|_: &Request<'_>| "never") as App),
        _ => Err(io::Error::other("there is no database")),
    });
    assert_eq!(refused.unwrap_err().to_string(), "there is no database");
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1);
    let refused = server.serve_each(|| Err::<App, _>(io::Error::other("nor here")));
    assert_eq!(refused.unwrap_err().to_string(), "nor here");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let settings = Settings { limit_headers: 1000, ..Settings::default() };
    let refused =
        Server::bind("127.0.0.1:0").unwrap().settings(settings).start(|_: &Request<'_>| "");
    assert!(refused.unwrap_err().to_string().contains("limit_headers"));
}

#[test]
fn t6_handlers_wait_on_every_loop() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2);
    let running = server
        .start(|_: &Request<'_>| {
            coracle_coro::sleep(Duration::from_millis(20)).expect("it is not cancelled");
            "rested!"
        })
        .unwrap();
    let mut streams: Vec<_> = (0..64).map(|_| connect(&running)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    }
    for stream in &mut streams {
        assert!(answer(stream).ends_with("rested!"));
    }
    drop(streams);
    running.stop();
    running.join().unwrap();
}

#[test]
fn i8_client_for_whom_there_is_no_room_gets_a_503() {
    let settings = Settings { limit_connections: 1, ..Settings::default() };
    let server = Server::bind("127.0.0.1:0").unwrap().settings(settings).loops(1);
    let running = server.start(|_: &Request<'_>| "served!").unwrap();
    let mut first = connect(&running);
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(answer(&mut first).ends_with("served!"));
    let second = rest(connect(&running));
    assert!(second.starts_with("HTTP/1.1 503 Service Unavailable\r\nretry-after: "), "{second}");
    drop(first);
    running.stop();
    running.join().unwrap();
}

#[test]
fn q5_address_with_too_many_connections_is_turned_away() {
    for backend in BACKENDS {
        let settings = Settings { limit_connections_per_address: Some(2), ..Settings::default() };
        let server = Server::bind("127.0.0.1:0").unwrap().settings(settings).loops(2);
        let running = server.backend(backend).start(|_: &Request<'_>| "served!").unwrap();
        let mut streams = [connect(&running), connect(&running)];
        for stream in &mut streams {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert!(answer(stream).ends_with("served!"));
        }
        let third = rest(connect(&running));
        assert!(third.starts_with("HTTP/1.1 503 Service Unavailable\r\nretry-after: "), "{third}");
        assert_eq!(running.stats().turned_away, 1, "{backend}");
        // A place that is given back is there for another, as soon as the server has seen it.
        drop(streams);
        let patience = Instant::now() + PATIENCE;
        loop {
            let mut stream = connect(&running);
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            if rest(stream).ends_with("served!") {
                break;
            }
            assert!(Instant::now() < patience, "the place stays taken");
        }
        running.stop();
        running.join().unwrap();
    }
}

/// A connection from another address than the others'.
fn connect_from_elsewhere(running: &Running) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).expect("all of 127/8 is here");
    connect(&socket, &address(running)).expect("it listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

#[test]
fn q5_address_with_too_many_connections_leaves_room_for_others() {
    const LIMIT: usize = 4;
    for backend in BACKENDS {
        let settings = Settings {
            limit_connections: LIMIT,
            limit_connections_per_address: Some(1),
            drain: PATIENCE,
            ..Settings::default()
        };
        let server = Server::bind("127.0.0.1:0").unwrap().settings(settings).loops(1);
        let running = server.backend(backend).start(|_: &Request<'_>| "served!").unwrap();
        let mut first = connect(&running);
        first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(answer(&mut first).ends_with("served!"));
        // They are told, and stay: until the time for that is over, or too many are.
        let refused: Vec<TcpStream> = (0..200).map(|_| connect(&running)).collect();
        let mut other = connect_from_elsewhere(&running);
        other.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(answer(&mut other).ends_with("served!"), "{backend}");
        let told = refused.iter().filter(|stream| {
            let (mut stream, mut begin): (&TcpStream, _) = (stream, [0; 12]);
            stream.read_exact(&mut begin).is_ok_and(|()| begin == *b"HTTP/1.1 503")
        });
        assert_eq!(told.count(), 64, "{backend}: those above are closed without a word");
        drop((first, other, refused));
        running.stop();
        running.join().unwrap();
    }
}

/// A log that can be read.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn j14_who_is_turned_away_is_counted_and_one_of_many_is_logged() {
    for backend in BACKENDS {
        for per_address in [None, Some(1)] {
            let settings = Settings {
                limit_connections: if per_address.is_none() { 1 } else { usize::MAX },
                limit_connections_per_address: per_address,
                ..Settings::default()
            };
            let lines = Lines::default();
            let log = AccessLog::to_writer(lines.clone(), LogFormat::Common);
            let server = Server::bind("127.0.0.1:0").unwrap().settings(settings).loops(1);
            let app = around(log.clone(), |_: &Request<'_>| "served!");
            let running = server.backend(backend).start(app).unwrap();
            let mut first = connect(&running);
            first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert!(answer(&mut first).ends_with("served!"));
            let start = Instant::now();
            for _ in 0..30 {
                assert!(rest(connect(&running)).starts_with("HTTP/1.1 503 "));
            }
            let seconds = start.elapsed().as_secs() as usize;
            assert_eq!(running.stats().turned_away, 30, "{backend}");
            log.flush();
            let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            let (served, refused): (Vec<&str>, Vec<&str>) =
                text.lines().partition(|line| line.ends_with("\"GET / HTTP/1.1\" 200 7"));
            assert_eq!(served.len(), 1, "{text}");
            assert!((1..=1 + seconds).contains(&refused.len()), "once a second: {text}");
            for line in refused {
                assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
                assert!(line.ends_with("] \"- - -\" 503 0"), "{line}");
            }
            drop(first);
            running.stop();
            running.join().unwrap();
        }
    }
}

#[test]
fn q1_settings_change_for_new_connections() {
    for backend in BACKENDS {
        let live = LiveSettings::new(Settings::default()).unwrap();
        let server = Server::bind("127.0.0.1:0").unwrap().live_settings(&live).loops(2);
        let running = server.backend(backend).start(|_: &Request<'_>| "served!").unwrap();
        let status = |mut stream: &TcpStream| {
            let _ = stream.write_all(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n"); // or it is told already
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).expect("an answer");
            String::from_utf8_lossy(&begin[9..]).into_owned()
        };
        let finish = |stream: &mut TcpStream| assert!(answer(stream).ends_with("served!"));
        let mut old: Vec<TcpStream> = (0..8).map(|_| connect(&running)).collect();
        for stream in &mut old {
            assert_eq!(status(stream), "200");
            finish(stream);
        }
        // What the protocol is to know.
        let wrong = Settings { limit_headers: 0, ..Settings::default() };
        assert!(live.replace(wrong).unwrap_err().to_string().contains("limit_headers"));
        assert_eq!(live.current().limit_headers, Settings::default().limit_headers);
        live.replace(Settings { limit_target_bytes: 3, ..Settings::default() }).unwrap();
        for _ in 0..8 {
            assert_eq!(status(&connect(&running)), "414", "{backend}: from now on");
        }
        for stream in &mut old {
            assert_eq!(status(stream), "200", "{backend}: who was there has what it had");
            finish(stream);
        }
        // And what is known before it begins: by the loops, and by all of them.
        live.replace(Settings { limit_connections: 1, ..Settings::default() }).unwrap();
        let held = RefCell::new(Vec::new()); // so that each loop has one
        eventually(|| {
            let is_refused = |_| {
                let stream = connect(&running);
                let is_refused = status(&stream) == "503";
                held.borrow_mut().push(stream);
                is_refused
            };
            (0..8).all(is_refused)
        });
        live.replace(Settings::default()).unwrap();
        eventually(|| (0..8).all(|_| status(&connect(&running)) == "200"));
        let per_address =
            Settings { limit_connections_per_address: Some(1), ..Settings::default() };
        live.replace(per_address).unwrap();
        let mut one = connect(&running);
        assert_eq!(status(&one), "200", "who was there is not counted");
        finish(&mut one);
        assert_eq!(status(&connect(&running)), "503");
        drop((one, old, held));
        running.stop();
        running.join().unwrap();
    }
}

#[test]
fn q4_server_that_stops_begins_no_websocket() {
    for backend in BACKENDS {
        let begun = Arc::new(AtomicBool::new(false));
        let stopped = Arc::new(AtomicBool::new(false));
        let (note, may_end) = (Arc::clone(&begun), Arc::clone(&stopped));
        let app = move |req: &Request<'_>| {
            note.store(true, Ordering::SeqCst);
            while !may_end.load(Ordering::SeqCst) {
                coracle_coro::sleep(Duration::from_millis(1)).expect("it is not cancelled");
            }
            ws::upgrade(req).run(|ws| ws.recv().map(drop))
        };
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend);
        let running = server.drain(PATIENCE).start(app).unwrap();
        let mut socket = connect(&running);
        socket.write_all(WEBSOCKET).unwrap();
        eventually(|| begun.load(Ordering::SeqCst));
        running.stop();
        // It takes no more connections: so its connections know.
        eventually(|| TcpStream::connect(address(&running)).is_err());
        stopped.store(true, Ordering::SeqCst);
        let answer = rest(socket);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{backend}: {answer}");
        running.join().unwrap();
    }
}

#[test]
fn q5_websocket_has_the_place_of_its_connection() {
    for backend in BACKENDS {
        let settings = Settings { limit_connections_per_address: Some(1), ..Settings::default() };
        let server = Server::bind("127.0.0.1:0").unwrap().settings(settings).loops(2);
        let app = |req: &Request<'_>| match req.path() {
            "/ws" => {
                ws::upgrade(req).run(|ws| ws.into_iter().try_for_each(|message| ws.send(message?)))
            }
            _ => "served!".into_response(),
        };
        let running = server.backend(backend).start(app).unwrap();
        let mut socket = connect(&running);
        socket.write_all(&[WEBSOCKET, b"\x81\x81\0\0\0\0!"].concat()).unwrap();
        let mut echoed = Vec::new();
        while !echoed.ends_with(b"\r\n\r\n\x81\x01!") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("the echo comes behind the answer");
            echoed.push(byte[0]);
        }
        let second = rest(connect(&running));
        assert!(second.starts_with("HTTP/1.1 503 "), "{backend}: {second}");
        drop(socket);
        eventually(|| {
            let mut stream = connect(&running);
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            rest(stream).ends_with("served!")
        });
        running.stop();
        running.join().unwrap();
    }
}

/// What was asked of the server below is done, and so is what is asked here.
#[test]
fn i7_callbacks_of_the_server_below_are_called_too() {
    for backend in BACKENDS {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let told = Arc::clone(&told);
            move || told.lock().unwrap().push(what)
        };
        let (below, above) = (note("thread below"), note("thread above"));
        let inner = coracle_net::Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend);
        let (init_below, init_above, init_again) = (note("below"), note("above"), note("again"));
        let (finish, finish_again) = (note("finish"), note("finish again"));
        let inner = inner
            .on_thread_start(move |_, _| below())
            .on_init(move |_| init_below())
            .on_finish(finish)
            .on_finish(finish_again);
        let server = Server::over(inner)
            .on_thread_start(move |_, _| above())
            .on_init(move |_| init_above())
            .on_init(move |_| init_again());
        let running = server.start(|_: &Request<'_>| "ahoy!").unwrap();
        let mut stream = connect(&running);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(answer(&mut stream).ends_with("ahoy!"), "its own was not replaced, either");
        drop(stream);
        running.stop();
        running.join().unwrap();
        let expected = ["thread below", "thread above", "below", "above", "again", "finish"];
        let told = told.lock().unwrap();
        assert_eq!(told[..6], expected, "{backend:?}");
        assert_eq!(told[6..], ["finish again"]);
    }
}

/// Of two kinds: `/produced`, which says when it is cancelled, and out of a channel.
fn endless_events(
    cancelled: &Arc<AtomicUsize>,
) -> impl Fn(&Request<'_>) -> sse::EventStream + use<> {
    let cancelled = Arc::clone(cancelled);
    let (sender, receiver) = coracle_coro::sync::channel(4);
    move |req: &Request<'_>| {
        let (cancelled, sender) = (Arc::clone(&cancelled), sender.clone());
        if req.path() != "/produced" {
            sender.try_send(sse::Event::data("ahoy!")).expect("there is room");
            return sse::EventStream::from(receiver.clone());
        }
        sse::stream(move |events| {
            events.send(sse::Event::data("ahoy!"))?;
            let slept = coracle_coro::sleep(100 * PATIENCE);
            if slept.as_ref().is_err_and(coracle_coro::is_cancelled) {
                cancelled.fetch_add(1, Ordering::SeqCst);
            }
            slept
        })
    }
}

/// The client comes back by itself.
#[test]
fn q4_stopping_server_ends_streams_of_events() {
    for backend in BACKENDS {
        let cancelled = Arc::new(AtomicUsize::new(0));
        let log = AccessLog::to_writer(io::sink(), LogFormat::Common);
        let app = around(log, endless_events(&cancelled));
        let server = Server::bind("127.0.0.1:0").unwrap().loops(2).backend(backend);
        let running = server.drain(10 * PATIENCE).start(app).unwrap();
        let streams = ["/produced", "/received"].map(|path| {
            let mut stream = connect(&running);
            write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert!(answer(&mut stream).ends_with("data: ahoy!"));
            stream
        });
        running.stop();
        for stream in streams {
            assert_eq!(rest(stream), "\n\n\r\n0\r\n\r\n", "{backend}: it ends in order");
        }
        running.join().unwrap();
        assert_eq!(cancelled.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn q4_stopping_server_ends_streams_of_events_by_http_2() {
    for backend in BACKENDS {
        let cancelled = Arc::new(AtomicUsize::new(0));
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend);
        let running = server.drain(10 * PATIENCE).start(endless_events(&cancelled)).unwrap();
        let mut stream = connect(&running);
        stream.write_all(&[http2_frames::hello(), http2_frames::get(1)].concat()).unwrap();
        eventually(|| running.stats().requests == 1);
        running.stop();
        let frames = http2_frames::rest(&mut stream);
        let data = frames.iter().filter(|it| it.kind == http2_frames::kind::DATA);
        let data: Vec<_> = data.map(|it| (&it.payload[..], it.flags)).collect();
        assert_eq!(data[0].0, b"data: ahoy!\n\n", "{backend}");
        assert_eq!(data.last().map(|last| last.1), Some(http2_frames::END_STREAM), "{backend}");
        drop(stream);
        running.join().unwrap();
    }
}

#[test]
fn j13_server_that_stops_says_so_and_answers_what_is_under_way() {
    for backend in BACKENDS {
        let (started, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_there, may) = (Arc::clone(&started), Arc::clone(&go_on));
        let server = Server::bind("127.0.0.1:0").expect("bind").loops(1).backend(backend);
        let running = server.start(move |_: &Request<'_>| {
            is_there.store(true, Ordering::SeqCst);
            while !may.load(Ordering::SeqCst) {
                coracle_coro::sleep(Duration::from_millis(1))?;
            }
            io::Result::Ok("late!")
        });
        let running = running.expect("it starts");
        let mut stream = connect(&running);
        let hello = [http2_frames::hello(), http2_frames::get(1)].concat();
        stream.write_all(&hello).expect("it listens");
        eventually(|| started.load(Ordering::SeqCst));
        let idle = {
            let mut stream = connect(&running);
            stream.write_all(&http2_frames::hello()).expect("it listens");
            std::thread::spawn(move || http2_frames::rest(&mut stream))
        };
        eventually(|| opened(&running) == 2);
        running.stop();
        let busy = std::thread::spawn(move || http2_frames::rest(&mut stream));
        let goaway = |frames: &[http2_frames::Frame]| {
            frames
                .iter()
                .any(|it| it.kind == http2_frames::kind::GOAWAY && it.payload[4..8] == [0; 4])
        };
        assert!(goaway(&idle.join().expect("frames")), "who has asked nothing is told, too");
        go_on.store(true, Ordering::SeqCst);
        let frames = busy.join().expect("frames");
        assert!(goaway(&frames));
        let data = frames.iter().find(|it| it.kind == http2_frames::kind::DATA).expect("an answer");
        assert_eq!((data.stream, &data.payload[..]), (1, &b"late!"[..]));
        running.join().expect("it ends");
    }
}

#[test]
fn j13_connection_that_becomes_http_2_while_the_server_stops_is_told() {
    for backend in BACKENDS {
        let (stop_timeout, idle_timeout) = (PATIENCE, 2 * PATIENCE);
        let settings = Settings { stop_timeout, idle_timeout, ..Settings::default() };
        let server = Server::bind("127.0.0.1:0").expect("bind").loops(1).backend(backend);
        let server = server.settings(settings).drain(PATIENCE);
        let running = server.start(|_: &Request<'_>| "late!");
        let running = running.expect("it starts");
        let mut stream = connect(&running);
        eventually(|| opened(&running) == 1);
        running.stop();
        eventually(|| TcpStream::connect(address(&running)).is_err());
        let hello = [http2_frames::hello(), http2_frames::get(1)].concat();
        stream.write_all(&hello).expect("it listens");
        let frames = http2_frames::rest(&mut stream);
        let is_there = |kind| frames.iter().any(|it| it.kind == kind);
        assert!(is_there(http2_frames::kind::DATA), "{backend:?}: it is answered");
        assert!(is_there(http2_frames::kind::GOAWAY), "{backend:?}: and told");
        drop(stream);
        running.join().expect("it ends");
    }
}

/// Its end may be longer in coming than a connection that asks nothing is waited for.
#[test]
fn j13_server_that_stops_sends_all_of_what_it_has_begun_to_answer() {
    const LEN: usize = 40_000;
    for backend in BACKENDS {
        let stop_timeout = Duration::from_millis(1);
        let settings = Settings { stop_timeout, ..Settings::default() };
        let server = Server::bind("127.0.0.1:0").expect("bind").loops(1).backend(backend);
        let server = server.settings(settings).drain(PATIENCE);
        let running = server.start(|_: &Request<'_>| vec![7; LEN]);
        let running = running.expect("it starts");
        let mut stream = connect(&running);
        const FIRST: u32 = 10_000;
        let window = [&[0, 4][..], &FIRST.to_be_bytes()].concat(); // SETTINGS_INITIAL_WINDOW_SIZE
        let settings = http2_frames::frame(http2_frames::kind::SETTINGS, 0, 0, &window);
        let hello = [http2_frames::PREFACE, &settings, &http2_frames::get(1)].concat();
        stream.write_all(&hello).expect("it listens");
        eventually(|| running.stats().requests == 1);
        running.stop();
        std::thread::sleep(Duration::from_millis(100));
        let update = (LEN as u32 - FIRST).to_be_bytes();
        let update = http2_frames::frame(http2_frames::kind::WINDOW_UPDATE, 0, 1, &update);
        let _ = stream.write_all(&update); // or it does not listen any more
        let data: Vec<_> = http2_frames::rest(&mut stream)
            .into_iter()
            .filter(|it| it.kind == http2_frames::kind::DATA)
            .collect();
        assert_eq!(data.iter().map(|it| it.payload.len()).sum::<usize>(), LEN, "{backend:?}");
        assert_eq!(data.last().map(|it| it.flags), Some(http2_frames::END_STREAM));
        drop(stream);
        running.join().expect("it ends");
    }
}

#[test]
fn q5_connections_of_http_2_are_counted_as_any_other() {
    let settings = Settings { limit_connections_per_address: Some(1), ..Settings::default() };
    let server = Server::bind("127.0.0.1:0").expect("bind").loops(1).settings(settings);
    let running = server.start(|_: &Request<'_>| "here!").expect("it starts");
    let mut stream = connect(&running);
    let hello = [http2_frames::hello(), http2_frames::get(1)].concat();
    stream.write_all(&hello).expect("it listens");
    eventually(|| running.stats().requests == 1);
    assert!(rest(connect(&running)).starts_with("HTTP/1.1 503"));
    drop(stream);
    eventually(|| {
        let stats = running.handle().stats();
        stats.opened == stats.closed
    });
    let mut stream = connect(&running);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it listens");
    assert!(answer(&mut stream).ends_with("here!"));
    running.stop();
    drop(stream);
    running.join().expect("it ends");
}
