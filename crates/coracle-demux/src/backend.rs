//! Which backend to use: the setting, else `CORACLE_BACKEND`, else what the kernel allows.

use crate::wakeup::WakeupKind;
use crate::{Demux, epoll, poll, readiness, select, uring};
use std::env;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// The ways coracle can talk to a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// io_uring: the kernel does the work and reports completions.
    Uring,
    /// epoll, edge-triggered and registered once per descriptor.
    Epoll,
    /// poll(2): any descriptor, cost grows with their number.
    Poll,
    /// select(2): descriptors below 1024 only; for comparison and for other systems.
    Select,
    /// The simulated kernel of [`sim`](crate::sim); never chosen by [`open`].
    Sim,
}

impl Backend {
    /// Its name, as `CORACLE_BACKEND` and the command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Uring => "uring",
            Backend::Epoll => "epoll",
            Backend::Poll => "poll",
            Backend::Select => "select",
            Backend::Sim => "sim",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Uring => "io_uring",
            other => other.name(),
        })
    }
}

impl FromStr for Backend {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Backend> {
        match text {
            "uring" | "io_uring" => Ok(Backend::Uring),
            "epoll" => Ok(Backend::Epoll),
            "poll" => Ok(Backend::Poll),
            "select" => Ok(Backend::Select),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("unknown backend {text:?}: use uring, epoll, poll or select"),
            )),
        }
    }
}

/// What a backend can do and what it costs, for those who want to know before they choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// The kernel performs the operations itself, so a batch of them costs one system call.
    pub completions: bool,
    /// The cost of a wait does not grow with the number of descriptors waited for.
    pub constant_cost: bool,
    /// Any descriptor number can be used; select cannot go beyond 1023.
    pub any_descriptor: bool,
    /// A peer's half-close is told apart from data and from errors.
    pub early_close: bool,
    /// File operations need no thread of [`Settings::threads`].
    pub files: bool,
}

/// A piece of blocking work for a thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Who runs blocking work for backends that cannot do it otherwise.
#[derive(Clone)]
pub struct Threads(Rc<dyn Fn(Job) -> Result<(), Job>>);

impl Threads {
    /// Threads given by `run`, which returns the job when it has no room for it.
    pub fn new(run: impl Fn(Job) -> Result<(), Job> + 'static) -> Threads {
        Threads(Rc::new(run))
    }

    /// One new thread per job: for tests and for loops without a pool.
    pub fn spawn_each() -> Threads {
        Threads::new(|job| {
            let mut job = Some(job);
            let name = "coracle-file".to_owned();
            // The job is lost with the closure if spawning fails; its descriptor and its memory are
            // then dropped, and the operation would never complete. So ask for the thread first.
            let (send, receive) = std::sync::mpsc::sync_channel::<Job>(1);
            let spawned = std::thread::Builder::new().name(name).spawn(move || {
                if let Ok(job) = receive.recv() {
                    job();
                }
            });
            match spawned {
                Ok(_) => match send.send(job.take().expect("the job is taken once")) {
                    Ok(()) => Ok(()),
                    Err(refused) => Err(refused.0),
                },
                Err(_) => Err(job.take().expect("the job is taken once")),
            }
        })
    }

    pub(crate) fn run(&self, job: Job) -> Result<(), Job> {
        (self.0)(job)
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Threads")
    }
}

/// How to open a demultiplexer. Every limit has a name and a default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Which backend; `None` asks `CORACLE_BACKEND`, then the kernel.
    pub backend: Option<Backend>,
    /// How other threads end a wait; `None` takes the best there is.
    pub wakeup: Option<WakeupKind>,
    /// How many buffers may be lent at once on io_uring (a power of two). 256: the kernel takes them in turn, so
    /// more than fit the processor's cache are always cold.
    pub limit_lent_buffers: u16,
    /// Size of a lent buffer on io_uring, in bytes; not zero. 4096.
    pub lent_buffer_bytes: u32,
    /// io_uring: how many operations may be queued before they are handed over (a power of two). 1024.
    pub limit_submissions: u32,
    /// io_uring: use what only newer kernels have. Off, it behaves as on the oldest supported kernel.
    pub modern_uring: bool,
    /// Who runs file operations on the readiness backends. One new thread each, unless a loop gives better.
    pub threads: Threads,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            backend: None,
            wakeup: None,
            limit_lent_buffers: 256,
            lent_buffer_bytes: 4096,
            limit_submissions: 1024,
            modern_uring: true,
            threads: Threads::spawn_each(),
        }
    }
}

