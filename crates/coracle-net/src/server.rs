//! N loops on N threads, and the services they have in common.
//!
//! ```text
//!   Server ── start ──► loop 0 ── loop 1 ── … loop N-1       each with its listeners, services and connections
//!                         │
//!   ServerHandle ── post ─┴──►  stop, count, each            from any thread
//! ```
//!
//! Stopping is the same on every loop: listeners close, every protocol is told
//! ([`on_shutdown`](crate::Protocol::on_shutdown)), and when the last connection is gone, or the time for that is
//! over, the loop ends.

mod handle;
mod site;

pub use handle::ServerHandle;

use crate::addresses::ToAddresses;
use crate::bind::ListenSocket;
use crate::limits::{CapacitySettings, available_cores, memory_bytes};
use crate::listen_options::ListenOptions;
use crate::placement::{Chooser, Placement};
use crate::room::Room;
use crate::socket_file::SocketFile;
use crate::stats::ServiceStats;
use crate::supervisor::Supervisor;
use crate::worker::Worker;
use crate::{MemoryLimit, Protocol, Settings};
use coracle_loop::demux::{Address, Backend, pin_thread};
use coracle_loop::{Builder, Loop, LoopHandle};
use handle::Shared;
use site::Site;
use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Makes the protocol of a new connection, on whatever loop it lives.
pub(crate) type Make = dyn Fn(&Address) -> Box<dyn Protocol> + Send + Sync;

/// Something to be called before anybody is served.
type Init = dyn FnOnce(&ServerHandle);

/// Something to be called when a loop begins.
type ThreadStart = dyn Fn(&Loop, usize) + Send + Sync;

/// A server: where it listens, what it serves there, and how many loops do the work.
///
/// ```no_run
/// use coracle_net::{Buffer, Conn, Protocol, Server};
/// use std::io;
///
/// struct Echo;
///
/// impl Protocol for Echo {
///     fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
///         conn.write(input.take_all());
///         Ok(())
///     }
/// }
///
/// fn main() -> io::Result<()> {
///     Server::bind("127.0.0.1:7000")?.serve(|_peer| Echo)
/// }
/// ```
pub struct Server {
    services: Vec<Service>,
    /// The sockets of each loop, if they were [opened](Server::listen) before it starts.
    opened: Option<Vec<Vec<(usize, OwnedFd)>>>,
    options: ListenOptions,
    settings: Settings,
    limit_memory_bytes: Option<usize>,
    loops: Option<usize>,
    pin_threads: bool,
    placement: Placement,
    backend: Option<Backend>,
    capacity: CapacitySettings,
    drain: Duration,
    init: Option<Box<Init>>,
    thread_start: Option<Arc<ThreadStart>>,
    finish: Option<Box<dyn FnOnce() + Send>>,
}

/// One protocol and the addresses it is served on.
struct Service {
    name: Arc<str>,
    /// Those of the first loop, opened when they were asked for, so that errors surface there.
    sockets: Vec<ListenSocket>,
    /// How the other loops listen.
    options: ListenOptions,
    settings: Option<Settings>,
    make: Option<Arc<Make>>,
}

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

impl Server {
    /// A server that listens nowhere yet: add [services](Server::service).
    pub fn new() -> Server {
        Server {
            services: Vec::new(),
            opened: None,
            options: ListenOptions::new(),
            settings: Settings::default(),
            limit_memory_bytes: None,
            loops: None,
            pin_threads: false,
            placement: Placement::default(),
            backend: None,
            capacity: CapacitySettings::new(),
            drain: Duration::from_secs(10),
            init: None,
            thread_start: None,
            finish: None,
        }
    }

    /// A server that listens on `addresses`, for the protocol that [`serve`](Server::serve) is given. The name of
    /// this service is `main`.
    ///
    /// ```
    /// # use coracle_net::Server;
    /// let server = Server::bind("127.0.0.1:0").unwrap();
    /// let two = Server::bind(["127.0.0.1:0", "127.0.0.2:0"]).unwrap(); // several
    /// # assert_eq!((server.local_addresses().len(), two.local_addresses().len()), (1, 2));
    /// ```
    ///
    /// # Errors
    /// The address cannot be listened on; the text says which, why, and what to do.
    pub fn bind(addresses: impl ToAddresses) -> io::Result<Server> {
        Server::bind_with(addresses, &ListenOptions::new())
    }

