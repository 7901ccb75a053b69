//! Row T10: a whole HTTP server and its clients, and WebSockets from end to end, in simulated kernels from many
//! seeds, with faults.
//!
//! Whatever happens, an answer that arrives whole is the right one, in its turn; nobody panics; and in the end no
//! descriptor is left. On a kernel that is only slow and odd, everything arrives.

use coracle_coro::net::TcpStream;
use coracle_coro::{sleep, spawn, timeout};
use coracle_http::tls::{ClientSettings, ClientTls, Identity, Roots, Secure, ServerTls};
use coracle_http::{
    App, Body, IntoResponse, Method, Plan, Proxy, Request, Response, Service, Settings, Status, ws,
};
use coracle_loop::Loop;
use coracle_loop::demux::sim::{Faults, Kernel};
use coracle_net::Listener;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

const SEEDS: u64 = 120;
const CLIENTS: u64 = 5;
const MS: Duration = Duration::from_millis(1);

/// Echoes bodies, buffered and streamed; makes bodies of a size; takes its time.
struct Everything;

impl App for Everything {
    fn call(&self, req: &Request<'_>) -> Response {
        match (req.method(), req.segments()) {
            (Method::Post, ["echo"]) => req.body().to_vec().into_response(),
            (Method::Post, ["stream"]) => {
                let mut body = Vec::new();
                match req.body_reader().read_to_end(&mut body) {
                    Ok(_) => body.into_response(),
                    Err(_) => Status::BAD_REQUEST.into_response(),
                }
            }
            (Method::Get, ["slow", size]) => {
                let _ = sleep(3 * MS);
                pattern(size.parse().unwrap_or(0)).into_response()
            }
            (Method::Get, ["made", size]) => pattern(size.parse().unwrap_or(0)).into_response(),
            (Method::Get, ["written", size]) => {
                let size = size.parse().unwrap_or(0);
                Body::stream(move |out| {
                    for piece in pattern(size).chunks(700) {
                        out.write_all(piece)?;
                    }
                    Ok(())
                })
                .into_response()
            }
            _ => Status::NOT_FOUND.into_response(),
        }
    }

    fn plan(&self, req: &Request<'_>) -> Plan {
        match req.path() {
            "/stream" => Plan::default().streamed(),
            _ => Plan::default(),
        }
    }
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n % 251) as u8).collect()
}

/// Numbers that look like chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A request, and the body of the answer to it.
fn request(dice: &mut Dice) -> (Vec<u8>, Vec<u8>) {
    let size = [0, 1, 13, 900, 20_000, 300_000][dice.below(6) as usize];
    let body = pattern(size);
    let head = |line: &str, fields: &str| {
        format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
    };
    let mut bytes = match dice.below(5) {
        0 => return (head(&format!("GET /made/{size}"), ""), body),
        1 => return (head(&format!("GET /slow/{size}"), ""), body),
        2 => return (head(&format!("GET /written/{size}"), ""), body),
        kind => {
            let line = if kind == 3 { "POST /echo" } else { "POST /stream" };
            if dice.below(2) == 0 {
                let mut bytes = head(line, &format!("Content-Length: {size}\r\n"));
                bytes.extend_from_slice(&body);
                return (bytes, body);
            }
            head(line, "Transfer-Encoding: chunked\r\n")
        }
    };
    for chunk in body.chunks(1 + dice.below(50_000) as usize) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    (bytes, body)
}

