//! One suite for all backends: each case holds a row of the capability table.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend, so that its
//! path names the backend (`rows::epoll::e12_…`). Names begin with the row they hold.

mod closing;
mod conversation;
mod descriptors;
mod dropping;
mod ending;
mod fairness;
mod flow;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/rows/harness.rs"]
mod harness;
mod layers;
mod listening;
mod memory;
mod moments;
mod passing;
mod pausing;
mod peers;
mod rates;
mod relaying;
mod sample_layers;
mod tasks;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        sim: { $($sim_file:ident :: { $($sim:ident),* $(,)? })* }
    ) => {
        mod rows {
            suite!(@backend uring Uring $($($all_file $all)*)*);
            suite!(@backend epoll Epoll $($($all_file $all)*)*);
            suite!(@backend poll Poll $($($all_file $all)*)*);
            suite!(@backend select Select $($($all_file $all)*)*);
            suite!(@backend sim Sim $($($all_file $all)*)* $($($sim_file $sim)*)*);
        }
    };
    (@backend $name:ident $backend:ident $($file:ident $case:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    let path = concat!("rows::", stringify!($name), "::", stringify!($case));
                    let backend = coracle_loop::demux::Backend::$backend;
                    crate::$file::$case(&crate::harness::Harness::new(backend, path));
                }
            )*
        }
    };
}