    /// [`bind`](Server::bind), with options of its own; [services](Server::service) that are added listen with
    /// them too. The loops share the port (SO_REUSEPORT) whatever the options say.
    ///
    /// ```
    /// use coracle_net::{ListenOptions, Server};
    /// use std::time::Duration;
    ///
    /// let options = ListenOptions::new().keep_alive(Duration::from_secs(60)).fast_open(256);
    /// let server = Server::bind_with("127.0.0.1:0", &options).unwrap();
    /// # assert_eq!(server.local_addresses().len(), 1);
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Server::bind); also when the system does not take an option.
    pub fn bind_with(addresses: impl ToAddresses, options: &ListenOptions) -> io::Result<Server> {
        let mut server = Server::new().listen_options(options);
        server.services.push(Service::open("main", &addresses, &server.options, None)?);
        Ok(server)
    }

    /// How services that are added from here on listen.
    #[must_use]
    pub fn listen_options(mut self, options: &ListenOptions) -> Server {
        self.options = options.clone();
        self
    }

    /// Adds a service: a protocol of its own on addresses of its own. `name` is for counters and broadcasts;
    /// each has its own, and `main` is that of [`bind`](Server::bind)'s.
    ///
    /// # Errors
    /// As [`bind`](Server::bind).
    pub fn service<P: Protocol>(
        mut self,
        name: &str,
        addresses: impl ToAddresses,
        make: impl Fn(&Address) -> P + Send + Sync + 'static,
    ) -> io::Result<Server> {
        self.services.push(Service::open(name, &addresses, &self.options, Some(boxed(make)))?);
        Ok(self)
    }

    /// How connections behave: those of the services added so far that have no settings, and of those added later.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Server {
        self.settings = settings;
        self
    }

    /// How connections of the service added last behave.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn service_settings(mut self, settings: Settings) -> Server {
        self.services.last_mut().expect("add a service first").settings = Some(settings);
        self
    }

    /// How many bytes may wait in the buffers of all connections, on all loops: received and not read, or written
    /// and not sent. Without this, half of the [memory](crate::memory_bytes) that the process may use. Services
    /// with a [limit](Settings::limit_memory) of their own keep to that.
    ///
    /// When there is no room, the connection that has more to keep ends
    /// ([`Reason::MemoryLimit`](crate::Reason::MemoryLimit)), and new ones are turned away with the
    /// [`busy_message`](Settings::busy_message).
    #[must_use]
    pub fn limit_memory_bytes(mut self, bytes: usize) -> Server {
        self.limit_memory_bytes = Some(bytes);
        self
    }

    /// How many loops share the work. Without this, one per core this process may use, by its affinity and the
    /// quota of its cgroup ([`available_cores`]).
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Server {
        self.loops = Some(loops);
        self
    }

    /// Whether the thread of each loop stays on a processor, in turn, from the first on that it may use;
    /// those of the next [worker](Worker) go on from there. Off: the system moves threads to where there is room,
    /// which is better on a machine that has other things to do. Threads of the worker pool are not bound.
    #[must_use]
    pub fn pin_threads(mut self, on: bool) -> Server {
        self.pin_threads = on;
        self
    }

    /// How connections are spread over the loops.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Server {
        self.placement = placement;
        self
    }

    /// The backend of all loops. Without this, the best there is.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Server {
        self.backend = Some(backend);
        self
    }

    /// What connections need of the process: how many the server has room for follows from it, its loops and
    /// services together. Whoever comes when it is full is told so
    /// ([`busy_message`](Settings::busy_message)) and turned away.
    #[must_use]
    pub fn capacity(mut self, settings: CapacitySettings) -> Server {
        self.capacity = settings;
        self
    }

    /// How long connections may take to finish when the server is stopped. Without this, ten seconds.
    ///
    /// A peer that does not end its side holds the server up for as long as closing a connection may take
    /// ([`Settings::drain`]: five seconds), and never longer than this.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Server {
        self.drain = drain;
        self
    }

    /// Calls `callback` when all loops are there and before anybody is served, with what stops the server, counts
    /// and broadcasts. If there are several, in the order in which they were given.
    #[must_use]
    pub fn on_init(mut self, callback: impl FnOnce(&ServerHandle) + 'static) -> Server {
        self.init = Some(match self.init.take() {
            None => Box::new(callback),
            Some(before) => Box::new(move |handle| {
                before(handle);
                callback(handle);
            }),
        });
        self
    }

    /// Calls `callback` when the last loop has ended. If there are several, in the order in which they were given.
    #[must_use]
    pub fn on_finish(mut self, callback: impl FnOnce() + Send + 'static) -> Server {
        self.finish = Some(match self.finish.take() {
            None => Box::new(callback),
            Some(before) => Box::new(move || {
                before();
                callback();
            }),
        });
        self
    }

    /// Calls `callback` on each loop's thread before it serves anybody, with the loop and its number: the place
    /// for [timers](Loop::every), [hooks](Loop::on_turn), [signals](Loop::on_signal) and thread-local things. If
    /// there are several, in the order in which they were given.
    ///
    /// To read its settings again on SIGHUP, a server listens for it here; connections that are there stay:
    ///
    /// ```
    /// use coracle_net::{Buffer, Conn, Server};
    /// use std::sync::{Arc, Mutex};
    ///
    /// const SIGHUP: i32 = 1;
    /// # fn read_settings() -> String { "ahoy".into() }
    /// let greeting = Arc::new(Mutex::new(read_settings()));
    /// let reloaded = Arc::clone(&greeting);
    /// let server = Server::bind("127.0.0.1:0").unwrap().on_thread_start(move |lp, index| {
    ///     let reloaded = Arc::clone(&reloaded);
    ///     if index == 0 {
    ///         // On the first loop, for all.
    ///         lp.on_signal(SIGHUP, move |_| *reloaded.lock().unwrap() = read_settings()).unwrap();
    ///     }
    /// });
    /// let running = server.start(move |_peer| {
    ///     let greeting = Arc::clone(&greeting);
    ///     move |conn: &mut Conn<'_>, input: &mut Buffer| {
    ///         input.take_all();
    ///         conn.write(greeting.lock().unwrap().clone());
    ///         Ok(())
    ///     }
    /// });
    /// # let running = running.unwrap();
    /// # running.handle().stop();
    /// # running.join().unwrap();
    /// ```
    ///
    /// Reading files blocks the loop for that long: [`Loop::offload`] does not.
    #[must_use]
    pub fn on_thread_start(
        mut self,
        callback: impl Fn(&Loop, usize) + Send + Sync + 'static,
    ) -> Server {
        self.thread_start = Some(match self.thread_start.take() {
            None => Arc::new(callback),
            Some(before) => Arc::new(move |lp: &Loop, index| {
                before(lp, index);
                callback(lp, index);
            }),
        });
        self
    }

    /// Where it listens, in the order in which the addresses were given.
    pub fn local_addresses(&self) -> Vec<Address> {
        let sockets = self.services.iter().flat_map(|service| &service.sockets);
        sockets.map(|socket| socket.local_address().clone()).collect()
    }

    /// Has so many processes serve instead of this one: a supervisor with the sockets of this server, which starts
    /// the same program again as its workers. In a [worker](Worker), [serve](Server::serve).
    pub fn supervise(self, processes: usize) -> Supervisor {
        let mut supervisor = Supervisor::new(processes).drain(self.drain);
        if let Some(backend) = self.backend {
            supervisor = supervisor.backend(backend);
        }
        let sockets = self.services.into_iter().flat_map(|service| service.sockets);
        sockets.fold(supervisor, Supervisor::socket)
    }

    /// Serves until the process is asked to end (`SIGINT`, `SIGTERM`), then stops gracefully. `make` is called for
    /// each connection of [`bind`](Server::bind)'s addresses.
    ///
    /// # Errors
    /// The settings make no sense, a loop cannot be opened, or one ends with an error.
    pub fn serve<P: Protocol>(
        self,
        make: impl Fn(&Address) -> P + Send + Sync + 'static,
    ) -> io::Result<()> {
        // Before anybody is served: a request to end that comes early is honoured too.
        let terminator = Terminator::install(self.backend)?;
        let running = self.start(make)?;
        terminator.wait(running)
    }

    /// Serves on threads of its own, and returns at once.
    ///
    /// # Errors
    /// The settings make no sense, or a loop cannot be opened: then none runs.
    pub fn start<P: Protocol>(
        mut self,
        make: impl Fn(&Address) -> P + Send + Sync + 'static,
    ) -> io::Result<Running> {
        let make = boxed(make);
        for service in &mut self.services {
            service.make.get_or_insert_with(|| Arc::clone(&make));
        }
        self.start_services()
    }

    /// As [`start`](Server::start), when every service has a protocol of its own. To serve in the foreground:
    ///
    /// ```no_run
    /// use coracle_net::{Buffer, Conn, Server};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// fn echo(conn: &mut Conn<'_>, input: &mut Buffer) -> std::io::Result<()> {
    ///     conn.write(input.take_all());
    ///     Ok(())
    /// }
    /// fn discard(_: &mut Conn<'_>, input: &mut Buffer) -> std::io::Result<()> {
    ///     input.take_all();
    ///     Ok(())
    /// }
    /// Server::new()
    ///     .service("echo", "127.0.0.1:7000", |_peer| echo)?
    ///     .service("discard", "127.0.0.1:7009", |_peer| discard)?
    ///     .start_services()?
    ///     .serve_until_terminated()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`start`](Server::start); also when an address has no protocol.
    pub fn start_services(mut self) -> io::Result<Running> {
        self.check()?;
        let count = self.loops.unwrap_or_else(available_cores);
        let shared = Shared::new(
            self.services.iter().map(|service| Arc::clone(&service.name)).collect(),
            self.local_addresses(),
            count,
            Room::new(self.capacity.clone()),
            self.drain,
        );
        let opened = self.opened.take().filter(|opened| opened.len() == count);
        let sockets = opened.map_or_else(|| self.open_sockets(count), Ok)?;
        // The loops own the sockets from now on; the files of Unix sockets go with the last of them.
        let services = std::mem::take(&mut self.services);
        let files = services.iter().flat_map(|service| &service.sockets);
        let files: Arc<[SocketFile]> = files.filter_map(ListenSocket::file).collect();
        let memory = MemoryLimit::new(self.limit_memory_bytes.unwrap_or_else(half_of_the_memory));
        let specs = services.iter().map(|it| it.spec(&self.settings, &memory));
        let specs: Arc<[Spec]> = specs.collect();
        drop(services);
        let (report, reports) = channel();
        let (mut threads, mut failure) = (Vec::new(), None);
        let first = Worker::current().map_or(0, |worker| worker.index() * count);
        for (index, sockets) in sockets.into_iter().enumerate() {
            let thread = LoopThread {
                index,
                backend: self.backend,
                processor: self.pin_threads.then_some(first + index),
                specs: Arc::clone(&specs),
                sockets,
                shared: Arc::clone(&shared),
                files: Arc::clone(&files),
                start: self.thread_start.clone(),
            };
            let report = report.clone();
            let builder = std::thread::Builder::new().name(format!("coracle-{index}"));
            match builder.spawn(move || thread.run(report)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let text = format!("cannot start a thread for loop {index}: {error}");
                    failure = Some(io::Error::new(error.kind(), text));
                    break; // those that run are stopped below, when they have reported
                }
            }
        }
        drop(report);
        let mut handles: Vec<Option<LoopHandle>> = vec![None; count];
        for (index, result) in reports {
            match result {
                Ok(handle) => handles[index] = Some(handle),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        let handles: Vec<LoopHandle> = handles.into_iter().flatten().collect();
        if handles.len() < count && failure.is_none() {
            failure = Some(io::Error::other("a loop's thread panicked before it could serve"));
        }
        if let Some(init) = self.init.filter(|_| failure.is_none()) {
            init(&ServerHandle::new(Arc::clone(&shared)));
        }
        drop(files);
        if failure.is_none() {
            shared.begin(handles, self.placement);
        } else {
            handles.iter().for_each(LoopHandle::stop); // they have served nobody
        }
        let running = Running { shared, threads, finish: self.finish };
        match failure {
            None => Ok(running),
            Some(error) => {
                let _ = running.join_threads(); // this error came first
                Err(error)
            }
        }
    }

    fn check(&self) -> io::Result<()> {
        let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.services.is_empty() {
            return wrong("the server listens nowhere: use Server::bind or Server::service".into());
        }
        if self.loops == Some(0) {
            return wrong("loops is 0: nobody would serve".into());
        }
        for (index, service) in self.services.iter().enumerate() {
            if self.services[..index].iter().any(|other| other.name == service.name) {
                return wrong(format!("two services are called \"{}\"", service.name));
            }
            if service.make.is_none() {
                return wrong(format!("service \"{}\" has no protocol", service.name));
            }
            let settings = service.settings.as_ref().unwrap_or(&self.settings);
            if let Err(error) = settings.check() {
                return wrong(format!("service \"{}\": {error}", service.name));
            }
        }
        Ok(())
    }

    /// Opens the listening sockets of all loops now, not when it starts: for who has given up its privileges by
    /// then. Call it after [`loops`](Server::loops) and [`placement`](Server::placement), with all services there.
    ///
    /// ```
    /// # use coracle_net::{Buffer, Conn, Server};
    /// # fn become_nobody() -> std::io::Result<()> { Ok(()) }
    /// # fn main() -> std::io::Result<()> {
    /// let server = Server::bind("127.0.0.1:0")?.loops(2).listen()?;
    /// become_nobody()?;
    /// let running = server.start(|_peer| |_: &mut Conn<'_>, _: &mut Buffer| Ok(()))?;
    /// running.handle().stop();
    /// running.join()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`bind`](Server::bind).
    pub fn listen(mut self) -> io::Result<Server> {
        self.opened = Some(self.open_sockets(self.loops.unwrap_or_else(available_cores))?);
        Ok(self)
    }

    /// The listening sockets of each loop, with the index of the service each belongs to.
    fn open_sockets(&self, loops: usize) -> io::Result<Vec<Vec<(usize, OwnedFd)>>> {
        let mut all: Vec<Vec<(usize, OwnedFd)>> = (0..loops).map(|_| Vec::new()).collect();
        for (index, service) in self.services.iter().enumerate() {
            for socket in &service.sockets {
                all[0].push((index, socket.as_fd().try_clone_to_owned()?));
                let address = socket.local_address();
                for sockets in all.iter_mut().skip(1) {
                    if self.placement != Placement::ReusePort {
                        continue;
                    }
                    let fd = match address {
                        // What waits in the queue of a worker's own socket would be lost with the worker.
                        Address::Ip(_) if Worker::current().is_none() => {
                            ListenSocket::bind(address, &service.options)?.into_fd()
                        }
                        _ => socket.as_fd().try_clone_to_owned()?,
                    };
                    sockets.push((index, fd));
                }
            }
        }
        Ok(all)
    }
}

