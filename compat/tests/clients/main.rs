//! Blocking clients of others, unmodified, a hundred coroutines on one thread each, on every real backend.
//!
//! No clock decides: each server answers nobody before all have asked. If one call held the thread, the others
//! would never ask, and the case would hang until it is ended.
#![allow(unsafe_code)]

use coracle::demux::Backend;
use coracle::{Loop, run_on, spawn};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Barrier, Once};
use std::thread;
use std::time::{Duration, Instant};

/// How many ask at the same time.
const MANY: usize = 100;

/// Ends those that hang.
const PATIENCE: Duration = Duration::from_secs(120);

fn on(backend: Backend, case: impl FnOnce() -> io::Result<()> + 'static) {
    static ONCE: Once = Once::new();
    // SAFETY: clients that share nothing, each in its own coroutine.
    ONCE.call_once(|| unsafe { coracle::hook::enable() });
    let (alive, over) = std::sync::mpsc::channel::<()>();
    let name = thread::current().name().unwrap_or("a case").to_owned();
    thread::spawn(move || {
        if over.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = writeln!(io::stderr(), "{name} hangs");
            std::process::abort();
        }
    });
    let lp = Loop::builder().backend(backend).build().expect("the backend opens");
    run_on(&lp, case).expect("the case");
    drop(alive);
}

/// Runs `call` in many coroutines.
fn many(call: impl Fn(usize) + 'static) {
    let call = Rc::new(call);
    let calls = (0..MANY).map(|me| {
        let call = Rc::clone(&call);
        spawn(move || call(me))
    });
    calls.collect::<Vec<_>>().into_iter().for_each(|one| one.join().expect("a client"));
}

/// A web server in plain threads, which answers when everybody has asked. With TLS if there is a way to do it.
fn web_server(wrap: impl Fn(TcpStream) -> Box<dyn ReadWrite> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address").to_string();
    let (barrier, wrap) = (Arc::new(Barrier::new(MANY)), Arc::new(wrap));
    thread::spawn(move || {
        for stream in listener.incoming().take(MANY) {
            let (barrier, wrap) = (Arc::clone(&barrier), Arc::clone(&wrap));
            thread::spawn(move || {
                let mut reader = BufReader::new(wrap(stream.expect("a connection")));
                let mut line = String::new();
                reader.read_line(&mut line).expect("a request");
                let path = line.split(' ').nth(1).expect("a path").to_owned();
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).expect("a header");
                }
                barrier.wait();
                let stream = reader.get_mut();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    path.len()
                );
                stream.write_all((head + &path).as_bytes()).expect("an answer");
                stream.flush().expect("an answer");
            });
        }
    });
    address
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn t3_std_net(backend: Backend) {
    on(backend, || {
        let address = web_server(|stream| Box::new(stream));
        many(move |me| {
            let mut stream = TcpStream::connect(&address).expect("connect");
            write!(stream, "GET /{me} HTTP/1.1\r\n\r\n").expect("write");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("read");
            assert!(answer.ends_with(&format!("\r\n\r\n/{me}")), "{answer}");
        });
        Ok(())
    });
}

fn t3_ureq(backend: Backend) {
    on(backend, || {
        let address = web_server(|stream| Box::new(stream));
        many(move |me| {
            let mut answer = ureq::get(format!("http://{address}/{me}")).call().expect("call");
            assert_eq!(answer.body_mut().read_to_string().expect("a body"), format!("/{me}"));
        });
        Ok(())
    });
}

/// A certificate of our own, and how a server uses it.
fn certificate() -> (rustls::pki_types::CertificateDer<'static>, Arc<rustls::ServerConfig>) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key =
        rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("a certificate");
    (own.cert.der().clone(), Arc::new(config))
}

fn t3_ureq_https(backend: Backend) {
    on(backend, || {
        let (_, config) = certificate();
        let address = web_server(move |stream| {
            let connection =
                rustls::ServerConnection::new(Arc::clone(&config)).expect("a connection");
            Box::new(rustls::StreamOwned::new(connection, stream))
        });
        let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
        let agent = ureq::Agent::config_builder().tls_config(tls).build().new_agent();
        many(move |me| {
            let mut answer = agent.get(format!("https://{address}/{me}")).call().expect("call");
            assert_eq!(answer.body_mut().read_to_string().expect("a body"), format!("/{me}"));
        });
        Ok(())
    });
}

