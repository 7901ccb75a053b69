//! Servers that are not ours, asked by the client and by the proxy: nginx, and h11, which refuses what is not
//! HTTP. One that is not installed is left out, and that is said; in continuous integration it is a failure.

use coracle_http::client::{Client, Settings};
use coracle_http::proxy::{self, HostPolicy};
use coracle_http::{Headers, Proxy, Request, Running, Server, Status};
use coracle_loop::Builder;
use coracle_loop::demux::Backend;
use coracle_net::Address;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

const BACKENDS: [Backend; 4] = [Backend::Uring, Backend::Epoll, Backend::Poll, Backend::Select];

/// A server that says what h11 has understood, and ends with an error if that refuses anything.
const STRICT: &str = r#"
import socket, sys, h11
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    peer, _ = listener.accept()
    conn = h11.Connection(h11.SERVER)
    def next_event():
        while True:
            event = conn.next_event()
            if event is not h11.NEED_DATA:
                return event
            if conn.they_are_waiting_for_100_continue:
                peer.sendall(conn.send(h11.InformationalResponse(status_code=100, headers=[])))
            conn.receive_data(peer.recv(65536))
    try:
        while True:
            request = next_event()
            if isinstance(request, h11.ConnectionClosed):
                break
            body, trailers = b"", []
            while True:
                event = next_event()
                if isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    trailers = event.headers
                    break
            if request.target == b"/exit":
                sys.exit(0)
            fields = b";".join(n + b"=" + v for n, v in request.headers)
            told = b" ".join([request.method, request.target, fields, str(len(body)).encode(),
                b";".join(n + b"=" + v for n, v in trailers)])
            if request.target.startswith(b"/close"):
                headers = [("connection", "close")]
            elif request.target.startswith(b"/chunked"):
                headers = []
            else:
                headers = [("content-length", str(len(told)))]
            peer.sendall(conn.send(h11.Response(status_code=200, headers=headers)))
            if request.method != b"HEAD":
                peer.sendall(conn.send(h11.Data(data=told)))
            peer.sendall(conn.send(h11.EndOfMessage()))
            if conn.our_state is h11.MUST_CLOSE:
                break
            conn.start_next_cycle()
    except h11.RemoteProtocolError as error:
        print("refused:", error, file=sys.stderr, flush=True)
        sys.exit(1)
    except ConnectionError:
        pass
    peer.close()
"#;

