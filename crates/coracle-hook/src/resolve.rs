//! Looking up names, on a few threads that do nothing else: libc's own look-up blocks, and its system calls are
//! not to be reached from outside.
//!
//! Whoever finds all threads taken, and the queue full, waits for a place: only its coroutine does.
#![allow(unsafe_code)]

use crate::raw::set_errno;
use crate::wait::{self, Stop, lp};
use coracle_coro::WaitsFor;
use coracle_coro::hooking::{Wait, Wake, is_cancelled, shielded};
use coracle_coro::sync::{Permit, Semaphore};
use coracle_loop::demux::Backend;
use coracle_loop::pool::{Pool, PoolSettings};
use libc::{addrinfo, c_char, c_int, c_void, hostent, size_t, sockaddr, socklen_t};
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// How many names are looked up at the same time.
const THREADS: usize = 8;

/// How many look-ups may be with the pool, the rest waits before it.
const LIMIT_LOOKUPS: usize = 256;

/// The largest answer of `gethostbyname`, in words: no host has so many names and addresses.
const LIMIT_HOST_WORDS: usize = 1 << 17;

static PLACES: Semaphore = Semaphore::new(LIMIT_LOOKUPS);

static POOL: LazyLock<Option<Pool>> = LazyLock::new(|| {
    let name = "names".to_owned();
    let settings = PoolSettings {
        threads: THREADS,
        limit_queue: LIMIT_LOOKUPS,
        name,
        ..PoolSettings::default()
    };
    Pool::new(settings).ok()
});

hook! {
    park fn getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo,
    ) -> c_int {
        // SAFETY: what the caller has promised libc.
        unsafe { find_addresses(node, service, hints, found) }
    }

    park fn getnameinfo(
        address: *const sockaddr, len: socklen_t, host: *mut c_char, host_len: socklen_t, service: *mut c_char,
        service_len: socklen_t, flags: c_int,
    ) -> c_int {
        let lent = (Lent(address.cast_mut().cast()), Lent(host.cast()), Lent(service.cast()));
        elsewhere(move || {
            let (address, host, service) = lent.all();
            let (address, host, service): (*const sockaddr, *mut c_char, *mut c_char) =
                (address.cast(), host.cast(), service.cast());
            // SAFETY: the caller's pointers, and he waits.
            unsafe {
                next!(getnameinfo(
                    address: *const sockaddr, len: socklen_t, host: *mut c_char, host_len: socklen_t,
                    service: *mut c_char, service_len: socklen_t, flags: c_int,
                ) -> c_int)
            }
        })
        .unwrap_or_else(|failed| {
            set_errno(failed);
            libc::EAI_SYSTEM
        })
    }

    park fn gethostbyname(name: *const c_char) -> *mut hostent {
        // SAFETY: what the caller has promised libc.
        unsafe { find_host(name, None) }
    }

    park fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
        // SAFETY: what the caller has promised libc.
        unsafe { find_host(name, Some(family)) }
    }

    park fn gethostbyname_r(
        name: *const c_char, place: *mut hostent, space: *mut c_char, len: size_t, found: *mut *mut hostent,
        error: *mut c_int,
    ) -> c_int {
        let lent = (Lent(name.cast_mut().cast()), Lent(place.cast()), Lent(space.cast()));
        let answers = (Lent(found.cast()), Lent(error.cast()), Lent(std::ptr::null_mut()));
        let said = elsewhere(move || {
            let (name, place, space) = lent.all();
            let (found, error, _) = answers.all();
            let (name, place, space, found, error): (
                *const c_char, *mut hostent, *mut c_char, *mut *mut hostent, *mut c_int,
            ) = (name.cast(), place.cast(), space.cast(), found.cast(), error.cast());
            // SAFETY: the caller's pointers, and he waits.
            unsafe {
                next!(gethostbyname_r(
                    name: *const c_char, place: *mut hostent, space: *mut c_char, len: size_t,
                    found: *mut *mut hostent, error: *mut c_int,
                ) -> c_int)
            }
        });
        // SAFETY: the caller's places for the answers.
        said.unwrap_or_else(|failed| unsafe { found_nobody(failed, found, error) })
    }

    park fn gethostbyname2_r(
        name: *const c_char, family: c_int, place: *mut hostent, space: *mut c_char, len: size_t,
        found: *mut *mut hostent, error: *mut c_int,
    ) -> c_int {
        let lent = (Lent(name.cast_mut().cast()), Lent(place.cast()), Lent(space.cast()));
        let answers = (Lent(found.cast()), Lent(error.cast()), Lent(std::ptr::null_mut()));
        let said = elsewhere(move || {
            let (name, place, space) = lent.all();
            let (found, error, _) = answers.all();
            let (name, place, space, found, error): (
                *const c_char, *mut hostent, *mut c_char, *mut *mut hostent, *mut c_int,
            ) = (name.cast(), place.cast(), space.cast(), found.cast(), error.cast());
            // SAFETY: the caller's pointers, and he waits.
            unsafe {
                next!(gethostbyname2_r(
                    name: *const c_char, family: c_int, place: *mut hostent, space: *mut c_char, len: size_t,
                    found: *mut *mut hostent, error: *mut c_int,
                ) -> c_int)
            }
        });
        // SAFETY: the caller's places for the answers.
        said.unwrap_or_else(|failed| unsafe { found_nobody(failed, found, error) })
    }
}