impl Service {
    fn open(
        name: &str,
        addresses: &impl ToAddresses,
        options: &ListenOptions,
        make: Option<Arc<Make>>,
    ) -> io::Result<Service> {
        let addresses = addresses.to_addresses()?;
        let alone = options.clone().reuse_port(false);
        let options = options.clone().reuse_port(true);
        let sockets = match Worker::current() {
            Some(worker) => worker.bind_all(&addresses, &options)?,
            None => {
                // Sockets that share a port do not mind another server on it: ask first, as one that does not.
                for address in
                    addresses.iter().filter(|it| it.ip().is_some_and(|ip| ip.port() != 0))
                {
                    drop(ListenSocket::bind(address, &alone)?);
                }
                ListenSocket::bind_all(&addresses[..], &options)?
            }
        };
        Ok(Service { name: name.into(), sockets, options, settings: None, make })
    }

    /// What the loops must know; `memory` is for all services that have no limit of their own.
    fn spec(&self, default: &Settings, memory: &MemoryLimit) -> Spec {
        let has_own_settings = self.settings.is_some();
        let mut settings = self.settings.clone().unwrap_or_else(|| default.clone());
        settings.limit_memory.get_or_insert_with(|| memory.clone());
        Spec {
            name: Arc::clone(&self.name),
            settings,
            has_own_settings,
            make: Arc::clone(self.make.as_ref().expect("it was checked")),
        }
    }
}

