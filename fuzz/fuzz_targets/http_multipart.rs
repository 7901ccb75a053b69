//! A form with files may be anything, and come in any pieces: its parts are what splitting it gives.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((sizes, body)) = bytes.split_first_chunk::<3>() {
        coracle_http::fuzzing::multipart(body, &sizes.map(usize::from));
    }
});
