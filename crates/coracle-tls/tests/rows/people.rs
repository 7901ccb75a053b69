//! Who is who: names, chains, protocols, clients that say who they are, and all of it replaced.

use crate::client::{Authority, Client};
use crate::handshake::{drive, rustls_client};
use crate::harness::Harness;
use coracle_tls::{
    ClientCertificates, ClientSettings, ClientTls, Identity, ServerSettings, ServerTls, Session,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn shake<'a>(
    h: &'a Harness,
    tls: &ServerTls,
    client: &ClientTls,
    name: &str,
) -> std::io::Result<Client<'a>> {
    let client = Client::new(h, tls, client.layer(name).unwrap());
    client.shake_hands()?;
    client.send(b"ahoy");
    client.receive(4)?;
    Ok(client)
}

/// Whom the client has seen.
fn subject(client: &Client<'_>) -> String {
    client.layer.borrow().session().unwrap().peer_subject().unwrap()
}

pub(crate) fn m2_certificate_is_chosen_by_name(h: &Harness) {
    let authority = Authority::new("root");
    let names = ["a.example", "b.example", "*.c.example", "x.c.example"];
    let identities = names.map(|name| authority.identity(name)).to_vec();
    let tls = ServerTls::new(ServerSettings { identities, ..ServerSettings::default() }).unwrap();
    let client = authority.client();
    for (asked, shown) in [
        ("a.example", "CN=a.example"),
        ("b.example", "CN=b.example"),
        ("B.EXAMPLE", "CN=b.example"),
        ("any.c.example", "CN=*.c.example"),
        ("x.c.example", "CN=x.c.example"),
    ] {
        assert_eq!(subject(&shake(h, &tls, &client, asked).unwrap()), shown);
    }
    let error = shake(h, &tls, &client, "d.example").map(drop).unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "the first one is shown: {error}");
}

pub(crate) fn m2_unknown_name_is_refused_if_wanted(h: &Harness) {
    let authority = Authority::new("root");
    let identities = vec![authority.identity("a.example")];
    let settings =
        ServerSettings { identities, refuse_unknown_names: true, ..ServerSettings::default() };
    let tls = ServerTls::new(settings).unwrap();
    let client = authority.client();
    shake(h, &tls, &client, "a.example").unwrap();
    let error = shake(h, &tls, &client, "d.example").map(drop).unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    // Whatever it speaks; and the server's log says why.
    let config = rustls_client(&authority, &[&rustls::version::TLS12]);
    let mut old = rustls::ClientConnection::new(config, "d.example".try_into().unwrap()).unwrap();
    let silent = Client::new(h, &tls, client.layer("d.example").unwrap());
    let error = drive(&silent, &mut old).unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    let over = silent.over();
    assert!(over.last().unwrap().contains("the client asks for d.example"), "{over:?}");
}

pub(crate) fn m2_protocol_is_one_that_both_speak(h: &Harness) {
    let authority = Authority::new("root");
    let settings =
        ServerSettings::from(authority.identity("a.example")).speaking(["h2", "http/1.1"]);
    let tls = ServerTls::new(settings).unwrap();
    let asking = |protocols: &[&str]| {
        let alpn = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let settings = ClientSettings { alpn, ..ClientSettings::trusting(authority.roots()) };
        shake(h, &tls, &ClientTls::new(settings).unwrap(), "a.example")
    };
    let agreed = |client: &Client<'_>| {
        let ours = client.layer.borrow().session().unwrap().alpn().map(<[u8]>::to_vec);
        assert_eq!(client.server_session().alpn().map(<[u8]>::to_vec), ours);
        ours
    };
    assert_eq!(
        agreed(&asking(&["http/1.1", "h2"]).unwrap()),
        Some(b"h2".to_vec()),
        "the server's order"
    );
    assert_eq!(agreed(&asking(&["http/1.1"]).unwrap()), Some(b"http/1.1".to_vec()));
    assert_eq!(agreed(&asking(&[]).unwrap()), None);
    let error = asking(&["smtp"]).map(drop).unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
}

