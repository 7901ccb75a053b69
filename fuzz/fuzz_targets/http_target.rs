//! The target of a request may be anything: it is what splitting it gives, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_target", bytes));
