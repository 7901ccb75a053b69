//! Shaking hands: versions, resumption, and those who do it badly, slowly, or not at all.

use crate::client::{Authority, Client};
use crate::harness::Harness;
use coracle_net::{Buffer, Conn, Protocol, Settings};
use coracle_tls::{ServerSettings, ServerTls, TlsVersion};
use std::io;
use std::time::Duration;

fn server(authority: &Authority) -> ServerTls {
    ServerTls::new(authority.identity("a.example")).unwrap()
}

/// Settings that let nobody off for taking long.
fn patient(authority: &Authority) -> ServerSettings {
    let identities = vec![authority.identity("a.example")];
    ServerSettings {
        identities,
        handshake_timeout: Duration::from_secs(3600),
        ..ServerSettings::default()
    }
}

pub(crate) fn m1_both_versions_are_spoken(h: &Harness) {
    let authority = Authority::new("root");
    let tls = server(&authority);
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    client.shake_hands().unwrap();
    client.check_echo();
    assert_eq!(client.server_session().version(), TlsVersion::Tls13);
    assert_eq!(client.layer.borrow().session().unwrap().version(), TlsVersion::Tls13);
    assert_eq!(client.server_session().server_name(), Some("a.example"));
    // The only way to have a client of ours speak 1.2 is another library's configuration.
    let config = rustls_client(&authority, &[&rustls::version::TLS12]);
    let mut old = rustls::ClientConnection::new(config, "a.example".try_into().unwrap()).unwrap();
    let silent = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    drive(&silent, &mut old).unwrap();
    assert_eq!(silent.server_session().version(), TlsVersion::Tls12);
    assert!(silent.server_session().cipher_suite().starts_with("TLS_ECDHE_"));
}

pub(crate) fn m1_server_that_wants_13_refuses_12(h: &Harness) {
    let authority = Authority::new("root");
    let settings = ServerSettings { oldest_version: TlsVersion::Tls13, ..patient(&authority) };
    let tls = ServerTls::new(settings).unwrap();
    let config = rustls_client(&authority, &[&rustls::version::TLS12]);
    let mut old = rustls::ClientConnection::new(config, "a.example".try_into().unwrap()).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    let error = drive(&client, &mut old).unwrap_err();
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    assert!(client.over().last().unwrap().starts_with("close: failed"));
}

/// A configuration of rustls' own.
pub(crate) fn rustls_client(
    authority: &Authority,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::sync::Arc<rustls::ClientConfig> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions).unwrap();
    std::sync::Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Shakes hands by rustls itself, over the socket of a client that has said nothing; then an echo.
pub(crate) fn drive(
    client: &Client<'_>,
    connection: &mut rustls::ClientConnection,
) -> io::Result<()> {
    use io::{Read, Write};
    connection.writer().write_all(b"ahoy")?;
    let mut echo = Vec::new();
    while echo.len() < 4 {
        let mut wire = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut wire)?;
        }
        client.send_wire(&wire);
        let before = client.unread_wire().len();
        if !client.receive_wire(64 << 10) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let got = client.unread_wire()[before..].to_vec();
        let mut got = &got[..];
        while !got.is_empty() {
            connection.read_tls(&mut got)?;
            connection.process_new_packets().map_err(io::Error::other)?;
        }
        let mut piece = [0; 16];
        match connection.reader().read(&mut piece) {
            Ok(count) => echo.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    assert_eq!(echo, b"ahoy");
    Ok(())
}

pub(crate) fn m1_handshake_may_come_byte_by_byte(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(patient(&authority)).unwrap();
    let mut client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    client.step = 1;
    client.shake_hands().unwrap();
    client.check_echo();
    client.end();
    assert_eq!(client.over(), ["open", "end", "close: closed"]);
}

/// Says something before it is asked.
struct Greeter;

impl Protocol for Greeter {
    fn on_open(&mut self, conn: &mut Conn<'_>) -> io::Result<()> {
        conn.write("220 ahoy\r\n");
        Ok(())
    }

    fn on_data(&mut self, _conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        input.take_all();
        Ok(())
    }
}

pub(crate) fn m1_server_may_speak_first(h: &Harness) {
    let authority = Authority::new("root");
    let tls = server(&authority);
    let layer = authority.client().layer("a.example").unwrap();
    let client = Client::with(h, &tls, layer, Settings::default(), |_| Greeter);
    client.shake_hands().unwrap();
    assert_eq!(client.receive(10).unwrap(), b"220 ahoy\r\n");
}

pub(crate) fn m1_session_is_resumed(h: &Harness) {
    let authority = Authority::new("root");
    let tls = server(&authority);
    let asking = authority.client();
    let resumed = |tls: &ServerTls| {
        let client = Client::new(h, tls, asking.layer("a.example").unwrap());
        client.shake_hands().unwrap();
        client.check_echo(); // and the tickets, which come before
        let session = client.server_session();
        assert_eq!(client.layer.borrow().session().unwrap().is_resumed(), session.is_resumed());
        session.is_resumed()
    };
    assert!(!resumed(&tls), "the first one");
    assert!(resumed(&tls), "the second one");
    tls.replace(authority.identity("a.example")).unwrap();
    assert!(resumed(&tls), "tickets outlive a certificate");
    assert!(!resumed(&server(&authority)), "another server has other keys");
}

pub(crate) fn m1_resumption_can_be_turned_off(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(ServerSettings { resumption: false, ..patient(&authority) }).unwrap();
    let asking = authority.client();
    for _ in 0..2 {
        let client = Client::new(h, &tls, asking.layer("a.example").unwrap());
        client.shake_hands().unwrap();
        client.check_echo();
        assert!(!client.server_session().is_resumed());
    }
}

