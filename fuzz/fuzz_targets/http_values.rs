//! Values of headers may be anything: tags, credentials, media types, codings.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| coracle_http::fuzzing::values(text));
