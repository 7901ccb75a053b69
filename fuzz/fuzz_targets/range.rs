//! Ranges: nothing that is not there, nothing twice, and no sum that overflows.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("range", bytes));
