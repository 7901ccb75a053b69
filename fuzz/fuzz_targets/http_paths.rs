//! A path may be anything: its segments are decoded once, and stay as many.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| coracle_http::fuzzing::path(text));
