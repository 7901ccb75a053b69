//! A storm: victims are spawned and cancelled, and nothing is left of them.

use crate::harness::{ECANCELED, MS};
use crate::points::{POINTS, talk};
use crate::random::Random;
use crate::world::World;
use coracle_coro::future::futures;
use coracle_coro::seeing::stats;
use coracle_coro::{
    JoinHandle, coroutines, run_on, shield, sleep, spawn, stack_stats, timeout, yield_now,
};
use coracle_loop::Loop;
use coracle_loop::demux::Backend;
use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How many go through every place; and there is one for each, besides, that stays in it.
const ROAMING: usize = 100;

/// How many live at the same time.
const LIVING: usize = 70;

const BYSTANDERS: u8 = 8;

/// How many stacks a scheduler keeps with a task that is over.
const LIMIT_SPARE_STACKS: usize = 64;

/// One storm on `lp`. Everything is checked that can be; an error means that there were no sockets for it.
pub(crate) fn storm(lp: &Loop, mut random: Random, is_exact: bool) -> io::Result<()> {
    run_on(lp, move || {
        let (world, helpers) = World::new(is_exact)?;
        let _last_resort = LastResort;
        let over = Rc::new(Cell::new(false));
        let bystanders: Vec<_> = (0..BYSTANDERS)
            .map(|n| {
                let (world, over, random) = (Rc::clone(&world), Rc::clone(&over), random.fork());
                spawn(move || stand_by(n, world.pace, &over, random))
            })
            .collect();
        cancel_them(&world, &mut random)?;
        over.set(true);
        for bystander in bystanders {
            bystander.join().expect("nobody touches it")?;
        }
        helpers.end(&world)?;
        drop(world);
        nobody_is_left()
    })
}

/// If something is wrong, all are told to end: else a failure would be a test that hangs.
struct LastResort;

impl Drop for LastResort {
    fn drop(&mut self) {
        if thread::panicking() {
            Loop::current().expect("we are in a loop").stop();
        }
    }
}

/// The loop has nothing to do any more, and nobody asks anything of it.
pub(crate) fn nothing_is_left(lp: &Loop) {
    lp.run_until_idle().expect("sockets are closed");
    let dump = lp.dump();
    assert!(dump.contains(": 0 operations, 0 timers,"), "{dump}");
    assert!(dump.lines().next().is_some_and(|line| line.ends_with(" 0 offloaded")), "{dump}");
}

/// Those who were cancelled may have left children that are on their way out.
fn nobody_is_left() -> io::Result<()> {
    while coroutines().len() > 1 || !futures().is_empty() {
        sleep(MS)?;
    }
    let stats = stats();
    assert_eq!((stats.created - stats.finished, stats.leaked), (1, 0), "{stats:?}");
    // Our own; and those that a loop keeps at hand for the next coroutines, which it does in release builds.
    let at_hand = if cfg!(debug_assertions) { 0 } else { LIMIT_SPARE_STACKS };
    assert!(stack_stats().in_use <= 1 + at_hand, "{:?}", stack_stats());
    Ok(())
}

fn cancel_them(world: &Rc<World>, random: &mut Random) -> io::Result<()> {
    let is_simulated = Loop::current().expect("we are in a loop").backend() == Backend::Sim;
    // Some are cancelled from another thread; not in the simulator, where a seed says all.
    let (elsewhere, receiver) = mpsc::channel::<JoinHandle<()>>();
    let other = thread::spawn(move || {
        for victim in receiver {
            victim.cancel();
            victim.join().expect("a victim");
        }
    });
    let mut living: Vec<JoinHandle<()>> = Vec::new();
    let mut dying = Vec::new();
    for n in 0..POINTS.len() + ROAMING {
        let (shared, random_of_one) = (Rc::clone(world), random.fork());
        let tag = 1 + (n % 250) as u8;
        living.push(match n < POINTS.len() {
            true => spawn(move || stay(&shared, random_of_one, tag, n)),
            false => spawn(move || roam(&shared, random_of_one, tag)),
        });
        while living.len() > LIVING || n + 1 == POINTS.len() + ROAMING {
            if living.is_empty() {
                break;
            }
            if random.chance(0.7) {
                sleep(random.duration(2 * world.pace))?;
            }
            let victim = living.swap_remove(random.below(living.len() as u64) as usize);
            if !is_simulated && random.chance(0.3) {
                elsewhere.send(victim).expect("it waits for more");
                continue;
            }
            victim.cancel();
            if random.chance(0.1) {
                victim.cancel(); // which changes nothing
            }
            dying.push(victim);
        }
        if random.chance(0.3) {
            yield_now();
        }
    }
    for victim in dying {
        victim.join().expect("a victim");
    }
    drop(elsewhere);
    while !other.is_finished() {
        sleep(MS)?;
    }
    other.join().expect("who cancels");
    Ok(())
}

/// Waits in one place until it is cancelled there.
fn stay(world: &World, mut random: Random, tag: u8, point: usize) {
    let (name, wait) = POINTS[point];
    live(world, tag, name, || wait(world, &mut random, tag));
}

/// Waits here and there, for a while.
fn roam(world: &World, mut random: Random, tag: u8) {
    live(world, tag, "somewhere", || {
        let (_, wait) = POINTS[random.below(POINTS.len() as u64) as usize];
        match random.chance(0.9) {
            true => timeout(random.duration(MS / 2), || wait(world, &mut random, tag)),
            false => wait(world, &mut random, tag),
        }
    });
}

/// Goes on until it is cancelled; what it has on its stack and elsewhere is its own.
fn live(world: &World, tag: u8, name: &str, mut wait: impl FnMut() -> io::Result<()>) {
    let (on_stack, elsewhere) = (black_box([tag; 600]), black_box(vec![tag; 600]));
    loop {
        let ended = wait();
        assert!(black_box(&on_stack).iter().all(|byte| *byte == tag), "{name}: {on_stack:?}");
        assert!(black_box(&elsewhere).iter().all(|byte| *byte == tag), "{name}: {elsewhere:?}");
        match ended {
            Err(error) if error.raw_os_error() == Some(ECANCELED) => break,
            Err(error) if !world.is_expected(&error) => panic!("{name}: {error}"),
            _ => {}
        }
        // What it wanted may have been there at once; and then it holds up the others.
        if sleep(world.pace).is_err() {
            break;
        }
    }
    // Whoever is gone may have left an operation of his: it would come now.
    _ = shield(MS, || if tag.is_multiple_of(4) { talk(tag) } else { sleep(MS / 16) });
    assert!(black_box(&on_stack).iter().all(|byte| *byte == tag), "{name}: {on_stack:?}");
    assert!(black_box(&elsewhere).iter().all(|byte| *byte == tag), "{name}: {elsewhere:?}");
}

/// Much on its stack, at the same depth as what victims lend; and it stays as it is.
fn stand_by(n: u8, pace: Duration, over: &Cell<bool>, mut random: Random) -> io::Result<()> {
    let mine = black_box([0xE0 + n; 8192]);
    while !over.get() {
        match random.chance(0.5) {
            true => sleep(random.duration(8 * pace))?,
            false => yield_now(),
        }
        assert!(black_box(&mine).iter().all(|byte| *byte == 0xE0 + n), "{n}: {mine:?}");
    }
    Ok(())
}