suite! {
    all: {
        relaying::{
            r3_each_direction_ends_by_itself,
            r3_who_is_not_read_is_not_read_from,
            r3_end_of_one_is_the_end_of_both,
        }
        conversation::{
            i1_callbacks_come_in_order_and_the_last_is_on_close,
            i1_error_of_a_callback_closes_after_what_was_written,
            i1_panic_closes_that_connection_only,
            i1_panic_that_is_caught_loses_nothing_that_was_written_before,
            i1_function_is_a_protocol,
            e5_half_a_message_stays_for_the_next_time,
            e5_protocol_that_keeps_its_input_starves_nobody,
            e5_message_beyond_the_limit_ends_the_connection,
            i2_switch_hands_over_what_is_left,
            i3_state_is_dropped_with_its_connection,
            i5_hijack_comes_after_the_output_and_with_the_rest_of_the_input,
            i4_idle_connection_is_closed_on_time,
            i4_idle_connection_may_be_asked_instead,
            i5_foreign_descriptor_becomes_a_connection,
            f12_addresses_are_told,
            f12_what_the_kernel_knows_is_told,
            f11_option_is_set_on_a_live_connection,
        }
        flow::{
            e1_answer_larger_than_the_socket_arrives_whole,
            e1_answer_is_tried_at_once_and_waits_only_without_room,
            e2_what_is_put_together_arrives_in_order,
            e2_owned_shared_and_borrowed_bytes_arrive_in_order,
            e2_bytes_are_sent_from_where_they_are_and_then_released,
            e2_file_is_sent_between_bytes,
            e2_file_larger_than_the_limit_of_output_is_sent,
            e3_packets_of_a_callback_are_sent_together,
            e3_room_is_reserved_behind_what_was_received,
            e4_urgent_packet_goes_between_packets,
            e6_producer_stops_at_the_high_mark_and_goes_on,
            e6_peer_that_does_not_read_is_not_read,
            e6_slow_reader_is_closed_at_the_limit,
            e6_reader_is_not_slow_before_the_kernel_was_asked,
            e6_reader_that_takes_a_little_is_waited_for,
            e7_paused_connection_gets_nothing_until_resumed,
            write_then_is_called_when_everything_before_it_is_sent,
        }
        closing::{
            e12_answer_survives_unread_input,
            e12_peer_that_never_ends_meets_the_deadline,
            e12_abort_throws_away_what_waits,
            e12_long_answer_is_whole_however_late_it_is_taken,
            i4_idle_connection_is_still_sent_its_answer,
            e12_work_under_way_is_waited_for,
            e12_peer_that_takes_nothing_meets_a_deadline_all_the_same,
            e5_what_nobody_reads_any_more_does_not_count,
            f13_half_close_is_answered_fifty_times,
            f13_our_side_can_end_first,
            i1_reset_is_told_once,
            a10_stale_handle_does_not_reach_the_next_connection,
            a10_recycled_descriptor_starts_clean,
            g9_loop_that_is_dropped_tells_its_connections,
        }
        pausing::{
            e6_full_connection_is_read_if_asked_for,
            e7_end_that_comes_during_a_pause_is_told_after_the_input,
            e7_what_was_left_is_shown_again_though_nothing_is_read,
            e7_peer_that_is_ahead_of_a_paused_protocol_is_not_punished,
            connection_in_its_own_callback_is_out_of_reach,
            connection_reaches_another_of_its_loop,
            h1_callback_does_something_with_another_connection,
        }
        moments::{
            h1_two_connections_in_one_callback_keep_their_bytes_apart,
            h1_connection_in_its_own_callback_is_not_called_again,
            i1_connection_opened_inside_a_callback_gets_none_of_its_bytes,
            i1_panic_of_the_maker_ends_that_connection_only,
            i2_switch_after_the_end_is_told_the_end,
            i2_switch_when_something_was_sent_comes_before_the_next_bytes,
            i5_hijack_survives_the_end_of_the_stream,
            i5_panic_of_a_taker_closes_the_socket,
            endless_writer_leaves_others_their_turn,
            e12_what_follows_a_write_is_sent_while_it_closes,
            e12_small_answer_that_finds_no_room_is_not_lost,
        }
        dropping::{
            i2_switch_asked_for_twice_drops_the_first_in_peace,
            i5_hijack_asked_for_twice_drops_the_first_in_peace,
            e2_owner_of_bytes_may_use_the_connection_when_they_are_sent,
            e2_owner_of_no_bytes_may_use_the_connection,
            i9_layer_does_not_reach_its_own_connection,
            i9_nothing_goes_past_a_layer_that_has_failed,
            i1_drop_that_panics_ends_that_connection_only,
            i1_reason_of_the_users_is_dropped_in_peace,
        }
        descriptors::{ f9_server_without_descriptors_serves_on_and_recovers }
        tasks::{
            h1_task_runs_on_its_connection,
            h1_task_of_a_connection_that_is_gone_falls_back,
            h1_task_of_a_loop_that_is_gone_falls_back,
            i1_panic_of_a_fallback_ends_nothing_else,
            h4_something_is_done_later_and_every_so_often,
            g2_answers_of_offloaded_work_keep_their_order,
            g2_connection_that_closes_sends_the_answers_first,
            g2_our_side_ends_after_the_answers,
            g2_what_is_written_after_the_end_is_not_sent_with_the_answers,
        }
        listening::{
            f8_all_who_wait_are_accepted,
            f11_listener_takes_a_socket_with_options,
            i8_over_capacity_is_told_and_closed,
            i8_who_is_turned_away_is_told_of,
            i8_who_is_turned_away_by_its_protocol_takes_no_place,
            f1_closed_listener_leaves_its_connections_alone,
            t12_who_meets_a_limit_is_counted,
        }
        fairness::{
            e9_peer_that_floods_leaves_others_their_turn,
            e9_peer_that_takes_everything_leaves_others_their_turn,
            e9_file_leaves_others_their_turn,
            e9_peers_that_do_not_read_leave_others_their_turn,
        }
        passing::{
            f6_descriptors_travel_both_ways,
            f6_descriptors_keep_their_place_among_bytes,
            f6_descriptors_that_nobody_asked_for_are_closed,
            f6_more_descriptors_than_may_wait_end_the_connection,
            f6_descriptors_do_not_pass_through_a_layer,
        }
        memory::{
            e11_connection_that_has_more_to_keep_pays,
            e11_output_that_nobody_reads_counts,
            e11_much_that_passes_in_pieces_is_not_refused,
            e11_without_memory_new_connections_are_turned_away,
        }
        ending::{ e7_end_is_told_after_what_came_before_it }
        layers::{
            i9_layer_changes_the_bytes_of_both_directions,
            e10_bytes_are_held_back_until_a_frame_is_whole,
            i9_handshake_comes_before_plain_bytes,
            i9_handshake_goes_on_while_output_waits_and_reading_is_paused,
            i9_paused_protocol_gets_nothing_though_its_layer_is_read,
            e10_layers_stack,
            i9_pushed_in_the_middle_it_gets_what_was_not_read,
            i9_pushed_behind_output_that_waits_it_leaves_that_alone,
            i9_layer_that_fails_says_so_and_ends_the_connection,
            i9_layer_that_fails_is_the_reason_though_the_peer_resets_then,
            i9_what_came_before_an_error_is_shown,
            i9_layer_that_fails_lets_nothing_out_that_was_meant_for_it,
            i9_layer_that_panics_ends_its_connection_only,
            i9_clean_end_is_told_and_answered,
            i9_stream_that_is_cut_off_is_an_error,
            i9_end_in_the_middle_of_a_handshake_is_an_error,
            e5_decoded_bytes_count_for_the_limit,
            e7_paused_protocol_has_nothing_decoded,
            e1_much_passes_a_layer_whole_and_a_slow_reader_is_waited_for,
            e1_much_is_echoed_through_two_layers,
            e2_file_passes_through_a_layer,
            i9_connection_with_a_layer_cannot_be_given_away,
            i9_our_side_can_end_first_with_last_words,
            i9_nothing_behind_what_has_begun_holds_up_the_end,
            i9_service_puts_a_layer_on_every_connection,
            i9_layer_and_rate_go_together,
        }
        rates::{
            e8_what_waits_for_the_rate_counts_for_the_marks,
            e8_limited_echo_is_whole,
            e8_limited_connection_is_given_away_with_all_it_received,
            e8_limit_of_others_does_not_slow_a_connection,
        }
    }
    sim: {
        conversation::{ i4_input_and_touch_put_it_off }
        moments::{ e7_end_is_not_told_before_the_bytes_that_came_before_it }
        descriptors::{ f9_server_at_the_edge_of_its_limit_does_not_flood_the_log }
        flow::{
            e6_stalled_reader_is_closed_on_time,
            e2_nothing_follows_a_head_that_could_not_be_sent,
        }
        layers::{ e2_file_that_nobody_can_read_now_is_read_later }
        rates::{
            e8_sending_keeps_to_the_rate,
            e8_many_small_packets_keep_to_the_rate,
            e8_receiving_keeps_to_the_rate,
            e8_what_was_not_sent_after_all_is_not_counted,
            e8_never_more_than_the_rate_and_one_burst,
            e8_slow_rate_is_exact_over_an_hour,
            e8_file_keeps_to_the_rate,
            e8_group_shares_its_rate_in_turn,
            e8_group_receives_by_its_rate,
            e8_silence_saves_up_one_burst_and_no_more,
            e8_limit_can_be_changed_and_taken_away,
            e8_mark_is_called_when_what_is_before_it_is_sent,
        }
    }
}