/// The first words of a client.
fn hello(authority: &Authority) -> Vec<u8> {
    use coracle_net::Layer;
    let mut hello = Vec::new();
    let mut layer = authority.client().layer("a.example").unwrap();
    layer.receive(&mut Buffer::new(), &mut Buffer::new(), &mut hello).unwrap();
    hello
}

pub(crate) fn m1_handshake_in_too_many_pieces_is_refused(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(patient(&authority)).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    // Each byte in a record of its own.
    let hello = hello(&authority);
    let pieces: Vec<u8> = hello[5..].iter().flat_map(|&byte| [22, 3, 1, 0, 1, byte]).collect();
    client.send_wire(&pieces);
    let over = client.over();
    assert!(over.last().unwrap().contains("too many pieces"), "{over:?}");
    assert_eq!(tls.handshakes(), 0, "nothing is held");
}

pub(crate) fn m1_what_is_not_tls_is_refused(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(patient(&authority)).unwrap();
    for wrong in [
        &[0_u8, 1, 2, 3, 4, 5][..],
        &[22, 9, 9, 9, 9, 9],
        &[22, 3, 1, 255, 255, 0],
        &[128, 46, 1, 3, 1],
    ] {
        let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
        client.send_wire(wrong);
        let over = client.over();
        assert!(over.last().unwrap().contains("TLS"), "{wrong:?}: {over:?}");
    }
    assert_eq!(tls.handshakes(), 0);
}

pub(crate) fn m1_client_that_speaks_in_letters_is_answered(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(patient(&authority)).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    client.send_wire(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    while client.receive_wire(100) {}
    assert_eq!(client.unread_wire(), b"speak TLS\n");
    client.end_wire();
    assert!(client.over().last().unwrap().contains("does not speak TLS"));
}

pub(crate) fn m1_handshakes_are_limited(h: &Harness) {
    let authority = Authority::new("root");
    let tls =
        ServerTls::new(ServerSettings { limit_handshakes: 2, ..patient(&authority) }).unwrap();
    let new = || Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    let (silent, first, second, third) = (new(), new(), new(), new());
    for client in [&first, &second] {
        client.work().unwrap(); // a hello
        assert!(client.receive_wire(64 << 10), "an answer");
    }
    assert_eq!(tls.handshakes(), 2, "who says nothing is not counted");
    third.work().unwrap();
    assert!(third.over().last().unwrap().contains("limit_handshakes"));
    first.shake_hands().unwrap();
    first.check_echo();
    assert_eq!(tls.handshakes(), 1);
    silent.shake_hands().unwrap();
    silent.check_echo();
    drop(second);
    let over = tls.clone();
    h.run_until(&(), move |()| over.handshakes() == 0);
}

pub(crate) fn m4_handshake_has_its_time_though_bytes_drip(h: &Harness) {
    let authority = Authority::new("root");
    let settings =
        ServerSettings { handshake_timeout: Duration::from_millis(300), ..patient(&authority) };
    let tls = ServerTls::new(settings).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    let hello = hello(&authority);
    for byte in &hello[..20] {
        if client.notes.borrow().is_empty() {
            client.send_wire(&[*byte]);
            h.run_for(Duration::from_millis(20));
        }
    }
    assert_eq!(client.cut(), ["close: aborted"]);
    // One that is done in time is not cut later.
    let settings =
        ServerSettings { handshake_timeout: Duration::from_secs(20), ..patient(&authority) };
    let tls = ServerTls::new(settings).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    client.shake_hands().unwrap();
    client.check_echo();
    if h.is_simulated() {
        h.run_for(Duration::from_secs(60));
    }
    client.check_echo();
}

pub(crate) fn m4_times_are_exact(h: &Harness) {
    let authority = Authority::new("root");
    let settings =
        ServerSettings { handshake_timeout: Duration::from_secs(5), ..patient(&authority) };
    let tls = ServerTls::new(settings).unwrap();
    let begin = h.lp.now();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    assert_eq!(client.cut(), ["close: aborted"]);
    let took = h.lp.now() - begin;
    assert!((5.0..5.1).contains(&took.as_secs_f64()), "{took:?}");
}

pub(crate) fn m4_reset_in_the_handshake_ends_it(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(patient(&authority)).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    client.work().unwrap();
    assert!(client.receive_wire(10), "an answer, most of which is left unread");
    let notes = client.notes.clone();
    drop(client); // with unread bytes: a reset
    h.run_until(&notes, |notes| !notes.borrow().is_empty());
    assert!(notes.borrow()[0].starts_with("close: failed"), "{notes:?}");
    assert_eq!(tls.handshakes(), 0);
}

pub(crate) fn m4_handshake_that_breaks_off_is_an_error(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(patient(&authority)).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    client.send_wire(&hello(&authority)[..30]);
    client.end_wire();
    let over = client.over();
    assert!(over.last().unwrap().contains("in the middle of the handshake"), "{over:?}");
}

pub(crate) fn m4_who_only_looks_costs_nothing(h: &Harness) {
    let authority = Authority::new("root");
    let tls = ServerTls::new(patient(&authority)).unwrap();
    let client = Client::new(h, &tls, authority.client().layer("a.example").unwrap());
    let over = client.over();
    assert!(over[0].starts_with("close: "), "{over:?}");
    assert_eq!(tls.handshakes(), 0);
}