/// Both ends are coroutines of one thread.
fn t3_rustls(backend: Backend) {
    on(backend, || {
        let (certificate, config) = certificate();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Arc::new(client);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(move || {
            for stream in listener.incoming().take(MANY) {
                let config = Arc::clone(&config);
                spawn(move || {
                    let connection = rustls::ServerConnection::new(config).expect("a connection");
                    let mut stream =
                        rustls::StreamOwned::new(connection, stream.expect("a connection"));
                    let mut space = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut space) {
                        stream.write_all(&space[..count]).expect("write");
                    }
                });
            }
        });
        many(move |me| {
            let name = "localhost".try_into().expect("a name");
            let connection =
                rustls::ClientConnection::new(Arc::clone(&client), name).expect("a connection");
            let mut stream =
                rustls::StreamOwned::new(connection, TcpStream::connect(address).expect("connect"));
            for round in 0..5 {
                let text = format!("{me}.{round}");
                stream.write_all(text.as_bytes()).expect("write");
                let mut back = vec![0; text.len()];
                stream.read_exact(&mut back).expect("read");
                assert_eq!(back, text.as_bytes());
            }
        });
        server.join().expect("the server");
        Ok(())
    });
}

/// Both ends are coroutines of one thread.
fn t3_tungstenite(backend: Backend) {
    on(backend, || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(move || {
            for stream in listener.incoming().take(MANY) {
                spawn(move || {
                    let mut socket =
                        tungstenite::accept(stream.expect("a connection")).expect("accept");
                    while let Ok(message) = socket.read() {
                        if message.is_text() {
                            socket.send(message).expect("send");
                        }
                    }
                });
            }
        });
        many(move |me| {
            let stream = TcpStream::connect(address).expect("connect");
            let (mut socket, _) =
                tungstenite::client(format!("ws://{address}/"), stream).expect("a handshake");
            for round in 0..5 {
                let text = format!("{me}.{round}");
                socket.send(tungstenite::Message::text(text.clone())).expect("send");
                assert_eq!(socket.read().expect("read").into_text().expect("text").as_str(), text);
            }
            socket.close(None).expect("close");
            while socket.read().is_ok() {}
        });
        server.join().expect("the server");
        Ok(())
    });
}

/// A real redis-server, by a Unix socket and by TCP.
struct RedisServer {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl RedisServer {
    fn start(backend: Backend) -> RedisServer {
        let folder =
            std::env::temp_dir().join(format!("coracle-compat-{}-{backend}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a port")
            .port();
        let process = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--unixsocket",
                "socket",
                "--save",
                "",
            ])
            .args(["--appendonly", "no", "--tcp-backlog", "4096", "--maxclients", "5000"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = RedisServer { process, folder, port };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err()
            || !server.folder.join("socket").exists()
        {
            assert!(begin.elapsed() < PATIENCE, "redis-server does not start");
            thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn t3_redis(backend: Backend) {
    let server = RedisServer::start(backend);
    let urls = [
        format!("redis://127.0.0.1:{}/", server.port),
        format!("redis+unix://{}", server.folder.join("socket").display()),
    ];
    for url in urls {
        on(backend, move || {
            let client = redis::Client::open(url).map_err(io::Error::other)?;
            let popping: Vec<_> = (0..MANY)
                .map(|me| {
                    let client = client.clone();
                    spawn(move || {
                        let mut connection = client.get_connection().expect("a connection");
                        let (_, value): (String, usize) = redis::cmd("BLPOP")
                            .arg(format!("list-{me}"))
                            .arg(0)
                            .query(&mut connection)
                            .expect("a value");
                        assert_eq!(value, me);
                    })
                })
                .collect();
            // All of them wait at the server before there is anything.
            let mut connection = client.get_connection().expect("a connection");
            loop {
                let info: String =
                    redis::cmd("INFO").arg("clients").query(&mut connection).expect("info");
                if info.contains(&format!("blocked_clients:{MANY}\r\n")) {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
            for me in 0..MANY {
                let _: () = redis::cmd("RPUSH")
                    .arg(format!("list-{me}"))
                    .arg(me)
                    .query(&mut connection)
                    .expect("pushed");
            }
            popping.into_iter().for_each(|one| one.join().expect("a client"));
            Ok(())
        });
    }
}

macro_rules! on_every_backend {
    ($($case:ident)*) => {$(
        mod $case {
            use coracle::demux::Backend;

            #[test]
            fn uring() {
                super::$case(Backend::Uring);
            }

            #[test]
            fn epoll() {
                super::$case(Backend::Epoll);
            }

            #[test]
            fn poll() {
                super::$case(Backend::Poll);
            }

            #[test]
            fn select() {
                super::$case(Backend::Select);
            }
        }
    )*};
}

on_every_backend! { t3_std_net t3_ureq t3_ureq_https t3_rustls t3_tungstenite t3_redis }
