//! HTTP behind TLS: servers with real sockets, on every backend.

mod beside;
mod http2;
#[path = "../rows/http2_frames.rs"]
mod http2_frames;

use coracle_http::middleware::{Https, around};
use coracle_http::tls::{
    ClientCertificates, ClientSettings, ClientTls, Identity, Roots, ServerSettings, ServerTls,
    TlsStream,
};
use coracle_http::{self as http, Request, Response, Running, Server, Settings, streaming, ws};
use coracle_loop::demux::Backend;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// No case takes longer than this, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(300);

const BACKENDS: [Backend; 4] = [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select];

fn identity() -> Identity {
    Identity::self_signed(["localhost", "a.example"]).unwrap()
}

fn settings(identity: &Identity) -> ServerSettings {
    ServerSettings::from(identity.clone()).speaking(http::ALPN)
}

fn client(identity: &Identity) -> ClientTls {
    ClientTls::new(ClientSettings::trusting(Roots::identity(identity).unwrap())).unwrap()
}

fn address(running: &Running) -> SocketAddr {
    running.local_addresses()[0].ip().expect("an IP address")
}

fn socket(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

fn server(backend: Backend, tls: &ServerTls) -> Server {
    Server::bind("127.0.0.1:0").unwrap().loops(2).backend(backend).tls(tls)
}

fn connect(running: &Running, tls: &ClientTls) -> BufReader<TlsStream<TcpStream>> {
    BufReader::new(tls.connect("localhost", socket(address(running))).expect("hands are shaken"))
}

/// Ends a server. Who still has a connection is waited for, so drop them first.
fn stop(running: Running) {
    running.stop();
    running.join().expect("it ends well");
}

/// Head and body of an answer whose length is told.
fn answer(stream: &mut impl BufRead) -> (String, Vec<u8>) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    let length = head.to_ascii_lowercase();
    let length = length.split_once("content-length: ").expect("a length").1;
    let mut body = vec![0; length.split_once("\r\n").unwrap().0.parse().unwrap()];
    stream.read_exact(&mut body).expect("a body");
    (head, body)
}

fn ask(stream: &mut BufReader<TlsStream<TcpStream>>, request: &str) -> (String, Vec<u8>) {
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    answer(stream)
}

#[test]
fn m1_requests_are_answered_behind_tls() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let running = server(backend, &tls)
            .start(|req: &Request<'_>| format!("{} {}", req.is_secure(), req.path()))
            .unwrap();
        let client = client(&identity);
        let mut stream = connect(&running, &client);
        for _ in 0..3 {
            let (_, body) = ask(&mut stream, "GET /one HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(body, b"true /one");
        }
        // Several at once, each byte in a record of its own.
        let two = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
        two.bytes().for_each(|byte| stream.get_mut().write_all(&[byte]).unwrap());
        assert_eq!(answer(&mut stream).1, b"true /a");
        assert_eq!(answer(&mut stream).1, b"true /a");
        // Its end is said.
        let (head, _) =
            ask(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(head.to_ascii_lowercase().contains("connection: close"));
        assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
        // And one that comes back goes on.
        let again = connect(&running, &client);
        assert!(again.get_ref().session().is_resumed());
        assert_eq!(running.stats().requests, 6);
        drop((stream, again));
        stop(running);
    }
}

fn pattern(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|index| (index % 251) as u8).collect()
}

#[test]
fn m1_much_comes_whole_both_ways() {
    const PIECE: usize = 251 * 261;
    fn hash(pieces: usize) -> String {
        let mut hash = DefaultHasher::new();
        let piece = pattern(0, PIECE);
        (0..pieces).for_each(|_| hash.write(&piece));
        format!("{:x}", hash.finish())
    }
    // The adaptor is the same for all but io_uring.
    let much = |backend| match backend {
        Backend::Uring | Backend::Epoll => 64 << 20,
        _ => 4 << 20,
    };
    for backend in BACKENDS {
        let pieces = much(backend) / PIECE;
        let expected = hash(pieces);
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let settings = Settings { limit_body_bytes: 128 << 20, ..Settings::default() };
        // What comes is hashed, slowly at first; what goes out is as much again.
        let app = streaming(move |req: &Request<'_>| -> io::Result<Response> {
            let (mut hash, mut reader) = (DefaultHasher::new(), req.body_reader());
            let mut piece = vec![0; 100_000];
            coracle_coro::sleep(Duration::from_millis(50))?; // until the way is full
            loop {
                match reader.read(&mut piece)? {
                    0 => break,
                    count => hash.write(&piece[..count]),
                }
            }
            let told = format!("{:x}", hash.finish());
            let body = http::Body::stream(move |writer| {
                let piece = pattern(0, PIECE);
                (0..pieces).try_for_each(|_| writer.write_all(&piece))
            });
            Ok(Response::new(http::Status::OK).with_body(body).with_header("x-hash", &told))
        });
        let running = server(backend, &tls).settings(settings).start(app).unwrap();
        let mut stream = connect(&running, &client(&identity));
        let head = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            pieces * PIECE
        );
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let piece = pattern(0, PIECE);
        (0..pieces).for_each(|_| stream.get_mut().write_all(&piece).unwrap());
        thread::sleep(Duration::from_millis(50)); // and its way back
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.contains(&format!("x-hash: {expected}")), "{head}");
        let (mut sum, mut count) = (DefaultHasher::new(), 0);
        let mut line = String::new();
        loop {
            line.clear();
            stream.read_line(&mut line).unwrap();
            let len = usize::from_str_radix(line.trim(), 16).expect("the length of a chunk");
            let mut chunk = vec![0; len + 2];
            stream.read_exact(&mut chunk).unwrap();
            sum.write(&chunk[..len]);
            count += len;
            if len == 0 {
                break;
            }
        }
        assert_eq!(count, pieces * PIECE);
        assert_eq!(format!("{:x}", sum.finish()), expected);
        let end = stream.read(&mut [0]);
        let stats = running.handle().stats();
        assert!(matches!(end, Ok(0)), "no clean end: {end:?} on {backend:?}, {stats:?}");
        drop(stream);
        stop(running);
    }
}

