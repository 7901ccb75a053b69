//! Rows S34 and F7: names, looked up once for all who ask, elsewhere, and remembered for a while.

use crate::gate::Gate;
use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, MS, errno};
use coracle_coro::names::{Resolver, ResolverSettings};
use coracle_coro::{fs, lookup_host, offload, sleep, spawn, timeout, yield_now};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

fn address(port: u16) -> SocketAddr {
    SocketAddr::new(ADDRESS, port)
}

/// A resolver that counts how often it is asked; names that begin with `no` are unknown.
fn counting(settings: ResolverSettings) -> (Resolver, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    let find = move |name: &str| {
        counter.fetch_add(1, Ordering::SeqCst);
        if name.starts_with("no") { Err(io::Error::other("unknown")) } else { Ok(vec![ADDRESS]) }
    };
    (Resolver::with(settings, find).unwrap(), count)
}

/// A resolver whose answers wait behind a gate, and are not remembered.
fn gated(settings: ResolverSettings) -> (Resolver, Gate) {
    let gate = Gate::default();
    let behind = gate.clone();
    let settings = ResolverSettings { time_to_live: Duration::ZERO, ..settings };
    let find = move |_: &str| {
        behind.pass();
        Ok(vec![ADDRESS])
    };
    (Resolver::with(settings, find).unwrap(), gate)
}

pub(crate) fn f7_literal_address_asks_nobody(h: &Harness) {
    h.run(|| {
        let (resolver, count) = counting(ResolverSettings::default());
        assert_eq!(resolver.lookup_host("127.0.0.1:80")?, ["127.0.0.1:80".parse().unwrap()]);
        assert_eq!(resolver.lookup_host("[::1]:80")?, ["[::1]:80".parse().unwrap()]);
        assert_eq!(resolver.resolve("::1")?, ["::1".parse::<IpAddr>().unwrap()]);
        assert_eq!((count.load(Ordering::SeqCst), resolver.stats().asked), (0, 0));
        Ok(())
    });
}