fn with_clients(authority: &Authority, client_certificates: ClientCertificates) -> ServerTls {
    let identities = vec![authority.identity("a.example")];
    ServerTls::new(ServerSettings { identities, client_certificates, ..ServerSettings::default() })
        .unwrap()
}

fn named(authority: &Authority, identity: Identity) -> ClientTls {
    let identity = Some(identity);
    ClientTls::new(ClientSettings { identity, ..ClientSettings::trusting(authority.roots()) })
        .unwrap()
}

pub(crate) fn m2_client_certificate_is_required(h: &Harness) {
    let (authority, crew, pirates) =
        (Authority::new("root"), Authority::new("crew"), Authority::new("pirates"));
    let tls = with_clients(&authority, ClientCertificates::Require(crew.roots()));
    let ahab = named(&authority, crew.identity("ahab"));
    let session = |client: &Client<'_>| -> Arc<Session> { client.server_session() };
    let client = shake(h, &tls, &ahab, "a.example").unwrap();
    assert_eq!(session(&client).peer_subject().unwrap(), "CN=ahab");
    assert!(session(&client).peer_certificate().is_some());
    assert_eq!(session(&client).peer_certificates().len(), 1);
    let again = shake(h, &tls, &ahab, "a.example").unwrap();
    assert!(session(&again).is_resumed());
    assert_eq!(session(&again).peer_subject().unwrap(), "CN=ahab", "it is known from the ticket");
    let error = shake(h, &tls, &authority.client(), "a.example").map(drop).unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    let blackbeard = named(&authority, pirates.identity("blackbeard"));
    let error = shake(h, &tls, &blackbeard, "a.example").map(drop).unwrap_err();
    assert!(error.to_string().contains("fatal alert"), "{error}");
}

pub(crate) fn m2_client_certificate_is_allowed(h: &Harness) {
    let (authority, crew, pirates) =
        (Authority::new("root"), Authority::new("crew"), Authority::new("pirates"));
    let tls = with_clients(&authority, ClientCertificates::Allow(crew.roots()));
    let client = shake(h, &tls, &authority.client(), "a.example").unwrap();
    assert!(client.server_session().peer_subject().is_none());
    let client = shake(h, &tls, &named(&authority, crew.identity("ahab")), "a.example").unwrap();
    assert_eq!(client.server_session().peer_subject().unwrap(), "CN=ahab");
    assert!(shake(h, &tls, &named(&authority, pirates.identity("b")), "a.example").is_err());
}

pub(crate) fn m2_server_that_is_not_trusted_is_refused(h: &Harness) {
    let (authority, other) = (Authority::new("root"), Authority::new("other"));
    let tls = ServerTls::new(authority.identity("a.example")).unwrap();
    let client = Client::new(h, &tls, other.client().layer("a.example").unwrap());
    let error = client.shake_hands().unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    let over = client.over();
    assert!(over.last().unwrap().contains("alert"), "the server is told: {over:?}");
}

pub(crate) fn m2_chain_leads_to_a_root(h: &Harness) {
    let root = Authority::new("root");
    let middle = root.below("middle");
    let (certificate, key) = middle.sign("a.example");
    let bare = ServerTls::new(Identity::from_pem(&certificate, &key).unwrap()).unwrap();
    assert!(shake(h, &bare, &root.client(), "a.example").is_err(), "who has signed it?");
    let chain = format!("{certificate}{}", middle.pem());
    let whole = ServerTls::new(Identity::from_pem(chain, &key).unwrap()).unwrap();
    shake(h, &whole, &root.client(), "a.example").unwrap();
}