unsafe extern "C" {
    /// Where a thread has its `h_errno`.
    safe fn __h_errno_location() -> *mut c_int;
}

/// An error that is in `errno`, in the language of `h_errno`.
const NETDB_INTERNAL: c_int = -1;

fn set_host_error(error: c_int) {
    // SAFETY: libc's own place for it, which every thread has.
    unsafe { *__h_errno_location() = error };
}

/// A look-up that was not made, because of `failed`: what the callers of `gethostbyname_r` find.
///
/// # Safety
/// The places are null, or places.
unsafe fn found_nobody(failed: c_int, found: *mut *mut hostent, error: *mut c_int) -> c_int {
    // SAFETY: as promised.
    unsafe {
        if let Some(found) = found.as_mut() {
            *found = std::ptr::null_mut();
        }
        if let Some(error) = error.as_mut() {
            *error = NETDB_INTERNAL;
        }
    }
    set_errno(failed);
    failed
}

/// A host that was found, and the memory that it points into.
struct Host {
    entry: Box<hostent>,
    _space: Vec<u64>,
}

// SAFETY: plain memory, which has one owner, and pointers into that.
unsafe impl Send for Host {}

thread_local! {
    /// The last one that was found for somebody of this thread: it stays until the next look-up.
    static HOST: RefCell<Option<Host>> = const { RefCell::new(None) };
}

/// gethostbyname(3) and gethostbyname2(3), by their newer forms: libc has one place for the answers of all
/// threads, and they are given in another thread.
///
/// # Safety
/// The name is one.
unsafe fn find_host(name: *const c_char, family: Option<c_int>) -> *mut hostent {
    // SAFETY: as promised.
    let name = unsafe { CStr::from_ptr(name) }.to_owned();
    match left_behind(move || look_up(&name, family)) {
        Ok(Ok(host)) => {
            let kept = HOST.try_with(|place| -> *mut hostent {
                &raw mut *place.borrow_mut().insert(host).entry
            });
            kept.unwrap_or(std::ptr::null_mut())
        }
        Ok(Err((errno, error))) => {
            set_errno(errno);
            set_host_error(error);
            std::ptr::null_mut()
        }
        Err(errno) => {
            set_errno(errno);
            set_host_error(NETDB_INTERNAL);
            std::ptr::null_mut()
        }
    }
}

