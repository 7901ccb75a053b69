//! Rows E2, I1, I2, I5 and I9: values of the user's that do something when they are dropped.

use crate::harness::Harness;
use crate::peers::{Pair, echo};
use crate::sample_layers::xor;
use bytes::Bytes;
use coracle_loop::Loop;
use coracle_net::{Buffer, Conn, ConnHandle, Layer, Protocol, Reason, Settings};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// More than a socket takes at once.
const MUCH: usize = 8 << 20;

/// The connection a case is about, known to the values in it.
type Own = Arc<OnceLock<ConnHandle>>;

/// Uses its connection when it is dropped, as far as that can be reached.
struct Visits {
    own: Own,
    bytes: Vec<u8>,
}

impl Visits {
    fn new(own: &Own, len: usize) -> Visits {
        Visits { own: Arc::clone(own), bytes: vec![b'a'; len] }
    }
}

impl AsRef<[u8]> for Visits {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Protocol for Visits {
    fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Visits {
    fn drop(&mut self) {
        let lp = Loop::current().expect("dropped by a loop");
        if let Some(own) = self.own.get() {
            own.with(&lp, |conn| conn.write(" spent"));
        }
    }
}

/// Panics when it is dropped.
#[derive(Debug)]
struct Panics(Vec<u8>);

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

impl AsRef<[u8]> for Panics {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error that panics")
    }
}

impl std::error::Error for Panics {}

impl Protocol for Panics {
    fn on_data(&mut self, _: &mut Conn<'_>, _: &mut Buffer) -> io::Result<()> {
        Ok(())
    }
    fn on_close(&mut self, _: &Reason) {
        panic!("on purpose, too");
    }
}

impl Layer for Panics {
    fn receive(&mut self, _: &mut Buffer, _: &mut Buffer, _: &mut Vec<u8>) -> io::Result<()> {
        panic!("on purpose, too");
    }
    fn send(&mut self, plain: &[u8], _: &mut Vec<u8>) -> io::Result<usize> {
        Ok(plain.len())
    }
}

pub(crate) fn i2_switch_asked_for_twice_drops_the_first_in_peace(h: &Harness) {
    let own = Own::default();
    let handle = Arc::clone(&own);
    let pair = Pair::new(h, Settings::default(), move |conn, _| {
        conn.switch(Visits::new(&handle, 0));
        conn.switch(echo);
        Ok(())
    });
    own.set(pair.server.clone()).expect("once");
    pair.send(b"ahoy");
    assert_eq!(pair.receive(4), "ahoy");
}

pub(crate) fn i5_hijack_asked_for_twice_drops_the_first_in_peace(h: &Harness) {
    let own = Own::default();
    let handle = Arc::clone(&own);
    let taken = Arc::new(AtomicU32::new(0));
    let flag = Arc::clone(&taken);
    let pair = Pair::new(h, Settings::default(), move |conn, _| {
        let first = Visits::new(&handle, 0);
        conn.hijack(move |_, _, _| drop(first));
        let flag = Arc::clone(&flag);
        conn.hijack(move |_, _, input| {
            assert_eq!(input.unread(), b"ahoy");
            flag.fetch_add(1, Ordering::SeqCst);
        });
        Ok(())
    });
    own.set(pair.server.clone()).expect("once");
    pair.send(b"ahoy");
    h.run_until(&taken, |taken| taken.load(Ordering::SeqCst) == 1);
}

pub(crate) fn e2_owner_of_bytes_may_use_the_connection_when_they_are_sent(h: &Harness) {
    let own = Own::default();
    let handle = Arc::clone(&own);
    let settings = Settings { limit_output_bytes: 2 * MUCH, ..Settings::default() };
    let pair = Pair::new(h, settings, move |conn, input| {
        input.take_all();
        conn.write(Bytes::from_owner(Visits::new(&handle, MUCH)));
        Ok(())
    });
    own.set(pair.server.clone()).expect("once");
    pair.send(b"x");
    let all = pair.receive(MUCH + 6);
    assert!(all.ends_with("a spent"), "{}", &all[MUCH - 10..]);
}

pub(crate) fn e2_owner_of_no_bytes_may_use_the_connection(h: &Harness) {
    let own = Own::default();
    let handle = Arc::clone(&own);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_all();
        conn.write(Bytes::from_owner(Visits::new(&handle, 0)));
        conn.write_urgent(Bytes::from_owner(Visits::new(&handle, 0)));
        conn.write("done");
        Ok(())
    });
    own.set(pair.server.clone()).expect("once");
    pair.send(b"x");
    assert_eq!(pair.receive(4), "done");
}

/// Changes every byte, and tries to write past itself.
struct Reaching(Own);

impl Reaching {
    fn reach(&self) {
        let lp = Loop::current().expect("it runs on a loop");
        let own = self.0.get().expect("it is known");
        assert!(own.with(&lp, |conn| conn.write("plain!")).is_none(), "it works on it");
    }
}

impl Layer for Reaching {
    fn receive(
        &mut self,
        wire: &mut Buffer,
        plain: &mut Buffer,
        _reply: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.reach();
        plain.extend_from_slice(&xor(wire.take_all()));
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        self.reach();
        wire.extend(xor(plain));
        Ok(plain.len())
    }
}

