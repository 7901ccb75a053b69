//! Static files over sockets: each case holds a row of the capability table, and runs on every backend.
//!
//! A case is a function of a [`Harness`](harness::Harness); `suite!` makes it a test of every backend, so that its
//! path names the backend (`rows::epoll::n1_…`). Names begin with the row they hold.

#[allow(dead_code)]
#[path = "../rows/client.rs"]
mod client;
mod compressing;
mod directories;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/rows/harness.rs"]
mod harness;
mod keeping;
mod parts;
mod paths;
mod sending;
mod site;

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
        sending::{
            n1_large_file_is_whole,
            n1_files_of_all_sizes_are_whole,
            n1_slow_reader_gets_more_than_fits_into_memory,
            n1_reader_that_takes_nothing_is_cut,
            n1_file_that_is_cut_while_it_is_sent_cuts_the_connection,
            n1_file_that_is_replaced_while_it_is_sent_is_the_old_one,
            n1_client_that_goes_away_leaves_no_file_open,
            n1_file_that_is_kept_is_sent_by_one_descriptor,
        }
        compressing::{
            j11_large_file_is_compressed_while_it_is_sent,
            j11_file_that_the_client_has_is_told_as_if_it_were_sent,
            j11_file_that_is_cut_while_it_is_compressed_cuts_the_connection,
        }
        paths::{
            n2_no_path_leads_out,
            n2_links_lead_nowhere_outside,
            n2_what_is_hidden_or_special_is_not_there,
        }
        parts::{
            n3_what_the_client_has_is_not_sent_again,
            n3_range_of_another_state_is_the_whole,
            n4_ranges_of_a_hundred_bytes,
            n4_ranges_of_a_large_file,
            n4_several_ranges_are_one_body,
            n6_compressed_siblings,
        }
        directories::{
            n5_head_options_and_other_methods,
            n5_index_redirect_and_types,
            n5_redirect_leads_to_where_it_is_mounted,
            n5_listing,
        }
        keeping::{
            n7_what_changes_is_sent_anew,
            n7_files_are_looked_up_once,
        }
    }
    real: {
        keeping::{
            n7_cold_file_does_not_hold_up_others,
        }
    }
    sim: {
        compressing::{
            j11_client_that_does_not_read_has_nothing_compressed_for_it,
        }
        sending::{
            n1_long_download_is_not_taken_for_a_slow_one,
            n1_reader_that_takes_too_little_is_cut,
        }
    }
}