/// The program and the kernel need memory, too.
fn half_of_the_memory() -> usize {
    usize::try_from(memory_bytes() / 2).unwrap_or(usize::MAX)
}

fn boxed<P: Protocol>(make: impl Fn(&Address) -> P + Send + Sync + 'static) -> Arc<Make> {
    Arc::new(move |peer| Box::new(make(peer)))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.services.iter().map(|service| &*service.name).collect();
        f.debug_struct("Server")
            .field("services", &names)
            .field("addresses", &self.local_addresses())
            .finish_non_exhaustive()
    }
}

/// What every loop must know about a service.
pub(crate) struct Spec {
    pub(crate) name: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) has_own_settings: bool,
    pub(crate) make: Arc<Make>,
}

/// What one loop's thread is given.
struct LoopThread {
    index: usize,
    backend: Option<Backend>,
    /// To be bound to the processor with this number, of those there are.
    processor: Option<usize>,
    specs: Arc<[Spec]>,
    sockets: Vec<(usize, OwnedFd)>,
    shared: Arc<Shared>,
    files: Arc<[SocketFile]>,
    start: Option<Arc<ThreadStart>>,
}

/// Stops the whole server when one of its loops has ended, for whatever reason: a server that serves only some of
/// those who come is worse than none.
struct EndWithServer(Arc<Shared>);