#[test]
fn m1_file_is_sent_through_tls() {
    let path = std::env::temp_dir().join(format!("coracle-https-{}", std::process::id()));
    let content = pattern(0, 5_000_000);
    std::fs::write(&path, &content).unwrap();
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let directory = std::env::temp_dir();
        let files = http::files::Files::new(directory).unwrap();
        let running = server(backend, &tls).start(files).unwrap();
        let mut stream = connect(&running, &client(&identity));
        let name = path.file_name().unwrap().to_str().unwrap();
        let (_, body) =
            ask(&mut stream, &format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(body == content);
        drop(stream);
        stop(running);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn m1_http_on_a_port_of_https_is_told() {
    for backend in BACKENDS {
        let tls = ServerTls::new(settings(&identity())).unwrap();
        let running = server(backend, &tls).start(|_: &Request<'_>| "ahoy").unwrap();
        for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\n", "h"] {
            let mut stream = socket(address(&running));
            stream.write_all(request.as_bytes()).unwrap();
            let mut told = String::new();
            stream.read_to_string(&mut told).unwrap();
            let (head, body) = told.split_once("\r\n\r\n").expect("an answer");
            assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
            assert!(body.contains("https://"), "{body}");
        }
        stop(running);
    }
}

#[test]
fn m1_who_comes_without_tls_is_sent_to_it_and_told_to_stay() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let https = Https::new().port(4433).hsts(Duration::from_secs(600), true);
        let app = around(https, |_: &Request<'_>| "ahoy");
        let running = server(backend, &tls).plain("127.0.0.1:0").unwrap().start(app).unwrap();
        let plain = running.local_addresses()[1].ip().unwrap();
        let mut stream = BufReader::new(socket(plain));
        stream.get_mut().write_all(b"GET /x?y HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
        let (head, _) = answer(&mut stream);
        assert!(head.starts_with("HTTP/1.1 308 "), "{head}");
        assert!(head.contains("location: https://a.example:4433/x?y\r\n"), "{head}");
        assert!(!head.contains("strict-transport-security"), "{head}");
        drop(stream);
        let mut stream = connect(&running, &client(&identity));
        let (head, body) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(
            head.contains("strict-transport-security: max-age=600; includeSubDomains\r\n"),
            "{head}"
        );
        assert_eq!(body, b"ahoy");
        drop(stream);
        stop(running);
    }
}

#[test]
fn m2_handlers_see_who_asks_and_how() {
    for backend in BACKENDS {
        let (identity, crew) = (identity(), Identity::self_signed(["ahab"]).unwrap());
        let roots = Roots::identity(&crew).unwrap();
        let client_certificates = ClientCertificates::Allow(roots);
        let tls =
            ServerTls::new(ServerSettings { client_certificates, ..settings(&identity) }).unwrap();
        let running = server(backend, &tls)
            .start(|req: &Request<'_>| {
                let session = req.tls().expect("it came by TLS");
                let alpn = session.alpn().map(String::from_utf8_lossy);
                format!(
                    "{:?} {:?} {:?}",
                    session.server_name(),
                    alpn,
                    session.peer_certificate().is_some()
                )
            })
            .unwrap();
        let alpn = vec![b"http/1.1".to_vec()];
        let trusting = ClientSettings::trusting(Roots::identity(&identity).unwrap());
        let asking = ClientTls::new(ClientSettings { alpn, ..trusting }).unwrap();
        let mut stream = connect(&running, &asking);
        let (_, body) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(String::from_utf8_lossy(&body), "Some(\"localhost\") Some(\"http/1.1\") false");
        drop(stream);
        stop(running);
    }
}

#[test]
fn m2_host_of_another_server_is_a_421() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let running = server(backend, &tls).start(|_: &Request<'_>| "ahoy").unwrap();
        for (host, status) in
            [("localhost", 200), ("LOCALHOST:1", 200), ("a.example", 200), ("b.example", 421)]
        {
            let mut stream = connect(&running, &client(&identity));
            let (head, _) = ask(&mut stream, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {head}");
        }
        stop(running);
    }
}

#[test]
fn m2_client_whom_no_key_fits_is_told_that_the_handshake_fails() {
    let tls = ServerTls::new(settings(&identity())).unwrap(); // its key is not one of RSA
    let running = server(Backend::Epoll, &tls).start(|_: &Request<'_>| "ahoy").unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", version, "-sigalgs", "RSA-PSS+SHA256", "-connect"]);
        match openssl.arg(address(&running).to_string()).stdin(Stdio::null()).output() {
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr);
                assert!(words.contains("alert handshake failure"), "{version}: {words}");
            }
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "openssl: {error}");
                println!("left out: openssl: {error}");
            }
        }
    }
    stop(running);
}

