//! Records of FastCGI may be anything, and come in any pieces; what is written is what is read.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("fastcgi", bytes));