/// A program that serves.
struct Peer {
    child: Child,
    address: Address,
    dir: Option<PathBuf>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = &self.dir {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

impl Peer {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn is_missing(what: &str, package: &str, found: bool) -> bool {
    if !found {
        assert!(
            std::env::var_os("CI").is_none(),
            "{what} is not installed: apt-get install {package}"
        );
        eprintln!("SKIPPED: {what} is not installed");
    }
    !found
}

/// None if it is not installed.
fn strict() -> Option<Peer> {
    let python = "/usr/bin/python3"; // that of Debian, which has its packages
    let found = Command::new(python).args(["-c", "import h11"]).stderr(Stdio::null()).status();
    if is_missing("h11", "python3-h11", found.is_ok_and(|status| status.success())) {
        return None;
    }
    let mut child = Command::new(python)
        .args(["-c", STRICT])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("a port");
    let address = format!("127.0.0.1:{}", line.trim()).parse().expect("an address");
    Some(Peer { child, address, dir: None })
}

/// None if it is not installed. It serves `/file`, redirects `/old`, refuses `/denied`, closes at once `/drop`,
/// and passes what is below `/echo` to nobody.
fn nginx() -> Option<Peer> {
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|path| fs::exists(path).is_ok_and(|it| it));
    if is_missing("nginx", "nginx-light", program.is_some()) {
        return None;
    }
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("coracle-nginx-{}-{number}", std::process::id()));
    fs::create_dir_all(dir.join("root")).expect("a directory");
    fs::write(dir.join("root/file"), vec![b'x'; 300_000]).expect("a file");
    let socket = dir.join("socket");
    let (path, listen) = (dir.display(), socket.display());
    let config = format!(
        "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
         fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
         gzip on; gzip_types *; gzip_proxied any; keepalive_requests 3; client_max_body_size 1k;\n\
         server {{ listen unix:{listen}; root {path}/root;\n\
         location = /ahoy {{ return 200 \"ahoy $http_host $http_x_forwarded_for\\n\"; }}\n\
         location = /old {{ return 301 /ahoy; }}\n\
         location = /denied {{ return 403; }}\n\
         location = /drop {{ return 444; }}\n\
         location = /upload {{ proxy_pass http://unix:{path}/nobody:/; }} }} }}\n"
    );
    fs::write(dir.join("nginx.conf"), config).expect("a file");
    let child = Command::new(program.expect("it is there"))
        .args(["-p", dir.to_str().expect("text"), "-c"])
        .arg(dir.join("nginx.conf"))
        .spawn()
        .expect("nginx starts");
    let peer = Peer { child, address: format!("unix:{listen}").parse().unwrap(), dir: Some(dir) };
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(begun.elapsed() < PATIENCE, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(peer)
}

fn on_every_backend(case: impl Fn() -> io::Result<()> + Clone + Send + Sync + 'static) {
    for backend in BACKENDS {
        let lp = Builder::new().backend(backend).build().expect("a loop");
        let case = case.clone();
        coracle_coro::run_on(&lp, move || coracle_coro::timeout(PATIENCE, case))
            .expect("it is as expected");
    }
}

#[test]
fn j12_what_is_sent_is_http_to_a_strict_server() {
    let Some(peer) = strict() else { return };
    let (url, closed, chunked) = (peer.url("/a?b"), peer.url("/close"), peer.url("/chunked"));
    on_every_backend(move || {
        let client = Client::with(Settings { limit_attempts: 1, ..Settings::default() })?;
        let text = client.get(&url).header("X-A", "b").send()?.text()?;
        assert!(text.starts_with("GET /a?b host=127.0.0.1:"), "{text}");
        for size in [0, 5, 100_000] {
            let text = client.post(&url).body(vec![b'x'; size]).send()?.text()?;
            assert!(text.ends_with(&format!(" {size} ")), "{text}");
            let text =
                client.put(&closed).body(vec![b'x'; size]).expect_continue().send()?.text()?;
            assert!(text.ends_with(&format!(" {size} ")), "{text}");
        }
        let mut trailers = Headers::new();
        trailers.insert("x-sum", "7").expect("it can be sent");
        let reader = io::repeat(b'x').take(70_000);
        let text = client.post(&chunked).body_reader(reader).trailers(trailers).send()?.text()?;
        assert!(text.ends_with(" 70000 x-sum=7"), "{text}");
        assert_eq!(client.head(&url).send()?.text()?, "");
        assert_eq!(client.head(&chunked).send()?.text()?, "");
        Ok(())
    });
    let mut peer = peer;
    assert!(peer.child.try_wait().expect("it can be asked").is_none(), "it has refused something");
}

#[test]
fn j12_nginx_is_asked() {
    let Some(peer) = nginx() else { return };
    let address = peer.address.clone();
    on_every_backend(move || {
        let client = Client::new();
        let get = |path: &str| client.get(&format!("http://a.example{path}")).at(address.clone());
        for _ in 0..10 {
            // nginx closes a connection after three requests.
            assert_eq!(get("/ahoy").send()?.text()?, "ahoy a.example \n");
        }
        assert_eq!(get("/old").send()?.text()?, "ahoy a.example \n");
        assert_eq!(get("/denied").send()?.status(), Status::FORBIDDEN);
        let answer = get("/file").send()?;
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        assert!(answer.bytes()? == vec![b'x'; 300_000]);
        let part = get("/file").header("Range", "bytes=10-19").send()?;
        assert_eq!((part.status().as_u16(), part.bytes()?.len()), (206, 10));
        let gone = get("/drop").send().expect_err("it is closed");
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof, "{gone}");
        // It refuses the body without reading it.
        let post = client.post("http://a/upload").at(address.clone());
        let answer = post.body_reader(io::repeat(b'x').take(50 << 20)).send()?;
        assert_eq!(answer.status(), Status::PAYLOAD_TOO_LARGE);
        Ok(())
    });
}

fn front(backend: Backend, to: &Peer, settings: proxy::Settings) -> Running {
    let url = match &to.address {
        address @ Address::Unix(_) => address.to_string(),
        address => format!("http://{address}"),
    };
    let proxy =
        Proxy::to([url.as_str()]).and_then(|proxy| proxy.settings(settings)).expect("a proxy");
    // One loop: the strict one serves one connection at a time.
    let server = Server::bind("127.0.0.1:0").expect("it listens").loops(1).backend(backend);
    server.start(proxy).expect("it starts")
}

/// What comes until the end.
fn ask(running: &Running, request: &[u8]) -> String {
    let address = running.local_addresses()[0].ip().expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.write_all(request).expect("it is read");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("it ends");
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn j15_nginx_behind_the_proxy() {
    let Some(peer) = nginx() else { return };
    for backend in BACKENDS {
        let running = front(backend, &peer, proxy::Settings::default());
        let get = |path: &str| {
            ask(
                &running,
                format!("GET {path} HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n").as_bytes(),
            )
        };
        for _ in 0..10 {
            let text = get("/ahoy");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert!(text.ends_with("\r\n\r\nahoy a.b 127.0.0.1\n"), "{text}");
        }
        assert!(get("/old").contains("\r\nLocation: http://a.b/ahoy\r\n"), "{}", get("/old"));
        assert!(get("/denied").starts_with("HTTP/1.1 403 "));
        assert!(get("/drop").starts_with("HTTP/1.1 502 "));
        let file = get("/file");
        assert!(
            file.contains("content-length: 300000\r\n") && file.ends_with(&"x".repeat(1000)),
            "{backend:?}"
        );
        let refused = "POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 50000000\r\n\r\nx";
        assert!(ask(&running, refused.as_bytes()).starts_with("HTTP/1.1 413 "));
        running.stop();
        running.join().expect("it ends well");
    }
}

#[test]
fn j15_what_is_handed_on_is_http_to_a_strict_server() {
    let Some(mut peer) = strict() else { return };
    for backend in BACKENDS {
        let host = HostPolicy::Fixed("h11.example".into());
        let settings = proxy::Settings { host, forwarded: true, ..proxy::Settings::default() };
        let running = front(backend, &peer, settings);
        let chunks = format!("2710\r\n{}\r\n0\r\nX-Sum: 7\r\n\r\n", "x".repeat(10_000));
        for (request, told) in [
            ("GET /a HTTP/1.0\r\n\r\n".to_owned(), "GET /a host=h11.example;"),
            (
                "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close, te\r\nTE: trailers\r\n\r\n".to_owned(),
                "GET /a host=h11.example;x-forwarded-for=127.0.0.1;",
            ),
            (
                "POST /chunked HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\n\
                 ahoy!"
                    .to_owned(),
                "POST /chunked host=h11.example;",
            ),
            (
                format!(
                    "PUT /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                     Transfer-Encoding: chunked\r\n\r\n{chunks}"
                ),
                "transfer-encoding=chunked 10000 ",
            ),
            (
                format!(
                    "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n{}",
                    "x".repeat(100_000)
                ),
                "content-length=100000 100000 ",
            ),
        ] {
            let text = ask(&running, request.as_bytes());
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains(told), "{backend:?} {text}");
        }
        running.stop();
        running.join().expect("it ends well");
    }
    assert!(peer.child.try_wait().expect("it can be asked").is_none(), "it has refused something");
}

#[test]
fn j15_connections_say_for_whom_they_are() {
    for backend in BACKENDS {
        let server = |trusted: &str| {
            let mut behind = coracle_http::ProxyProtocol::from(
                trusted.parse::<coracle_http::Networks>().unwrap(),
            );
            behind.timeout = Duration::from_millis(300);
            let server = Server::bind("127.0.0.1:0").expect("it listens").loops(1).backend(backend);
            server
                .proxy_protocol(behind)
                .start(|req: &Request<'_>| format!("{}", req.peer()))
                .expect("it starts")
        };
        let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let trusting = server("127.0.0.0/8");
        let text =
            ask(&trusting, format!("PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n{get}").as_bytes());
        assert!(text.ends_with("\r\n\r\n192.0.2.1:4711"), "{text}");
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x24".to_vec();
        header.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        header.extend_from_slice(&[0; 16]);
        header.extend_from_slice(&[0x12, 0x67, 0, 80]);
        header.extend_from_slice(get.as_bytes());
        let text = ask(&trusting, &header);
        assert!(text.ends_with("\r\n\r\n[2001:db8::1]:4711"), "{text}");
        let own = ask(&trusting, format!("PROXY UNKNOWN\r\n{get}").as_bytes());
        assert!(own.contains("\r\n\r\n127.0.0.1:"), "{own}");
        // Who says nothing, nonsense, or nothing in time, is not served.
        for wrong in [get, "PROXY TCP4 1.2.3.4\r\n", "PROXY TCP4 "] {
            let address = trusting.local_addresses()[0].ip().expect("an address");
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
            stream.write_all(wrong.as_bytes()).expect("it is read");
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text); // the end, or a reset
            assert!(text.is_empty(), "{wrong:?}: {}", text.escape_ascii());
        }
        let wary = server("192.0.2.0/24");
        assert!(ask(&wary, get.as_bytes()).contains("\r\n\r\n127.0.0.1:"));
        let text =
            ask(&wary, format!("PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n{get}").as_bytes());
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        for running in [trusting, wary] {
            running.stop();
            running.join().expect("it ends well");
        }
    }
}