#[test]
fn m3_certificate_is_replaced_while_connections_go_on() {
    for backend in BACKENDS {
        let (old, new) = (identity(), identity());
        let tls = ServerTls::new(settings(&old)).unwrap();
        let running = server(backend, &tls).start(|_: &Request<'_>| "ahoy").unwrap();
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut before = connect(&running, &client(&old));
        assert_eq!(ask(&mut before, request).1, b"ahoy");
        tls.replace(settings(&new)).unwrap();
        let mut after = connect(&running, &client(&new));
        assert_eq!(ask(&mut after, request).1, b"ahoy");
        assert_eq!(ask(&mut before, request).1, b"ahoy", "it goes on");
        assert!(client(&old).connect("localhost", socket(address(&running))).is_err());
        drop((before, after));
        stop(running);
    }
}

#[test]
fn m4_upload_that_is_cut_off_is_an_error_of_the_read() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let (tell, told) = mpsc::channel();
        let app = streaming(move |req: &Request<'_>| {
            let read = req.body_reader().read_to_end(&mut Vec::new());
            let _ = tell.send(read.map_err(|error| error.kind()));
            "heard"
        });
        let running = server(backend, &tls).start(app).unwrap();
        let mut stream = connect(&running, &client(&identity));
        let begin = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf";
        stream.get_mut().write_all(begin).unwrap();
        stream.get_ref().socket().shutdown(Shutdown::Write).unwrap(); // without close_notify
        assert!(told.recv_timeout(PATIENCE).unwrap().is_err());
        stop(running);
    }
}

#[test]
fn m4_end_is_said_to_who_takes_its_answer_late() {
    const MUCH: usize = 8 << 20;
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let settings = Settings { drain: Duration::from_millis(20), ..Settings::default() };
        let app = |req: &Request<'_>| match req.path() {
            "/written" => http::Body::stream(|out| {
                (0..MUCH / 1024).try_for_each(|_| out.write_all(&[7; 1024]))
            }),
            _ => http::Body::from(vec![7; MUCH]),
        };
        let running = server(backend, &tls).settings(settings).start(app).unwrap();
        for path in ["/written", "/whole"] {
            let mut stream = connect(&running, &client(&identity));
            let head =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(head.as_bytes()).unwrap();
            let (mut count, mut piece) = (0, vec![0; 1 << 20]);
            loop {
                let before = count;
                match stream.read(&mut piece).expect("an end that is said") {
                    0 => break,
                    more => count += more,
                }
                if before >> 21 < count >> 21 {
                    thread::sleep(Duration::from_millis(50)); // longer than it is drained
                }
            }
            assert!(count > MUCH);
        }
        stop(running);
    }
}

#[test]
fn q5_address_with_too_many_connections_is_not_shaken_hands_with() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let settings = Settings { limit_connections_per_address: Some(2), ..Settings::default() };
        let running =
            server(backend, &tls).settings(settings).start(|_: &Request<'_>| "ahoy").unwrap();
        let client = client(&identity);
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut both = [connect(&running, &client), connect(&running, &client)];
        both.iter_mut().for_each(|stream| assert_eq!(ask(stream, request).1, b"ahoy"));
        assert!(client.connect("localhost", socket(address(&running))).is_err());
        assert_eq!(running.stats().turned_away, 1);
        both.iter_mut().for_each(|stream| assert_eq!(ask(stream, request).1, b"ahoy"));
        drop(both);
        stop(running);
    }
}

