//! Every place where a coroutine can wait. Each lends what it has to somebody, and looks afterwards whether
//! anything has changed that was not lent.

use crate::harness::{HOUR, MS};
use crate::random::Random;
use crate::world::{PERMITS, World};
use coracle_coro::future::{self, block_on, spawn_future};
use coracle_coro::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use coracle_coro::sync::{OnceLock, Select, WaitGroup, after, tick};
use coracle_coro::{
    Generator, JoinError, fs, join_all, offload, offload_scoped, on_big_stack, park, park_timeout,
    race, scope, select, shield, signals, sleep, sleep_until, spawn, timeout, yield_now,
};
use futures::{AsyncReadExt, AsyncWriteExt};
use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waits once, or a few times.
pub(crate) type Point = fn(&World, &mut Random, u8) -> io::Result<()>;

/// All of them, with their names.
pub(crate) const POINTS: &[(&str, Point)] = &[
    ("read", read),
    ("read from one who is silent", read_silence),
    ("read on a big stack", read_on_a_big_stack),
    ("read in a generator", read_in_a_generator),
    ("read in the line", read_in_the_line),
    ("read ahead", read_ahead),
    ("read ahead, given back", read_ahead_and_back),
    ("write", write),
    ("write to one who does not read", write_to_the_deaf),
    ("accept", accept),
    ("connect", connect),
    ("connect to one who does not accept", connect_in_vain),
    ("receive a message", receive_message),
    ("send a message", send_message),
    ("send", |world, random, _| world.shared.send(random.below(2) as usize)),
    ("recv", |world, random, _| world.shared.receive(random.below(2) as usize)),
    ("select!", select_of_many),
    ("Select", select_dynamic),
    ("Mutex", mutex),
    ("RwLock", rwlock),
    ("Condvar", condvar),
    ("Semaphore", semaphore),
    ("Barrier", |world, _, _| world.shared.barrier.wait().map(drop)),
    ("OnceLock", |_, _, _| OnceLock::<()>::new().wait().copied()),
    ("WaitGroup", wait_group),
    ("tick", |_, _, _| tick(MS / 8).wait().map(drop)),
    ("sleep", |_, random, _| sleep(random.duration(MS))),
    ("sleep for long", |_, _, _| sleep_until(Instant::now() + HOUR)),
    ("park", |_, _, _| park()),
    ("park_timeout", |_, random, _| park_timeout(random.duration(MS))),
    ("shield", in_a_shield),
    ("join", join),
    ("scope", in_a_scope),
    ("race", in_a_race),
    ("join_all", all_of_several),
    ("offload", offloaded),
    ("offload_scoped", offloaded_borrowing),
    ("fs", file),
    ("names", |world, _, _| world.shared.names.lookup_host("storm:1").map(drop)),
    ("pool", pooled),
    ("signals", |_, _, _| signals(SIGWINCH)?.wait()),
    ("block_on", blocked_on),
    ("block_on a channel", blocked_on_a_channel),
    ("block_on a lock", blocked_on_a_lock),
    ("read of a future", future_read),
    ("write of a future", future_write),
    ("accept of a future", future_accept),
    ("connect of a future", future_connect),
    ("message of a future", future_message),
    ("future that is spawned", future_spawned),
];

/// Which nobody sends.
const SIGWINCH: i32 = 28;

/// What is before and behind the slice that is lent.
const MARGIN: usize = 100;

/// Lends a slice out of the middle of an array to `read`. Bytes that it says it has read are looked at by
/// `is_right`; all others are as before.
fn lend(
    tag: u8,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    is_right: impl FnOnce(&[u8]) -> bool,
) -> io::Result<usize> {
    let mut space = [tag; 4 * MARGIN];
    let ended = read(&mut space[MARGIN..3 * MARGIN]);
    let count = ended.as_ref().map_or(0, |count| *count);
    assert!(count <= 2 * MARGIN);
    let (before, rest) = space.split_at(MARGIN);
    let (bytes, behind) = rest.split_at(count);
    assert!(is_right(bytes), "{count} bytes: {bytes:?}");
    let unharmed = before.iter().chain(behind).all(|byte| *byte == tag);
    assert!(unharmed, "{tag} was written to beyond the {count} bytes that were told: {space:?}");
    ended
}

