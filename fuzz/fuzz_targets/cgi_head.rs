//! What a script begins with may be anything, and comes in any pieces: it is a header, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("cgi_head", bytes));
