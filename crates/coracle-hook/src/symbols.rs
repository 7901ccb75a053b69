//! Which names are taken over, and whether they really are: the self-test.

use crate::real::{self, Next};
use std::ffi::CStr;

/// A function with the name of one of libc's.
pub(crate) struct Symbol {
    pub(crate) name: &'static CStr,
    /// Ours.
    pub(crate) address: fn() -> usize,
    /// Libc's own.
    pub(crate) next: &'static Next,
}

/// What older versions of libc do not have: ours makes the system call then.
const OPTIONAL: &[&CStr] = &[c"close_range", c"closefrom", c"epoll_pwait2"];

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Symbol> {
    crate::TABLES.iter().flat_map(|table| table.iter())
}

/// The names that are not in place, and why: `is_ours`, whether others are given ours; `next`, what is behind it.
pub(crate) fn missing(
    is_ours: impl Fn(&Symbol) -> bool,
    next: impl Fn(&CStr) -> usize,
) -> Vec<String> {
    let problem = |symbol: &Symbol| {
        let name = symbol.name.to_string_lossy();
        if !is_ours(symbol) {
            Some(format!("{name} (others are given another one)"))
        } else if next(symbol.name) == 0 && !OPTIONAL.contains(&symbol.name) {
            Some(format!("{name} (libc's own cannot be found)"))
        } else {
            None
        }
    };
    all().filter_map(problem).collect()
}

/// Looks up all of libc's own.
pub(crate) fn resolve() {
    all().for_each(|symbol| symbol.next.resolve());
}

/// Those of this process.
pub(crate) fn missing_here() -> Vec<String> {
    missing(is_ours_here, |name| real::next(name).addr())
}

/// In a library that was loaded, even the address of our own function is what others are given. So it is looked
/// at, too, in which file that is.
fn is_ours_here(symbol: &Symbol) -> bool {
    let first = real::first(symbol.name);
    first.addr() == (symbol.address)() && real::is_of_this_file(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s33_symbols_of_this_process_are_in_place() {
        assert_eq!(missing_here(), Vec::<String>::new());
        assert!(all().count() > 20, "{}", all().count());
    }

    #[test]
    fn s33_symbol_that_others_are_given_elsewhere_is_told() {
        let found = missing(|_| false, |_| 1);
        assert_eq!(found.len(), all().count());
        assert!(found.iter().any(|one| one == "recv (others are given another one)"), "{found:?}");
    }

    #[test]
    fn s33_libcs_own_is_not_taken_for_ours() {
        let libcs = |symbol: &Symbol| real::is_of_this_file(real::next(symbol.name));
        assert!(!all().any(libcs));
    }

    #[test]
    fn s33_symbol_without_one_behind_it_is_told() {
        let found = missing(is_ours_here, |_| 0);
        assert_eq!(found.len(), all().count() - OPTIONAL.len());
        assert!(found.iter().any(|one| one == "recv (libc's own cannot be found)"), "{found:?}");
        assert!(!found.iter().any(|one| one.starts_with("epoll_pwait2")), "{found:?}");
    }

    #[test]
    fn s33_libcs_own_are_known_before_they_are_called() {
        resolve();
        assert!(all().all(|symbol| symbol.next.is_resolved() || OPTIONAL.contains(&symbol.name)));
    }
}