/// Whether these follow each other in the spring.
fn follow(bytes: &[u8]) -> bool {
    bytes.windows(2).all(|pair| (pair[0] + 1) % 251 == pair[1])
}

fn read(world: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let count = lend(tag, |space| (&world.spring).read(space), follow)?;
    world.drawn.set(world.drawn.get() + count as u64);
    Ok(())
}

/// Never ends by itself.
fn silence(tag: u8) -> io::Result<()> {
    let (one, _other) = UnixStream::pair()?;
    lend(tag, |space| (&one).read(space), <[u8]>::is_empty).map(|_| ())
}

fn read_silence(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    silence(tag)
}

fn read_on_a_big_stack(world: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    on_big_stack(1 << 20, || read(world, random, tag))?
}

fn read_in_a_generator(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    // A wait in its body is a wait of the coroutine.
    let mut ends = Generator::new(move |out| out.suspend(timeout(MS / 4, || silence(tag))));
    ends.next().expect("it hands out one")
}

fn read_in_the_line(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let (one, _other) = UnixStream::pair()?;
    let first = one.try_clone()?;
    let child = spawn(move || lend(tag, |space| (&first).read(space), <[u8]>::is_empty));
    yield_now();
    let ended = lend(tag, |space| (&one).read(space), <[u8]>::is_empty);
    child.cancel(); // and is over some time
    ended.map(|_| ())
}

/// The receive outlives the wait, and who waited.
fn read_ahead(_: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let (one, mut other) = UnixStream::pair()?;
    other.write_all(&[tag; MARGIN])?;
    let mut one = one.read_ahead();
    let count = lend(!tag, |space| one.read(space), |bytes| bytes.iter().all(|byte| *byte == tag))?;
    assert!(count > 0);
    if random.chance(0.5) {
        other.write_all(&[tag; 8])?;
    }
    lend(!tag, |space| one.read(space), |bytes| bytes.iter().all(|byte| *byte == tag))?;
    lend(!tag, |space| one.read(space), |bytes| bytes.iter().all(|byte| *byte == tag)).map(drop)
}

fn read_ahead_and_back(_: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let (mut one, mut other) = UnixStream::pair()?;
    loop {
        other.write_all(&[tag; 2])?;
        let mut ahead = one.read_ahead();
        ahead.read_exact(&mut [0])?;
        if random.chance(0.5) {
            sleep(random.duration(MS / 8))?;
        }
        let (stream, rest) = ahead.into_parts()?;
        if rest.is_empty() {
            (&stream).read_exact(&mut [0])?;
        }
        assert!(rest.iter().all(|byte| *byte == tag) && rest.len() <= 1);
        one = stream;
    }
}

fn write(world: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let bytes = vec![tag; 1 + random.below(40_000) as usize];
    let count = (&world.sink).write(&bytes)?;
    world.poured.borrow_mut()[usize::from(tag)] += count as u64;
    Ok(())
}

fn write_to_the_deaf(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let (one, _other) = UnixStream::pair()?;
    let bytes = vec![tag; 64 << 10];
    loop {
        (&one).write_all(&bytes)?;
    }
}

fn accept(world: &World, _: &mut Random, _: u8) -> io::Result<()> {
    world.listener.accept().map(drop)
}

fn connect(world: &World, _: &mut Random, _: u8) -> io::Result<()> {
    TcpStream::connect(world.address).map(drop)
}

fn connect_in_vain(world: &World, _: &mut Random, _: u8) -> io::Result<()> {
    TcpStream::connect(world.full).map(drop)
}

fn receive_message(world: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let uniform = |bytes: &[u8]| bytes.windows(2).all(|pair| pair[0] == pair[1]);
    let receive = |space: &mut [u8]| world.post.recv_from(space).map(|(count, _)| count);
    lend(tag, receive, uniform).map(|_| ())
}

fn send_message(world: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    world.deaf.send(&[tag; 40]).map(drop)
}

fn select_of_many(world: &World, _: &mut Random, _: u8) -> io::Result<()> {
    let [(sender, receiver), _] = &world.shared.channels;
    let mut slot = Some(world.shared.token.clone());
    select! {
        token = receiver => {
            drop(token?);
            world.shared.received.fetch_add(1, Ordering::SeqCst);
        },
        done = sender.sending(&mut slot) => {
            done?;
            world.shared.sent.fetch_add(1, Ordering::SeqCst);
        },
        ready = world.spring.readable() => ready?,
        ready = world.listener.accepting() => drop(ready?),
        () = after(HOUR) => unreachable!("nobody waits so long"),
    }
    Ok(())
}

