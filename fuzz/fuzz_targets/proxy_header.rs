//! What a proxy says of a connection may be anything: what is taken is what a slow reader understands.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("proxy_header", bytes));
