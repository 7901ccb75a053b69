//! The head of an HTTP request may be anything: what is taken is plain to somebody who only knows lines.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_head", bytes));
