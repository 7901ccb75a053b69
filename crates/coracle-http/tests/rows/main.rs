//! One suite for all backends: each case holds a row of the capability table.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend, so that its
//! path names the backend (`rows::epoll::j1_…`). Names begin with the row they hold.

mod asking;
mod autobahn;
mod bodies;
mod client;
mod dripping;
mod events;
mod handlers;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/rows/harness.rs"]
mod harness;
mod http2;
mod http2_ends;
mod http2_frames;
mod http2_peer;
mod http2_slow;
mod keeping;
mod peers;
mod proxying;
mod refusing;
mod rooms;
mod securing;
mod slow_clients;
mod telling;
mod together;
mod total;
mod tower;
mod websocket;
mod ws_client;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        real: { $($real_file:ident :: { $($real:ident),* $(,)? })* }
        sim: { $($sim_file:ident :: { $($sim:ident),* $(,)? })* }
    ) => {
        mod rows {
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
        together::{
            j1_requests_that_came_together_need_one_coroutine,
            j1_coroutine_that_others_know_handles_one_request,
            j1_locals_are_those_of_one_request,
            j1_locals_are_not_seen_by_what_is_asked_of_the_next_request,
            j1_requests_of_all_kinds_are_answered_in_order,
            j1_what_is_refused_behind_others_is_refused_after_them,
            j1_last_request_behind_others_is_the_last,
        }
        keeping::{
            j1_connection_is_kept,
            j1_http_1_0_ends_with_its_answer,
            j1_http_1_0_is_kept_when_it_asks,
            j1_close_is_honoured_and_nothing_behind_it_is_a_request,
            j1_handler_may_have_the_connection_closed,
            j1_pipelined_requests_are_answered_in_order,
            j1_pipelined_requests_wait_for_a_slow_one,
            j1_what_follows_a_slow_request_is_received_up_to_a_limit,
            j1_client_that_asks_and_does_not_read_is_not_answered_on,
            j1_request_may_come_byte_by_byte,
            j1_half_closed_client_gets_all_its_answers,
            j1_half_closed_client_gets_answers_that_wait_for_room,
            j1_half_a_request_and_the_end_is_no_request,
            j1_requests_of_a_connection_can_be_limited,
            j1_methods_are_told_apart,
        }
        bodies::{
            j2_body_of_a_length,
            j2_body_in_chunks_with_trailers,
            j2_large_body_is_whole,
            j2_expected_continue_is_sent_when_the_body_is_wanted,
            j2_head_has_the_length_of_get_and_no_body,
            j2_some_answers_never_have_a_body,
            j5_body_is_sent_while_it_is_written,
            j5_promised_length_is_kept_or_the_connection_is_cut,
            j5_writer_waits_for_a_client_that_does_not_read,
            j5_large_answer_is_whole,
            j5_body_is_read_while_it_comes,
            j5_continue_is_sent_at_the_first_read,
            j5_client_waits_for_a_reader_that_does_not_read,
            j5_upload_that_breaks_off_is_an_error_of_the_read,
            j5_buffered_body_can_be_read_as_a_stream,
            j5_refused_upload_has_the_status_of_its_refusal,
            j5_handler_may_answer_otherwise_when_its_upload_is_refused,
            j5_upload_that_stops_behind_a_pause_is_late,
            j5_upload_is_late_once,
            j5_body_of_a_handler_on_the_loop_is_buffered,
            j2_trailers_of_a_stream_are_there_at_its_end,
            j2_trailers_are_sent_to_who_asks_for_them,
            j5_body_that_ends_with_the_connection_is_not_cut_in_silence,
            n1_file_is_sent_from_where_it_is,
        }
        rooms::{
            k6_messages_that_wait_for_a_member_are_sent_together,
            k6_room_is_told_through_a_layer,
            k6_room_does_not_wait_for_who_does_not_read,
        }
        refusing::{
            j3_what_can_be_read_in_two_ways_is_refused,
            j3_refusal_comes_behind_the_answers_before_it,
            j4_limits_have_their_answers,
            j4_endless_head_is_not_received,
            j4_bodies_have_a_budget_together,
            j4_head_has_its_time,
            j4_head_that_drips_has_no_more_time,
            j4_body_has_its_time,
            j4_idle_connection_is_closed,
            j4_slow_handler_is_not_idle,
            j4_times_and_limits_may_be_endless,
            j3_refused_head_has_no_body,
        }
        handlers::{
            t6_handlers_that_wait_do_not_hold_each_other_up,
            t6_idle_connection_holds_no_stack,
            t6_handlers_talk_to_each_other,
            t6_panic_of_a_handler_is_a_500,
            t6_panic_of_a_plan_is_a_500,
            j4_plan_has_its_own_limit,
            t6_handler_of_a_client_that_is_gone_runs_on_or_is_cancelled,
            t6_handler_has_its_time,
            t2_handlers_in_three_styles,
            j15_connection_is_handed_to_another_protocol,
            j15_switch_has_no_length,
            j3_wrong_header_of_a_handler_is_not_sent,
            t6_handler_without_a_stack_is_a_503,
            j15_body_is_never_given_to_another_protocol,
            j2_handler_cannot_answer_something_that_is_no_answer,
        }
        asking::{
            j12_request_is_answered_and_its_connection_kept,
            j12_json_forms_and_passwords,
            j12_what_cannot_be_sent_is_refused,
            j12_bodies_are_streamed_both_ways,
            j12_trailers_come_and_go,
            j12_redirects_are_followed_by_their_rules,
            j12_answers_that_can_be_read_in_two_ways_are_refused,
            j12_end_of_a_body_is_found,
            j12_body_that_breaks_off_stays_so,
            j12_what_nobody_asked_for_ends_a_connection,
            j12_stale_connection_is_replaced,
            j12_only_what_may_be_is_tried_again,
            j12_what_takes_too_long_is_an_error,
            j12_upload_that_is_not_taken_is_an_error,
            j12_answers_have_limits,
            j12_body_waits_until_it_is_wanted,
            j12_server_may_answer_before_the_body_was_sent,
            j12_cancelled_request_hears_of_it,
            j12_compressed_answers_are_decoded,
            j12_connections_are_bounded_and_waited_for,
            j12_method_of_the_answer_is_that_of_the_request,
            j12_idle_connections_are_closed_by_their_own_time,
        }
        proxying::{
            j15_request_is_handed_on_and_its_connection_kept,
            j15_head_and_answers_without_a_body_pass,
            j15_large_bodies_are_streamed_both_ways,
            j15_what_comes_slowly_is_handed_on_at_once,
            j15_heads_are_cleaned_both_ways,
            j15_trailers_go_both_ways,
            j15_trailers_that_say_how_to_read_a_message_are_a_502,
            j15_answers_that_are_none_are_a_502,
            j15_answer_that_breaks_off_is_cut,
            j15_half_read_answer_is_nobody_elses,
            j15_upstream_that_is_not_there_is_a_502_or_another,
            j15_only_what_may_be_is_tried_again,
            j15_what_takes_too_long_is_a_504,
            j15_upload_that_is_not_taken_is_a_504,
            j15_answer_may_begin_before_the_upload_ends,
            j15_nobody_to_ask_is_a_503,
            j15_drained_upstream_ends_what_it_has_begun,
            j15_requests_go_to_who_has_the_least,
            j15_health_is_asked_for,
            j15_client_that_is_gone_cancels_what_it_asked,
            j15_upload_that_breaks_off_is_not_whole_for_the_upstream,
            j15_refusal_before_the_body_is_handed_back,
            n2_path_that_leads_up_is_refused,
            j15_websockets_pass,
            j15_upstream_is_told_for_whom_by_the_proxy_protocol,
            j15_health_is_asked_for_behind_a_proxy_header,
        }
        securing::{
            j12_https_is_asked_and_its_connection_kept,
            j12_https_has_bodies_both_ways_at_once,
            j12_https_server_that_is_somebody_else_is_not_asked,
            m2_client_shows_its_certificate,
            m4_body_that_ends_with_its_connection_is_not_cut_in_silence,
            j12_redirects_lead_to_https_and_not_away,
            m4_client_says_the_end,
            j15_upstreams_are_asked_by_https,
            j15_websockets_pass_to_upstreams_by_https,
        }
        telling::{
            j14_refused_requests_are_in_the_access_log,
            j14_refused_requests_have_error_pages,
            j14_middlewares_of_the_route_see_a_refusal,
            j14_handler_that_panics_is_in_the_access_log_and_has_an_error_page,
            j14_app_that_cannot_refuse_is_left_out,
            j14_what_finds_no_stack_is_logged_once,
        }
        slow_clients::{
            j1_answers_are_whole_however_late_they_are_read,
            j1_half_a_body_and_the_end_is_not_waited_for,
            j1_request_that_has_begun_is_answered_though_the_server_stops,
        }
        total::{
            j4_request_that_is_not_there_in_all_its_time_is_late,
            j4_answer_that_is_not_there_in_all_its_time_is_cut,
            j4_answer_that_is_not_taken_in_all_its_time_is_cut,
            j4_last_answer_that_is_not_taken_in_all_its_time_is_cut,
            j4_request_of_http_2_has_all_its_time_and_no_more,
        }
        autobahn::{
            k1_autobahn_1_framing,
            k1_autobahn_2_pings_and_pongs,
            k1_autobahn_3_reserved_bits,
            k1_autobahn_4_opcodes,
            k1_autobahn_5_fragmentation,
            k1_autobahn_6_utf_8,
            k1_autobahn_7_closing,
            k1_autobahn_9_and_10_large_messages,
            k3_autobahn_12_and_13_compression,
        }
        websocket::{
            k1_request_that_lacks_something_is_told_what,
            k1_origins_are_looked_at,
            k1_subprotocol_is_one_that_both_speak,
            k1_what_follows_the_request_is_heard,
            k1_unmasked_frames_and_large_ones_are_refused,
            k1_flood_of_pings_is_stopped,
            k1_callbacks_are_told_everything_in_order,
            k1_error_or_panic_of_a_handler_ends_its_socket_only,
            k1_peer_that_is_paused_is_not_heard,
            k1_peer_that_does_not_answer_a_close_is_cut,
            k1_close_is_answered_though_nobody_listens,
            k1_socket_that_is_not_closed_but_lost_is_an_error,
            k1_sender_waits_for_a_peer_that_does_not_read,
            k1_socket_in_callbacks_holds_no_stack,
            k1_halves_are_used_by_two_coroutines,
            k2_silent_peer_is_asked_and_let_go,
            k4_client_talks_to_a_server,
            k4_client_in_callbacks_and_one_that_is_dropped,
            k4_client_refuses_what_is_no_answer,
            k4_client_sends_no_subprotocol_that_is_no_word,
            k4_client_talks_through_a_layer,
            k4_client_that_is_cancelled_hears_of_it,
            k6_room_tells_everybody_in_order,
            k6_slow_reader_is_let_go_or_misses_some,
        }
        http2::{
            j13_request_is_the_same_as_one_of_http_1,
            j13_requests_of_a_connection_do_not_wait_for_each_other,
            j13_bodies_go_both_ways,
            j13_trailers_go_both_ways,
            j13_some_answers_have_no_body,
            j13_fields_of_one_connection_are_left_out,
            j13_limits_have_their_answers,
            j13_host_is_there_and_one,
            j13_malformed_requests_are_reset,
            j13_body_is_written_while_it_is_sent,
            j13_body_is_read_while_it_comes,
            j13_body_is_sent_when_it_is_wanted,
            j13_files_and_large_answers_are_whole,
            j13_body_that_breaks_off_is_reset,
            j13_handlers_of_all_styles_and_their_panics,
            j13_request_that_is_taken_back_ends_its_handler,
            j13_client_that_ends_its_side_gets_its_answers,
            j13_number_of_requests_can_be_limited,
            j13_streams_have_a_limit,
            j13_upgrade_to_h2c_is_not_followed,
            j13_preface_may_come_in_pieces_or_not_be_wanted,
            j13_floods_are_stopped,
            j13_header_without_end_is_not_received,
            j13_nonsense_ends_the_connection,
            j13_silent_connection_is_closed,
            j13_body_has_its_time,
            j13_client_that_opens_no_window_is_not_waited_for,
        }
        http2_ends::{
            j13_client_that_ends_its_side_gets_answers_that_wait_for_room,
            j13_client_that_ends_its_side_gets_what_its_window_lets_pass,
            j13_end_of_an_answer_is_not_left_for_ever,
            j13_end_of_an_answer_that_is_left_takes_no_other_with_it,
            j13_part_of_an_answer_is_not_left_for_ever,
            j13_answer_whose_window_shrinks_is_not_left_for_ever,
            j13_stream_that_is_late_is_reset_while_its_handler_reads,
            j13_body_that_is_taken_back_is_not_whole,
            j13_client_that_is_not_there_is_noticed,
            j13_connect_is_refused,
            j13_trailers_of_one_connection_are_left_out,
        }
        http2_slow::{
            j13_client_that_takes_its_answer_slowly_is_there,
            j13_body_of_a_stream_that_is_gone_gives_its_window_back,
            j13_pieces_of_an_answer_have_a_limit,
            j13_answer_that_is_not_taken_is_late_with_its_request,
            j13_idle_connection_ends_with_its_last_request,
        }
        tower::{
            t9_service_is_mounted_beside_handlers,
            t9_target_that_a_service_cannot_be_told_is_refused,
            t9_service_reads_bodies_as_they_come,
            t9_service_answers_while_it_is_asked,
        }
        events::{
            k5_events_are_streamed_with_their_names,
            k5_client_comes_back_with_the_last_id,
            k5_producer_waits_for_a_client_that_does_not_read,
            k5_producer_of_a_client_that_is_gone_is_cancelled,
            k5_events_out_of_a_channel_end_with_it,
        }
    }
    real: {
        proxying::{
            j15_without_descriptors_requests_fail_and_others_go_on,
            j15_body_where_there_is_none_is_not_the_next_answer,
        }
        rooms::{ k6_who_reads_is_not_behind_with_what_was_not_sent }
    }
    sim: {
        http2_slow::{
            j13_end_of_an_answer_that_is_not_taken_back_is_not_left_for_ever,
            j13_connection_is_idle_when_a_slow_answer_is_sent,
        }
        total::{ j4_requests_in_time_go_on }
        telling::{ j14_late_requests_are_in_the_access_log }
        websocket::{ k2_times_are_exact }
        events::{ k5_silence_is_broken_by_a_comment }
        refusing::{
            j4_times_are_exact,
            j4_silent_connections_end_whatever_others_do,
            j4_body_that_drips_is_cut,
            j4_reader_that_drips_is_cut,
        }
        dripping::{
            j4_reader_that_is_cut_is_reset,
            j4_reader_that_is_slow_and_steady_is_not_cut,
            j4_bodies_that_drip_are_cut,
            j4_small_chunks_that_drip_are_cut,
            j4_chunk_extensions_that_drip_are_cut,
            j4_trailers_that_drip_are_cut,
        }
        http2_ends::{ j4_client_of_http_2_that_drips_is_cut_while_it_is_closed }
        slow_clients::{
            j4_reader_that_drips_and_talks_is_cut_while_it_is_closed,
            j4_reader_that_drips_and_asks_is_cut,
        }
    }
}