/// Opens the best backend the settings, the environment and the kernel allow.
///
/// A backend that is refused (old kernel, seccomp, sysctl, limits) costs one line in the log with the
/// reason, and the next one is tried: io_uring, epoll, poll, select.
///
/// ```
/// use coracle_demux::{Backend, Demux, Settings};
///
/// let mut settings = Settings::default();
/// settings.backend = Some(Backend::Poll);
/// let demux = coracle_demux::open(settings).unwrap();
/// assert_eq!(demux.backend(), Backend::Poll);
/// ```
///
/// # Errors
/// A setting that cannot be, an unknown name in `CORACLE_BACKEND`, `Backend::Sim` (use
/// [`sim::Kernel`](crate::sim::Kernel)), or the last refusal when nothing could be opened.
pub fn open(settings: Settings) -> io::Result<Box<dyn Demux>> {
    settings.check()?;
    let wanted = match settings.backend {
        Some(backend) => backend,
        None => match env::var("CORACLE_BACKEND") {
            Ok(name) if !name.is_empty() => name.parse().map_err(|error: io::Error| {
                io::Error::new(error.kind(), format!("CORACLE_BACKEND: {error}"))
            })?,
            _ => Backend::Uring,
        },
    };
    let fallbacks: &[Backend] = match wanted {
        Backend::Uring => &[Backend::Epoll, Backend::Poll, Backend::Select],
        Backend::Epoll => &[Backend::Poll, Backend::Select],
        Backend::Poll => &[Backend::Select],
        Backend::Select | Backend::Sim => &[],
    };
    let mut candidate = wanted;
    for &fallback in fallbacks {
        match open_one(candidate, &settings) {
            Ok(demux) => return Ok(demux),
            Err(refusal) => tell(candidate, &refusal, fallback),
        }
        candidate = fallback;
    }
    open_one(candidate, &settings).map_err(|refusal| refused(candidate, &refusal))
}

impl Settings {
    /// Whether io_uring could be asked for these.
    fn check(&self) -> io::Result<()> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        for (name, count) in [
            ("limit_lent_buffers", u32::from(self.limit_lent_buffers)),
            ("limit_submissions", self.limit_submissions),
        ] {
            if !count.is_power_of_two() || count > 32768 {
                return invalid(format!("{name} must be a power of two up to 32768, not {count}"));
            }
        }
        if self.lent_buffer_bytes == 0 {
            return invalid("lent_buffer_bytes is 0: nothing could be received".to_owned());
        }
        Ok(())
    }
}

fn open_one(backend: Backend, settings: &Settings) -> io::Result<Box<dyn Demux>> {
    Ok(match backend {
        Backend::Uring => Box::new(uring::Uring::open(settings)?),
        Backend::Epoll => Box::new(readiness::Adaptor::open(epoll::Epoll::open()?, settings)?),
        Backend::Poll => Box::new(readiness::Adaptor::open(poll::Poll::default(), settings)?),
        Backend::Select => Box::new(readiness::Adaptor::open(select::Select::default(), settings)?),
        Backend::Sim => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a simulated kernel is made with sim::Kernel::new(seed).demux()",
            ));
        }
    })
}

/// Says that a backend is passed over, and why. Once for each backend: all loops of a process are refused alike.
fn tell(backend: Backend, refusal: &io::Error, fallback: Backend) {
    static TOLD: AtomicU8 = AtomicU8::new(0);
    let text = format!("{}; using {fallback}", refused(backend, refusal));
    let bit = 1 << backend as u8;
    if TOLD.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        tracing::warn!("{text}");
    } else {
        tracing::debug!("{text}");
    }
}

fn refused(backend: Backend, refusal: &io::Error) -> io::Error {
    io::Error::new(refusal.kind(), format!("cannot use {backend}: {refusal}"))
}

/// A random number from the operating system.
pub(crate) fn os_seed() -> u64 {
    let mut bytes = [0u8; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // std asks the same system call and has its own ways around a refusal.
        _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u64),
    }
}
