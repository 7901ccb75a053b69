//! `coracle echo`, as its users see it: a black box with a socket, a command line and a log, on every
//! backend, in every style.

mod command_line;
mod program;
mod serving;
mod system_calls;

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
    ($style:ident on $backend:ident) => {
        suite! {
            $style $backend:
            serving::{
                r1_small_messages_come_back,
                three_megabytes_come_back,
                f13_half_close_is_answered_every_time,
                two_hundred_connections_at_once,
                byte_at_a_time,
                unix_socket_by_path_and_by_name,
                slow_reader_costs_bounded_memory,
                reset_leaves_the_others_alone,
                b8_stopped_and_continued_process_goes_on,
                f9_descriptors_run_out_without_a_spin_and_come_back,
                descriptors_are_given_back,
                d2_request_to_end_is_honoured,
                d2_peer_that_stays_is_left_when_its_time_is_up,
                d2_request_at_the_first_moment_is_honoured,
                s49_sigquit_writes_what_the_loops_do,
                d2_stop_with_an_echo_under_way_is_no_reset,
                d2_second_request_ends_it_at_once,
            }
            system_calls::{
                a10_no_call_names_a_closed_descriptor,
                b4_idle_program_makes_no_system_call,
                b8_interrupted_calls_change_nothing,
            }
        }
    };
}

suite!(callback on uring);
suite!(callback on epoll);
suite!(callback on poll);
suite!(callback on select);

/// The same, of the server that is written in coroutines.
mod coroutine {
    suite!(coroutine on uring);
    suite!(coroutine on epoll);
    suite!(coroutine on poll);
    suite!(coroutine on select);
}

/// The same, of the server that is written in futures.
mod asynchronous {
    suite!(async on uring);
    suite!(async on epoll);
    suite!(async on poll);
    suite!(async on select);
}

/// The same, of the server over the sockets of std.
mod hook {
    suite!(hook on uring);
    suite!(hook on epoll);
    suite!(hook on poll);
    suite!(hook on select);
}