fn select_dynamic(_: &World, _: &mut Random, _: u8) -> io::Result<()> {
    let (one, _other) = UnixStream::pair()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut readable, mut accepting) = (one.readable(), listener.accepting());
    let mut select = Select::new();
    select.arm(&mut readable);
    select.arm(&mut accepting);
    select.wait().map(drop)
}

fn mutex(world: &World, random: &mut Random, _: u8) -> io::Result<()> {
    world.shared.count(|| sleep(random.duration(MS / 8)))
}

fn rwlock(world: &World, random: &mut Random, _: u8) -> io::Result<()> {
    if random.chance(0.5) {
        let pair = world.shared.rwlock.read()?;
        let ended = sleep(random.duration(MS / 8));
        assert_eq!(pair[0], pair[1], "nobody writes meanwhile");
        return ended;
    }
    let mut pair = world.shared.rwlock.write()?;
    pair[0] += 1;
    let ended = sleep(random.duration(MS / 8));
    pair[1] += 1;
    ended
}

fn condvar(world: &World, _: &mut Random, _: u8) -> io::Result<()> {
    let guard = world.shared.mutex.lock()?;
    world.shared.changed.wait(guard).map(|pair| assert_eq!(pair[0], pair[1], "one at a time"))
}

fn semaphore(world: &World, random: &mut Random, _: u8) -> io::Result<()> {
    let count = 1 + random.below(PERMITS as u64) as usize;
    let _permit = world.shared.semaphore.acquire(count)?;
    let before = world.shared.inside.fetch_add(count, Ordering::SeqCst);
    assert!(before + count <= PERMITS, "{before} and {count} are inside");
    let ended = sleep(random.duration(MS / 8));
    world.shared.inside.fetch_sub(count, Ordering::SeqCst);
    ended
}

fn wait_group(_: &World, _: &mut Random, _: u8) -> io::Result<()> {
    let group = WaitGroup::new();
    let _member = group.add();
    group.wait()
}

/// The cancel does not strike in it, so there is another wait behind it.
fn in_a_shield(world: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let ended = shield(MS / 8, || silence(tag)).expect_err("nobody writes");
    assert!(ended.kind() == io::ErrorKind::TimedOut || !world.is_exact, "{ended}");
    sleep(MS / 16)
}

fn join(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let child = spawn(move || silence(tag));
    match child.join_timeout(HOUR) {
        Err(JoinError::Cancelled(child)) => {
            child.cancel();
            Err(io::Error::from_raw_os_error(crate::harness::ECANCELED))
        }
        Err(JoinError::TimedOut(child)) => {
            child.cancel();
            Err(io::ErrorKind::TimedOut.into())
        }
        Ok(ended) => ended,
        Err(other) => panic!("{other:?}"),
    }
}

/// Children write to what the parent has.
fn in_a_scope(world: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let mut space = [tag; 3 * MARGIN];
    let (mine, rest) = space.split_at_mut(MARGIN);
    let mut other = random.fork();
    let ended = scope(|scope| {
        scope.spawn(|| {
            for byte in &mut *mine {
                *byte = !tag;
                sleep(other.duration(MS / 8))?;
                *byte = tag;
            }
            Ok(())
        });
        scope.spawn(|| read(world, &mut Random::new(0), tag));
        silence(tag)
    });
    // Nobody is left who might write.
    assert!(mine.iter().filter(|byte| **byte != tag).count() <= 1);
    assert!(rest.iter().all(|byte| *byte == tag));
    ended
}

fn in_a_race(world: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let mut other = random.fork();
    race(|| read(world, &mut other, tag), || sleep(random.duration(MS)))
}

fn all_of_several(_: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let waits = [random.duration(MS), HOUR].map(|time| move || timeout(time, || silence(tag)));
    join_all(waits).map(drop)
}

/// Takes a while without waiting.
fn spin() {
    for _ in 0..200 {
        std::hint::spin_loop();
    }
}

fn offloaded(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let work = move || {
        spin();
        vec![tag; MARGIN]
    };
    assert_eq!(offload(work)?, [tag; MARGIN]);
    sleep(Duration::ZERO)
}

