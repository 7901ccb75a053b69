//! One suite for all backends: each case holds a statement of the contract on `coracle_demux::Demux`.
//!
//! A case is a function of a [`Harness`]; `suite!` makes it a test of every backend, so that
//! `contract::epoll::…` and `contract::sim::…` have the same number of tests. Names begin with the
//! statement (`rule_05_…`) or with the row of the capability table (`a10_…`) they hold.

mod answering;
mod closing;
mod files;
mod harness;
mod lending;
mod polling;
mod receiving;
mod sending;
mod sockets;
mod together;
mod waiting;
mod world;

macro_rules! suite {
    ($($file:ident :: { $($case:ident),* $(,)? })*) => {
        mod contract {
            suite!(@backend uring Uring $($($file $case)*)*);
            suite!(@backend epoll Epoll $($($file $case)*)*);
            suite!(@backend poll Poll $($($file $case)*)*);
            suite!(@backend select Select $($($file $case)*)*);
            suite!(@backend sim Sim $($($file $case)*)*);
        }
    };
    (@backend $name:ident $backend:ident $($file:ident $case:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    let backend = coracle_demux::Backend::$backend;
                    crate::$file::$case(&mut crate::harness::Harness::new(backend));
                }
            )*
        }
    };
}

suite! {
    answering::{
        rule_05_close_comes_after_the_end_of_what_was_just_asked_for,
        rule_06_answers_to_a_row_of_sends_land_where_they_belong,
        rule_06_rows_larger_than_every_queue_land_where_they_belong,
    }
    closing::{
        rule_01_stale_handle_is_refused_and_touches_nothing,
        rule_05_close_cancels_what_is_in_flight_and_completes_last,
        rule_05_close_with_a_receive_in_flight_sends_the_end_of_stream,
        rule_05_two_closes_are_one,
        rule_05_detached_descriptor_can_be_adopted_again,
        rule_05_detach_is_refused_while_something_is_in_flight,
        rule_05_close_during_a_file_operation_awaits_it,
        a10_event_for_a_closed_descriptor_does_not_reach_the_next_owner,
    }
    files::{
        rule_04_cancelled_send_file_ends_once,
        rule_09_send_file_sends_a_stretch_of_a_file,
        rule_09_send_file_to_a_slow_reader_sends_everything,
        rule_09_what_goes_before_a_file_comes_before_it,
        rule_09_what_goes_before_no_file_comes_all_the_same,
        rule_11_file_is_written_and_read_back,
        rule_11_missing_file_is_an_error,
        rule_11_read_at_the_end_gives_nothing,
        rule_11_stat_tells_the_size,
    }
    lending::{
        rule_04_cancel_of_all_others_in_a_turn_loses_nothing_that_lands,
        rule_04_cancelled_receive_into_lent_space_loses_nothing,
        rule_04_cancelled_receive_leaves_lent_space_alone,
        rule_04_end_of_everything_forgets_awaited_sends,
        rule_04_end_of_everything_leaves_lent_space_alone,
        rule_05_close_ends_a_receive_into_lent_space,
        rule_05_detach_waits_for_a_receive_into_lent_space,
        rule_05_number_of_a_reclaimed_socket_is_used_again,
        rule_05_reclaim_ends_a_receive_of_a_lent_socket,
        rule_05_reclaimed_receive_loses_nothing,
        rule_05_close_of_all_others_in_a_turn_comes_after_their_landing,
        rule_06_lent_space_is_filled_however_the_receive_was_started,
        rule_06_lent_space_learns_the_end_of_the_stream,
        rule_06_socket_that_is_lent_receives_and_stays_blocking,
        rule_05_awaited_send_ends_with_its_lease,
        rule_05_awaited_receive_ends_with_its_lease,
        rule_05_reclaim_and_abandon_end_an_awaited_send,
        rule_05_socket_that_was_replaced_is_not_confirmed,
        rule_07_awaited_send_finds_no_room_and_says_so,
        rule_07_awaited_sends_go_together_and_are_told,
        rule_07_second_receive_into_lent_space_is_refused,
        rule_08_awaited_sends_starve_nobody,
        rule_08_poll_and_send_do_not_disturb_a_receive_into_lent_space,
    }
    polling::{
        a7_poll_is_one_shot,
        a7_poll_reports_a_level_each_time_it_is_submitted,
        a7_poll_waits_for_what_is_not_there_yet,
        a8_half_close_is_told_apart_and_unread_data_survives,
        a11_regular_file_cannot_be_polled,
        rule_08_several_polls_of_one_descriptor_all_complete,
        rule_08_full_connection_is_not_writable_until_read,
        rule_08_poll_and_receive_of_one_descriptor_do_not_disturb_each_other,
    }
    receiving::{
        rule_03_lent_receive_goes_on_until_the_end_of_the_stream,
        rule_03_accept_takes_one_connection_after_another,
        rule_04_cancelled_receive_gives_its_memory_back,
        rule_04_cancelled_lent_receive_loses_no_byte,
        rule_04_cancelled_accept_loses_no_connection,
        rule_04_stale_cancel_is_ignored,
        rule_06_large_transfer_arrives_whole,
        rule_06_bytes_behind_an_urgent_one_are_received,
        rule_06_bursts_beyond_the_buffers_lose_nothing,
        rule_06_kept_buffers_starve_nobody,
        rule_06_receive_into_memory_is_short_when_little_is_there,
        rule_06_receive_at_the_end_of_the_stream_gives_nothing,
        rule_07_second_receive_is_refused,
        rule_07_receive_after_a_full_one_finds_the_rest,
    }
    sending::{
        d5_send_to_a_closed_peer_is_an_error_and_not_a_signal,
        rule_02_payload_comes_back_whatever_the_answer,
        rule_04_cancelled_send_gives_its_memory_back,
        rule_07_blocked_send_goes_on_when_the_peer_reads,
        rule_07_what_the_peer_has_not_taken_is_known,
        rule_07_second_send_is_refused,
        rule_07_stretches_are_sent_in_order,
        rule_07_tried_send_sends_what_it_says_and_no_more,
        rule_07_tried_sends_keep_their_place,
        rule_07_tried_sends_to_a_slow_reader_lose_nothing,
        rule_07_many_tried_sends_in_one_turn,
        rule_07_shutdowns_come_after_what_a_tried_send_left,
        rule_04_cancelled_shutdown_leaves_what_a_tried_send_left,
        rule_05_close_after_a_tried_send_delivers_or_gives_up,
        rule_05_close_gives_up_what_a_tried_send_left,
        rule_05_close_does_not_wait_for_what_a_tried_send_left,
        rule_07_shared_memory_is_sent_on_many_connections,
    }
    sockets::{
        rule_07_both_directions_work_at_once,
        rule_13_connect_to_nobody_is_refused,
        rule_13_receive_without_space_is_refused,
        rule_13_reset_is_an_error_of_the_receive,
        rule_13_address_in_use_is_an_error_of_bind,
        half_closed_connection_still_answers,
        addresses_of_both_ends_agree,
        unix_listener_accepts,
        abstract_unix_name_accepts,
        datagrams_carry_their_sender,
        datagram_too_long_is_marked_truncated,
        descriptors_travel_with_messages,
        send_to_a_full_unix_datagram_socket_waits_without_spinning,
    }
    together::{
        rule_04_cancel_of_all_others_in_a_turn_loses_no_byte,
        rule_05_close_of_all_others_in_a_turn_comes_last,
        rule_07_answers_of_a_turn_reach_everybody,
    }
    waiting::{
        b4_wake_from_another_thread_ends_a_wait,
        b4_wake_before_the_wait_is_not_lost,
        b4_wake_between_wait_and_next_is_not_lost,
        b4_many_wakes_are_no_more_than_one,
        b8_completions_not_taken_are_kept,
        rule_10_wait_of_zero_returns_at_once,
        rule_10_wait_lasts_as_long_as_its_time_out,
        rule_10_wait_ends_at_its_deadline,
        rule_10_earlier_deadline_is_kept_after_a_later_one,
        rule_10_deadline_that_passes_during_work_is_not_counted_on_again,
        b12_time_never_goes_back,
        b11_dump_names_what_is_in_flight,
    }
    world::{
        d1_signal_is_a_completion,
        d1_signal_completes_everyone_who_listens,
        d1_cancelled_signal_is_not_heard_any_more,
        d1_signal_that_cannot_be_caught_is_refused,
        d6_child_exit_tells_the_status,
        d6_unknown_child_is_an_error,
        seeds_differ,
    }
}
