//! Row S49: what is seen of those who wait for what is done elsewhere.

use crate::gate::Gate;
use crate::harness::Harness;
use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
use coracle_coro::names::{Resolver, ResolverSettings};
use coracle_coro::{JoinHandle, WaitsFor, coroutines, offload, offload_scoped, spawn, yield_now};

fn seen<T>(waiting: &JoinHandle<T>) -> Option<WaitsFor> {
    let id = waiting.coroutine().id();
    let found = coroutines().into_iter().find(|one| one.coroutine.id() == id);
    found.expect("it is listed").waits_for
}

pub(crate) fn s49_list_says_who_waits_for_another_thread(h: &Harness) {
    h.run(|| {
        let gate = Gate::default();
        let [one, other, third] = [0; 3].map(|_| gate.clone());
        let find = move |_: &str| {
            third.pass();
            Ok(vec![[127, 0, 0, 1].into()])
        };
        let resolver = Resolver::with(ResolverSettings::default(), find)?;
        let work = spawn(move || offload(move || one.pass()));
        let borrowing = spawn(move || offload_scoped(|| other.pass()));
        let name = spawn(move || resolver.lookup_host("db:1").map(drop));
        gate.await_arrivals(3);
        assert_eq!(seen(&work), Some(WaitsFor::Offload));
        assert_eq!(seen(&borrowing), Some(WaitsFor::Offload));
        assert_eq!(seen(&name), Some(WaitsFor::Name));
        gate.open();
        work.join().unwrap()?;
        borrowing.join().unwrap()?;
        name.join().unwrap()
    });
}

pub(crate) fn s49_list_says_who_waits_for_a_pool(h: &Harness) {
    h.run(|| {
        let settings = ConnPoolSettings { limit_connections: 1, ..ConnPoolSettings::default() };
        let pool = ConnPool::new(settings, || Ok(()))?;
        let (held, asks) = (pool.get()?, pool.clone());
        let waiting = spawn(move || asks.get().map(drop));
        yield_now();
        assert_eq!(seen(&waiting), Some(WaitsFor::Pooled));
        drop(held);
        waiting.join().unwrap()
    });
}
