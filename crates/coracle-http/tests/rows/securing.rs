//! `https`, from the side that asks: clients and proxies, whom they trust, and what they make of who is not.

use crate::client::Client as Asker;
use crate::harness::Harness;
use crate::peers::{Script, listening, run, scripted};
use coracle_http::client::{Client, Settings};
use coracle_http::tls::{
    ClientCertificates, ClientSettings, ClientTls, Identity, Roots, Secure, ServerSettings,
    ServerTls, Session,
};
use coracle_http::{
    self as http, App, IntoResponse, Proxy, Redirect, Request, Response, Service, Status, proxy,
    streaming, ws,
};
use coracle_net::{Address, Buffer, Conn, Listener, Protocol};
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const NEVER: Duration = Duration::from_secs(3600);

fn identity() -> Identity {
    Identity::self_signed(["localhost", "127.0.0.1"]).unwrap()
}

fn trusting(identity: &Identity) -> ClientSettings {
    ClientSettings::trusting(Roots::identity(identity).unwrap())
}

fn settings(tls: ClientSettings) -> Settings {
    Settings {
        connect_timeout: NEVER,
        head_timeout: NEVER,
        body_timeout: NEVER,
        limit_attempts: 1,
        secure: Some(Arc::new(ClientTls::new(tls).unwrap())),
        ..Settings::default()
    }
}

fn client(tls: ClientSettings) -> Client {
    Client::with(settings(tls)).unwrap()
}

/// What became of the handshakes of a server.
type Sessions = Rc<RefCell<Vec<Arc<Session>>>>;

/// A server behind TLS, each of whose connections is one of these.
fn secured<P: Protocol>(
    h: &Harness,
    tls: impl Into<ServerSettings>,
    make: impl Fn(&Address) -> P + Clone + 'static,
) -> (u16, Sessions) {
    let tls = ServerTls::new(tls.into()).unwrap();
    let sessions = Sessions::default();
    let note = Rc::clone(&sessions);
    let any = "127.0.0.1:0".parse().unwrap();
    let settings = coracle_net::Settings::default();
    let listener = Listener::bind(&h.lp, &any, settings, move |peer| {
        let (make, note, peer) = (make.clone(), Rc::clone(&note), peer.clone());
        Secure::new(tls.layer(), move |session| {
            note.borrow_mut().push(session);
            make(&peer)
        })
    });
    let address = listener.unwrap().local_address(&h.lp).unwrap();
    (address.ip().unwrap().port(), sessions)
}

/// An app behind TLS.
fn serving(h: &Harness, tls: impl Into<ServerSettings>, app: impl App) -> (u16, Sessions) {
    let service = Service::new(app, http::Settings::default()).unwrap();
    secured(h, tls, move |peer| service.connection(peer))
}

pub(crate) fn j12_https_is_asked_and_its_connection_kept(h: &Harness) {
    let identity = identity();
    let tls = ServerSettings::from(identity.clone()).speaking(http::ALPN);
    let (port, sessions) = serving(h, tls, |req: &Request<'_>| {
        format!("{} {}", req.method_name(), req.header("host").unwrap_or_default())
    });
    run(h, move || {
        let client = client(trusting(&identity));
        let url = format!("https://localhost:{port}/");
        let at: Address = format!("127.0.0.1:{port}").parse().unwrap();
        for _ in 0..3 {
            let answer = client.get(&url).at(at.clone()).send().unwrap();
            assert_eq!(answer.text().unwrap(), format!("GET localhost:{port}"));
            // Before what cannot be asked twice the connection is looked at: what TLS says for itself is no end.
            let answer = client.post(&url).at(at.clone()).body("ahoy").send().unwrap();
            assert_eq!(answer.text().unwrap(), format!("POST localhost:{port}"));
        }
        // By another name it is another server, and by its address it says no name.
        let answer = client.get(&format!("https://127.0.0.1:{port}/")).send().unwrap();
        assert_eq!(answer.status(), Status::OK);
    });
    let sessions = sessions.borrow();
    let names: Vec<_> = sessions.iter().map(|session| session.server_name()).collect();
    assert_eq!(names, [Some("localhost"), None], "one connection for all of them");
    assert!(sessions.iter().all(|session| session.alpn() == Some(b"http/1.1")));
}

