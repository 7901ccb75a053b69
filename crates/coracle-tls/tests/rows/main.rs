//! One suite for all backends: each case holds a row of the capability table.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend, so that its
//! path names the backend (`rows::epoll::m1_…`). Names begin with the row they hold.

mod client;
mod ending;
mod handshake;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/rows/harness.rs"]
mod harness;
mod people;
mod transfer;

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
        handshake::{
            m1_both_versions_are_spoken,
            m1_server_that_wants_13_refuses_12,
            m1_handshake_may_come_byte_by_byte,
            m1_server_may_speak_first,
            m1_session_is_resumed,
            m1_resumption_can_be_turned_off,
            m1_handshake_in_too_many_pieces_is_refused,
            m1_what_is_not_tls_is_refused,
            m1_client_that_speaks_in_letters_is_answered,
            m1_handshakes_are_limited,
            m4_handshake_has_its_time_though_bytes_drip,
            m4_reset_in_the_handshake_ends_it,
            m4_handshake_that_breaks_off_is_an_error,
            m4_who_only_looks_costs_nothing,
        }
        people::{
            m2_certificate_is_chosen_by_name,
            m2_unknown_name_is_refused_if_wanted,
            m2_protocol_is_one_that_both_speak,
            m2_client_certificate_is_required,
            m2_client_certificate_is_allowed,
            m2_ticket_does_not_outlive_the_certificate_of_its_client,
            m2_server_that_is_not_trusted_is_refused,
            m2_chain_leads_to_a_root,
            m3_replaced_certificate_is_shown_to_new_connections,
            m3_ticket_of_a_client_that_is_not_let_in_any_more_is_worth_nothing,
            m2_host_of_another_server_is_misdirected,
        }
        ending::{
            m4_both_sides_say_the_end,
            m4_half_closed_peer_is_still_sent_everything,
            m4_cut_stream_is_an_error_and_no_end,
            m4_forged_record_ends_the_connection,
            m4_nothing_is_heard_after_the_end,
        }
        transfer::{
            m1_much_is_echoed_in_small_pieces,
            m1_much_is_whole_with_a_slow_reader,
            m1_small_writes_share_a_record,
        }
    }
    sim: {
        handshake::{ m4_times_are_exact }
        transfer::{ m1_faulty_kernel_loses_nothing }
    }
}