impl Drop for EndWithServer {
    fn drop(&mut self) {
        ServerHandle::new(Arc::clone(&self.0)).stop();
    }
}

impl LoopThread {
    fn run(self, report: Sender<(usize, io::Result<LoopHandle>)>) -> io::Result<()> {
        let index = self.index;
        let (shared, _files) = (Arc::clone(&self.shared), Arc::clone(&self.files));
        let lp = match self.open() {
            Ok(lp) => lp,
            Err(error) => {
                let copy = io::Error::new(error.kind(), error.to_string());
                let _ = report.send((index, Err(error)));
                return Err(copy);
            }
        };
        if report.send((index, Ok(lp.handle()))).is_err() {
            return Ok(());
        }
        drop(report); // whoever waits for reports waits for the other loops only
        let _end = EndWithServer(shared);
        lp.run()
    }

    fn open(self) -> io::Result<Loop> {
        let mut builder = Builder::new();
        if let Some(backend) = self.backend {
            builder = builder.backend(backend);
        }
        let lp = builder.build()?;
        if let Some(processor) = self.processor {
            let number = pin_thread(processor).map_err(|error| {
                let text = format!("cannot bind loop {} to a processor: {error}", self.index);
                io::Error::new(error.kind(), text)
            })?;
            tracing::debug!("loop {} stays on processor {number}", self.index);
        }
        Site::open(&lp, self.index, &self.specs, self.sockets, &self.shared)?;
        if let Some(start) = self.start {
            start(&lp, self.index);
        }
        Ok(lp)
    }
}