fn offloaded_borrowing(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let mut space = [tag; 3 * MARGIN];
    let ended = offload_scoped(|| {
        spin();
        space[MARGIN..2 * MARGIN].fill(!tag);
    });
    let filled = if ended.is_ok() { !tag } else { tag };
    assert!(space[MARGIN..2 * MARGIN].iter().all(|byte| *byte == filled));
    assert!(space[..MARGIN].iter().chain(&space[2 * MARGIN..]).all(|byte| *byte == tag));
    ended?;
    sleep(Duration::ZERO)
}

fn file(world: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let program = fs::File::open(&world.file)?;
    let magic = |bytes: &[u8]| bytes.is_empty() || bytes.starts_with(b"\x7fELF");
    lend(tag, |space| program.read_at(space, 0), magic)?;
    if random.chance(0.5) {
        fs::metadata(&world.file)?;
    }
    Ok(())
}

fn pooled(world: &World, random: &mut Random, _: u8) -> io::Result<()> {
    let _held = world.shared.pool.get()?;
    sleep(random.duration(MS / 8))
}

fn blocked_on(_: &World, random: &mut Random, _: u8) -> io::Result<()> {
    block_on(future::sleep(random.duration(MS)))
}

fn blocked_on_a_channel(world: &World, random: &mut Random, _: u8) -> io::Result<()> {
    if random.chance(0.5) {
        // Who drops a future that sends does not hear whether it was sent, so nobody counts these.
        let (sender, receiver) = &world.shared.uncounted;
        drop(receiver.try_recv());
        return Ok(block_on(sender.send_async(world.shared.token.clone()))??);
    }
    let (_, receiver) = &world.shared.channels[random.below(2) as usize];
    drop(block_on(receiver.recv_async())??);
    world.shared.received.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn blocked_on_a_lock(world: &World, random: &mut Random, _: u8) -> io::Result<()> {
    let time = random.duration(MS / 8);
    block_on(async {
        let pair = world.shared.mutex.lock_async().await;
        future::sleep(time).await;
        assert_eq!(pair[0], pair[1], "one at a time");
    })
}

fn future_read(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let (mut one, _other) = future::net::UnixStream::pair()?;
    let read = |space: &mut [u8]| block_on(one.read(space))?;
    lend(tag, read, <[u8]>::is_empty).map(|_| ())
}

fn future_write(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let (mut one, _other) = future::net::UnixStream::pair()?;
    let bytes = vec![tag; 64 << 10];
    loop {
        block_on(one.write_all(&bytes))??;
    }
}

fn future_accept(_: &World, _: &mut Random, _: u8) -> io::Result<()> {
    let listener = future::net::TcpListener::bind("127.0.0.1:0".parse().expect("an address"))?;
    block_on(listener.accept())?.map(drop)
}

fn future_connect(world: &World, random: &mut Random, _: u8) -> io::Result<()> {
    let address = if random.chance(0.5) { world.address } else { world.full };
    block_on(future::net::TcpStream::connect(address))?.map(drop)
}

fn future_message(_: &World, _: &mut Random, tag: u8) -> io::Result<()> {
    let socket = future::net::UdpSocket::bind("127.0.0.1:0".parse().expect("an address"))?;
    let read = |space: &mut [u8]| block_on(socket.recv_from(space))?.map(|(count, _)| count);
    lend(tag, read, <[u8]>::is_empty).map(|_| ())
}

/// It goes on for a while without who waits for it.
fn future_spawned(_: &World, random: &mut Random, tag: u8) -> io::Result<()> {
    let time = random.duration(MS);
    let child = spawn_future(async move {
        let (mut one, _other) = future::net::UnixStream::pair()?;
        let mut space = [tag; MARGIN];
        _ = future::timeout(time, one.read(&mut space)).await;
        assert_eq!(space, [tag; MARGIN]);
        io::Result::Ok(())
    });
    child.join()?
}

/// A question and its answer, for those who say farewell.
pub(crate) fn talk(tag: u8) -> io::Result<()> {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.send_to(&[tag; 8], other.local_addr()?)?;
    let mut space = [0; 16];
    let (count, _) = other.recv_from(&mut space)?;
    assert_eq!(space[..count], [tag; 8]);
    Ok(())
}
