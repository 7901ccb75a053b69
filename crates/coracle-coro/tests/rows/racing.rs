//! Children in one line: the first to end, or all of them.

use crate::harness::{ECANCELED, ETIMEDOUT, HOUR, Harness, Log, MS, errno};
use coracle_coro::sync::channel;
use coracle_coro::{
    coroutines, join_all, park, race, race_all, shield, sleep, spawn, timeout, yield_now,
};
use std::cell::{Cell, RefCell};
use std::io;

pub(crate) fn s11_first_to_end_cancels_the_other_and_waits_for_it(h: &Harness) {
    h.run(|| {
        let log = Log::default(); // borrowed by both
        let reading = || {
            sleep(MS)?;
            log.add("reader");
            Ok("read")
        };
        let writing = || {
            assert_eq!(errno(sleep(HOUR)), ECANCELED);
            shield(HOUR, || sleep(MS))?;
            log.add("writer");
            Ok("written")
        };
        assert_eq!(race(reading, writing)?, "read");
        assert_eq!(log.take(), ["reader", "writer"]);
        assert_eq!(coroutines().len(), 1);
        sleep(MS) // whoever raced is not cancelled
    });
}

/// The chat of the style guide: whichever side of the connection ends, the other ends with it.
pub(crate) fn s11_reader_and_writer_end_together(h: &Harness) {
    h.run(|| {
        let (peer, lines) = channel(4);
        let (_lobby, messages) = channel::<&str>(4);
        let chat = spawn(move || {
            let heard = RefCell::new(Vec::new());
            let reading = || {
                for line in &lines {
                    heard.borrow_mut().push(line);
                }
                Ok(())
            };
            let writing = || {
                messages.iter().for_each(drop);
                Ok(())
            };
            race(reading, writing).map(|()| heard.take())
        });
        peer.send("hello")?;
        peer.send("goodbye")?;
        drop(peer);
        assert_eq!(chat.join().unwrap()?, ["hello", "goodbye"]);
        Ok(())
    });
}

pub(crate) fn s11_end_of_the_first_is_the_result_whatever_it_is(h: &Harness) {
    h.run(|| {
        let failing = || Err(io::Error::other("the first"));
        let ended: io::Result<()> = race(failing, || sleep(HOUR));
        assert_eq!(ended.unwrap_err().to_string(), "the first");

        let ended: io::Result<()> = race(|| panic!("on purpose"), || sleep(HOUR));
        assert!(ended.unwrap_err().to_string().ends_with("on purpose"));

        let loser = || {
            assert!(sleep(HOUR).is_ok(), "on purpose");
            Ok(0)
        };
        assert_eq!(race(|| Ok(7), loser)?, 7, "what becomes of the loser is not asked");

        assert_eq!(errno(timeout(MS, || race(park, park))), ETIMEDOUT);
        let racer = spawn(|| race(park, park));
        yield_now();
        yield_now();
        racer.cancel();
        assert_eq!(errno(racer.join().unwrap()), ECANCELED);
        Ok(())
    });
}

pub(crate) fn s11_race_of_many_has_one_winner(h: &Harness) {
    h.run(|| {
        let cancelled = Cell::new(0);
        let racers = (0..100).map(|n| {
            let cancelled = &cancelled;
            move || {
                let slept = if n == 42 { sleep(MS) } else { sleep(HOUR) };
                cancelled.set(cancelled.get() + u32::from(slept.is_err()));
                slept.map(|()| n)
            }
        });
        assert_eq!(race_all(racers)?, 42);
        assert_eq!(cancelled.get(), 99);
        let none: [fn() -> io::Result<()>; 0] = [];
        assert_eq!(race_all(none).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        Ok(())
    });
}

pub(crate) fn s11_join_all_keeps_the_order(h: &Harness) {
    h.run(|| {
        let log = Log::default();
        let all = [3, 1, 2].map(|n| {
            let log = &log;
            move || {
                sleep(n * MS)?;
                log.add(["", "one", "two", "three"][n as usize]);
                Ok(n)
            }
        });
        assert_eq!(join_all(all)?, [3, 1, 2]);
        assert_eq!(log.take(), ["one", "two", "three"]);

        let failing: [Box<dyn FnOnce() -> io::Result<()>>; 2] =
            [Box::new(|| sleep(HOUR)), Box::new(|| Err(io::Error::other("the first")))];
        assert_eq!(join_all(failing).unwrap_err().to_string(), "the first");
        assert_eq!(errno(timeout(MS, || join_all([park, park]))), ETIMEDOUT);
        Ok(())
    });
}

pub(crate) fn s11_cancelled_scope_is_no_error(h: &Harness) {
    h.run(|| {
        let ended = coracle_coro::scope(|scope| {
            scope.spawn(|| {
                scope.cancel();
                sleep(MS) // it is the others who are cancelled
            });
            scope.spawn(|| {
                assert_eq!(errno(sleep(HOUR)), ECANCELED);
                assert!(scope.is_cancelled());
                scope.spawn(|| {
                    assert_eq!(errno(park()), ECANCELED); // and those who come
                    Ok(())
                });
                Ok(())
            });
            Ok("fine")
        });
        assert_eq!(ended?, "fine");
        Ok(())
    });
}
