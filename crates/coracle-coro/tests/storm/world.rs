//! What the victims of a storm share, and the helpers that keep it moving.

use crate::harness::{ECANCELED, MS};
use crate::random::Random;
use coracle_coro::conn_pool::{ConnPool, ConnPoolSettings};
use coracle_coro::names::{Resolver, ResolverSettings};
use coracle_coro::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use coracle_coro::sync::{Barrier, Condvar, Mutex, Receiver, RwLock, Semaphore, Sender, channel};
use coracle_coro::{JoinHandle, sleep, spawn, timeout};
use coracle_loop::Loop;
use coracle_loop::demux::{Backend, Handle, Operation};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How many permits the semaphore has.
pub(crate) const PERMITS: usize = 3;

/// What is sent over channels, and kept in the pool: counted, so that none is lost or there twice.
pub(crate) type Token = Arc<()>;

/// What belongs to the loop.
pub(crate) struct World {
    /// Whether whatever is sent arrives, as it does unless a simulated kernel is hostile.
    pub(crate) is_exact: bool,
    /// What everybody does is done so often.
    pub(crate) pace: Duration,
    /// All read here: byte n of it is n modulo 251.
    pub(crate) spring: TcpStream,
    /// How many bytes victims have read there.
    pub(crate) drawn: Cell<u64>,
    /// All write here, each its own tag.
    pub(crate) sink: UnixStream,
    /// How many bytes of each tag were told to be written.
    pub(crate) poured: RefCell<[u64; 256]>,
    /// All accept here, and connect.
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    /// Nobody accepts here, and no more can wait for it.
    pub(crate) full: SocketAddr,
    _full: Full,
    /// Messages of one byte, repeated.
    pub(crate) post: UdpSocket,
    /// To one who never reads.
    pub(crate) deaf: UnixDatagram,
    _deaf: UnixDatagram,
    pub(crate) file: PathBuf,
    pub(crate) shared: Arc<Shared>,
}

/// What threads may have, too.
pub(crate) struct Shared {
    pub(crate) token: Token,
    /// With some room, and from hand to hand.
    pub(crate) channels: [(Sender<Token>, Receiver<Token>); 2],
    pub(crate) uncounted: (Sender<Token>, Receiver<Token>),
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// Two numbers that differ only while somebody holds it.
    pub(crate) mutex: Mutex<[u64; 2]>,
    pub(crate) changed: Condvar,
    pub(crate) rwlock: RwLock<[u64; 2]>,
    pub(crate) semaphore: Semaphore,
    pub(crate) inside: AtomicUsize,
    pub(crate) barrier: Barrier,
    pub(crate) pool: ConnPool<Token>,
    pub(crate) names: Resolver,
    over: AtomicBool,
}

impl World {
    pub(crate) fn new(is_exact: bool) -> io::Result<(Rc<World>, Helpers)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let connect = || TcpStream::connect_timeout(&address, 60_000 * MS);
        let (spring, source) = (connect()?, listener.accept()?.0);
        let (sink, drain) = UnixStream::pair()?;
        let full = Full::new()?;
        let (post, to) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        to.connect(post.local_addr()?)?;
        let (deaf, reader) = deaf()?;
        let world = Rc::new(World {
            is_exact,
            // A hostile kernel may take seconds for something, and everybody else goes on meanwhile.
            pace: if is_exact { MS / 8 } else { 20 * MS },
            spring,
            drawn: Cell::new(0),
            sink,
            poured: RefCell::new([0; 256]),
            listener,
            address,
            full: full.address,
            _full: full,
            post,
            deaf,
            _deaf: reader,
            file: std::env::current_exe()?,
            shared: Arc::new(Shared::new()?),
        });
        let helpers = Helpers::new(&world, source, drain, to);
        Ok((world, helpers))
    }

    /// What a call may fail with although nothing is wrong.
    pub(crate) fn is_expected(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, QuotaExceeded, TimedOut};
        let kind = error.kind();
        // Somebody has connected and is gone; the simulator's resolver and pool have their limits, too.
        let usual = [ConnectionAborted, ConnectionReset, QuotaExceeded, TimedOut].contains(&kind);
        usual || !self.is_exact
    }
}

/// A listener with as many connections as may wait for it, or nearly.
struct Full {
    handle: Handle,
    address: SocketAddr,
    /// Those who wait there.
    waiting: Vec<TcpStream>,
}

