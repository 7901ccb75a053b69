//! The answer of a server may be anything: what is taken of it is plain to somebody who only knows lines.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_reply", bytes));