/// The body of the next answer; an error if it does not arrive whole.
fn answer(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let line = |stream: &mut dyn BufRead| -> io::Result<String> {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(io::ErrorKind::UnexpectedEof.into())
    };
    match line(stream)?.as_str() {
        "HTTP/1.1 200 OK" => {}
        // Not everything arrives in time, on a kernel that stalls.
        "HTTP/1.1 408 Request Timeout" | "HTTP/1.1 400 Bad Request" => {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Nor does everybody who is asked in our place answer.
        "HTTP/1.1 502 Bad Gateway" | "HTTP/1.1 504 Gateway Timeout" => {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        other => panic!("{other}"),
    }
    let (mut length, mut chunked) = (0, false);
    loop {
        let field = line(stream)?;
        match field.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().expect("a number"),
            Some(("transfer-encoding", "chunked")) => chunked = true,
            Some(_) => {}
            None => break assert_eq!(field, ""),
        }
    }
    let mut body = Vec::new();
    loop {
        let size = match chunked {
            true => usize::from_str_radix(&line(stream)?, 16).expect("a size"),
            false => length,
        };
        let start = body.len();
        body.resize(start + size, 0);
        stream.read_exact(&mut body[start..])?;
        if !chunked {
            return Ok(body);
        }
        assert_eq!(line(stream)?, "");
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Asks a few things on one connection, several at a time; how many were answered.
fn talk(address: SocketAddr, seed: u64) -> io::Result<usize> {
    let mut dice = Dice(seed);
    let stream = TcpStream::connect(address)?;
    let (requests, expected): (Vec<_>, Vec<_>) =
        (0..1 + dice.below(8)).map(|_| request(&mut dice)).unzip();
    let bytes = requests.concat();
    let writing = stream.try_clone()?;
    let step = 1 + dice.below(100_000) as usize;
    let writer = spawn(move || -> io::Result<()> {
        for piece in bytes.chunks(step) {
            (&writing).write_all(piece)?;
        }
        Ok(())
    });
    let mut reader = BufReader::new(&stream);
    let mut count = 0;
    let read = timeout(Duration::from_secs(30), || {
        for body in &expected {
            assert!(answer(&mut reader)? == *body, "the right answer, in its turn");
            count += 1;
        }
        Ok::<(), io::Error>(())
    });
    drop(reader);
    stream.close()?;
    let _ = writer.join();
    read.map(|()| count)
}

#[test]
fn t10_server_in_the_simulator_answers_whatever_happens() {
    let (mut whole, mut hours) = (0, Duration::ZERO);
    for seed in 0..SEEDS {
        let benign = seed % 2 == 0;
        let faults = if benign { Faults::benign() } else { Faults::hostile() };
        let kernel = Kernel::with_faults(seed, faults);
        let lp = Loop::builder().demux(kernel.demux()).build().expect("a loop");
        let before = kernel.open_descriptors();
        let service = Service::new(Everything, Settings::default()).expect("a service");
        let (address, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
        let made = service.clone();
        let listener = Listener::bind(&lp, &address, settings, move |peer| made.connection(peer));
        let Ok(listener) = listener else { continue }; // the kernel has no socket for it
        let address = listener.local_address(&lp).expect("it listens").ip().expect("an IP address");
        let ended = coracle_coro::run_on(&lp, move || {
            let clients: Vec<_> =
                (0..CLIENTS).map(|n| spawn(move || talk(address, seed * CLIENTS + n))).collect();
            let ended =
                clients.into_iter().map(|client| client.join().expect("no panic")).collect();
            Ok::<Vec<io::Result<usize>>, io::Error>(ended)
        });
        for ended in ended.expect("a run") {
            match ended {
                Ok(count) => whole += count,
                Err(error) => {
                    assert!(!benign, "seed {seed}: {error}: {}", kernel.describe_faults())
                }
            }
        }
        listener.close(&lp);
        lp.run_until_idle().expect("it comes to rest");
        assert_eq!(service.stats().panics, 0, "seed {seed}");
        drop((listener, service));
        assert_eq!(kernel.open_descriptors(), before, "seed {seed}: {}", kernel.describe_faults());
        hours += kernel.elapsed();
    }
    println!("{SEEDS} seeds, {whole} answers, {hours:?} of simulated time");
    assert!(whole > SEEDS as usize * 10, "most of them come through: {whole}");
}

/// Serves on a kernel; none if that has no socket for it.
fn serve(lp: &Loop, service: &Service) -> Option<(Listener, SocketAddr)> {
    let (any, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
    let service = service.clone();
    let listener = Listener::bind(lp, &any, settings, move |peer| service.connection(peer)).ok()?;
    let address = listener.local_address(lp).expect("it listens").ip().expect("an IP address");
    Some((listener, address))
}

#[test]
fn j15_proxy_in_the_simulator_hands_on_what_is_whole_whatever_happens() {
    let mut whole = 0;
    for seed in 0..SEEDS {
        let benign = seed % 2 == 0;
        let faults = if benign { Faults::benign() } else { Faults::hostile() };
        let kernel = Kernel::with_faults(seed, faults);
        let lp = Loop::builder().demux(kernel.demux()).build().expect("a loop");
        let before = kernel.open_descriptors();
        let behind = Service::new(Everything, Settings::default()).expect("a service");
        let Some((upstream, at)) = serve(&lp, &behind) else { continue };
        let proxy = Proxy::to([format!("http://{at}").as_str()]).expect("a proxy");
        let front = Service::new(proxy, Settings::default()).expect("a service");
        let Some((listener, address)) = serve(&lp, &front) else { continue };
        let ended = coracle_coro::run_on(&lp, move || {
            let clients: Vec<_> =
                (0..CLIENTS).map(|n| spawn(move || talk(address, seed * CLIENTS + n))).collect();
            let ended = clients.into_iter().map(|client| client.join().expect("no panic"));
            Ok::<Vec<io::Result<usize>>, io::Error>(ended.collect())
        });
        for ended in ended.expect("a run") {
            match ended {
                Ok(count) => whole += count,
                // A connection that was kept may be closed in the moment in which a POST is sent on it.
                Err(error) if benign && error.kind() == io::ErrorKind::ConnectionReset => {}
                Err(error) => {
                    assert!(!benign, "seed {seed}: {error}: {}", kernel.describe_faults());
                }
            }
        }
        listener.close(&lp);
        upstream.close(&lp);
        lp.run_until_idle().expect("it comes to rest");
        assert_eq!((front.stats().panics, behind.stats().panics), (0, 0), "seed {seed}");
        drop((listener, upstream, front, behind));
        assert_eq!(kernel.open_descriptors(), before, "seed {seed}: {}", kernel.describe_faults());
    }
    assert!(whole > SEEDS as usize * 8, "most of them come through: {whole}");
}

/// A few messages of many sizes to an echo, several of them under way; how many came back.
fn converse(address: SocketAddr, seed: u64) -> io::Result<usize> {
    let mut dice = Dice(seed);
    let deflate = (dice.below(2) == 0)
        .then(|| ws::Deflate { keep_context: seed.is_multiple_of(3), ..ws::Deflate::default() });
    let settings = ws::Settings { deflate, ..ws::Settings::default() };
    let asking = ws::Client::new("ws://a/")?.at(coracle_net::Address::Ip(address));
    let ws = asking.settings(settings).connect()?;
    let mut count = 0;
    for _ in 0..3 + dice.below(5) {
        let sizes: Vec<usize> = (0..1 + dice.below(4))
            .map(|_| [0, 1, 126, 4_000, 70_000][dice.below(5) as usize])
            .collect();
        for &size in &sizes {
            ws.send(pattern(size))?;
        }
        for &size in &sizes {
            let echoed = ws.recv()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            assert!(echoed == ws::Message::from(pattern(size)), "the right one, in its turn");
            count += 1;
        }
    }
    ws.close(ws::CloseCode::NORMAL)?;
    Ok(count)
}

#[test]
fn k1_websockets_in_the_simulator_say_what_they_are_told_whatever_happens() {
    let app = |req: &Request<'_>| {
        let deflate = Some(ws::Deflate { keep_context: true, ..ws::Deflate::default() });
        let settings = ws::Settings { deflate, ..ws::Settings::default() };
        let upgrade = ws::upgrade(req).settings(settings);
        match req.header("sec-websocket-key").is_some_and(|key| key.as_bytes()[0] % 2 == 0) {
            true => {
                upgrade.handle(|peer: &mut ws::Peer<'_>, message: ws::Message| peer.send(message))
            }
            false => upgrade.run(|ws| ws.into_iter().try_for_each(|message| ws.send(message?))),
        }
    };
    let mut whole = 0;
    for seed in 0..SEEDS / 3 {
        let benign = seed % 2 == 0;
        let faults = if benign { Faults::benign() } else { Faults::hostile() };
        let kernel = Kernel::with_faults(seed, faults);
        let lp = Loop::builder().demux(kernel.demux()).build().expect("a loop");
        let before = kernel.open_descriptors();
        let service = Service::new(app, Settings::default()).expect("a service");
        let (address, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
        let made = service.clone();
        let listener = Listener::bind(&lp, &address, settings, move |peer| made.connection(peer));
        let Ok(listener) = listener else { continue }; // the kernel has no socket for it
        let address = listener.local_address(&lp).expect("it listens").ip().expect("an IP address");
        let ended = coracle_coro::run_on(&lp, move || {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|n| spawn(move || converse(address, seed * CLIENTS + n)))
                .collect();
            let ended =
                clients.into_iter().map(|client| client.join().expect("no panic")).collect();
            Ok::<Vec<io::Result<usize>>, io::Error>(ended)
        });
        for ended in ended.expect("a run") {
            match ended {
                Ok(count) => whole += count,
                Err(error) => {
                    assert!(!benign, "seed {seed}: {error}: {}", kernel.describe_faults())
                }
            }
        }
        listener.close(&lp);
        lp.run_until_idle().expect("it comes to rest");
        drop((listener, service));
        assert_eq!(kernel.open_descriptors(), before, "seed {seed}: {}", kernel.describe_faults());
    }
    println!("{whole} messages");
    assert!(whole > SEEDS as usize * 5, "most of them come through: {whole}");
}

/// Asks a few things behind TLS, one after the other; how many were answered. The end is said by both sides, and
/// which of them is the first to do so depends on the seed.
fn talk_secretly(address: SocketAddr, tls: &ClientTls, seed: u64) -> io::Result<usize> {
    let mut dice = Dice(seed);
    let limit = Duration::from_secs(30);
    timeout(limit, || {
        let mut stream = tls.connect("a", TcpStream::connect(address)?)?;
        let count = 1 + dice.below(4) as usize;
        let server_ends = dice.below(2) == 0;
        let mut reader = BufReader::new(&mut stream);
        for n in 1..=count {
            let (mut bytes, body) = request(&mut dice);
            if server_ends && n == count {
                let line = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a line") + 2;
                bytes.splice(line..line, *b"Connection: close\r\n");
            }
            for piece in bytes.chunks(1 + dice.below(100_000) as usize) {
                reader.get_mut().write_all(piece)?;
            }
            assert!(answer(&mut reader)? == body, "the right answer, in its turn");
        }
        drop(reader);
        if !server_ends {
            stream.close()?;
        }
        // Without close_notify, this is an error.
        assert_eq!(stream.read(&mut [0])?, 0, "nothing follows");
        stream.close()?;
        Ok(count)
    })
}

#[test]
fn m4_both_sides_say_their_end_in_the_simulator_whatever_happens() {
    let identity = Identity::self_signed(["a"]).expect("an identity");
    let tls = ServerTls::new(identity.clone()).expect("a server");
    let roots = Roots::identity(&identity).expect("roots");
    let client = ClientTls::new(ClientSettings::trusting(roots)).expect("a client");
    let mut whole = 0;
    for seed in 0..SEEDS {
        let benign = seed % 2 == 0;
        let faults = if benign { Faults::benign() } else { Faults::hostile() };
        let kernel = Kernel::with_faults(seed, faults);
        let lp = Loop::builder().demux(kernel.demux()).build().expect("a loop");
        let before = kernel.open_descriptors();
        let service = Service::new(Everything, Settings::default()).expect("a service");
        let (any, settings) = ("127.0.0.1:0".parse().unwrap(), service.connection_settings());
        let (made, secret) = (service.clone(), tls.clone());
        let listener = Listener::bind(&lp, &any, settings, move |peer| {
            let (made, peer) = (made.clone(), peer.clone());
            Secure::new(secret.layer(), move |session| made.secure_connection(&peer, session))
        });
        let Ok(listener) = listener else { continue }; // the kernel has no socket for it
        let address = listener.local_address(&lp).expect("it listens").ip().expect("an IP address");
        let client = client.clone();
        let ended = coracle_coro::run_on(&lp, move || {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|n| {
                    let client = client.clone();
                    spawn(move || talk_secretly(address, &client, seed * CLIENTS + n))
                })
                .collect();
            let ended = clients.into_iter().map(|client| client.join().expect("no panic"));
            Ok::<Vec<io::Result<usize>>, io::Error>(ended.collect())
        });
        for ended in ended.expect("a run") {
            match ended {
                Ok(count) => whole += count,
                Err(error) => {
                    assert!(!benign, "seed {seed}: {error}: {}", kernel.describe_faults())
                }
            }
        }
        listener.close(&lp);
        lp.run_until_idle().expect("it comes to rest");
        assert_eq!(service.stats().panics, 0, "seed {seed}");
        drop((listener, service));
        assert_eq!(kernel.open_descriptors(), before, "seed {seed}: {}", kernel.describe_faults());
    }
    assert!(whole > SEEDS as usize * 6, "most of them come through: {whole}");
}
