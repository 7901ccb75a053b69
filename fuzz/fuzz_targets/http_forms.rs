//! A query or a form may be anything: its pairs, written and read again, are the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_forms", bytes));