pub(crate) fn f7_what_is_no_name_is_refused(h: &Harness) {
    h.run(|| {
        let (resolver, count) = counting(ResolverSettings::default());
        let long = format!("{}:80", "x".repeat(256));
        for bad in ["", "host", "host:", "host:http", "host:70000", ":80", "a\0b:80", &long] {
            let error = resolver.lookup_host(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}: {error}");
            assert!(error.to_string().starts_with("cannot look up"), "{error}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
        Ok(())
    });
}

pub(crate) fn f7_many_ask_at_a_time_and_one_look_up_is_made(h: &Harness) {
    h.run(|| {
        let (resolver, count) = counting(ResolverSettings::default());
        let children: Vec<_> = (0..200)
            .map(|port| {
                let resolver = resolver.clone();
                let host = if port % 2 == 0 { "db" } else { "DB" }; // the same name
                spawn(move || resolver.lookup_host(&format!("{host}:{port}")))
            })
            .collect();
        for (port, child) in children.into_iter().enumerate() {
            assert_eq!(child.join().unwrap()?, [address(port as u16)]);
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let stats = resolver.stats();
        assert_eq!((stats.asked, stats.shared + stats.remembered, stats.names), (200, 199, 1));

        resolver.forget();
        assert_eq!(resolver.stats().names, 0);
        resolver.resolve("db")?;
        assert_eq!(count.load(Ordering::SeqCst), 2);
        Ok(())
    });
}

pub(crate) fn f7_failure_is_told_to_all(h: &Harness) {
    h.run(|| {
        let settings =
            ResolverSettings { time_to_live_failures: HOUR, ..ResolverSettings::default() };
        let (resolver, count) = counting(settings);
        let ask = || {
            let resolver = resolver.clone();
            spawn(move || resolver.lookup_host("nowhere:80").unwrap_err().to_string())
        };
        for child in [ask(), ask(), ask()] {
            assert_eq!(child.join().unwrap(), "cannot look up \"nowhere\": unknown");
        }
        assert_eq!(count.load(Ordering::SeqCst), 1, "it is remembered, too");
        Ok(())
    });
}

pub(crate) fn f7_panic_of_the_resolver_is_an_error(h: &Harness) {
    h.run(|| {
        let find =
            |name: &str| if name == "bad" { panic!("on purpose") } else { Ok(vec![ADDRESS]) };
        let resolver = Resolver::with(ResolverSettings::default(), find)?;
        for _ in 0..2 {
            let error = resolver.lookup_host("bad:80").unwrap_err();
            assert!(error.to_string().contains("it panicked"), "{error}");
        }
        assert_eq!(resolver.lookup_host("good:80")?, [address(80)]);
        let nothing = Resolver::with(ResolverSettings::default(), |_| Ok(Vec::new()))?;
        assert_eq!(nothing.lookup_host("x:1").unwrap_err().kind(), ErrorKind::NotFound);
        Ok(())
    });
}

pub(crate) fn f7_answers_are_forgotten_when_there_are_too_many(h: &Harness) {
    h.run(|| {
        let settings = ResolverSettings { limit_names: 2, ..ResolverSettings::default() };
        let (resolver, count) = counting(settings);
        for name in ["a", "b", "c"] {
            resolver.resolve(name)?;
            sleep(MS)?; // so that one is the oldest
        }
        assert_eq!(resolver.stats().names, 2);
        resolver.resolve("c")?;
        resolver.resolve("b")?;
        assert_eq!(count.load(Ordering::SeqCst), 3);
        resolver.resolve("a")?;
        assert_eq!(count.load(Ordering::SeqCst), 4, "the oldest was forgotten");

        let (forgetful, count) =
            counting(ResolverSettings { limit_names: 0, ..ResolverSettings::default() });
        forgetful.resolve("a")?;
        forgetful.resolve("a")?;
        assert_eq!(count.load(Ordering::SeqCst), 2);
        Ok(())
    });
}

pub(crate) fn f7_cancelled_coroutine_starts_no_look_up(h: &Harness) {
    h.run(|| {
        let (resolver, count) = counting(ResolverSettings::default());
        resolver.resolve("known")?;
        let asks = resolver.clone();
        let child =
            spawn(move || (errno(asks.resolve("unheard-of")), asks.resolve("known").is_ok()));
        child.cancel();
        // What needs no wait is answered.
        assert_eq!(child.join().unwrap(), (ECANCELED, true));
        offload(|| ())?;
        assert_eq!(count.load(Ordering::SeqCst), 1);
        Ok(())
    });
}

pub(crate) fn s34_loop_has_its_own_resolver(h: &Harness) {
    counting(ResolverSettings::default()).0.install(&h.lp);
    h.run(|| {
        assert_eq!(lookup_host("anything:80")?, [address(80)]);
        Ok(())
    });
}

pub(crate) fn s34_system_knows_localhost(h: &Harness) {
    h.run(|| {
        let found = lookup_host("localhost:80")?;
        assert!(!found.is_empty());
        assert!(found.iter().all(|one| one.ip().is_loopback() && one.port() == 80), "{found:?}");
        Ok(())
    });
}

pub(crate) fn s34_thread_and_coroutine_share_a_look_up(h: &Harness) {
    h.run(|| {
        let (resolver, gate) = gated(ResolverSettings::default());
        let asks = resolver.clone();
        let thread = std::thread::spawn(move || asks.lookup_host("db:1").unwrap());
        gate.await_arrivals(1);
        let asks = resolver.clone();
        let child = spawn(move || asks.lookup_host("db:2"));
        while resolver.stats().shared == 0 {
            yield_now();
        }
        gate.open();
        assert_eq!(child.join().unwrap()?, [address(2)]);
        assert_eq!(thread.join().unwrap(), [address(1)]);
        assert_eq!(gate.arrived(), 1);
        Ok(())
    });
}

pub(crate) fn f7_cancel_of_one_does_not_disturb_the_others(h: &Harness) {
    h.run(|| {
        let (resolver, gate) = gated(ResolverSettings::default());
        let ask = || {
            let resolver = resolver.clone();
            spawn(move || resolver.lookup_host("db:1"))
        };
        let [first, second, patient] = [ask(), ask(), ask()];
        let late = errno(timeout(5 * MS, || resolver.lookup_host("db:1")));
        assert_eq!(late, ETIMEDOUT);
        first.cancel(); // who has started it
        assert_eq!(errno(first.join().unwrap()), ECANCELED);
        second.cancel();
        assert_eq!(errno(second.join().unwrap()), ECANCELED);
        assert!(!patient.is_finished());
        gate.open();
        assert_eq!(patient.join().unwrap()?, [address(1)]);
        assert_eq!(gate.arrived(), 1);
        Ok(())
    });
}

pub(crate) fn f7_too_many_look_ups_are_refused(h: &Harness) {
    h.run(|| {
        let settings =
            ResolverSettings { threads: 1, limit_lookups: 1, ..ResolverSettings::default() };
        let (resolver, gate) = gated(settings);
        let ask = |name: &'static str| {
            let resolver = resolver.clone();
            spawn(move || resolver.resolve(name))
        };
        let first = ask("first");
        gate.await_arrivals(1);
        let second = ask("second");
        yield_now();
        let refused = resolver.resolve("third").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
        assert!(refused.to_string().contains("limit_lookups"), "{refused}");
        assert_eq!(resolver.stats().refused, 1);
        gate.open();
        assert_eq!(first.join().unwrap()?, [ADDRESS]);
        assert_eq!(second.join().unwrap()?, [ADDRESS]);
        assert_eq!(resolver.resolve("third")?, [ADDRESS], "it was not left half-way");
        let error = Resolver::new(ResolverSettings { threads: 0, ..ResolverSettings::default() });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
        Ok(())
    });
}

pub(crate) fn f7_slow_names_do_not_hold_up_other_work(h: &Harness) {
    h.run(|| {
        let (resolver, gate) = gated(ResolverSettings::default());
        let children: Vec<_> = (0..20)
            .map(|n| {
                let resolver = resolver.clone();
                spawn(move || resolver.resolve(&format!("slow-{n}")))
            })
            .collect();
        gate.await_arrivals(ResolverSettings::default().threads);
        // Every thread that looks up names is held up; those of the worker pool are not.
        assert_eq!(offload(|| 6 * 7)?, 42);
        assert!(fs::metadata("/")?.is_dir());
        gate.open();
        for child in children {
            assert_eq!(child.join().unwrap()?, [ADDRESS]);
        }
        Ok(())
    });
}

pub(crate) fn s34_answers_are_good_for_a_while(h: &Harness) {
    h.run(|| {
        let (resolver, count) = counting(ResolverSettings::default());
        resolver.resolve("db")?;
        sleep(Duration::from_secs(30) - MS)?;
        resolver.resolve("db")?;
        assert_eq!(count.load(Ordering::SeqCst), 1);
        sleep(MS)?;
        resolver.resolve("db")?;
        assert_eq!(count.load(Ordering::SeqCst), 2);

        assert!(resolver.resolve("no").is_err());
        sleep(Duration::from_secs(1) - MS)?;
        assert!(resolver.resolve("no").is_err());
        assert_eq!(count.load(Ordering::SeqCst), 3);
        sleep(MS)?;
        assert!(resolver.resolve("no").is_err());
        assert_eq!(count.load(Ordering::SeqCst), 4);
        Ok(())
    });
}

pub(crate) fn f7_look_up_of_a_loop_that_is_gone_is_told(h: &Harness) {
    let (resolver, count) = counting(ResolverSettings::default());
    let other = h.another_loop();
    let asks = resolver.clone();
    other.defer(move |_| drop(spawn(move || asks.resolve("db"))));
    while resolver.stats().asked == 0 {
        other.run_ready().unwrap(); // until it has asked; the look-up itself is for the next turn
    }
    h.run(move || {
        let asks = resolver.clone();
        let child = spawn(move || asks.resolve("db"));
        yield_now();
        assert_eq!(resolver.stats().shared, 1);
        drop(other);
        let error = child.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("its loop has ended"), "{error}");
        assert_eq!(count.load(Ordering::SeqCst), 0);
        assert_eq!(resolver.resolve("db")?, [ADDRESS]);
        Ok(())
    });
}
