//! Paths of requests: what is let through stays below the directory, and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("site_path", bytes));