/// A server that runs on threads of its own. Dropping it leaves it running; [`join`](Running::join) waits for its
/// end.
pub struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    finish: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("addresses", &self.local_addresses())
            .finish_non_exhaustive()
    }
}

impl Running {
    /// What stops it, counts and broadcasts, from any thread.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(Arc::clone(&self.shared))
    }

    /// Where it listens.
    pub fn local_addresses(&self) -> &[Address] {
        self.shared.addresses()
    }

    /// Waits until the process is asked to end (`SIGINT`, `SIGTERM`) or somebody [stops](ServerHandle::stop) the
    /// server, and then until it has stopped. A second request ends the process at once.
    ///
    /// # Errors
    /// What a loop ended with.
    pub fn serve_until_terminated(self) -> io::Result<()> {
        Terminator::install(Some(self.handle().backend()))?.wait(self)
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// What a loop ended with.
    pub fn join(self) -> io::Result<()> {
        if let Some(worker) = Worker::current() {
            worker.ready();
        }
        self.join_threads()
    }

    fn join_threads(self) -> io::Result<()> {
        let mut result = Ok(());
        for thread in self.threads {
            let ended = match thread.join() {
                Ok(ended) => ended,
                Err(_) => Err(io::Error::other("a loop's thread panicked")),
            };
            if result.is_ok() {
                result = ended;
            }
        }
        if let Some(finish) = self.finish {
            finish();
        }
        result
    }
}

/// Listens for requests to end, on a loop of its own.
struct Terminator {
    lp: Loop,
    /// There when the loop runs: a request that comes before that waits.
    server: Rc<OnceCell<ServerHandle>>,
}

impl Terminator {
    fn install(backend: Option<Backend>) -> io::Result<Terminator> {
        let mut builder = Builder::new();
        if let Some(backend) = backend {
            builder = builder.backend(backend);
        }
        let lp = builder.build()?;
        let server: Rc<OnceCell<ServerHandle>> = Rc::default();
        let target = Rc::clone(&server);
        lp.on_terminate(move |_| target.get().into_iter().for_each(ServerHandle::stop_on_request))?;
        Ok(Terminator { lp, server })
    }

    /// Waits for the end of `running`, whoever asks for it.
    fn wait(self, running: Running) -> io::Result<()> {
        let handle = running.handle();
        let _ = self.server.set(handle.clone());
        handle.when_stopped(self.lp.handle());
        if let Some(worker) = Worker::current() {
            worker.ready(); // the supervisor may ask it to end from here on
        }
        self.lp.run()?;
        running.join()
    }
}

/// Who is given a connection that one loop has accepted for all.
pub(crate) fn chooser(
    placement: Placement,
    stats: &[Vec<Arc<ServiceStats>>],
    service: usize,
) -> Chooser {
    Chooser::new(
        placement,
        stats.iter().map(|loop_stats| Arc::clone(&loop_stats[service])).collect(),
    )
}
