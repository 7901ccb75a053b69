//! One suite for all backends: each case holds a row of the capability table.
//!
//! A case is a function of a [`Harness`]; `suite!` makes it a test of every backend it concerns, so that
//! its path names the backend (`rows::epoll::b3_…`). Names begin with the row they hold. Where a row is a
//! process's business (signals, forks, limits) the case starts itself again in a process of its own.
//!
//! Time decides nothing here: real backends are held to "never early" and to the order of things, and what
//! is exact is checked under the simulator's virtual clock.

mod demultiplexing;
mod embedding;
mod harness;
mod panicking;
mod pool;
mod posting;
mod process;
mod pulse;
mod signals;
#[path = "../strace/mod.rs"]
mod strace;
mod timers;
mod turning;
mod watching;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        real: { $($real_file:ident :: { $($real:ident),* $(,)? })* }
        uring: { $($uring_file:ident :: { $($uring:ident),* $(,)? })* }
        epoll: { $($epoll_file:ident :: { $($epoll:ident),* $(,)? })* }
        poll: { $($poll_file:ident :: { $($poll:ident),* $(,)? })* }
        select: { $($select_file:ident :: { $($select:ident),* $(,)? })* }
        sim: { $($sim_file:ident :: { $($sim:ident),* $(,)? })* }
    ) => {
        mod rows {
            suite!(@backend uring Uring
                $($($all_file $all)*)*
                $($($real_file $real)*)*
                $($($uring_file $uring)*)*);
            suite!(@backend epoll Epoll
                $($($all_file $all)*)*
                $($($real_file $real)*)*
                $($($epoll_file $epoll)*)*);
            suite!(@backend poll Poll
                $($($all_file $all)*)*
                $($($real_file $real)*)*
                $($($poll_file $poll)*)*);
            suite!(@backend select Select
                $($($all_file $all)*)*
                $($($real_file $real)*)*
                $($($select_file $select)*)*);
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
    // The contract makes them one: these run on all five.
    all: {
        demultiplexing::{
            a6_backend_tells_its_name_and_what_it_can_do,
            a7_poll_is_one_shot_and_reports_levels,
            a8_half_close_is_told_apart_and_the_answer_survives,
            a9_connection_with_nothing_to_send_does_not_wake_the_loop,
            a10_stale_event_does_not_reach_the_next_owner,
            a10_callback_may_cancel_and_close_anything,
            a10_cancelled_operation_and_a_new_one_are_not_mixed_up,
            a11_regular_file_cannot_be_polled,
            t1_same_program_gives_the_same_answer,
        }
        panicking::{
            panic_in_a_completion_leaves_the_loop_usable,
            panic_in_a_deferred_job_loses_no_other,
            panic_in_a_hook_keeps_the_hook,
            panic_in_a_signal_keeps_the_listener,
            panic_in_a_posted_job_loses_no_other,
            panic_in_a_timer_ends_that_timer_only,
            panic_in_a_periodic_timer_leaves_nothing_behind,
            dropped_loop_leaves_nothing_behind,
            dropped_loop_takes_connections_along_that_hold_its_timers,
        }
        posting::{
            b4_flood_of_wakes_neither_blocks_nor_spins,
            b4_wake_before_the_wait_is_not_lost,
            b4_wake_begins_a_new_turn,
            b5_post_before_the_loop_starts_runs_at_once,
            b5_post_from_a_posted_job_runs_in_the_next_turn,
            b5_post_is_refused_when_the_loop_is_gone,
            b5_jobs_of_a_loop_that_goes_are_dropped_and_may_post_as_they_go,
            b5_limit_of_posted_jobs_is_exact,
            limits_of_zero_are_refused_with_the_reason,
        }
        signals::{
            d1_signal_is_a_callback_of_the_loop,
            d1_signal_reaches_every_listener,
            d1_signal_that_cannot_be_caught_is_refused,
            d1_listener_does_not_keep_a_loop_from_being_idle,
            d1_callback_may_cancel_its_own_listener,
            d1_cancelled_listener_keeps_its_loop_until_its_end,
            d6_child_exit_is_a_completion_with_its_status,
            d6_many_children_are_all_reaped,
            d6_unknown_child_is_an_error,
        }
        pool::{
            g2_result_comes_back_on_the_loop,
            g2_panic_of_offloaded_work_is_told,
            g2_offload_from_its_own_callback,
            g2_many_results_all_come_back_once,
            g2_work_of_a_loop_that_is_gone_is_forgotten,
            g2_offload_with_a_full_queue_of_posts_does_not_hang,
        }
        timers::{
            c1_one_shot_fires_once_and_never_early,
            c1_periodic_fires_again_and_again,
            c1_timers_fire_in_the_order_of_their_deadlines,
            c1_equal_deadlines_fire_in_the_order_they_were_made,
            c1_deadline_in_the_past_fires_at_once,
            c1_deadline_beyond_the_clock_is_never,
            c2_cancelled_timer_never_fires,
            c2_cancelled_timer_never_fires_even_in_the_same_batch,
            c2_timer_cancelled_twice_was_over_the_second_time,
            c2_periodic_timer_cancels_itself,
            c2_timer_rearms_itself,
            c2_rearmed_timer_fires_at_the_new_time_only,
            c2_remote_cancel_before_the_loop_runs,
            c2_remote_handle_of_a_timer_that_is_over,
            c2_callback_may_drop_what_owns_other_timers,
            c3_million_pending_timers_are_cheap,
            c4_sub_millisecond_timer_is_not_early_and_does_not_spin,
            c5_repeat_fires_n_times_and_then_finishes,
            c5_repeat_zero_times_only_finishes,
            c5_cancelled_repetition_does_not_finish,
            c6_time_out_is_told_and_memory_comes_back,
            c6_finished_operation_is_not_timed_out,
            c6_data_after_the_time_out_is_not_lost,
            c6_accept_of_many_results_is_refused_by_operate,
            idle_timer_fires_after_the_last_touch,
            idle_timer_that_is_dropped_never_fires,
        }
        pulse::{
            s43_pulse_tells_turns_apart,
            s43_busy_loop_has_a_pulse,
            s43_loops_are_listed_as_long_as_they_live,
        }
        turning::{
            b1_handles_cross_threads_and_loops_do_not,
            b1_current_loop_is_known_in_callbacks_and_nowhere_else,
            b1_two_loops_on_one_thread_nest,
            b1_loop_cannot_run_inside_its_own_turn,
            b1_loop_cannot_run_inside_its_own_turn_by_way_of_another,
            b2_run_ready_does_what_there_is_and_does_not_wait,
            b2_run_once_waits_until_there_is_something_to_do,
            b2_run_once_does_not_wait_when_it_has_done_something,
            b2_run_until_idle_sees_everything_through,
            b2_run_until_idle_returns_at_once_when_there_is_nothing,
            b2_run_until_idle_delivers_the_end_of_a_cancelled_operation,
            b2_run_until_idle_ends_by_stop,
            b3_stop_before_start_is_not_lost,
            b3_stop_ends_one_run_and_not_the_next,
            b3_jobs_posted_before_the_stop_are_run,
            b3_jobs_posted_before_the_stop_are_run_beyond_the_budget_too,
            b3_stop_from_any_callback_ends_the_run,
            b3_stop_from_another_thread_ends_a_sleep,
            b3_stop_after_a_time,
            b6_turn_order_is_as_documented,
            b6_hooks_run_in_the_order_they_were_added,
            b6_hook_removes_itself_and_others,
            b6_hook_that_removes_itself_is_dropped_when_nothing_is_borrowed,
            b6_idle_hook_runs_only_before_a_sleep,
            b6_stuck_is_who_has_nothing_to_wait_for,
            b6_job_deferred_by_an_idle_hook_runs_at_once,
            b7_flood_of_posted_jobs_does_not_starve_the_others,
            b7_flood_of_deferred_jobs_does_not_starve_the_others,
            b7_flood_of_timers_does_not_starve_the_others,
            b7_flood_of_completions_does_not_starve_the_others,
            b7_flood_of_polls_does_not_starve_the_others,
            b7_budget_is_kept_and_the_rest_comes_without_a_sleep,
            b11_dump_says_what_the_loop_waits_for,
            b12_now_stands_still_within_a_turn_and_never_goes_back,
        }
    }
    // What needs the operating system: threads that take time, processes, foreign descriptors.
    real: {
        panicking::{
            panic_in_a_watch_keeps_it,
        }
        turning::{ b7_slow_callbacks_do_not_keep_a_timer_waiting }
        demultiplexing::{
            a5_backend_is_chosen_at_run_time,
            a5_unknown_backend_is_an_error_that_names_the_choices,
            a5_empty_choice_is_no_choice,
        }
        embedding::{
            b8_interrupted_calls_change_nothing,
            b8_stopped_and_continued_process_goes_on,
            b9_copy_sends_nothing_of_what_is_carried,
            b9_loop_of_a_forked_parent_is_refused_and_left_alone,
        }
        pool::{
            g2_work_runs_on_another_thread,
            g2_results_come_back_while_the_loop_sleeps,
            g2_file_operations_do_not_block_the_loop,
            g2_full_queue_refuses,
            g2_full_queue_drops_the_oldest,
            g2_dropped_file_operation_is_told,
            g2_refused_offload_with_a_full_queue_of_posts_does_not_hang,
        }
        signals::{
            d1_signal_without_a_listener_any_more_is_ignored,
            d1_signal_wakes_a_sleeping_loop,
            d1_signal_during_its_own_callback_is_heard,
            d1_burst_of_signals_is_heard_at_least_once,
            d2_first_request_to_end_is_graceful,
            d2_second_request_to_end_is_forced_while_the_loop_hangs,
            d2_interrupt_from_the_keyboard_is_such_a_request,
            d5_write_to_a_closed_pipe_is_an_error_and_not_the_end,
            d5_children_start_with_the_default_again,
        }
        timers::{
            c2_remote_cancel_and_rearm_from_other_threads,
            c2_remote_cancel_that_says_yes_means_never,
            c1_wall_clock_time_passes_between_periods,
        }
        watching::{
            a7_level_is_reported_as_long_as_it_lasts,
            a7_edge_is_reported_after_drained_and_never_lost,
            a7_one_shot_is_reported_once_until_rearmed,
            a7_interest_in_writing,
            a7_callback_may_drop_its_own_watch,
            a7_watch_gives_its_descriptor_back,
            a10_watch_dropped_in_the_same_batch_is_not_reported,
            a11_pipe_timerfd_eventfd_inotify_and_terminal_are_watched,
            a11_regular_file_is_refused_with_the_reason,
            watch_and_loop_dropped_close_the_descriptor,
        }
    }
    uring: {
        demultiplexing::{
            a4_io_uring_serves_a_conversation,
        }
        embedding::{
            b10_another_loop_can_drive_this_one,
            b10_post_from_another_thread_is_seen_by_who_drives_it,
            b10_what_the_loop_knows_already_is_seen_by_who_drives_it,
            b10_timer_is_seen_in_the_timeout,
        }
    }
    epoll: {
        demultiplexing::{
            a1_epoll_serves_a_conversation,
            a9_interest_is_registered_once,
        }
        embedding::{
            b10_another_loop_can_drive_this_one,
            b10_post_from_another_thread_is_seen_by_who_drives_it,
            b10_what_the_loop_knows_already_is_seen_by_who_drives_it,
            b10_timer_is_seen_in_the_timeout,
        }
    }
    poll: {
        demultiplexing::{
            a2_poll_serves_a_conversation,
            a2_poll_takes_more_than_1024_descriptors,
        }
        embedding::{ b10_backend_without_a_descriptor_says_so }
    }
    select: {
        demultiplexing::{
            a3_select_serves_a_conversation,
            a3_select_refuses_descriptors_from_1024_on,
        }
        embedding::{ b10_backend_without_a_descriptor_says_so }
    }
    // Exact, because the clock is ours.
    sim: {
        embedding::{ b10_backend_without_a_descriptor_says_so }
        signals::{ d1_listener_that_was_renewed_can_still_be_cancelled }
        timers::{
            c1_periodic_keeps_to_its_grid,
            c1_periodic_does_not_make_up_missed_ticks,
            c1_period_of_nothing_does_not_spin,
            c1_year_passes,
            c4_timer_is_exact_to_the_nanosecond,
            c6_time_out_is_exact,
            idle_timer_is_exact,
        }
    }
}
