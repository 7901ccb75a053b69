//! Values of headers may be anything: tags, credentials, media types, codings.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("http_values", bytes));
