//! Divides a command's remaining time among its reads, so that a slow read fails alone, and the command reports the results of
//! the other reads.

use std::time::{Duration, Instant};

use kcp_etcd::Timeouts;

/// The share of the remaining time that reading one Secret in the management cluster may take. Secrets are
/// read first, at most two in sequence.
const SECRET_SHARE: f64 = 1.0 / 3.0;

/// The share of the remaining time that one read of the workload cluster may take, once the Secrets have been
/// read. The etcd query comes after this read, because the query needs the nodes.
const WORKLOAD_SHARE: f64 = 0.4;

/// The shares of the remaining time that the steps of an etcd query may take, once the nodes have been read.
/// The longest query opens a stream, does a TLS handshake, and makes two calls; the rest of the time is a
/// reserve.
const DIAL_SHARE: f64 = 0.28;
const HANDSHAKE_SHARE: f64 = 0.12;
const CALL_SHARE: f64 = 0.2;

/// Cluster API's time limits for etcd: the defaults of its flags `--etcd-dial-timeout-duration` and
/// `--etcd-call-timeout-duration`.
const LONGEST_DIAL: Duration = Duration::from_secs(10);
const LONGEST_CALL: Duration = Duration::from_secs(15);

/// How much time remains until `end`. Zero if `end` has passed.
pub fn remaining(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

pub fn for_secret(left: Duration) -> Duration {
    share(left, SECRET_SHARE)
}

/// Returns the time limit of one read of the workload cluster.
pub fn for_workload(left: Duration) -> Duration {
    share(left, WORKLOAD_SHARE)
}

pub fn for_etcd(left: Duration) -> Timeouts {
    Timeouts {
        dial: share(left, DIAL_SHARE).min(LONGEST_DIAL),
        handshake: share(left, HANDSHAKE_SHARE).min(LONGEST_DIAL),
        call: share(left, CALL_SHARE).min(LONGEST_CALL),
    }
}

/// Returns a share of the remaining time, rounded down to tenths of a second, because messages show the
/// result.
fn share(left: Duration, part: f64) -> Duration {
    let share = left.mul_f64(part);
    let tenths = share.as_millis() / 100;
    match u64::try_from(tenths) {
        Ok(tenths @ 1..) => Duration::from_millis(tenths * 100),
        _ => share,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{for_etcd, for_secret, for_workload};

    #[test]
    fn all_that_comes_one_after_the_other_fits() {
        for millis in [0, 1, 50, 1_000, 2_345, 10_000, 60_000, 3_600_000] {
            let whole = Duration::from_millis(millis);
            let left = whole.checked_sub(for_secret(whole)).expect("a Secret fits");
            let left = left.checked_sub(for_secret(left)).expect("another Secret fits");
            let left = left
                .checked_sub(for_workload(left))
                .expect("the workload cluster fits");
            let etcd = for_etcd(left);
            let way = etcd.dial + etcd.handshake * 2 + etcd.call * 2;
            assert!(way <= left, "{way:?} of {left:?}");
        }
    }

    #[test]
    fn ten_seconds_are_shared_out() {
        let whole = Duration::from_secs(10);
        assert_eq!(for_secret(whole), Duration::from_millis(3_300));
        assert_eq!(for_workload(whole), Duration::from_secs(4));
        let etcd = for_etcd(whole);
        assert_eq!(etcd.dial, Duration::from_millis(2_800));
        assert_eq!(etcd.handshake, Duration::from_millis(1_200));
        assert_eq!(etcd.call, Duration::from_secs(2));
    }
}
