//! A path may be anything: its segments are decoded once, and stay as many.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_paths", bytes));
