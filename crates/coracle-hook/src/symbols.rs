//! Which names are taken over, and whether they really are: the self-test.

use crate::real;
use std::ffi::CStr;

/// A function with the name of one of libc's.
pub(crate) struct Symbol {
    pub(crate) name: &'static CStr,
    /// Ours.
    pub(crate) address: fn() -> usize,
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Symbol> {
    crate::TABLES.iter().flat_map(|table| table.iter())
}

/// The names that are not in place, and why: with `first` and `next`, what the linker says.
pub(crate) fn missing(
    first: impl Fn(&CStr) -> usize,
    next: impl Fn(&CStr) -> usize,
) -> Vec<String> {
    let problem = |symbol: &Symbol| {
        let name = symbol.name.to_string_lossy();
        if first(symbol.name) != (symbol.address)() {
            Some(format!("{name} (others are given another one)"))
        } else if next(symbol.name) == 0 {
            Some(format!("{name} (libc's own cannot be found)"))
        } else {
            None
        }
    };
    all().filter_map(problem).collect()
}

/// Those of this process.
pub(crate) fn missing_here() -> Vec<String> {
    missing(|name| real::first(name).addr(), |name| real::next(name).addr())
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
        let found = missing(|_| 1, |_| 1);
        assert_eq!(found.len(), all().count());
        assert!(found.iter().any(|one| one == "recv (others are given another one)"), "{found:?}");
    }

    #[test]
    fn s33_symbol_without_one_behind_it_is_told() {
        let found = missing(|name| real::first(name).addr(), |_| 0);
        assert_eq!(found.len(), all().count());
        assert!(found.iter().any(|one| one == "recv (libc's own cannot be found)"), "{found:?}");
    }
}
