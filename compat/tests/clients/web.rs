//! Clients of HTTP: std's own sockets, `ureq`, and libcurl by `curl`.

use crate::helping::{Gate, MANY, MS, held, on_each, parked};
use crate::servers::Nobody;
use crate::tls;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(crate) trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// A web server in plain threads, which answers with the path when its gate is open. With TLS if `wrap` does it.
/// Who asks for `/gone` is not answered.
pub(crate) fn server(
    gate: &Gate,
    wrap: impl Fn(TcpStream) -> Box<dyn ReadWrite> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (gate, wrap) = (gate.clone(), Arc::new(wrap));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (gate, wrap) = (gate.clone(), Arc::clone(&wrap));
            thread::spawn(move || answer(&gate, wrap(stream.expect("a connection"))));
        }
    });
    address
}

fn answer(gate: &Gate, stream: Box<dyn ReadWrite>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).is_err() || line.is_empty() {
        return; // it did not like our certificate
    }
    let path = line.split(' ').nth(1).expect("a path").to_owned();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).expect("a header");
    }
    gate.pass();
    if path == "/gone" {
        return;
    }
    let len = path.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n");
    // Who has lost patience is not there any more.
    let _ = reader.get_mut().write_all((head + &path).as_bytes());
    let _ = reader.get_mut().flush();
}

/// Many who ask at the same time.
pub(crate) fn all_ask(gate: &Gate, call: impl Fn(usize) + 'static) {
    held(MANY, call, || gate.asked() == MANY, || gate.open());
}

#[test]
pub(crate) fn t3_std_net() {
    on_each(|_| {
        let gate = Gate::default();
        let address = server(&gate, |stream| Box::new(stream));
        all_ask(&gate, move |me| {
            let mut stream = TcpStream::connect(address).expect("connect");
            write!(stream, "GET /{me} HTTP/1.1\r\n\r\n").expect("write");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("read");
            assert!(answer.ends_with(&format!("\r\n\r\n/{me}")), "{answer}");
        });
        Ok(())
    });
}

#[test]
pub(crate) fn t3_ureq() {
    on_each(|_| {
        let gate = Gate::default();
        let address = server(&gate, |stream| Box::new(stream));
        all_ask(&gate, move |me| {
            let mut answer = ureq::get(format!("http://{address}/{me}")).call().expect("call");
            assert_eq!(answer.body_mut().read_to_string().expect("a body"), format!("/{me}"));
        });
        let error = ureq::get(format!("http://{address}/gone")).call().map(|_| ()).unwrap_err();
        assert!(matches!(error, ureq::Error::Io(_)), "{error:?}");
        let nobody = Nobody::new();
        let nobody_there = format!("http://127.0.0.1:{}/", nobody.port);
        let error = ureq::get(nobody_there).call().map(|_| ()).unwrap_err();
        assert!(matches!(error, ureq::Error::Io(_) | ureq::Error::ConnectionFailed), "{error:?}");
        // Nobody is answered in time.
        let closed = server(&Gate::default(), |stream| Box::new(stream));
        let agent = ureq::Agent::config_builder().timeout_recv_response(Some(30 * MS)).build();
        let agent = agent.new_agent();
        let error =
            parked(|| agent.get(format!("http://{closed}/")).call()).map(|_| ()).unwrap_err();
        assert!(matches!(error, ureq::Error::Timeout(_)), "{error:?}");
        Ok(())
    });
}

#[test]
pub(crate) fn t3_ureq_https() {
    on_each(|_| {
        let gate = Gate::default();
        let address = tls::web_server(&gate, &tls::Certificate::new());
        let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
        let agent = ureq::Agent::config_builder().tls_config(tls).build().new_agent();
        all_ask(&gate, move |me| {
            let mut answer = agent.get(format!("https://{address}/{me}")).call().expect("call");
            assert_eq!(answer.body_mut().read_to_string().expect("a body"), format!("/{me}"));
        });
        Ok(())
    });
}

fn curl(url: &str, limit: Option<Duration>) -> Result<Vec<u8>, curl::Error> {
    let mut easy = curl::easy::Easy::new();
    easy.url(url)?;
    if let Some(limit) = limit {
        easy.timeout(limit)?;
    }
    let mut body = Vec::new();
    let mut transfer = easy.transfer();
    transfer.write_function(|bytes| {
        body.extend_from_slice(bytes);
        Ok(bytes.len())
    })?;
    transfer.perform()?;
    drop(transfer);
    Ok(body)
}

/// A library of C, which the dynamic linker gives our functions.
#[test]
pub(crate) fn t3_curl() {
    on_each(|_| {
        let gate = Gate::default();
        let address = server(&gate, |stream| Box::new(stream));
        all_ask(&gate, move |me| {
            let body = curl(&format!("http://{address}/{me}"), None).expect("an answer");
            assert_eq!(body, format!("/{me}").into_bytes());
        });
        // By name: it looks that up in a thread of its own, and waits for it by poll.
        let body = curl(&format!("http://localhost:{}/by-name", address.port()), None);
        assert_eq!(body.expect("an answer"), b"/by-name");
        let error = curl(&format!("http://{address}/gone"), None).unwrap_err();
        assert!(error.is_got_nothing() || error.is_recv_error(), "{error:?}");
        let nobody = Nobody::new();
        let nobody_there = format!("http://127.0.0.1:{}/", nobody.port);
        let error = curl(&nobody_there, None).unwrap_err();
        assert!(error.is_couldnt_connect(), "{error:?}");
        let closed = server(&Gate::default(), |stream| Box::new(stream));
        let error = parked(|| curl(&format!("http://{closed}/"), Some(30 * MS))).unwrap_err();
        assert!(error.is_operation_timedout(), "{error:?}");
        Ok(())
    });
}
