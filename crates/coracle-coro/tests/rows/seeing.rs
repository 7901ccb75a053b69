//! What can be seen of coroutines from outside.

use crate::harness::{Harness, MS};
use coracle_coro::{Builder, State, coroutines, park, sleep, spawn, yield_now};

pub(crate) fn s49_list_has_name_state_and_place(h: &Harness) {
    h.run(|| {
        let parked = Builder::new().name("parked").spawn(park)?;
        sleep(MS)?;
        let ready = spawn(yield_now);
        yield_now();
        let new = spawn(|| ());
        let state_of = |handle: &coracle_coro::Coroutine| {
            let id = handle.id();
            let all = coroutines();
            assert_eq!(all.len(), 4);
            all.into_iter().find(|one| one.coroutine.id() == id).expect("it is listed")
        };
        let info = state_of(parked.coroutine());
        assert_eq!(info.state, State::Waiting);
        assert!(info.age >= MS);
        assert!(info.spawned.file().ends_with("seeing.rs"));
        assert!(info.to_string().starts_with("'parked' is Waiting, spawned at "), "{info}");
        assert_eq!(state_of(ready.coroutine()).state, State::Ready);
        assert_eq!(state_of(new.coroutine()).state, State::New);
        assert_eq!(state_of(&coracle_coro::current()).state, State::Running);
        parked.coroutine().unpark();
        parked.join().unwrap()?;
        ready.join().unwrap();
        new.join().unwrap();
        Ok(())
    });
}
