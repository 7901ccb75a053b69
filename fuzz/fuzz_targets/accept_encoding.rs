//! `Accept-Encoding`: what is chosen is the best of what is accepted.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("accept_encoding", bytes));