#[test]
fn q4_stopping_server_finishes_what_is_under_way_behind_tls() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let running = server(backend, &tls)
            .start(move |_: &Request<'_>| -> io::Result<&'static str> {
                count.fetch_add(1, Ordering::SeqCst);
                coracle_coro::sleep(Duration::from_millis(300))?;
                Ok("ahoy")
            })
            .unwrap();
        let mut stream = connect(&running, &client(&identity));
        stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        while begun.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        running.stop();
        assert_eq!(answer(&mut stream).1, b"ahoy");
        assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
        drop(stream);
        running.join().unwrap();
    }
}

#[test]
fn q4_stopping_server_answers_who_is_shaking_hands() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let running =
            server(backend, &tls).drain(PATIENCE).start(|_: &Request<'_>| "ahoy").unwrap();
        let socket = socket(address(&running));
        while running.handle().stats().opened == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        running.stop();
        thread::sleep(Duration::from_millis(20)); // so that it most likely has begun to
        let mut stream = BufReader::new(client(&identity).connect("localhost", socket).unwrap());
        let (head, body) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(body, b"ahoy");
        assert!(head.to_ascii_lowercase().contains("connection: close"), "{head}");
        drop(stream);
        running.join().unwrap();
    }
}

#[test]
fn k4_client_talks_by_wss() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let running = server(backend, &tls)
            .start(|req: &Request<'_>| {
                ws::upgrade(req).run(|ws: &ws::WebSocket| {
                    for message in ws {
                        ws.send(message?)?;
                    }
                    Ok(())
                })
            })
            .unwrap();
        let stranger = client(&Identity::self_signed(["localhost"]).unwrap());
        let (client, port) = (client(&identity), address(&running).port());
        coracle_coro::run(move || {
            let asking = ws::Client::new(&format!("wss://localhost:{port}/"))?.tls(&client);
            let ws = asking.at(SocketAddr::from(([127, 0, 0, 1], port))).connect()?;
            for size in [0, 5, 300_000] {
                ws.send(vec![1; size])?;
                assert!(ws.recv()? == Some(ws::Message::from(vec![1; size])));
            }
            ws.close(ws::CloseCode::NORMAL)?;
            // Whom the system trusts is somebody else; if it trusts nobody, that is told.
            let refused = |asking: ws::Client| {
                let at = SocketAddr::from(([127, 0, 0, 1], port));
                asking.at(at).connect().expect_err("no trust")
            };
            let asking = || ws::Client::new(&format!("wss://localhost:{port}/"));
            let kind = refused(asking()?).kind();
            assert!(matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::NotFound), "{kind}");
            // As https says it.
            let error = refused(asking()?.tls(&stranger));
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert!(error.to_string().contains("nobody who is trusted has signed it"), "{error}");
            io::Result::Ok(())
        })
        .unwrap();
        stop(running);
    }
}

#[test]
fn k4_client_by_wss_speaks_http_1_1_whatever_its_tls_speaks_elsewhere() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let running = server(backend, &tls)
            .start(|req: &Request<'_>| ws::upgrade(req).run(|ws| ws.send("ahoy")))
            .unwrap();
        let (client, port) = (client(&identity).speaking(http::ALPN), address(&running).port());
        coracle_coro::run(move || {
            let asking = ws::Client::new(&format!("wss://localhost:{port}/"))?.tls(&client);
            let ws = asking.at(SocketAddr::from(([127, 0, 0, 1], port))).connect()?;
            assert!(ws.recv()? == Some(ws::Message::from("ahoy")));
            io::Result::Ok(())
        })
        .unwrap();
        stop(running);
    }
}

#[test]
fn m1_stream_in_coroutines_waits_without_holding_the_thread() {
    use coracle_coro::net::{TcpListener, TcpStream};
    let identity = identity();
    let (server, client) = (ServerTls::new(identity.clone()).unwrap(), client(&identity));
    coracle_coro::run(move || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let serving = coracle_coro::spawn(move || -> io::Result<()> {
            let (socket, _) = listener.accept()?;
            let mut stream = server.accept(socket)?;
            let mut piece = [0; 5000];
            loop {
                match stream.read(&mut piece)? {
                    0 => return stream.close(),
                    count => stream.write_all(&piece[..count])?,
                }
            }
        });
        let mut stream = client.connect("localhost", TcpStream::connect(address)?)?;
        let content = pattern(0, 200_000);
        for piece in content.chunks(20_000) {
            stream.write_all(piece)?;
            let mut back = vec![0; piece.len()];
            stream.read_exact(&mut back)?;
            assert!(back == piece);
        }
        stream.close()?;
        assert_eq!(stream.read(&mut [0])?, 0);
        serving.join().expect("no panic")
    })
    .unwrap();
}