pub(crate) fn j12_https_has_bodies_both_ways_at_once(h: &Harness) {
    const LEN: u64 = 1_000_000;
    let identity = identity();
    // The echo begins to answer before it has read everything.
    let echo = streaming(|req: &Request<'_>| {
        let mut body = req.owned_body_reader();
        http::Body::stream(move |out| io::copy(&mut body, out).map(drop))
    });
    let (port, _) = serving(h, identity.clone(), echo);
    run(h, move || {
        let client = client(trusting(&identity));
        let url = format!("https://127.0.0.1:{port}/");
        for _ in 0..2 {
            let body = io::repeat(7).take(LEN);
            let mut answer = client.post(&url).body_reader(body).send().unwrap();
            let (mut piece, mut sum) = (vec![0; 50_000], 0);
            while let count @ 1.. = answer.read(&mut piece).unwrap() {
                assert!(piece[..count].iter().all(|&byte| byte == 7));
                sum += count as u64;
            }
            assert_eq!(sum, LEN);
        }
    });
}

/// One that is valid for so many days from now on, or until so many days ago.
fn valid_for(days: i32, name: &str) -> Identity {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let (now, span) = (SystemTime::now(), Duration::from_secs(24 * 60 * 60) * days.unsigned_abs());
    params.not_before = (now - Duration::from_secs(60 * 60) - 2 * span).into();
    params.not_after = if days > 0 { now + span } else { now - span }.into();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Identity::from_pem(certificate.pem(), key.serialize_pem()).unwrap()
}

pub(crate) fn j12_https_server_that_is_somebody_else_is_not_asked(h: &Harness) {
    let asked = Rc::new(RefCell::new(0));
    let note = Rc::clone(&asked);
    let app = Rc::new(move |_: &Request<'_>| {
        *note.borrow_mut() += 1;
        "ahoy\n"
    });
    let (good, old) = (identity(), valid_for(-10, "127.0.0.1"));
    let other = Identity::self_signed(["b.example"]).unwrap();
    let (port, _) = serving(h, good.clone(), Rc::clone(&app));
    let (other_port, _) = serving(h, other.clone(), Rc::clone(&app));
    let (old_port, _) = serving(h, old.clone(), Rc::clone(&app));
    let plain = listening(h, app);
    let (alert, _) = scripted(h, vec![Script::answer("\x15\x03\x01\0\x02\x02\x16")]);
    run(h, move || {
        let told = |tls: ClientSettings, url: &str| {
            let error = client(tls).get(url).send().expect_err("it is not trusted");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
            error.to_string()
        };
        let url = |port: u16| format!("https://127.0.0.1:{port}/");
        let text = told(trusting(&other), &url(port));
        assert!(text.contains("nobody who is trusted has signed it"), "{text}");
        assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
        let text = told(trusting(&other), &url(other_port));
        assert!(text.contains("it is for another host"), "{text}");
        let text = told(trusting(&old), &url(old_port));
        assert!(text.contains("it is too old"), "{text}");
        let text = told(trusting(&good), &format!("https://{plain}/"));
        assert!(text.contains("use http:// in the URL"), "{text}");
        let text = told(trusting(&good), &format!("http://{alert}/"));
        assert!(text.contains("use https:// in the URL"), "{text}");
        // Nor is TLS left out where it cannot be.
        let unix: Address = "unix:/nowhere".parse().unwrap();
        let error = client(trusting(&good)).get("https://a/").at(unix).send().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        // Whom the system trusts is somebody else; if it trusts nobody, that is told.
        let error = Client::new().get(&url(port)).send().expect_err("it is not trusted");
        assert!(matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::NotFound), "{error}");
    });
    assert_eq!(*asked.borrow(), 0);
}

