#![no_main]

#[path = "../oracles/mod.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod oracles;

use std::{sync::Mutex, time::Duration};

use oracles::cost::Cost;

/// A cost that is a finding: a thousand times what decoding takes. Sanitizers slow a server down about tenfold.
const LIMIT_PER_BYTE: Duration = Duration::from_micros(10);

/// The most expensive input by byte so far.
static SLOWEST: Mutex<Option<Cost>> = Mutex::new(None);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let cost = Cost::measure(bytes);
    let mut slowest = SLOWEST.lock().unwrap();
    if slowest.is_none_or(|slowest| cost.per_byte() > slowest.per_byte()) {
        *slowest = Some(cost);
        eprintln!(
            "slowest input so far: {:?} for {} bytes, {:?} a byte",
            cost.cpu,
            cost.bytes,
            cost.per_byte()
        );
    }
    drop(slowest);
    assert!(cost.per_byte() < LIMIT_PER_BYTE, "{cost:?}");
});
