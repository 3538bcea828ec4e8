#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| frostline_fuzz::request_head(data));