pub(crate) fn m2_client_shows_its_certificate(h: &Harness) {
    let (server, ahab) = (identity(), valid_for(10, "ahab"));
    let crew = ClientCertificates::Require(Roots::identity(&ahab).unwrap());
    let tls = ServerSettings { client_certificates: crew, ..ServerSettings::from(server.clone()) };
    let (port, sessions) = serving(h, tls, |_: &Request<'_>| "ahoy\n");
    run(h, move || {
        let url = format!("https://127.0.0.1:{port}/");
        assert!(client(trusting(&server)).get(&url).send().is_err(), "nobody knows who asks");
        let answer = client(trusting(&server).showing(ahab)).get(&url).send().unwrap();
        assert_eq!(answer.text().unwrap(), "ahoy\n");
    });
    let sessions = sessions.borrow();
    let who: Vec<_> = sessions.iter().filter_map(|session| session.peer_subject()).collect();
    assert!(who.len() == 1 && who[0].contains("CN=ahab"), "{who:?}");
}

/// Answers, and ends the connection, without saying so if it is `cut`.
#[derive(Clone, Copy)]
struct Cutting {
    cut: bool,
}

impl Protocol for Cutting {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        if !input.take_all().ends_with(b"\r\n\r\n") {
            return Ok(());
        }
        conn.write("HTTP/1.1 200 OK\r\n\r\nall there is");
        match self.cut {
            true => conn.write_then("", |conn| {
                conn.abort();
                Ok(())
            }),
            false => conn.close(),
        }
        Ok(())
    }
}

pub(crate) fn m4_body_that_ends_with_its_connection_is_not_cut_in_silence(h: &Harness) {
    let identity = identity();
    let (good, _) = secured(h, identity.clone(), |_| Cutting { cut: false });
    let (cut, _) = secured(h, identity.clone(), |_| Cutting { cut: true });
    run(h, move || {
        let client = client(trusting(&identity));
        let ask = |port: u16| client.get(&format!("https://127.0.0.1:{port}/")).send().unwrap();
        assert_eq!(ask(good).text().unwrap(), "all there is");
        let error = ask(cut).text().expect_err("something may be missing");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    });
}

pub(crate) fn j12_redirects_lead_to_https_and_not_away(h: &Harness) {
    let identity = identity();
    let plain = listening(h, |_: &Request<'_>| "plain\n");
    let away = format!("http://{plain}/");
    let (port, _) = serving(h, identity.clone(), move |req: &Request<'_>| -> Response {
        match req.path() {
            "/away" => Redirect::to(away.clone()).into_response(),
            _ => "secret\n".into_response(),
        }
    });
    let to = format!("https://127.0.0.1:{port}/");
    let front = listening(h, move |_: &Request<'_>| Redirect::permanent(to.clone()));
    run(h, move || {
        let asking = client(trusting(&identity));
        let answer = asking.get(&format!("http://{front}/")).send().unwrap();
        assert_eq!(answer.text().unwrap(), "secret\n");
        let away = format!("https://127.0.0.1:{port}/away");
        let error = asking.get(&away).send().expect_err("it leads away");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("redirect_to_http"), "{error}");
        let careless = Settings { redirect_to_http: true, ..settings(trusting(&identity)) };
        let answer = Client::with(careless).unwrap().get(&away).send().unwrap();
        assert_eq!(answer.text().unwrap(), "plain\n");
        // Who follows none is given the answer.
        let wary = Settings { limit_redirects: 0, ..settings(trusting(&identity)) };
        let answer = Client::with(wary).unwrap().get(&away).send().unwrap();
        assert!(answer.status().is_redirection());
    });
}

