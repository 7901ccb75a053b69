//! What stands beside a server, and TLS with it: proxies in front and behind, scripts, pages of other sites.

use super::{
    BACKENDS, address, answer, ask, client, connect, identity, server, settings, socket, stop,
};
use coracle_http::middleware::{Https, SameOrigin, around};
use coracle_http::tls::{ClientTls, Identity, ServerTls};
use coracle_http::{
    Cgi, FastCgi, Networks, Proxy, ProxyProtocol, Request, Router, Running, Server, proxy, ws,
};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A socket whose first write goes out behind a header, in two pieces.
struct Announcing {
    socket: TcpStream,
    header: Vec<u8>,
    /// Where it is cut.
    at: usize,
    /// What the first write was, behind the header.
    hello: usize,
}

impl Announcing {
    fn new(address: SocketAddr, header: &[u8], at: usize) -> Announcing {
        let socket = socket(address);
        socket.set_nodelay(true).unwrap();
        Announcing { socket, header: header.to_vec(), at, hello: 0 }
    }
}

impl Read for Announcing {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.socket.read(space)
    }
}

impl Write for Announcing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.header.is_empty() {
            return self.socket.write(bytes);
        }
        let mut whole = std::mem::take(&mut self.header);
        whole.extend_from_slice(bytes);
        self.hello = bytes.len();
        let (begin, rest) = whole.split_at(self.at.min(whole.len()));
        self.socket.write_all(begin)?;
        if !begin.is_empty() && !rest.is_empty() {
            thread::sleep(Duration::from_millis(1)); // so that it is read by itself, mostly
        }
        self.socket.write_all(rest)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[test]
fn j15_connections_say_for_whom_they_are_before_tls() {
    const V1: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n";
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    v2.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x67, 1, 187]);
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let behind = ProxyProtocol::from("127.0.0.0/8".parse::<Networks>().unwrap());
        let running = server(backend, &tls)
            .proxy_protocol(behind)
            .start(|req: &Request<'_>| format!("{} {}", req.is_secure(), req.peer()))
            .unwrap();
        let client = client(&identity);
        let ask = |header: &[u8], at: usize| {
            let socket = Announcing::new(address(&running), header, at);
            let mut stream = client.connect("localhost", socket).expect("hands are shaken");
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let hello = stream.socket().hello;
            let (_, body) = answer(&mut BufReader::new(stream));
            assert_eq!(body, b"true 192.0.2.1:4711", "{backend:?}, cut at {at}");
            header.len() + hello
        };
        for header in [V1, &v2] {
            let whole = ask(header, 0); // all at once
            (1..whole).for_each(|at| _ = ask(header, at));
        }
        // Without a header nobody is served, and hands are not shaken.
        assert!(client.connect("localhost", socket(address(&running))).is_err());
        stop(running);
    }
}

