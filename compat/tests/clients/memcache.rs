//! `memcache`, against memcached. Its connections are in a pool (`r2d2`), whose waits are locks: it has as many as
//! there are coroutines that use it at once, and is made elsewhere.

use crate::helping::{MANY, held, on_each};
use crate::servers::{Nobody, Server, find, is_root};
use coracle::offload;
use std::cell::Cell;
use std::net::TcpStream;
use std::process::Command;
use std::rc::Rc;

fn server() -> Option<Server> {
    let program = find("memcached", "memcached")?;
    let command = |port: u16| {
        let mut command = Command::new(&program);
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-c", "4096"]);
        if is_root() {
            command.args(["-u", "nobody"]);
        }
        command
    };
    Some(Server::start(command, |port| TcpStream::connect(("127.0.0.1", port)).is_ok()))
}

#[test]
pub(crate) fn t3_memcache() {
    let Some(server) = server() else { return };
    let server = Rc::new(server);
    on_each(move |_| {
        let url = format!("memcache://127.0.0.1:{}?protocol=ascii&connect_timeout=60", server.port);
        let client = offload(move || memcache::Client::with_pool_size(url, MANY as u32))?;
        let client = client.expect("a client");
        // memcached makes nobody wait, so it is stopped until all have asked.
        server.pause();
        let begun = Rc::new(Cell::new(0));
        let call = {
            let begun = Rc::clone(&begun);
            move |me: usize| {
                begun.set(begun.get() + 1);
                let (key, value) = (format!("boat-{me}"), format!("{me}").repeat(1000));
                client.set(&key, value.as_str(), 0).expect("set");
                assert_eq!(client.get::<String>(&key).expect("get"), Some(value));
                assert_eq!(client.get::<String>(&format!("none-{me}")).expect("get"), None);
                assert!(client.delete(&key).expect("delete"));
            }
        };
        held(MANY, call, || begun.get() == MANY, || server.go_on());
        Ok(())
    });
}

/// Who cannot have a connection is told so, by `r2d2`, after a wait that holds the loop: as long as its own
/// time-out says.
#[test]
pub(crate) fn t3_memcache_errors() {
    on_each(|_| {
        let Some(server) = server() else { return Ok(()) };
        let url = format!("memcache://127.0.0.1:{}?connect_timeout=0.05", server.port);
        // That may be too short for a server that is slow.
        let client = loop {
            let url = url.clone();
            if let Ok(client) = offload(move || memcache::Client::with_pool_size(url, 1))? {
                break client;
            }
        };
        client.set("boat", "small", 0).expect("set");
        drop(server);
        let error = client.get::<String>("boat").unwrap_err();
        assert!(matches!(error, memcache::MemcacheError::PoolError(_)), "{error:?}");
        let nobody = Nobody::new();
        let url = format!("memcache://127.0.0.1:{}?connect_timeout=0.05", nobody.port);
        assert!(offload(move || memcache::Client::with_pool_size(url, 1))?.is_err());
        Ok(())
    });
}
