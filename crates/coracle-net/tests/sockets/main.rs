//! Connections that are opened and datagrams, on all backends: each case holds a row of the capability table.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend it concerns,
//! so that its path names the backend (`uring::f3_…`). Names begin with the row they hold.
//!
//! Time decides nothing here: real backends are held to "never early" and to the order of things, and what is
//! exact is checked under the simulator's virtual clock.

mod connecting;
mod datagrams;
mod harness;
mod multicast;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        real: { $($real_file:ident :: { $($real:ident),* $(,)? })* }
        sim: { $($sim_file:ident :: { $($sim:ident),* $(,)? })* }
    ) => {
        suite!(@backend uring Uring $($($all_file $all)*)* $($($real_file $real)*)*);
        suite!(@backend epoll Epoll $($($all_file $all)*)* $($($real_file $real)*)*);
        suite!(@backend poll Poll $($($all_file $all)*)* $($($real_file $real)*)*);
        suite!(@backend select Select $($($all_file $all)*)* $($($real_file $real)*)*);
        suite!(@backend sim Sim $($($all_file $all)*)* $($($sim_file $sim)*)*);
    };
    (@backend $name:ident $backend:ident $($file:ident $case:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    let path = concat!(stringify!($name), "::", stringify!($case));
                    let backend = coracle_loop::demux::Backend::$backend;
                    crate::$file::$case(&crate::harness::Harness::new(backend, path));
                }
            )*
        }
    };
}

suite! {
    all: {
        connecting::{
            f3_connects_and_sends_small_packets_at_once,
            f3_connects_to_a_unix_socket,
            f3_connects_after_a_refused_address,
            f3_connects_after_an_address_that_does_not_answer,
            f3_first_address_that_answers_is_taken,
            f3_connects_when_the_server_comes_later,
            f3_refusal_names_the_address_the_cause_and_the_attempts,
            f3_each_address_is_named_with_its_cause,
            f3_time_out_is_told,
            f3_no_address_is_an_error,
            f3_callback_is_never_called_from_inside_connect,
            f3_pause_between_rounds_is_not_cut_short,
            f3_cancel_before_the_first_turn,
            f3_cancel_while_an_address_does_not_answer,
            f3_cancel_during_a_pause,
            f3_cancel_after_the_end_changes_nothing,
            f3_callback_may_connect_again,
            f3_loop_dropped_while_connecting_drops_the_callback,
        }
        datagrams::{
            f4_server_answers_its_clients,
            f4_ipv6,
            f4_unix_datagrams,
            f4_connected_socket_hears_its_peer_only,
            f4_batch_arrives_whole_and_in_order,
            f4_busy_socket_does_not_hold_the_loop,
            f4_full_queue_drops_and_counts,
            f4_bytes_in_the_queue_are_bounded,
            f4_order_is_kept_while_the_queue_is_sent,
            f4_truncated_datagram_says_so,
            f4_refusal_is_told_and_receiving_goes_on,
            f4_refusal_of_one_datagram_does_not_cost_the_next,
            f4_datagram_that_cannot_be_sent_is_told_and_counted,
            f4_payload_is_sent_without_a_copy_to_many,
            f4_closed_socket_is_quiet_and_gives_its_address_back,
            f4_callback_may_close_its_own_socket,
            f4_panic_in_a_callback_costs_one_datagram,
            f4_address_in_use_is_named,
            f4_several_sockets_share_a_port,
        }
        multicast::{ f4_refusal_to_join_names_the_group }
    }
    // The ports and interfaces of a machine are Linux's business.
    real: {
        connecting::{ f3_never_connects_to_itself }
        multicast::{
            f4_group_hears_and_who_has_left_does_not,
            f4_group_of_ipv6_hears_and_who_has_left_does_not,
        }
    }
    // Exact, because the clock and the faults are ours.
    sim: {
        connecting::{
            f3_time_out_is_exact,
            f3_pauses_grow_and_are_replayed_by_the_seed,
            f3_any_failure_is_told_once_and_leaks_nothing,
            f3_cancel_of_an_attempt_that_could_not_begin,
            f3_unkind_kernels_are_survived,
            f3_cancel_at_any_moment_leaks_nothing,
        }
        datagrams::{
            f4_any_failure_is_survived_and_leaks_nothing,
            f4_unkind_kernels_lose_datagrams_and_make_up_none,
            f4_broken_socket_does_not_keep_the_loop_busy,
            f4_failures_between_datagrams_do_not_add_up,
        }
    }
}