#[test]
fn j15_connections_without_tls_say_for_whom_they_are_as_well() {
    for backend in BACKENDS {
        let tls = ServerTls::new(settings(&identity())).unwrap();
        let behind = ProxyProtocol::from("127.0.0.0/8".parse::<Networks>().unwrap());
        let running = server(backend, &tls)
            .plain("127.0.0.1:0")
            .unwrap()
            .proxy_protocol(behind)
            .start(|req: &Request<'_>| format!("{} {}", req.is_secure(), req.peer()))
            .unwrap();
        let plain = running.local_addresses()[1].ip().unwrap();
        let mut stream = BufReader::new(socket(plain));
        let header = "PROXY TCP4 192.0.2.1 192.0.2.2 4711 80\r\n";
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.get_mut().write_all(format!("{header}{request}{request}").as_bytes()).unwrap();
        for _ in 0..2 {
            let (head, body) = answer(&mut stream);
            assert_eq!(body, b"false 192.0.2.1:4711", "{backend:?}: {head}");
        }
        let mut silent = socket(plain);
        silent.write_all(request.as_bytes()).unwrap();
        let mut told = Vec::new();
        let _ = silent.read_to_end(&mut told); // it may be reset
        assert!(told.is_empty(), "without a header nobody is served");
        drop(stream);
        stop(running);
    }
}

/// A proxy to an upstream, by https if that is behind TLS.
fn proxy_to(upstream: &Running, secure: bool, tls: &ClientTls, told: proxy::Settings) -> Proxy {
    let scheme = if secure { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:{}", address(upstream).port());
    let settings = proxy::Settings { secure: Some(Arc::new(tls.clone())), ..told };
    Proxy::to([url.as_str()]).unwrap().settings(settings).unwrap()
}

#[test]
fn j15_websockets_pass_with_tls_on_either_side() {
    for backend in BACKENDS {
        let identity = Identity::self_signed(["localhost", "127.0.0.1"]).unwrap();
        let (tls, client) = (ServerTls::new(settings(&identity)).unwrap(), client(&identity));
        for (front_is_secure, behind_is_secure) in [(false, true), (true, false), (true, true)] {
            let server = |secure: bool| {
                let server = Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend);
                if secure { server.tls(&tls) } else { server }
            };
            let upstream = server(behind_is_secure).start(|req: &Request<'_>| {
                ws::upgrade(req).run(|ws: &ws::WebSocket| {
                    ws.send("welcome")?;
                    for message in ws {
                        ws.send(message?)?;
                    }
                    Ok(())
                })
            });
            let upstream = upstream.unwrap();
            let proxy = proxy_to(&upstream, behind_is_secure, &client, Default::default());
            let front = server(front_is_secure).start(proxy).unwrap();
            let (port, trusting) = (address(&front).port(), client.clone());
            let scheme = if front_is_secure { "wss" } else { "ws" };
            coracle_coro::run(move || {
                let ws = ws::Client::new(&format!("{scheme}://127.0.0.1:{port}/"))?;
                let ws = ws.tls(&trusting).connect()?;
                assert_eq!(ws.recv()?, Some("welcome".into()));
                for size in [0, 5, 300_000] {
                    ws.send(vec![1; size])?;
                    assert!(ws.recv()? == Some(ws::Message::from(vec![1; size])));
                }
                ws.close(ws::CloseCode::NORMAL)
            })
            .unwrap();
            stop(front);
            stop(upstream);
        }
    }
}

#[test]
fn j15_upstream_behind_tls_is_told_who_asks_and_how() {
    for backend in BACKENDS {
        let identity = Identity::self_signed(["localhost", "127.0.0.1"]).unwrap();
        let (tls, client) = (ServerTls::new(settings(&identity)).unwrap(), client(&identity));
        let behind = ProxyProtocol::from("127.0.0.0/8".parse::<Networks>().unwrap());
        let upstream = server(backend, &tls)
            .proxy_protocol(behind)
            .start(|req: &Request<'_>| {
                let said = |name: &str| req.header(name).unwrap_or("nothing").to_owned();
                let proto = said("x-forwarded-proto");
                format!("{} {proto} {} {}", req.is_secure(), said("forwarded"), req.peer())
            })
            .unwrap();
        let told = proxy::Settings {
            forwarded: true,
            send_proxy: Some(proxy::ProxyVersion::V2),
            ..proxy::Settings::default()
        };
        let proxy = proxy_to(&upstream, true, &client, told);
        let front = server(backend, &tls).start(proxy).unwrap();
        let mut stream = connect(&front, &client);
        let own = stream.get_ref().socket().local_addr().unwrap();
        for _ in 0..2 {
            let (_, body) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let expected = format!("true https for=127.0.0.1;host=\"localhost\";proto=https {own}");
            assert_eq!(String::from_utf8(body).unwrap(), expected);
        }
        drop(stream);
        stop(front);
        stop(upstream);
    }
}