/// Fails with an `errno` and an `h_errno`.
fn look_up(name: &CStr, family: Option<c_int>) -> Result<Host, (c_int, c_int)> {
    let mut space = vec![0_u64; 256];
    loop {
        // SAFETY: numbers and null pointers.
        let mut entry: Box<hostent> = Box::new(unsafe { std::mem::zeroed() });
        let mut answer: *mut hostent = std::ptr::null_mut();
        let mut failed: c_int = 0;
        let name: *const c_char = name.as_ptr();
        let place: *mut hostent = &raw mut *entry;
        let at: *mut c_char = space.as_mut_ptr().cast();
        let len: size_t = size_of_val(space.as_slice());
        let found: *mut *mut hostent = &raw mut answer;
        let error: *mut c_int = &raw mut failed;
        // SAFETY: a name, and places for the answers, which live through the call.
        let said = unsafe {
            match family {
                None => next!(gethostbyname_r(
                    name: *const c_char, place: *mut hostent, at: *mut c_char, len: size_t,
                    found: *mut *mut hostent, error: *mut c_int,
                ) -> c_int),
                Some(family) => next!(gethostbyname2_r(
                    name: *const c_char, family: c_int, place: *mut hostent, at: *mut c_char, len: size_t,
                    found: *mut *mut hostent, error: *mut c_int,
                ) -> c_int),
            }
        };
        match said {
            libc::ERANGE if space.len() < LIMIT_HOST_WORDS => space = vec![0; 2 * space.len()],
            0 if !answer.is_null() => return Ok(Host { entry, _space: space }),
            _ => {
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
                return Err((errno, failed));
            }
        }
    }
}

/// Memory of somebody who waits until it is given back.
#[derive(Clone, Copy)]
struct Lent(*mut c_void);

// SAFETY: it is used by the one thread that does the work, while its owner waits for the end of that.
unsafe impl Send for Lent {}

