//! A form with files may be anything, and come in any pieces: its parts are what splitting it gives.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_multipart", bytes));