impl Full {
    fn new() -> io::Result<Full> {
        let lp = Loop::current().expect("we are in a loop");
        let handle = lp.listen(&"127.0.0.1:0".parse().expect("an address"), 1)?;
        let address = lp.local_address(handle)?.ip().expect("it is one");
        let mut full = Full { handle, address, waiting: Vec::new() };
        while let Ok(stream) = TcpStream::connect_timeout(&address, 5 * MS) {
            full.waiting.push(stream);
        }
        Ok(full)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let lp = Loop::current().expect("we are in a loop");
        lp.operate(Operation::Close { handle: self.handle }, |_, _| ());
    }
}

/// A message socket that takes no more, and the one that would have to read.
fn deaf() -> io::Result<(UnixDatagram, UnixDatagram)> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("coracle storm {} {number}", std::process::id());
    let reader = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
    let writer = UnixDatagram::unbound()?;
    writer.connect_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
    while timeout(5 * MS, || writer.send(b"is anybody there?")).is_ok() {}
    Ok((writer, reader))
}

impl Shared {
    fn new() -> io::Result<Shared> {
        let token = Token::default();
        let made = token.clone();
        let settings = ConnPoolSettings { limit_connections: 2, ..ConnPoolSettings::default() };
        let connect = move || {
            sleep(MS / 16)?; // opening one takes a while, and may be cancelled
            Ok(made.clone())
        };
        let forgetful =
            ResolverSettings { time_to_live: Duration::ZERO, ..ResolverSettings::default() };
        let find = |_: &str| {
            thread::yield_now();
            Ok(vec![IpAddr::from([127, 0, 0, 1])])
        };
        Ok(Shared {
            token,
            channels: [channel(2), channel(0)],
            uncounted: channel(2),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            mutex: Mutex::new([0; 2]),
            changed: Condvar::new(),
            rwlock: RwLock::new([0; 2]),
            semaphore: Semaphore::new(PERMITS),
            inside: AtomicUsize::new(0),
            barrier: Barrier::new(3),
            pool: ConnPool::new(settings, connect)?,
            names: Resolver::with(forgetful, find)?,
            over: AtomicBool::new(false),
        })
    }

