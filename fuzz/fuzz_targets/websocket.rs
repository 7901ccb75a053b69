//! Frames of a WebSocket may be anything, and come in any pieces: they mean what the RFC says, or are refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| coracle_http::fuzzing::enter("websocket", bytes));