pub(crate) fn i9_layer_does_not_reach_its_own_connection(h: &Harness) {
    let own = Own::default();
    let handle = Arc::clone(&own);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        if input.take_line() == Some(b"layer") {
            conn.push_layer(Reaching(Arc::clone(&handle)));
        } else {
            conn.write(input.take_all());
            conn.close();
        }
        Ok(())
    });
    own.set(pair.server.clone()).expect("once");
    pair.send(b"layer\n");
    pair.send(&xor(b"ahoy"));
    assert_eq!(pair.receive_all(), xor(b"ahoy"));
    pair.end();
    assert_eq!(pair.over().last().unwrap(), "close: closed");
}

/// Fails, and uses its connection when it is dropped.
struct Failing(#[allow(dead_code)] Visits);

impl Layer for Failing {
    fn receive(&mut self, _: &mut Buffer, _: &mut Buffer, _: &mut Vec<u8>) -> io::Result<()> {
        Err(io::ErrorKind::InvalidData.into())
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        wire.extend(xor(plain));
        Ok(plain.len())
    }
}

pub(crate) fn i9_nothing_goes_past_a_layer_that_has_failed(h: &Harness) {
    let own = Own::default();
    let handle = Arc::clone(&own);
    let pair = Pair::new(h, Settings::default(), move |conn, input| {
        input.take_line();
        conn.push_layer(Failing(Visits::new(&handle, 0)));
        Ok(())
    });
    own.set(pair.server.clone()).expect("once");
    pair.send(b"layer\n");
    pair.send(b"what it does not understand");
    assert_eq!(pair.receive_all(), b"");
}

pub(crate) fn i1_drop_that_panics_ends_that_connection_only(h: &Harness) {
    type Case = fn(&mut Conn<'_>) -> io::Result<()>;
    let cases: [(&str, Case); 10] = [
        ("bytes that are sent", |conn| {
            conn.write(Bytes::from_owner(Panics(vec![b'a'; 5000])));
            conn.write(Bytes::from_owner(Panics(vec![b'a'; 5000])));
            conn.close();
            Ok(())
        }),
        ("bytes that are thrown away", |conn| {
            conn.write(Bytes::from_owner(Panics(vec![b'a'; MUCH])));
            conn.write(Bytes::from_owner(Panics(vec![b'a'; MUCH])));
            conn.abort();
            Ok(())
        }),
        ("a protocol that is switched to", |conn| {
            conn.switch(Panics(Vec::new()));
            conn.abort();
            Ok(())
        }),
        ("a protocol that is switched from", |conn| {
            conn.switch(Panics(Vec::new()));
            let handle = conn.handle();
            conn.lp()
                .defer(move |lp| handle.with(lp, |conn| conn.switch(echo)).expect("it is open"));
            Ok(())
        }),
        ("whoever would take the socket", |conn| {
            let value = Panics(Vec::new());
            conn.hijack(move |_, _, _| drop(value));
            conn.abort();
            Ok(())
        }),
        ("an answer that comes too late", |conn| {
            let value = Panics(Vec::new());
            conn.offload(
                || Panics(Vec::new()),
                move |_, _| {
                    drop(value);
                    Ok(())
                },
            )?;
            conn.abort();
            Ok(())
        }),
        ("something to be called when all is sent", |conn| {
            let value = Panics(Vec::new());
            conn.write_then(vec![b'a'; MUCH], move |_| {
                drop(value);
                Ok(())
            });
            conn.abort();
            Ok(())
        }),
        ("a layer", |conn| {
            conn.push_layer(Panics(Vec::new()));
            conn.write("through it");
            Ok(())
        }),
        ("an error", |_| Err(io::Error::other(Panics(Vec::new())))),
        ("an error that is not the reason", |conn| {
            conn.close();
            Err(io::Error::other(Panics(Vec::new())))
        }),
    ];
    let settings = Settings { limit_output_bytes: 4 * MUCH, ..Settings::default() };
    for (name, case) in cases {
        let bystander = Pair::new(h, Settings::default(), echo);
        let pair = Pair::new(h, settings.clone(), move |conn, input| {
            input.take_all();
            case(conn)
        });
        pair.send(b"x");
        pair.receive_all(); // it ends
        pair.close();
        bystander.send(b"ahoy");
        assert_eq!(bystander.receive(4), "ahoy", "after {name}");
    }
}

pub(crate) fn i1_reason_of_the_users_is_dropped_in_peace(h: &Harness) {
    /// An error that uses its connection when it is dropped.
    struct Parting(#[allow(dead_code)] Visits);
    impl fmt::Debug for Parting {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("parting")
        }
    }
    impl fmt::Display for Parting {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("parting")
        }
    }
    impl std::error::Error for Parting {}

    let own = Own::default();
    let handle = Arc::clone(&own);
    let settings = Settings { drain: Duration::from_millis(50), ..Settings::default() };
    let pair = Pair::new(h, settings, move |_, input| {
        input.take_all();
        Err(io::Error::other(Parting(Visits::new(&handle, 0))))
    });
    own.set(pair.server.clone()).expect("once");
    pair.send(b"x");
    // The client does not end its side: the deadline is the reason in place of the error.
    assert_eq!(pair.over().last().unwrap(), "close: it did not end in time");
}
