//! A supervisor and its workers, as their users see them: processes, sockets, signals and a log, on every backend.
//!
//! A case starts its own test again, in a process that is the supervisor; the workers are that test once more.

mod cases;
mod subject;

macro_rules! suite {
    (on $backend:ident: $($case:ident)*) => {
        mod $backend {
            $(
                #[test]
                fn $case() {
                    let path = concat!(stringify!($backend), "::", stringify!($case));
                    crate::cases::$case(&crate::subject::Test { path, backend: stringify!($backend) });
                }
            )*
        }
    };
    (on $backend:ident) => {
        suite! {
            on $backend:
            g3_connections_are_served_by_all_workers
            g3_full_worker_leaves_connections_to_the_others
            loops_of_a_worker_share_its_sockets
            g3_killed_worker_is_replaced
            g3_worker_that_hangs_leaves_connections_to_the_others
            g3_connection_that_waits_survives_the_only_worker
            g3_worker_that_dies_at_its_start_is_started_after_growing_pauses
            request_to_end_ends_all_gracefully
            worker_that_does_not_end_is_killed
            second_request_to_end_ends_all_at_once
            hang_up_replaces_all_without_losing_a_connection
            successor_that_cannot_serve_replaces_nobody
            successor_that_never_serves_is_killed_and_tried_again
            time_to_end_may_be_without_end
            nobody_can_connect_while_it_ends
            killed_supervisor_takes_its_workers_along
            user_signals_are_passed_on
            socket_that_nobody_asks_for_is_closed_with_a_warning
            file_of_a_socket_is_removed_by_the_supervisor_only
            descriptors_are_given_back
            program_started_by_a_worker_is_no_worker
            worker_has_no_workers
        }
    };
}

suite!(on uring);
suite!(on epoll);
suite!(on poll);
suite!(on select);
