//! Applications on a running service, on all backends: router, forms, cookies, middlewares.
//!
//! As in `tests/rows`, a case is a function of a [`Harness`](harness::Harness), and its name begins with the row
//! it holds. What needs no connection is tested beside the code, by calling the app.

mod around;
#[allow(dead_code)]
#[path = "../rows/client.rs"]
mod client;
mod forms;
#[allow(dead_code)]
#[path = "../../../coracle-loop/tests/rows/harness.rs"]
mod harness;
mod routing;

macro_rules! suite {
    (
        all: { $($all_file:ident :: { $($all:ident),* $(,)? })* }
        sim: { $($sim_file:ident :: { $($sim:ident),* $(,)? })* }
    ) => {
        mod apps {
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
                    let path = concat!("apps::", stringify!($name), "::", stringify!($case));
                    let backend = coracle_loop::demux::Backend::$backend;
                    crate::$file::$case(&crate::harness::Harness::new(backend, path));
                }
            )*
        }
    };
}

suite! {
    all: {
        routing::{
            j6_routes_have_params_methods_and_names,
            j6_head_and_options_are_answered,
            j6_route_has_its_plan,
            j6_middleware_may_wait_and_see_the_answer,
            j7_hosts_have_their_apps,
        }
        forms::{
            j8_form_and_json_are_values,
            j8_upload_goes_to_disk_while_it_comes,
            j8_upload_that_breaks_off_leaves_nothing,
            j8_upload_that_is_too_long_is_refused_while_it_comes,
            j9_session_lasts_over_requests,
        }
        around::{
            j10_template_is_rendered_and_escaped,
            j11_answers_are_compressed,
            j11_handler_on_the_loop_does_not_wait_for_compression,
            j11_stream_is_compressed_and_flushed,
            j14_answers_are_logged_when_they_are_written,
            j14_panic_is_logged_and_has_a_page,
            j14_rate_is_limited_by_address,
        }
    }
    sim: {
        around::{ j14_rate_is_exact }
    }
}