/// Notes what a connection ended with, after one answer.
struct Noting(Rc<RefCell<Option<String>>>);

impl Protocol for Noting {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        Ok(())
    }

    fn on_end(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        *self.0.borrow_mut() = Some("end".to_owned());
        conn.close();
        Ok(())
    }

    fn on_close(&mut self, reason: &coracle_net::Reason) {
        self.0.borrow_mut().get_or_insert_with(|| reason.to_string());
    }
}

pub(crate) fn m4_client_says_the_end(h: &Harness) {
    let (identity, ended) = (identity(), Rc::new(RefCell::new(None)));
    let note = Rc::clone(&ended);
    let (port, _) = secured(h, identity.clone(), move |_| Noting(Rc::clone(&note)));
    run(h, move || {
        let settings = Settings { limit_idle: 0, ..settings(trusting(&identity)) };
        let client = Client::with(settings).unwrap();
        let answer = client.get(&format!("https://127.0.0.1:{port}/")).send().unwrap();
        assert_eq!(answer.text().unwrap(), "ok");
    });
    h.run_until(&ended, |ended| ended.borrow().is_some());
    assert_eq!(ended.borrow().as_deref(), Some("end"));
}

fn proxy_to(url: &str, identity: &Identity) -> Proxy {
    let settings = proxy::Settings {
        connect_timeout: NEVER,
        head_timeout: NEVER,
        body_timeout: NEVER,
        secure: Some(Arc::new(ClientTls::new(trusting(identity)).unwrap())),
        ..proxy::Settings::default()
    };
    Proxy::to([url]).unwrap().settings(settings).unwrap()
}

pub(crate) fn j15_upstreams_are_asked_by_https(h: &Harness) {
    let identity = identity();
    let (port, sessions) = serving(h, identity.clone(), |req: &Request<'_>| req.body().to_vec());
    let proxy = proxy_to(&format!("https://127.0.0.1:{port}"), &identity);
    let asker = Asker::of(h, proxy);
    for len in [5, 100_000, 1_000_000] {
        let body = vec![b'x'; len];
        asker.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        body.chunks(10_000).for_each(|piece| asker.send(piece));
        let answer = asker.answer();
        assert!(answer.status == 200 && answer.body == body, "{len}: {}", answer.head);
    }
    assert_eq!(sessions.borrow().len(), 1, "one connection for all of them");
    // One who is somebody else is asked nothing.
    let other = Identity::self_signed(["127.0.0.1"]).unwrap();
    let asker = Asker::of(h, proxy_to(&format!("https://127.0.0.1:{port}"), &other));
    assert_eq!(asker.get("/").status, 502);
    assert_eq!(sessions.borrow().len(), 1);
}

pub(crate) fn j15_websockets_pass_to_upstreams_by_https(h: &Harness) {
    let identity = identity();
    let (port, _) = serving(h, identity.clone(), |req: &Request<'_>| {
        ws::upgrade(req).run(|ws: &ws::WebSocket| {
            ws.send("welcome")?; // with the answer, or behind it
            for message in ws {
                ws.send(message?)?;
            }
            Ok(())
        })
    });
    let proxy = Rc::new(proxy_to(&format!("https://127.0.0.1:{port}"), &identity));
    let front = listening(h, Rc::clone(&proxy));
    run(h, move || {
        for _ in 0..3 {
            let ws = ws::Client::new("ws://a/ws").unwrap().at(front.clone()).connect().unwrap();
            assert_eq!(ws.recv().unwrap(), Some("welcome".into()));
            for size in [0, 5, 300_000] {
                ws.send(vec![1; size]).unwrap();
                assert!(ws.recv().unwrap() == Some(vec![1; size].into()));
            }
            ws.close(ws::CloseCode::NORMAL).unwrap();
        }
    });
    h.run_until(&proxy, |proxy| proxy.upstreams()[0].in_flight() == 0);
}
