//! One suite for all backends: each case holds a row of the capability table.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend, so
//! that its path names the backend (`rows::epoll::s7_…`). Names begin with the row they hold.
//!
//! Time decides nothing here: real backends are held to "never early" and to the order of things, and what is
//! exact is checked under the simulator's virtual clock.

mod blocking;
mod cancelling;
mod castaways;
mod fairness;
mod future_channels;
mod future_sockets;
mod future_time;
mod futures;
mod handing_over;
mod harness;
mod inheriting;
mod joining;
mod racing;
mod scoping;
mod seeing;
mod several;
mod sharing;
mod shielding;
mod spawning;
mod stacks;
mod timing;
mod waiting;

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
        spawning::{
            s1_spawning_runs_nothing,
            s1_callback_spawns,
            s1_callback_runs_a_coroutine_at_once,
            s1_spawner_outside_a_turn_starts_nobody,
            s1_coroutine_runs_none_inside_itself,
            s1_thread_spawns_on_a_loop,
            s1_loop_that_is_gone_takes_no_coroutine,
            s2_names_and_ids_tell_coroutines_apart,
            s3_stack_is_as_large_as_asked_for,
            s3_stack_beyond_the_limit_is_refused,
            s3_children_of_a_scope_have_names_and_stacks_as_asked_for,
            s5_ready_coroutines_run_in_the_order_they_were_spawned,
            s27_every_coroutine_has_its_own_locals,
            s27_locals_are_dropped_with_their_coroutine_and_may_wait,
            s38_coroutines_of_two_loops_wait_for_each_other,
            s47_deep_recursion_runs_on_a_big_stack,
            s56_callbacks_and_coroutines_share_a_loop,
            s56_coroutine_runs_a_loop_of_its_own,
        }
        joining::{
            s7_join_has_the_result,
            s7_thread_joins_a_coroutine,
            s7_coroutine_that_never_began_is_told,
            s8_timed_out_panicked_and_cancelled_are_told_apart,
            s9_detached_coroutine_goes_on,
            s53_panic_ends_only_its_coroutine,
            s53_panic_is_in_the_log_with_the_name,
            s53_panic_of_the_first_coroutine_leaves_run,
            s53_wait_in_a_destructor_of_a_panic_fails_at_once,
        }
        waiting::{
            s6_yield_lets_all_others_go_first,
            s6_yielding_does_not_keep_timers_from_firing,
            s13_unpark_before_park_is_not_lost,
            s13_there_is_one_permit,
            s13_thread_and_coroutine_unpark_each_other,
            s14_sleep_is_never_early,
            s14_sleepers_wake_in_the_order_of_their_deadlines,
            s14_sleeper_goes_ahead_of_those_who_are_ready,
            s16_timeout_ends_what_waits_inside,
            s16_deadline_inside_another_can_only_be_earlier,
            s16_deadline_is_over_with_its_closure,
            s60_ten_thousand_coroutines_park,
            wait_in_a_callback_panics_with_the_cure,
            wait_in_a_callback_inside_a_coroutine_panics,
            wait_inside_no_park_panics,
        }
        cancelling::{
            s10_cancel_ends_the_wait_and_every_later_one,
            s10_what_has_happened_is_delivered_first,
            s10_cancel_before_the_start_strikes_the_first_wait,
            s10_destructors_run,
            s10_thread_cancels,
            s10_stop_of_the_loop_cancels_all,
            s10_who_ignores_it_waits_longer_and_longer,
            s10_started_coroutine_is_leaked_with_its_loop,
            s10_more_than_can_be_posted_are_cancelled_at_once,
        }
        scoping::{
            s11_children_borrow_and_end_before_their_parent,
            s11_first_error_cancels_the_rest,
            s11_panic_of_a_child_is_an_error,
            s11_cancelled_parent_waits_for_its_children,
            s11_timeout_around_a_scope_cancels_its_children,
        }
        handing_over::{
            s22_coroutines_of_one_loop_hand_over,
            s22_cancelled_receiver_takes_nothing,
            s22_refused_send_gives_its_message_up_without_the_lock,
            s16_timeout_ends_a_wait_at_a_channel,
            s23_coroutines_of_two_loops_hand_over,
        }
        stacks::{
            s3_stacks_of_a_loop_have_limits_of_their_own,
            s45_memory_goes_back_after_a_peak,
            s48_stack_use_is_told_by_the_line_that_spawned,
            s57_loop_with_parked_coroutines_sleeps_for_ever,
        }
        timing::{
            s15_tick_is_due_again_and_again,
            s15_one_shot_is_due_once_and_can_be_reset,
            s15_cancelled_tick_is_never_chosen,
            s15_wait_for_a_tick_is_cancelled_and_times_out,
            s15_timer_with_a_callback_beside_coroutines,
            s59_coroutine_waits_for_a_signal,
            s59_wait_for_a_signal_that_does_not_come,
        }
        inheriting::{
            s27_child_inherits_what_the_key_asks_for,
            s27_inheritance_goes_to_other_loops_and_is_dropped_there,
            s28_span_follows_spawn,
            s28_coroutines_do_not_run_in_the_spans_of_others,
        }
        several::{
            s38_run_ends_when_the_coroutines_of_all_loops_are_over,
            s38_loops_wait_for_each_other,
            s38_error_and_panic_of_main_leave_run,
            s38_stop_of_one_loop_cancels_the_coroutines_of_all,
            s38_anywhere_is_where_the_fewest_are,
            s38_anywhere_on_one_loop_is_here,
            s38_loop_that_cannot_be_made_is_an_error,
            s38_panic_of_a_callback_ends_the_run,
            s41_every_loop_has_a_processor_of_its_own,
            g6_run_ends_when_the_futures_of_all_loops_are_over,
            g6_stop_of_one_loop_cancels_the_futures_of_all,
            g6_futures_and_coroutines_of_several_loops_pass_messages,
        }
        racing::{
            s11_first_to_end_cancels_the_other_and_waits_for_it,
            s11_reader_and_writer_end_together,
            s11_end_of_the_first_is_the_result_whatever_it_is,
            s11_race_of_many_has_one_winner,
            s11_join_all_keeps_the_order,
            s11_cancelled_scope_is_no_error,
        }
        shielding::{
            s10_shield_lets_clean_up_wait,
            s10_cancel_during_a_shield_strikes_after_it,
            s10_shield_ends_at_its_deadline,
            s10_shield_is_over_after_a_panic,
            s11_scope_in_a_shield_keeps_its_children,
            s11_scope_in_a_shield_of_who_is_cancelled_keeps_its_children,
            s53_waits_refused_because_of_a_panic_are_no_cancel,
            s16_shield_outlasts_a_timeout_around_it,
        }
        blocking::{
            s10_what_was_meant_for_a_cancelled_waiter_goes_to_the_next,
            s10_who_was_served_before_the_cancel_has_it,
            s16_timeout_around_ends_every_wait,
            s16_deadline_around_is_told_from_a_time_out_of_ones_own,
            s17_refused_or_late_wait_leaves_the_lock_as_it_was,
            s18_notification_of_a_cancelled_waiter_goes_to_the_next,
            s21_barrier_that_one_has_left_waits_for_another,
            every_wait_in_the_wrong_place_panics_and_loses_nothing,
        }
        castaways::{
            s7_who_joins_a_coroutine_of_a_loop_that_is_gone_is_told,
            s17_lock_is_not_handed_to_a_coroutine_whose_loop_is_gone,
            s22_message_is_not_handed_to_a_coroutine_whose_loop_is_gone,
            s18_notification_is_not_lost_to_a_coroutine_whose_loop_is_gone,
            s13_unpark_of_a_coroutine_whose_loop_is_gone_does_nothing,
        }
        fairness::{
            s42_who_never_waits_lets_other_coroutines_run,
            s42_who_never_waits_does_not_keep_timers_from_firing,
            s42_busy_pair_does_not_keep_the_rest_waiting,
            s42_many_who_never_wait_do_not_keep_timers_from_firing,
            s42_ends_that_have_come_are_joined_in_turn,
            s10_cancel_strikes_who_never_waits,
            s10_cancel_of_another_thread_strikes_who_never_waits,
            s10_message_is_not_lost_when_the_cancel_strikes,
            s16_deadline_strikes_who_never_waits,
            s17_free_lock_never_fails,
            s42_nobody_runs_inside_no_park,
            s10_shield_keeps_who_never_waits_from_the_cancel,
            s24_arm_that_is_due_is_chosen_beside_one_that_is_always_ready,
            s42_future_that_is_always_ready_lets_others_run,
            s42_cancel_strikes_block_on_of_what_is_always_ready,
        }
        sharing::{
            s12_wait_group_waits_for_all,
            s17_mutex_is_held_by_one_at_a_time,
            s18_condvar_wakes_whose_turn_it_is,
            s19_readers_see_what_a_writer_has_finished,
            s20_semaphore_lets_so_many_in,
            s21_nobody_passes_a_barrier_before_all_are_there,
            s21_value_is_made_once,
            s22_every_message_arrives_once_and_in_order,
            s23_end_of_a_channel_reaches_everybody,
            s24_select_takes_each_message_once,
        }
        seeing::{
            s42_who_never_rests_does_not_starve_the_loop,
            s49_list_has_name_state_and_place,
            s49_list_says_what_is_waited_for,
            s49_list_says_which_lock_is_waited_for,
            s49_list_says_what_several_and_signals_wait_for,
            s49_backtrace_of_one_that_waits_has_the_users_frames,
            s49_backtrace_goes_through_other_stacks,
            s49_looking_wakes_nobody,
            s49_one_with_little_stack_left_is_not_asked,
            s49_thread_looks_at_a_loop,
            s49_loop_that_nobody_runs_does_not_answer,
            s50_backtrace_of_std_goes_through_the_switch,
            s51_counters_count,
        }
        futures::{
            g6_spawning_polls_nothing,
            g6_block_on_holds_only_its_coroutine,
            g6_callback_spawns_a_future,
            g6_future_is_woken_from_another_thread,
            g6_wake_during_the_poll_polls_again_behind_the_others,
            g6_wakes_before_a_poll_are_one_poll,
            g6_wake_after_the_end_touches_nobody,
            g6_waker_outlives_its_loop,
            g6_thread_wakes_with_its_last_breath,
            g6_panic_ends_only_its_future,
            g6_panic_of_a_destructor_ends_only_its_future,
            g6_cancelled_future_is_dropped_on_its_loop,
            g6_future_is_cancelled_in_every_state,
            g6_run_waits_for_futures,
            g6_stop_of_the_loop_cancels_futures,
            g6_thread_spawns_a_future_on_a_loop,
            g6_futures_of_two_loops_wake_each_other,
            g6_list_has_state_and_place,
            g6_ten_thousand_futures_are_polled_in_turns,
            s26_future_awaits_a_coroutine,
            s26_handle_that_was_polled_is_joined_or_dropped,
            s26_future_that_is_ready_is_no_wait,
            s26_cancel_ends_block_on_and_drops_the_future,
            s26_timeout_ends_block_on,
            s26_block_on_in_a_plain_thread,
            s26_future_may_itself_wait_in_block_on,
            s26_block_on_in_a_callback_panics_with_the_cure,
            s26_wait_in_a_poll_panics_with_the_cure,
            s26_spawning_outside_a_loop_panics_with_the_cure,
            s26_joining_is_interrupted_and_the_future_goes_on,
            s26_last_waker_is_the_one_that_is_woken,
        }
        future_channels::{
            s26_coroutine_and_future_exchange_messages,
            s26_message_handed_to_a_dropped_future_goes_to_the_next,
            s26_message_handed_to_a_dropped_future_stays_if_nobody_waits,
            s26_messages_given_back_come_first,
            s26_messages_given_back_come_first_when_threads_receive,
            s26_receiving_future_is_dropped_in_every_state,
            s26_sending_future_is_dropped_in_every_state,
            s26_futures_threads_and_coroutines_stand_in_one_line,
            s26_cancelled_future_leaves_the_line,
            s26_threads_and_futures_lose_no_message,
            s26_lock_goes_from_coroutine_to_future_and_back,
            s26_lock_handed_to_a_dropped_future_goes_to_the_next,
            s26_one_that_needs_many_permits_is_not_overtaken,
        }
        future_sockets::{
            g6_echo_in_futures,
            g6_large_messages_pass_in_both_directions_at_once,
            g6_writer_waits_for_a_reader_that_does_not_read,
            g6_what_was_written_is_sent_when_the_stream_is_dropped,
            g6_run_returns_when_what_was_written_is_sent,
            g6_last_word_waits_for_room_when_the_stream_is_dropped,
            g6_reset_is_an_error_of_reader_and_writer,
            g6_close_ends_our_side_and_leaves_the_other,
            g6_dropped_writing_half_ends_our_side,
            g6_dropped_reading_half_leaves_the_writer,
            g6_dropped_read_loses_no_bytes,
            g6_streams_are_dropped_in_every_state,
            g6_stream_is_dropped_outside_a_turn,
            g6_stream_outlives_its_loop,
            g6_connecting_to_nobody_is_refused,
            g6_many_connections_come_to_several_futures,
            g6_unix_listener_accepts,
            g6_datagrams_come_whole_and_to_one_future_each,
            g6_datagram_socket_is_dropped_in_every_state,
            g7_coroutine_blocks_on_a_socket_of_futures,
        }
        future_time::{
            g6_sleep_is_never_early,
            g6_dropped_sleep_leaves_no_timer,
            g6_timeout_drops_the_future,
            g6_interval_keeps_to_its_grid,
            g6_block_on_keeps_the_time_of_a_plain_thread,
            g6_join_and_select_of_the_crate_futures,
            g6_futures_unordered_of_the_crate_futures,
            g6_other_executors_await_our_channels,
            g7_callback_coroutine_and_future_take_over_from_each_other,
        }
    }
    sim: {
        stacks::{
            s45_what_is_needed_now_and_then_stays,
            s45_stacks_that_are_kept_for_the_next_are_trimmed_too,
            s57_no_wake_ups_when_nothing_is_left_to_trim,
        }
        timing::{
            s15_tick_keeps_to_its_grid_and_leaves_out_what_was_missed,
        }
        shielding::{
            s10_who_ignores_it_too_often_is_parked_for_good,
            s10_who_joins_one_that_is_parked_for_good_is_told,
            s11_parent_is_leaked_with_a_child_that_will_not_end,
        }
        blocking::{
            s16_timeout_around_every_wait_is_exact,
        }
        future_sockets::{
            g6_no_byte_is_lost_whatever_the_kernel_does,
            g6_broken_connections_leave_nothing_behind,
        }
        future_time::{
            g6_sleep_is_exact,
        }
        waiting::{
            s14_sleep_is_exact,
            s16_timeout_is_exact,
        }
        seeing::{
            s49_leaked_one_is_listed_and_counted,
            s51_parked_time_is_exact,
        }
    }
}
