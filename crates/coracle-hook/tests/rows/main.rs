//! Hooks, fact by fact: one suite for all backends, as in the `tests/rows` of `coracle-coro`.
//!
//! Hooks are enabled for the whole process by the first who asks; in plain threads they change nothing.
#![allow(unsafe_code)]

#[allow(dead_code)] // each suite uses what it needs
#[path = "../../../coracle-coro/tests/rows/harness.rs"]
mod harness;

mod helping;
mod streams;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        real: { $($real_file:ident :: { $($real:ident),* $(,)? })* }
    ) => {
        mod hooks {
            suite!(@backend uring Uring $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend epoll Epoll $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend poll Poll $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend select Select $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend sim Sim $($($all_file $all)*)*);
        }
    };
    (@backend $name:ident $backend:ident $($file:ident $case:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    let path = concat!("hooks::", stringify!($name), "::", stringify!($case));
                    let backend = coracle_loop::demux::Backend::$backend;
                    crate::helping::enable();
                    crate::$file::$case(&crate::harness::Harness::new(backend, path));
                }
            )*
        }
    };
}

suite! {
    all: {
        streams::{
            s32_std_tcp_echo,
        }
    }
    real: {}
}
