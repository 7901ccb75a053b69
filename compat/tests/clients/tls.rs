//! TLS over std's sockets: `rustls`, and OpenSSL by `native-tls`.

use crate::helping::{Gate, MANY, held, many, on_each};
use crate::web::{self, all_ask};
use coracle::spawn;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// A certificate of our own for `localhost`, and how a server uses it.
pub(crate) struct Certificate {
    der: CertificateDer<'static>,
    config: Arc<rustls::ServerConfig>,
}

impl Certificate {
    pub(crate) fn new() -> Certificate {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let own = own.expect("a certificate");
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .expect("a certificate");
        Certificate { der: own.cert.der().clone(), config: Arc::new(config) }
    }
}

fn serve(config: &Arc<rustls::ServerConfig>, stream: TcpStream) -> impl Read + Write + use<> {
    let connection = rustls::ServerConnection::new(Arc::clone(config)).expect("a connection");
    rustls::StreamOwned::new(connection, stream)
}

/// As the other one, with TLS.
pub(crate) fn web_server(gate: &Gate, certificate: &Certificate) -> SocketAddr {
    let config = Arc::clone(&certificate.config);
    web::server(gate, move |stream| Box::new(serve(&config, stream)))
}

/// Both ends are coroutines of one thread.
#[test]
pub(crate) fn t3_rustls() {
    on_each(|_| {
        let certificate = Certificate::new();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der.clone()).expect("a certificate");
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
                let mut stream = serve(&certificate.config, stream.expect("a connection"));
                spawn(move || {
                    let mut space = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut space) {
                        stream.write_all(&space[..count]).expect("write");
                    }
                });
            }
        });
        many(move |me| {
            let name = "localhost".try_into().expect("a name");
            let connection = rustls::ClientConnection::new(Arc::clone(&client), name);
            let stream = TcpStream::connect(address).expect("connect");
            let mut stream = rustls::StreamOwned::new(connection.expect("a connection"), stream);
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

fn get(
    connector: &native_tls::TlsConnector,
    address: SocketAddr,
    path: &str,
) -> Result<String, native_tls::Error> {
    let stream = TcpStream::connect(address).expect("connect");
    let mut stream = match connector.connect("localhost", stream) {
        Ok(stream) => stream,
        Err(native_tls::HandshakeError::Failure(error)) => return Err(error),
        Err(native_tls::HandshakeError::WouldBlock(_)) => panic!("a blocking socket would block"),
    };
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    Ok(answer)
}

/// OpenSSL keeps a list of errors for each thread, which the coroutines of a thread share: those that fail do so
/// in the middle of those that do not.
#[test]
pub(crate) fn t3_native_tls() {
    on_each(|_| {
        let (gate, certificate) = (Gate::default(), Certificate::new());
        let address = web_server(&gate, &certificate);
        let root = native_tls::Certificate::from_der(&certificate.der).expect("a certificate");
        let trusting = native_tls::TlsConnector::builder().add_root_certificate(root).build();
        let (trusting, wary) = (trusting.expect("trust"), native_tls::TlsConnector::new());
        let (both, again) = ((trusting.clone(), wary.expect("no trust")), trusting);
        all_ask(&gate, move |me| {
            let error = get(&both.1, address, "/").unwrap_err().to_string();
            assert!(error.contains("certificate verify failed"), "{error}");
            let answer = get(&both.0, address, &format!("/{me}")).expect("an answer");
            assert!(answer.ends_with(&format!("\r\n\r\n/{me}")), "{answer}");
        });
        // The other end goes in the middle of the handshake.
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let seen = Gate::default();
        let server = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(10) {
                let server = server.clone();
                std::thread::spawn(move || {
                    let mut stream = stream.expect("a connection");
                    let _ = stream.read(&mut [0; 1]);
                    server.pass();
                });
            }
        });
        let call = move |_| {
            let error = get(&again, address, "/").unwrap_err().to_string();
            assert!(!error.contains("certificate"), "{error}");
        };
        held(10, call, || seen.asked() == 10, || seen.open());
        Ok(())
    });
}
