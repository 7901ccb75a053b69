//! A body in chunks may be anything, and come in any pieces: it is what the grammar says, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_chunks", bytes));
