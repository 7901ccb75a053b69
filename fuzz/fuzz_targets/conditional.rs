//! Conditions: any bytes get a verdict, and our own tag is found wherever it stands in a list.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("conditional", bytes));
