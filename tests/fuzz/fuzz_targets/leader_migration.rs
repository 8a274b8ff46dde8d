#![no_main]

#[path = "../oracles/mod.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod oracles;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oracles::leader_migration::holds(bytes));