pub(crate) fn m3_replaced_certificate_is_shown_to_new_connections(h: &Harness) {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let tls = ServerTls::new(old.identity("a.example")).unwrap();
    let first = shake(h, &tls, &old.client(), "a.example").unwrap();
    // One that has connected and said nothing has what was there when it came.
    let between = Client::new(h, &tls, old.client().layer("a.example").unwrap());
    tls.replace(new.identity("a.example")).unwrap();
    let second = shake(h, &tls, &new.client(), "a.example").unwrap();
    between.shake_hands().unwrap();
    for client in [&first, &between, &second] {
        client.check_echo();
    }
    let nothing = ServerSettings::default();
    assert!(tls.replace(nothing).unwrap_err().to_string().contains("needs a certificate"));
    shake(h, &tls, &new.client(), "a.example").unwrap();
}

pub(crate) fn m3_ticket_of_a_client_that_is_not_let_in_any_more_is_worth_nothing(h: &Harness) {
    let (authority, crew, others) =
        (Authority::new("root"), Authority::new("crew"), Authority::new("others"));
    let tls = with_clients(&authority, ClientCertificates::Require(crew.roots()));
    let ahab = named(&authority, crew.identity("ahab"));
    shake(h, &tls, &ahab, "a.example").unwrap();
    assert!(shake(h, &tls, &ahab, "a.example").unwrap().server_session().is_resumed());
    let identities = vec![authority.identity("a.example")];
    let client_certificates = ClientCertificates::Require(others.roots());
    tls.replace(ServerSettings { identities, client_certificates, ..ServerSettings::default() })
        .unwrap();
    assert!(shake(h, &tls, &ahab, "a.example").is_err());
}

/// A ticket says who its client was: that is looked at anew.
pub(crate) fn m2_ticket_does_not_outlive_the_certificate_of_its_client(h: &Harness) {
    let (authority, crew) = (Authority::new("root"), Authority::new("crew"));
    let servers = [ClientCertificates::Require, ClientCertificates::Allow]
        .map(|wanted| with_clients(&authority, wanted(crew.roots())));
    // However slow the machine is, one of them lasts for the handshakes.
    let begin = |seconds| {
        let end = SystemTime::now() + Duration::from_secs(seconds);
        let ahab = crew.identity_until("ahab", end);
        let clients = [(); 2].map(|()| named(&authority, ahab.clone()));
        for (tls, client) in servers.iter().zip(&clients) {
            shake(h, tls, client, "a.example").ok()?;
            let again = shake(h, tls, client, "a.example").ok()?;
            assert!(again.server_session().is_resumed());
        }
        Some((clients, end))
    };
    let (clients, end) = [2, 8, 32, 128].into_iter().find_map(begin).expect("it was valid");
    // The second in which it ends still belongs to it.
    let over = end + Duration::from_secs(1);
    std::thread::sleep(over.duration_since(SystemTime::now()).unwrap_or_default());
    for (tls, client) in servers.iter().zip(&clients) {
        let client = Client::new(h, tls, client.layer("a.example").unwrap());
        let _ = client.shake_hands(); // which is done, for the client
        let over = client.over();
        assert!(over.last().unwrap().contains("it is too old"), "{over:?}");
    }
}

pub(crate) fn m2_host_of_another_server_is_misdirected(h: &Harness) {
    let authority = Authority::new("root");
    let identities = vec![authority.identity("a.example"), authority.identity("*.b.example")];
    let tls = ServerTls::new(ServerSettings { identities, ..ServerSettings::default() }).unwrap();
    let session = |name| shake(h, &tls, &authority.client(), name).unwrap().server_session();
    let at_a = session("a.example");
    for (host, wrong) in
        [("a.example", false), ("A.example:443", false), ("x.b.example", true), ("evil", true)]
    {
        assert_eq!(at_a.is_misdirected(host), wrong, "{host}");
    }
    let at_b = session("x.b.example");
    for (host, wrong) in [("x.b.example", false), ("y.b.example", false), ("a.example", true)] {
        assert_eq!(at_b.is_misdirected(host), wrong, "{host}");
    }
}
