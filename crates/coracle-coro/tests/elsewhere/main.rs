//! What coroutines have done elsewhere: offloaded work, files, names, connections that are kept. Each case runs
//! on every backend it concerns.
//!
//! As in `tests/rows`, a case is a function of a `Harness`. Those that hold a worker thread up need one: in the
//! simulator work is done on the loop's own.

#[allow(dead_code)] // what other suites use of it
#[path = "../rows/harness.rs"]
mod harness;

mod files;
mod gate;
mod listing;
mod naming;
mod offloading;
mod pooling;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        threads: { $($threads_file:ident :: { $($threads:ident),* $(,)? })* }
        sim: { $($sim_file:ident :: { $($sim:ident),* $(,)? })* }
    ) => {
        mod elsewhere {
            suite!(@backend uring Uring $($($all_file $all)*)* $($($threads_file $threads)*)*);
            suite!(@backend epoll Epoll $($($all_file $all)*)* $($($threads_file $threads)*)*);
            suite!(@backend poll Poll $($($all_file $all)*)* $($($threads_file $threads)*)*);
            suite!(@backend select Select $($($all_file $all)*)* $($($threads_file $threads)*)*);
            suite!(@backend sim Sim $($($all_file $all)*)* $($($sim_file $sim)*)*);
        }
    };
    (@backend $name:ident $backend:ident $($file:ident $case:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    let path = concat!("elsewhere::", stringify!($name), "::", stringify!($case));
                    let backend = coracle_loop::demux::Backend::$backend;
                    crate::$file::$case(&crate::harness::Harness::new(backend, path));
                }
            )*
        }
    };
}

suite! {
    all: {
        offloading::{
            s37_result_comes_back_to_the_same_coroutine,
            s37_panic_comes_out_of_the_call,
            s37_who_is_over_beforehand_starts_nothing,
            s37_many_at_a_time_all_come_back,
            s37_borrowing_work_changes_what_it_borrows,
            s37_panic_of_borrowing_work_comes_out_of_the_call,
            s37_work_may_offload,
            s37_callback_is_told_where_to_go,
            s37_wait_inside_no_park_panics_before_anything_starts,
            s37_destructor_of_a_panic_starts_nothing,
            s37_plain_thread_simply_runs_it,
        }
        files::{
            s36_files_are_written_read_and_removed,
            s36_open_file_reads_and_writes_anywhere,
            s36_errors_are_those_of_the_system,
            s36_cancelled_coroutine_changes_nothing,
        }
        naming::{
            f7_literal_address_asks_nobody,
            f7_what_is_no_name_is_refused,
            f7_many_ask_at_a_time_and_one_look_up_is_made,
            f7_failure_is_told_to_all,
            f7_panic_of_the_resolver_is_an_error,
            f7_answers_are_forgotten_when_there_are_too_many,
            f7_cancelled_coroutine_starts_no_look_up,
            s34_loop_has_its_own_resolver,
        }
        pooling::{
            s55_connection_is_used_again,
            s55_last_used_is_used_first,
            s55_waiters_are_served_in_order,
            s55_waiter_that_gives_up_leaves_the_line,
            s55_limit_is_never_passed,
            s55_no_more_than_the_limit_are_kept_idle,
            s55_unhealthy_one_is_not_handed_out,
            s55_check_that_is_cancelled_spoils_one_connection_only,
            s55_expired_one_is_not_handed_out,
            s55_connection_of_a_late_call_is_not_used_again,
            s55_connection_of_a_cancelled_call_is_not_used_again,
            s55_connection_of_a_panic_is_not_used_again,
            s55_connection_that_another_used_is_not_used_again,
            s55_sleep_does_no_harm,
            s55_error_while_connecting_loses_no_slot,
            s55_panic_while_connecting_loses_no_slot,
            s55_panic_while_closing_loses_no_slot,
            s55_close_ends_the_waits,
            s55_too_many_waiters_are_refused,
            s55_pool_that_could_have_no_connection_is_refused,
        }
        listing::{
            s49_list_says_who_waits_for_a_pool,
        }
    }
    threads: {
        offloading::{
            s37_work_runs_on_another_thread_and_others_go_on,
            s37_full_pool_refuses,
            s37_work_that_the_pool_drops_is_told,
            s37_cancelled_coroutine_goes_on_without_the_result,
            s37_late_coroutine_goes_on_without_the_result,
            s37_borrowing_work_is_waited_for_whatever_happens,
            s37_borrowing_work_may_outlive_its_loop,
        }
        files::{
            s36_read_that_blocks_does_not_hold_up_the_loop,
        }
        naming::{
            s34_system_knows_localhost,
            s34_thread_and_coroutine_share_a_look_up,
            f7_cancel_of_one_does_not_disturb_the_others,
            f7_too_many_look_ups_are_refused,
            f7_slow_names_do_not_hold_up_other_work,
        }
        pooling::{
            s55_threads_and_coroutines_share_a_pool,
        }
        listing::{
            s49_list_says_who_waits_for_another_thread,
        }
    }
    sim: {
        naming::{
            s34_answers_are_good_for_a_while,
            f7_look_up_of_a_loop_that_is_gone_is_told,
        }
        pooling::{
            s55_idle_time_is_exact,
        }
    }
}
