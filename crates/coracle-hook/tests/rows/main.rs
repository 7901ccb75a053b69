//! Hooks, fact by fact: one suite for all backends, as in the `tests/rows` of `coracle-coro`.
//!
//! Hooks are enabled for the whole process by the first who asks; in plain threads they change nothing.
#![allow(unsafe_code)]

#[allow(dead_code)] // each suite uses what it needs
#[path = "../../../coracle-coro/tests/rows/harness.rs"]
mod harness;

mod corners;
mod ending;
mod helping;
mod meaning;
mod others;
mod receiving;
mod streams;
mod together;
mod waiting;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        real: { $($real_file:ident :: { $($real:ident),* $(,)? })* }
    ) => {
        mod hooks {
            suite!(@backend uring Uring $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend epoll Epoll $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend poll Poll $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend select Select $($($all_file $all)*)* $($($real_file $real)*)*);
            suite!(@backend sim Sim $($($all_file $all)*)*);
        }
    };
    (@backend $name:ident $backend:ident $($file:ident $case:ident)*) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    let path = concat!("hooks::", stringify!($name), "::", stringify!($case));
                    let backend = coracle_loop::demux::Backend::$backend;
                    crate::helping::enable();
                    crate::$file::$case(&crate::harness::Harness::new(backend, path));
                }
            )*
        }
    };
}

suite! {
    all: {
        corners::{
            s32_accept_where_nobody_comes,
            s32_several_at_one_socket,
            s32_receive_where_nothing_can_come,
            s32_descriptors_with_a_later_part,
            s32_error_after_a_part_is_the_next_calls,
            s31_number_that_changes_in_a_pause,
            s31_failed_copy_tells_nobody,
            s31_close_by_syscall,
            s32_rare_masks_of_poll,
            s32_time_of_many_messages,
            s32_error_after_many_messages_is_the_next_calls,
            s32_writing_nothing_sends_nothing,
            s31_close_wakes_rare_polls,
            s34_host_stays_what_it_is,
            s10_cancelled_look_up_of_a_host,
        }
        ending::{
            s10_cancel_reaches_hooked_calls,
            s10_cancelled_before_the_call,
            s16_deadlines_reach_hooked_calls,
            s10_cancelled_sleep_ends_early,
            s10_cancelled_look_up,
            s10_part_of_a_write_is_told,
            s10_shield_around_a_hooked_call,
            s31_close_wakes_who_waits,
            s31_number_that_is_used_again,
            s33_hooks_can_be_switched_off,
            s53_nobody_is_parked_while_unwinding,
            s53_panic_while_others_are_parked,
        }
        meaning::{
            s32_nonblocking_is_the_users,
            s32_dontwait_and_peek,
            s32_waitall,
            s32_timeouts_of_sockets,
            s32_errors_of_connect,
            s32_errors_are_the_kernels,
            s32_nothing_is_read_at_once,
            s32_messages_with_descriptors,
            s32_many_messages,
            s32_flags_are_followed,
            s32_accepted_sockets_have_the_timeouts_of_their_listener,
        }
        others::{
            t3_thread_sleep_parks,
            s32_sleeping_until,
            s35_children_are_waited_for,
            s35_output_of_children,
            s35_waitid_and_wait4,
            s49_wait_for_a_child_is_listed,
            s34_names_are_looked_up_elsewhere,
            s34_many_look_ups,
            s34_older_names_for_it,
            t3_neighbour_is_on_time,
        }
        receiving::{
            s32_receive_waits_by_the_shortest_way,
            s10_cancelled_receive_leaves_its_space_alone,
            s10_cancelled_receive_loses_nothing,
            s10_cancelled_one_of_several_at_one_socket,
            s31_closed_receives_leave_their_space_alone,
            s31_close_when_bytes_have_come,
            s31_close_of_a_receive_with_a_time_out,
            s31_number_with_bytes_takes_the_place_of_another,
            s32_ends_of_the_stream_are_told_to_who_waits,
            s32_signals_do_not_disturb_who_waits,
            s10_loop_is_dropped_with_a_receive_in_flight,
            s31_numbers_go_round,
        }
        streams::{
            s32_std_tcp_echo,
            s32_big_write_is_one_call,
            s32_vectored_write_is_one_call,
            s32_reader_and_writer_of_one_socket,
            s32_peek_leaves_what_it_sees,
            s32_udp,
            s32_unix_streams,
            s32_unix_connect_waits_for_the_backlog,
            s32_unix_datagrams_wait_for_room,
            s32_pipes,
            s32_fifos,
            s32_files_do_not_park,
            s32_copies_fall_back,
            s32_the_rest_of_std_net,
        }
        together::{
            s10_cancel_of_small_sends,
            s31_close_of_small_sends,
            s31_number_that_changes_when_there_is_no_room,
            s32_nonblocking_sends_let_nobody_run,
            s32_small_send_waits_for_room,
            s32_small_sends_wait_for_their_row,
        }
        waiting::{
            s32_poll_parks_and_says_what_the_kernel_says,
            s32_masks_of_poll,
            s32_poll_for_what_a_loop_does_not_know,
            s32_poll_times_out,
            s32_select_parks,
            s32_poll_that_is_answered_at_once_gives_way,
            s31_closed_number_is_not_polled_for_its_next_owner,
            s32_epoll_wait_parks,
            s32_eventfds_park,
        }
    }
    real: {
        // In the simulator a hooked wait is a look now and then.
        together::{
            s32_small_send_is_with_the_kernel_when_it_returns,
            s32_small_send_to_nobody_is_an_error,
            s32_small_sends_of_many_stay_apart,
        }
        corners::{ s32_number_that_was_a_socket, s31_number_that_changes_past_libc }
        receiving::{ s31_used_socket_is_closed_by_another_thread, s32_time_out_of_who_is_the_next }
        streams::{ s32_connect_parks }
        ending::{ s32_listener_shared_with_a_thread, s31_close_from_another_thread,
            s32_sockets_change_their_owner }
    }
}
