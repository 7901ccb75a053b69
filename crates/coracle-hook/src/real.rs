//! How libc's own function is reached from the one that has its name: the next definition, in the order in which
//! the dynamic linker looks. Used outside coroutines, where a hooked call must be what it is without hooks: a
//! cancellation point of pthread's, with its `errno`.
#![allow(unsafe_code)]

use crate::raw;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Looks it up now, so that nobody has to later: between `fork` and `exec` the linker's lock may be held for
    /// ever.
    pub(crate) fn resolve(&self) {
        self.found.store(next(self.name), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn is_resolved(&self) -> bool {
        !self.found.load(Ordering::Relaxed).is_null()
    }

    /// Null if libc has none.
    #[inline]
    pub(crate) fn look(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { next(self.name) } else { found }
    }

    /// Never null.
    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    /// May be called by two threads at once: both find the same.
    #[cold]
    fn find(&self) -> *mut c_void {
        let found = next(self.name);
        if found.is_null() {
            let name = self.name.to_string_lossy();
            let text = format!(
                "coracle: {name} was called, and libc's own cannot be found: aborting; link the program \
                 dynamically, or leave out the feature `hook`\n"
            );
            raw::tell(&text); // std's way to standard error is a call of ours, too
            std::process::abort();
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// The definition of `name` after ours, or null.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with zero; the address is only looked up.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The definition of `name` that everybody else is given, or null.
pub(crate) fn first(name: &CStr) -> *mut c_void {
    // SAFETY: as above.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Whether an address is in the program or library that this code is in.
pub(crate) fn is_of_this_file(address: *const c_void) -> bool {
    let own = file_of(is_of_this_file as *const c_void);
    own.is_some() && file_of(address) == own
}

/// Where the file is loaded that has something at this address.
fn file_of(address: *const c_void) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address, which is only compared, and a place for the answer, which is filled unless that is zero.
    unsafe {
        let known = libc::dladdr(address, found.as_mut_ptr()) != 0;
        known.then(|| found.assume_init().dli_fbase.addr())
    }
}

/// Defines functions with the names of libc's.
///
/// ```text
/// hook! {
///     park fn recv(fd: c_int, space: *mut c_void, len: usize, flags: c_int) -> isize {
///         what a coroutine does that may be parked
///     }
/// }
/// ```
///
/// Anybody else gets libc's own. With `always` in place of `park`, what stands there is for everybody, and calls
/// `next!(name)` itself. Also makes a `SYMBOLS`, for the self-test, and `libcs`, with libc's own.
macro_rules! hook {
    ($(
        $mode:ident fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block
    )*) => {
        $(
            // SAFETY: it has the name, the arguments and the duties of libc's: who calls it has promised libc what
            // libc demands, and it does what libc does.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                hook!(@$mode $name ($($argument: $type),*) -> $result $body)
            }
        )*

        /// Libc's own.
        #[allow(non_upper_case_globals)] // they have libc's names
        mod libcs {
            $(pub(super) static $name: $crate::real::Next = $crate::real::Next::new(c_name!($name));)*
        }

        /// Every function that is defined here.
        pub(crate) static SYMBOLS: &[$crate::symbols::Symbol] = &[$($crate::symbols::Symbol {
            name: c_name!($name),
            address: || $name as *const () as usize,
            next: &libcs::$name,
        }),*];
    };
    (@park $name:ident ($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {{
        if $crate::gate::may_park() {
            return $crate::gate::inside(|| $body);
        }
        // SAFETY: as it was called.
        unsafe { next!($name($($argument: $type),*) -> $result) }
    }};
    (@always $name:ident $arguments:tt -> $result:ty $body:block) => { $body };
}

/// Calls libc's own.
macro_rules! next {
    ($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty) => {{
        // SAFETY: a function of libc's, whose type this is: who calls has said so.
        let next: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(libcs::$name.get());
        next($($argument),*)
    }};
}

/// A name as C has it.
macro_rules! c_name {
    ($name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}