    /// Sends a token, and counts it if it was taken.
    pub(crate) fn send(&self, channel: usize) -> io::Result<()> {
        self.channels[channel].0.send(self.token.clone())?;
        self.sent.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn receive(&self, channel: usize) -> io::Result<()> {
        drop(self.channels[channel].1.recv()?);
        self.received.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Changes both numbers of the mutex, with whatever time `meanwhile` takes between them.
    pub(crate) fn count(&self, meanwhile: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut pair = self.mutex.lock()?;
        assert_eq!(pair[0], pair[1], "one at a time");
        pair[0] += 1;
        let ended = meanwhile();
        pair[1] += 1;
        ended
    }
}

/// Those who do what victims wait for.
pub(crate) struct Helpers {
    others: Vec<JoinHandle<io::Result<()>>>,
    /// Writes to the spring; gives how much.
    source: JoinHandle<u64>,
    /// Reads from the sink until that is closed; gives how much of each tag.
    drain: JoinHandle<[u64; 256]>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Helpers {
    fn new(world: &Rc<World>, source: TcpStream, drain: UnixStream, to: UdpSocket) -> Helpers {
        let (connecting, pace) = (Rc::clone(world), world.pace);
        let connect = move || -> io::Result<()> {
            for round in 0.. {
                match round % 2 {
                    0 => drop(tolerate(TcpStream::connect(connecting.address))?),
                    _ => drop(tolerate(timeout(MS, || connecting.listener.accept()))?),
                }
                sleep(pace)?;
            }
            Ok(())
        };
        let write = move || -> io::Result<()> {
            for n in (0..=u8::MAX).cycle() {
                tolerate(to.send(&[n % 250; 40]))?;
                sleep(pace)?;
            }
            Ok(())
        };
        let shared = Arc::clone(&world.shared);
        let turn = move || -> io::Result<()> {
            loop {
                stir(&shared)?;
                sleep(pace)?;
            }
        };
        let is_simulated = Loop::current().expect("we are in a loop").backend() == Backend::Sim;
        let shared = Arc::clone(&world.shared);
        let stranger = move || {
            while !shared.over.load(Ordering::SeqCst) {
                stir(&shared).expect("nobody cancels a thread");
            }
        };
        Helpers {
            others: vec![spawn(connect), spawn(write), spawn(turn)],
            source: spawn(move || feed(&source, pace)),
            drain: spawn(move || empty(&drain, pace)),
            // In the simulator a seed says all.
            thread: (!is_simulated).then(|| thread::spawn(stranger)),
        }
    }

    /// Ends them; what is left is what it must be.
    pub(crate) fn end(self, world: &World) -> io::Result<()> {
        world.shared.over.store(true, Ordering::SeqCst);
        self.others.iter().for_each(JoinHandle::cancel);
        for other in self.others {
            let ended = other.join().expect("a helper");
            let expected = ended.is_err_and(|error| {
                error.raw_os_error() == Some(ECANCELED) || world.is_expected(&error)
            });
            assert!(expected, "it is cancelled");
        }
        if let Some(thread) = self.thread {
            while !thread.is_finished() {
                sleep(MS)?; // it may wait for us
            }
            thread.join().expect("a plain thread");
        }
        self.source.cancel();
        let fed = self.source.join().expect("the source");
        let mut left = Vec::new();
        let read = (&world.spring).read_to_end(&mut left);
        let shut = world.sink.shutdown(Shutdown::Write);
        let drained = self.drain.join().expect("the drain");
        if world.is_exact {
            read.and(shut)?;
            assert_eq!(world.drawn.get() + left.len() as u64, fed, "bytes of the spring");
            assert_eq!(*world.poured.borrow(), drained, "bytes that arrived from each");
        }
        world.shared.check()
    }
}

impl Shared {
    /// Nobody is in it any more.
    fn check(&self) -> io::Result<()> {
        let left: usize =
            self.channels.iter().map(|(_, receiver)| receiver.try_iter().count()).sum();
        let sent = self.sent.load(Ordering::SeqCst);
        assert_eq!(sent, self.received.load(Ordering::SeqCst) + left as u64, "messages");
        let pair = *self.mutex.try_lock().expect("nobody holds it");
        assert_eq!(pair[0], pair[1]);
        let pair = *self.rwlock.try_write().expect("nobody holds it");
        assert_eq!(pair[0], pair[1]);
        assert_eq!(self.semaphore.available_permits(), PERMITS);
        let stats = self.pool.stats();
        assert_eq!((stats.in_use, stats.waiting), (0, 0));
        self.pool.close();
        self.uncounted.1.try_iter().for_each(drop);
        // Ours, and the one of those who connect.
        assert_eq!(Arc::strong_count(&self.token), 2, "tokens");
        Ok(())
    }
}

/// A little of everything, as a coroutine or a thread.
fn stir(shared: &Shared) -> io::Result<()> {
    for channel in 0..2 {
        tolerate(timeout(MS / 16, || shared.send(channel)))?;
        tolerate(timeout(MS / 16, || shared.receive(channel)))?;
    }
    shared.changed.notify_one();
    tolerate(timeout(MS / 16, || shared.count(|| Ok(()))))?;
    tolerate(timeout(MS / 16, || shared.semaphore.acquire(2).map(drop)))?;
    tolerate(timeout(MS / 16, || shared.barrier.wait().map(drop)))?;
    Ok(())
}

/// Everything but a cancel is as good as nothing.
fn tolerate<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(ECANCELED) => Err(error),
        Err(_) => Ok(None),
    }
}

fn feed(source: &TcpStream, pace: Duration) -> u64 {
    let bytes: Vec<u8> = (0..251 * 4).map(|n| (n % 251) as u8).collect();
    let (mut fed, mut random) = (0, Random::new(1));
    loop {
        let at = (fed % 251) as usize;
        let len = 1 + random.below(700) as usize;
        match (&*source).write(&bytes[at..at + len]) {
            Ok(count) => fed += count as u64,
            Err(_) => return fed, // cancelled, or broken
        }
        if sleep(random.duration(2 * pace)).is_err() {
            return fed;
        }
    }
}

fn empty(drain: &UnixStream, pace: Duration) -> [u64; 256] {
    let (mut drained, mut random) = ([0; 256], Random::new(2));
    let mut space = vec![0; 16 << 10];
    loop {
        let len = 1 + random.below(space.len() as u64) as usize;
        match (&*drain).read(&mut space[..len]) {
            Ok(0) | Err(_) => return drained,
            Ok(count) => {
                space[..count].iter().for_each(|tag| drained[usize::from(*tag)] += 1);
            }
        }
        if random.chance(0.1) && sleep(random.duration(8 * pace)).is_err() {
            return drained; // all is over
        }
    }
}
