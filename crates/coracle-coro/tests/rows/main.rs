//! One suite for all backends: each case holds a row of the capability table.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend, so
//! that its path names the backend (`rows::epoll::s7_…`). Names begin with the row they hold.
//!
//! Time decides nothing here: real backends are held to "never early" and to the order of things, and what is
//! exact is checked under the simulator's virtual clock.

mod blocking;
mod cancelling;
mod handing_over;
mod harness;
mod joining;
mod scoping;
mod seeing;
mod sharing;
mod spawning;
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
            s1_thread_spawns_on_a_loop,
            s1_loop_that_is_gone_takes_no_coroutine,
            s2_names_and_ids_tell_coroutines_apart,
            s3_stack_is_as_large_as_asked_for,
            s3_stack_beyond_the_limit_is_refused,
            s5_ready_coroutines_run_in_the_order_they_were_spawned,
            s27_every_coroutine_has_its_own_locals,
            s27_locals_are_dropped_with_their_coroutine_and_may_wait,
            s38_coroutines_of_two_loops_wait_for_each_other,
            s47_deep_recursion_runs_on_a_big_stack,
            s56_callbacks_and_coroutines_share_a_loop,
        }
        joining::{
            s7_join_has_the_result,
            s7_thread_joins_a_coroutine,
            s7_coroutine_that_never_began_is_told,
            s8_timed_out_panicked_and_cancelled_are_told_apart,
            s9_detached_coroutine_goes_on,
            s53_panic_ends_only_its_coroutine,
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
            s23_coroutines_of_two_loops_hand_over,
        }
        blocking::{
            s10_what_was_meant_for_a_cancelled_waiter_goes_to_the_next,
            s10_who_was_served_before_the_cancel_has_it,
            s16_timeout_around_ends_every_wait,
            s16_deadline_around_is_told_from_a_time_out_of_ones_own,
            s18_notification_of_a_cancelled_waiter_goes_to_the_next,
            s21_barrier_that_one_has_left_waits_for_another,
            every_wait_in_the_wrong_place_panics_and_loses_nothing,
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
            s49_list_has_name_state_and_place,
        }
    }
    sim: {
        blocking::{
            s16_timeout_around_every_wait_is_exact,
        }
        waiting::{
            s14_sleep_is_exact,
            s16_timeout_is_exact,
        }
    }
}
