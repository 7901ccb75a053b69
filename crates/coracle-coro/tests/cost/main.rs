//! W6: what coroutines cost, in instructions of the user's side. Callgrind counts them, on an epoll loop: it
//! does not know io_uring.

#[path = "../generator/child.rs"]
mod child;

use child::{errand, said, send};
use coracle_coro::sync::{Mutex, channel};
use coracle_coro::{current, park, run_on, spawn, yield_now};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::rc::Rc;

/// How often something is done in two runs; what both runs have in common cancels out.
const COUNTS: [u32; 2] = [1_000, 11_000];

/// Does something so many times.
type Operation = fn(u32);

/// What is counted, and how many instructions it may take: a tenth more than it took.
const OPERATIONS: [(&str, Operation, f64); 7] = [
    ("spawn + run + join", spawns, 650.0),
    ("yield_now", yields, 127.0),
    ("park + unpark, there and back", parks, 495.0),
    ("message from hand to hand", messages_from_hand_to_hand, 875.0),
    ("message by a buffer", messages_by_a_buffer, 345.0),
    ("message there and back", messages_there_and_back, 1_780.0),
    ("mutex that is handed over, twice", mutexes, 1_360.0),
];

#[test]
#[ignore = "needs valgrind and a release build; cargo xtask full runs it"]
fn s5_coroutines_take_few_instructions() {
    if let Some(errand) = errand() {
        let (which, count) = errand.split_once(' ').expect("an errand has two words");
        let operation = OPERATIONS[which.parse::<usize>().expect("the first is a number")].1;
        let count = count.parse().expect("so is the second");
        let lp = Loop::builder().backend(Backend::Epoll).build().unwrap();
        let main = move || {
            operation(count);
            Ok(())
        };
        return run_on(&lp, main).unwrap();
    }
    let mut too_many = Vec::new();
    for (which, (name, _, limit)) in OPERATIONS.iter().enumerate() {
        let [fewer, more] = COUNTS.map(|count| collected(&format!("{which} {count}")));
        let each = (more - fewer) / f64::from(COUNTS[1] - COUNTS[0]);
        println!("{name}: {each:.0} instructions, at most {limit:.0}");
        if each > *limit {
            too_many.push(*name);
        }
    }
    assert!(cfg!(debug_assertions) || too_many.is_empty(), "{too_many:?}");
}

fn spawns(count: u32) {
    for _ in 0..count {
        spawn(|| ()).join().unwrap();
    }
}

fn yields(count: u32) {
    (0..count).for_each(|_| yield_now());
}

fn parks(count: u32) {
    let here = current();
    let other = spawn(move || {
        for _ in 0..count {
            park().unwrap();
            here.unpark();
        }
    });
    for _ in 0..count {
        other.coroutine().unpark();
        park().unwrap();
    }
    other.join().unwrap();
}

fn messages_from_hand_to_hand(count: u32) {
    messages(count, 0);
}

fn messages_by_a_buffer(count: u32) {
    messages(count, 100);
}

fn messages(count: u32, limit: usize) {
    let (sender, receiver) = channel(limit);
    let receiving = spawn(move || receiver.iter().count());
    (0..count).for_each(|n| sender.send(n).unwrap());
    drop(sender);
    assert_eq!(receiving.join().unwrap(), count as usize);
}

fn messages_there_and_back(count: u32) {
    let (there, inbox) = channel(1);
    let (back, answers) = channel(1);
    let other = spawn(move || inbox.iter().for_each(|n: u32| back.send(n).unwrap()));
    for n in 0..count {
        there.send(n).unwrap();
        assert_eq!(answers.recv(), Ok(n));
    }
    drop(there);
    other.join().unwrap();
}

/// One holds it while it gives way, so that the other has to wait for it.
fn mutexes(count: u32) {
    let mutex = Rc::new(Mutex::new(0));
    let turns = || {
        let mutex = Rc::clone(&mutex);
        spawn(move || {
            for _ in 0..count {
                let mut guard = mutex.lock().unwrap();
                yield_now();
                *guard += 1;
            }
        })
    };
    [turns(), turns()].into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(*mutex.lock().unwrap(), 2 * count);
}

/// Instructions of a whole child.
fn collected(errand: &str) -> f64 {
    let callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output = send(&callgrind, "s5_coroutines_take_few_instructions", errand);
    assert!(output.status.success(), "{}", said(&output));
    let said = said(&output);
    let number =
        said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    number.expect("callgrind says what it has collected")
}
