//! Cookies may be anything: those of a slow twin are found, and a session that nobody signed is none.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_cookies", bytes));
