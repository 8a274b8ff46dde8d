//! Renewing the lease of a holder who may have lost it meanwhile: whoever was suspended for long finds that out before
//! it goes on.

use kcp_client::Error;

use crate::{
    lease::record_keeping::{withdraw, write_unchanged},
    objects::record::LeaseClaim,
    store::{Customizations, Records},
};

/// How often a record is read anew that others change.
const MAX_ATTEMPTS: usize = 5;

/// Renews a lease; `false` when the holder has it no more. Another's record is left as it is.
///
/// # Errors
/// When the API server cannot be asked, or the record changes faster than it can be written.
pub async fn hold<S: Customizations + Records>(
    store: &S,
    customization: &str,
    claim: LeaseClaim<'_>,
) -> Result<bool, Error> {
    let holder = claim.holder;
    for _ in 0..MAX_ATTEMPTS {
        let record = store.record(customization).await?;
        let Some(record) = record.filter(|record| record.names(holder) && !record.is_revoked()) else {
            return Ok(false);
        };
        if write_unchanged(store, customization, Some(&record), claim).await? {
            let entry = store.get(customization).await?;
            let is_held = entry.is_some_and(|entry| entry.is_held_by(holder));
            if !is_held {
                withdraw(store, customization, holder).await?;
            }
            return Ok(is_held);
        }
    }
    Err(Error::Contended {
        goal: format!("renew the lease on {customization}"),
        attempts: MAX_ATTEMPTS,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::hold;
    use crate::{
        objects::{
            entry::Holder,
            record::{LeaseClaim, first},
        },
        store::Customizations as _,
        testing::fake::{Fake, Fault, reserved},
    };

    fn claim(name: &str, seconds: u64) -> LeaseClaim<'_> {
        LeaseClaim {
            holder: Holder {
                pool: "pool",
                cluster_deployment: name,
            },
            duration: Some(Duration::from_secs(seconds)),
            cluster_deployment_uid: None,
            is_creating: false,
        }
    }

    /// Entry `a` of this holder, recorded for that one.
    fn held(entry: Option<&str>, record: Option<&str>, faults: &[Option<Fault>]) -> Fake {
        let fake = Fake::free(&["a"]).with_record_faults(faults);
        if let Some(holder) = entry {
            fake.put("a", &reserved(holder));
        }
        if let Some(holder) = record {
            let before = fake.now() - Duration::from_secs(30);
            fake.put_record(first("a", claim(holder, 60), before));
        }
        fake
    }

    /// Whether it is held, and the record afterwards.
    fn renewed(fake: &Fake) -> (bool, Option<(String, u64)>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_held = runtime.block_on(hold(fake, "a", claim("us", 600))).unwrap();
        let told = fake.recorded("a").map(|record| {
            let holder = record.cluster_deployment().unwrap().to_owned();
            (holder, record.duration().unwrap().as_secs())
        });
        (is_held, told)
    }

    #[test]
    fn a_lease_is_renewed_by_the_one_who_has_it_alone() {
        let of = |holder: &str, seconds| Some((holder.to_owned(), seconds));
        let (us, them) = (Some("us"), Some("them"));
        for (case, entry, record, expected) in [
            ("ours", us, us, (true, of("us", 600))),
            ("freed, and taken by another", them, them, (false, of("them", 60))),
            ("another is about to take it", None, them, (false, of("them", 60))),
            ("freed", None, None, (false, None)),
            ("freed, and the record left", None, us, (false, None)),
            ("its record is gone", us, None, (false, None)),
        ] {
            assert_eq!(renewed(&held(entry, record, &[])), expected, "{case}");
        }
        for fault in [Fault::AnswerLost, Fault::RequestLost] {
            let fake = held(us, us, &[Some(fault)]);
            assert_eq!(renewed(&fake), (true, of("us", 600)), "{fault:?}");
        }
    }

    #[test]
    fn a_lease_that_is_being_taken_away_is_not_renewed() {
        let fake = held(Some("us"), None, &[]);
        let mut revoked: Value = first("a", claim("us", 60), fake.now());
        revoked["metadata"]["annotations"]["kubectl-kcp.dev/revoked"] = json!("2026-11-21T05:00:00.000000Z");
        fake.put_record(revoked);
        assert_eq!(renewed(&fake), (false, Some(("us".to_owned(), 60))));
    }
}