impl Lent {
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// Several of them: taken out at once, so that a closure has the pair and not the pointers.
trait All {
    fn all(self) -> (*mut c_void, *mut c_void, *mut c_void);
}

impl All for (Lent, Lent, Lent) {
    fn all(self) -> (*mut c_void, *mut c_void, *mut c_void) {
        (self.0.get(), self.1.get(), self.2.get())
    }
}

/// A list that libc has made, and that is libc's to free.
struct Addresses(*mut addrinfo);

// SAFETY: a list of plain memory, which has one owner.
unsafe impl Send for Addresses {}

impl Drop for Addresses {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it is libc's, and nobody else has it.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

/// What a look-up leaves: what libc has said, its `errno`, and the list.
type Found = (c_int, c_int, Addresses);

/// getaddrinfo(3). The work owns what it needs, so that a coroutine that is cancelled can leave it behind.
///
/// # Safety
/// As getaddrinfo(3).
unsafe fn find_addresses(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: null, or a text that ends with zero.
    let text =
        |text: *const c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned());
    let (node, service): (Option<CString>, Option<CString>) = (text(node), text(service));
    // SAFETY: null, or hints, in which only the first four numbers count.
    let hints = unsafe { hints.as_ref() }
        .map(|hints| [hints.ai_flags, hints.ai_family, hints.ai_socktype, hints.ai_protocol]);
    let work = move || -> Found {
        // SAFETY: plain numbers and null pointers.
        let mut own: addrinfo = unsafe { std::mem::zeroed() };
        if let Some([flags, family, kind, protocol]) = hints {
            (own.ai_flags, own.ai_family, own.ai_socktype, own.ai_protocol) =
                (flags, family, kind, protocol);
        }
        let mut list = std::ptr::null_mut();
        let at =
            |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let (node, service): (*const c_char, *const c_char) = (at(&node), at(&service));
        let hints: *const addrinfo =
            if hints.is_some() { &raw const own } else { std::ptr::null() };
        let found: *mut *mut addrinfo = &raw mut list;
        // SAFETY: texts, hints and a place that live through the call.
        let said = unsafe {
            next!(getaddrinfo(
                node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo,
            ) -> c_int)
        };
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        (said, errno, Addresses(if said == 0 { list } else { std::ptr::null_mut() }))
    };
    match left_behind(work) {
        Ok((said, errno, mut list)) => {
            if said == 0 {
                // SAFETY: the caller's place for the answer, which is his to free from now on.
                unsafe { *found = std::mem::replace(&mut list.0, std::ptr::null_mut()) };
            } else if said == libc::EAI_SYSTEM {
                set_errno(errno);
            }
            said
        }
        Err(error) => {
            set_errno(error);
            libc::EAI_SYSTEM
        }
    }
}

/// Where the answer of a thread lands.
struct Landing<T> {
    place: Mutex<Option<T>>,
    /// Wakes the one who waits, also if the work is lost.
    wake: Wake,
}

/// Tells who waits when it is dropped, whatever has become of the work.
struct Over<T>(Arc<Landing<T>>);

impl<T> Drop for Over<T> {
    fn drop(&mut self) {
        self.0.wake.wake();
    }
}

impl<T> Landing<T> {
    fn take(&self) -> Option<T> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A place before the pool.
fn take_place() -> Result<Permit<'static>, c_int> {
    PLACES.acquire(1).map_err(|error| match error.kind() {
        std::io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        _ => error.raw_os_error().unwrap_or(libc::ECANCELED),
    })
}

/// Has `work` done by a thread. Fails if the coroutine is cancelled or late meanwhile; what comes of it is then
/// dropped.
fn left_behind<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, c_int> {
    if is_cancelled() {
        return Err(wait::refuse_cancelled());
    }
    // One thread, so that a replay is a replay.
    let pool = POOL.as_ref().filter(|_| lp().backend() != Backend::Sim);
    let Some(pool) = pool else { return Ok(work()) };
    crate::gate::note_wait();
    let place = take_place()?;
    let wait = Wait::new(WaitsFor::Name);
    let landing = Arc::new(Landing { place: Mutex::new(None), wake: wait.waker() });
    let over = Over(Arc::clone(&landing));
    let job = move || {
        let _place = place; // also if nobody waits any more
        let result = work();
        *over.0.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    };
    if pool.try_run(job).is_err() {
        return Err(libc::EAGAIN);
    }
    let ended = wait::told(wait.wait(None));
    match landing.take() {
        Some(result) => Ok(result),
        None => {
            Err(ended.map_or_else(|stop: Stop| stop.errno(libc::ETIMEDOUT), |()| libc::ECANCELED))
        }
    }
}

/// Has `work` done by a thread, and waits for it whatever happens: it has borrowed.
fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, c_int> {
    if is_cancelled() {
        let error = wait::refuse_cancelled();
        set_errno(error);
        return Err(error);
    }
    shielded(|| {
        let pool = POOL.as_ref().filter(|_| lp().backend() != Backend::Sim);
        let Some(pool) = pool else { return Ok(work()) };
        crate::gate::note_wait();
        let _place = take_place()?;
        let landing: Arc<Mutex<State<(T, c_int)>>> = Arc::new(Mutex::new(State::Waiting(None)));
        let over = Lost(Arc::clone(&landing));
        let job = move || {
            let result = work();
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            over.land(State::Done((result, errno)));
        };
        if pool.try_run(job).is_err() {
            set_errno(libc::EAGAIN);
            return Err(libc::EAGAIN);
        }
        loop {
            let wait = Wait::new(WaitsFor::Name);
            {
                let mut state = landing.lock().unwrap_or_else(PoisonError::into_inner);
                match std::mem::replace(&mut *state, State::Waiting(Some(wait.waker()))) {
                    State::Waiting(_) => {}
                    State::Done((result, errno)) => {
                        set_errno(errno);
                        return Ok(result);
                    }
                    State::Lost => return Err(libc::EAGAIN),
                }
            }
            wait.wait(None);
        }
    })
}

/// What has become of work that is waited for whatever happens.
enum State<T> {
    Waiting(Option<Wake>),
    Done(T),
    Lost,
}

/// If it is dropped without an answer, the work was lost.
struct Lost<T>(Arc<Mutex<State<T>>>);

impl<T> Lost<T> {
    fn land(&self, state: State<T>) {
        let before =
            std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), state);
        if let State::Waiting(Some(wake)) = before {
            wake.wake();
        }
    }
}

impl<T> Drop for Lost<T> {
    fn drop(&mut self) {
        let waiting =
            matches!(&*self.0.lock().unwrap_or_else(PoisonError::into_inner), State::Waiting(_));
        if waiting {
            self.land(State::Lost);
        }
    }
}
