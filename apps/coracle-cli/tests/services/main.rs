//! The other servers of the program, and `coracle load`: black boxes, on every backend, in every style there is.

mod load;
#[allow(dead_code)]
#[path = "../echo/program.rs"]
mod program;
mod proxy;
mod streams;
mod time;

macro_rules! suite {
    ($style:ident $backend:ident: $($file:ident :: { $($case:ident),* $(,)? })*) => {
        mod $backend {
            $($(
                #[test]
                fn $case() {
                    let (backend, style) = (stringify!($backend), stringify!($style));
                    crate::$file::$case(crate::program::Kind { backend, style });
                }
            )*)*
        }
    };
    ($style:ident on $backend:ident: $($others:tt)*) => {
        suite! {
            $style $backend:
            time::{
                r1_answer_is_the_time_and_the_message,
                zero_bytes_survive,
                hundred_kilobytes_survive,
            }
            proxy::{
                messages_go_both_ways,
                client_may_end_first,
                upstream_may_end_first,
                ten_megabytes_arrive_intact,
                directions_do_not_wait_for_each_other,
                upstream_that_refuses_closes_the_client,
                p6_log_has_levels,
                upstream_that_dies_takes_the_client_along,
                upstream_that_died_unnoticed_takes_the_client_along,
                client_that_dies_takes_the_upstream_along,
                slow_reader_costs_bounded_memory,
                d2_request_to_end_is_told_to_both_sides,
            }
            $($others)*
        }
    };
}

/// Those that are there in callbacks only go along.
macro_rules! suite_with_others {
    (on $backend:ident) => {
        suite! {
            callback on $backend:
            streams::{
                r1_discard_says_nothing,
                r1_chargen_sends_the_lines_of_the_rfc,
                chargen_stops_when_nobody_reads,
            }
            load::{
                r4_every_message_comes_back,
                r4_rate_is_kept,
                r4_idle_connections_are_held,
                large_messages_come_back,
                wrong_server_is_found_out,
            }
        }
    };
}

suite_with_others!(on uring);
suite_with_others!(on epoll);
suite_with_others!(on poll);
suite_with_others!(on select);

/// The servers that are written in coroutines, too.
mod coroutine {
    suite!(coroutine on uring:);
    suite!(coroutine on epoll:);
    suite!(coroutine on poll:);
    suite!(coroutine on select:);
}

/// And those that are written in futures.
mod asynchronous {
    suite!(async on uring:);
    suite!(async on epoll:);
    suite!(async on poll:);
    suite!(async on select:);
}
