//! CGI and FastCGI with real scripts and real processes: each case holds a row of the capability table, and runs
//! on every backend that has processes, which is all but the simulator.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend, so that its
//! path names the backend (`rows::epoll::o1_…`). Names begin with the row they hold.

mod bodies;
mod ending;
mod fastcgi;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/rows/harness.rs"]
mod harness;
mod php;
mod scripts;
mod talking;
mod telling;

macro_rules! suite {
    ($($file:ident :: { $($case:ident),* $(,)? })*) => {
        mod rows {
            suite!(@backend uring Uring $($($file $case)*)*);
            suite!(@backend epoll Epoll $($($file $case)*)*);
            suite!(@backend poll Poll $($($file $case)*)*);
            suite!(@backend select Select $($($file $case)*)*);
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
    telling::{
        o1_script_is_told_what_the_rfc_says_and_nothing_else,
        o1_script_has_three_descriptors_and_a_group_of_its_own,
        o1_what_is_no_script_is_not_run,
        o1_standard_error_is_logged_line_by_line,
        o1_words_of_a_query_are_arguments_only_if_asked_for,
    }
    bodies::{
        o1_bodies_go_both_ways_at_once,
        o1_script_that_does_not_read_its_input_answers,
        o1_script_that_answers_first_reads_on,
        o1_script_is_not_late_while_its_client_is_waited_for,
        o1_body_in_chunks_has_a_length,
        o1_body_that_breaks_off_ends_the_script,
        o1_status_location_and_length,
        o1_local_redirect_is_answered_by_the_whole_app,
        o1_answers_that_are_none_are_502,
        o1_head_and_no_content_have_no_body,
        o1_script_that_speaks_http_itself,
        o1_requests_of_one_connection_have_their_own_bodies,
        o1_script_of_python_reads_a_form,
    }
    ending::{
        o1_late_script_is_killed_with_its_group,
        o1_client_that_goes_away_ends_the_script,
        o1_script_that_dies_in_its_answer_cuts_it,
        o1_processes_are_limited,
        o1_scripts_are_reaped,
        o1_loop_that_ends_leaves_no_script,
        o1_times_may_be_endless,
    }
    fastcgi::{
        o2_connection_that_is_kept_is_used_again,
        o2_server_that_is_not_there_is_502_and_one_that_is_silent_504,
        o2_nonsense_is_502,
        o2_connection_that_was_closed_meanwhile_is_made_anew,
        o2_idle_connection_is_closed_though_nobody_asks,
        o2_padding_that_comes_late_is_not_of_the_next_answer,
        o2_server_is_not_late_while_the_client_is_waited_for,
    }
    php::{
        o2_php_answers_and_is_told,
        o2_php_takes_and_gives_long_bodies,
        o2_php_errors_are_logged_and_tricks_are_404,
    }
}