/// A directory with a script of sh in it, `a.sh`.
fn script(name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let name = format!("coracle-https-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let script = directory.join("a.sh");
    std::fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

#[test]
fn o1_scripts_are_told_of_tls() {
    let scripts = script(
        "told",
        "said=\"$HTTPS $REQUEST_SCHEME $SERVER_PORT\"\n\
         printf 'Content-Length: %d\\nContent-Type: text/plain\\n\\n%s' ${#said} \"$said\"",
    );
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let app = Router::new(()).mount("/cgi-bin", Cgi::new(&scripts).unwrap());
        let running = server(backend, &tls).plain("127.0.0.1:0").unwrap().start(app).unwrap();
        let request = |host: &str| format!("GET /cgi-bin/a.sh HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut stream = connect(&running, &client(&identity));
        let (_, body) = ask(&mut stream, &request("localhost"));
        assert_eq!(String::from_utf8(body).unwrap(), "on https 443");
        let (_, body) = ask(&mut stream, &request("localhost:8443"));
        assert_eq!(String::from_utf8(body).unwrap(), "on https 8443");
        drop(stream); // the server would wait for its end when it stops
        let plain = running.local_addresses()[1].ip().expect("an IP address");
        let mut stream = BufReader::new(socket(plain));
        stream.get_mut().write_all(request("localhost").as_bytes()).unwrap();
        assert_eq!(String::from_utf8(answer(&mut stream).1).unwrap(), " http 80");
        drop(stream);
        stop(running);
    }
    std::fs::remove_dir_all(&scripts).unwrap();
}

/// A FastCGI server that answers whether `wanted` is among the variables that it was told.
fn fastcgi(wanted: &'static [u8]) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move |mut stream: TcpStream| -> io::Result<()> {
        const PARAMS: u8 = 4;
        const STDIN: u8 = 5;
        let mut told = Vec::new();
        loop {
            let mut head = [0; 8];
            stream.read_exact(&mut head)?;
            let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
            stream.read_exact(&mut content)?;
            stream.read_exact(&mut vec![0; head[6].into()])?;
            match head[1] {
                PARAMS => told.extend_from_slice(&content),
                STDIN if content.is_empty() => {
                    let is_told = told.windows(wanted.len()).any(|window| window == wanted);
                    told.clear();
                    let said =
                        format!("Content-Type: a/b\nContent-Length: 1\n\n{}", u8::from(is_told));
                    stream.write_all(&[1, 6, 0, 1, 0, said.len() as u8, 0, 0])?;
                    stream.write_all(said.as_bytes())?;
                    stream.write_all(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
                }
                _ => {}
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

#[test]
fn o2_scripts_of_fastcgi_are_told_of_tls() {
    let scripts =
        std::env::temp_dir().join(format!("coracle-https-fastcgi-{}", std::process::id()));
    std::fs::create_dir_all(&scripts).unwrap();
    std::fs::write(scripts.join("a.php"), "").unwrap();
    let php = fastcgi(b"\x05\x02HTTPSon"); // a name of five bytes, a value of two
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let app = FastCgi::new(&php.to_string(), &scripts).unwrap();
        let running = server(backend, &tls).plain("127.0.0.1:0").unwrap().start(app).unwrap();
        let request = "GET /a.php HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut stream = connect(&running, &client(&identity));
        for _ in 0..2 {
            assert_eq!(ask(&mut stream, request).1, b"1");
        }
        drop(stream); // the server would wait for its end when it stops
        let plain = running.local_addresses()[1].ip().expect("an IP address");
        let mut stream = BufReader::new(socket(plain));
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        assert_eq!(answer(&mut stream).1, b"0");
        drop(stream);
        stop(running);
    }
    std::fs::remove_dir_all(&scripts).unwrap();
}

#[test]
fn o1_local_redirect_of_a_script_stays_behind_tls() {
    let scripts = script("redirect", "printf 'Location: /page\\n\\n'");
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let app = Router::new(())
            .mount("/cgi-bin", Cgi::new(&scripts).unwrap())
            .get("/page", |(), req: &Request<'_>| format!("secure: {}", req.is_secure()));
        let running = server(backend, &tls).start(around(Https::new(), app)).unwrap();
        let mut stream = connect(&running, &client(&identity));
        let request = "GET /cgi-bin/a.sh HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let (head, body) = ask(&mut stream, request);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(String::from_utf8(body).unwrap(), "secure: true");
        drop(stream);
        stop(running);
    }
    std::fs::remove_dir_all(&scripts).unwrap();
}

#[test]
fn k1_page_without_tls_is_another_site_than_a_websocket_with() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let app = |req: &Request<'_>| ws::upgrade(req).run(|ws| ws.send("ahoy"));
        let running = server(backend, &tls).start(app).unwrap();
        for (origin, status) in [("https://localhost", 101), ("http://localhost", 403)] {
            let mut stream = connect(&running, &client(&identity));
            let request = format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nConnection: upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            stream.get_mut().write_all(request.as_bytes()).unwrap();
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {line}");
        }
        stop(running);
    }
}

#[test]
fn j9_page_without_tls_is_another_site_than_one_with() {
    for backend in BACKENDS {
        let identity = identity();
        let tls = ServerTls::new(settings(&identity)).unwrap();
        let app = around(SameOrigin::new(), |_: &Request<'_>| "done\n");
        let running = server(backend, &tls).start(app).unwrap();
        let mut stream = connect(&running, &client(&identity));
        for (origin, status) in [("https://localhost", 200), ("http://localhost", 403)] {
            let request = format!(
                "POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nContent-Length: 0\r\n\r\n"
            );
            let (head, _) = ask(&mut stream, &request);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {head}");
        }
        drop(stream);
        stop(running);
    }
}
