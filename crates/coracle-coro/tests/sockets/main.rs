//! Sockets of coroutines: one suite for all backends, as in `tests/rows`.

#[allow(dead_code)] // each suite uses what it needs
#[path = "../rows/harness.rs"]
mod harness;

mod accepting;
mod cancelling;
mod closing;
mod limiting;
mod listing;
mod reading_ahead;
mod seeds;
mod selecting;
mod serving;
mod sharing;
mod streams;
mod transferring;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        real: { $($real_file:ident :: { $($real:ident),* $(,)? })* }
        sim: { $($sim_file:ident :: { $($sim:ident),* $(,)? })* }
    ) => {
        mod sockets {
            suite!(@backend uring Uring $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend epoll Epoll $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend poll Poll $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend select Select $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend sim Sim $($($all_file $all)*)* $($($sim_file $sim)*)*);
        }
    };
    (@backend $name:ident $backend:ident $($file:ident $case:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    let path = concat!("sockets::", stringify!($name), "::", stringify!($case));
                    let backend = coracle_loop::demux::Backend::$backend;
                    crate::$file::$case(&crate::harness::Harness::new(backend, path));
                }
            )*
        }
    };
}

suite! {
    all: {
        transferring::{
            s29_echo_over_tcp,
            s29_much_is_echoed_and_nothing_is_lost,
            s29_echo_over_a_unix_socket,
            s29_vectored_writes_are_one_stream,
            s29_udp_has_messages_and_senders,
            s29_connected_udp,
            s29_unix_datagrams,
            s29_half_close_in_both_directions,
            s29_dropped_write_half_ends_its_direction,
            s29_descriptor_changes_its_owner,
            s29_addresses_are_told,
            s29_nobody_listens,
            s29_reset_is_an_error,
            s29_write_to_one_who_is_gone_is_epipe,
            t4_read_fills_what_it_was_given_and_no_more,
            g5_thousand_coroutines_talk_at_once,
            s56_callback_and_coroutine_talk_over_a_socket,
            s29_callback_makes_sockets_and_cannot_wait,
            s29_thread_without_a_loop_is_told,
            s29_socket_of_another_loop_is_refused,
            s29_busy_socket_leaves_others_their_turn,
        }
        limiting::{
            s16_timeout_around_a_read,
            s16_read_timeout_of_the_socket,
            s16_write_to_a_peer_who_does_not_read_times_out,
            s16_accept_times_out,
            s16_connect_times_out,
            s16_receive_of_a_message_times_out,
            s16_timeout_in_the_line,
            s16_zero_is_refused,
        }
        cancelling::{
            t4_cancel_at_every_park_point,
            t4_cancel_from_another_thread,
            t4_cancelled_read_leaves_its_slice_alone,
            t4_cancel_loses_no_byte,
            t4_timeouts_lose_no_byte,
            t4_partial_write_is_told_before_the_cancel,
            t4_loop_goes_with_operations_in_flight,
            t4_cancelled_twice,
            t4_wait_in_a_destructor_of_a_panic_fails,
            s10_shielded_read_ends_with_its_shield,
        }
        sharing::{
            s30_reader_and_writer_at_the_same_time,
            s30_readers_have_their_turns_in_order,
            s30_writers_do_not_mix,
            s30_who_leaves_the_line_is_passed_over,
            s30_panic_gives_up_the_turn,
        }
        closing::{
            s31_close_wakes_who_reads,
            s31_close_wakes_who_writes,
            s31_close_wakes_those_in_the_line,
            s31_close_wakes_who_accepts,
            s31_closed_socket_is_refused,
            s31_shutdown_wakes_who_reads,
            s31_dropped_socket_sends_what_was_written,
            s31_socket_dropped_outside_its_loop,
            s31_socket_outlives_its_loop,
        }
        accepting::{
            f8_connections_are_accepted_in_order,
            f8_those_who_accept_have_their_turns_in_order,
            f10_two_listeners_share_an_address,
            f1_address_in_use_is_named,
        }
        selecting::{
            s25_first_of_two_streams,
            s25_connection_that_was_reset_is_not_accepted,
            s25_arm_that_loses_consumes_nothing,
            s25_listener_channel_and_time,
            s25_writable_when_the_peer_has_read,
            s25_cancelled_select,
            s25_closed_socket_is_chosen,
            s25_many_sockets_as_poll,
            s25_default_when_nothing_is_ready,
        }
        serving::{
            g5_serve_has_a_coroutine_for_each_connection,
            g5_error_and_panic_end_one_connection,
            g5_cancelled_server_lets_its_connections_end,
        }
        reading_ahead::{
            s29_much_is_read_ahead_and_nothing_is_lost,
            s29_lines_are_read_ahead,
            s29_what_was_read_ahead_goes_along,
            s29_no_more_is_kept_than_the_limit,
            s30_others_wait_while_one_reads_ahead,
            s30_who_reads_ahead_waits_for_its_turn,
            s31_close_wakes_who_reads_ahead,
            s31_reset_is_told_once_to_who_reads_ahead,
            s31_read_ahead_is_dropped_outside_its_loop,
            s16_read_ahead_within_a_time,
            t4_cancelled_read_ahead_loses_no_byte,
            t4_cancelled_into_parts_gives_everything_back,
            s29_read_ahead_stays_on_its_loop,
            s31_close_wakes_who_reads_ahead_while_bytes_wait,
            s31_own_end_wakes_who_reads_ahead,
            s31_dropped_read_ahead_is_no_owner,
        }
        listing::{
            s49_list_says_which_socket_is_waited_for,
            s49_list_says_who_connects,
        }
    }
    real: {
        reading_ahead::{
            s31_read_ahead_is_closed_before_its_run_ends,
        }
        selecting::{
            s25_default_only_when_nothing_is_ready,
        }
        transferring::{
            s29_socket_of_std_and_back,
        }
        closing::{
            s31_what_was_written_arrives_although_the_loop_is_gone,
        }
        transferring::{
            f7_name_is_looked_up_beside_the_loop,
        }
    }
    sim: {
        accepting::{
            f9_without_descriptors_accept_pauses_and_recovers,
        }
        limiting::{
            s16_timeout_of_a_read_is_exact,
        }
        seeds::{
            t4_cancels_leak_nothing_whatever_happens,
        }
        listing::{
            s49_time_of_a_wait_after_a_completion_is_exact,
            s51_who_ends_by_a_completion_waits_no_more,
        }
    }
}
