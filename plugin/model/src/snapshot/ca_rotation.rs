//! How far the rotation of a CA is, according to the record on its Secret.

use jiff::Timestamp;
use kcp_api::{Machine, Object as _, metadata::ObjectMeta, names::annotation};
use serde::{Deserialize, Serialize};

/// A phase of a rotation. In each phase, the Secret is changed once, and then every Machine is replaced, because a Machine gets the
/// content of the Secret when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RotationPhase {
    /// `tls.crt` contains the old and the new entry, and `tls.key` is the old key.
    TrustBoth,
    /// `tls.crt` contains the new and the old entry, and `tls.key` is the new key.
    SignWithNew,
    /// `tls.crt` contains only the new entry, and `tls.key` is the new key.
    TrustOnlyNew,
}

impl RotationPhase {
    /// How many phases there are.
    pub const COUNT: u8 = 3;

    pub const fn number(self) -> u8 {
        match self {
            Self::TrustBoth => 1,
            Self::SignWithNew => 2,
            Self::TrustOnlyNew => 3,
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::TrustBoth => "trust both keys",
            Self::SignWithNew => "sign with the new key",
            Self::TrustOnlyNew => "trust only the new key",
        }
    }

    pub const fn next(self) -> Option<Self> {
        match self {
            Self::TrustBoth => Some(Self::SignWithNew),
            Self::SignWithNew => Some(Self::TrustOnlyNew),
            Self::TrustOnlyNew => None,
        }
    }

    /// The phase as text, such as `phase 1 of 3, trust both keys`.
    pub fn describe(self) -> String {
        format!("phase {} of {}, {}", self.number(), Self::COUNT, self.title())
    }
}

/// The value of the annotation `ca-rotation` of a Secret, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotationRecord {
    pub phase: RotationPhase,
    /// When the Secret got its content, by the API server's clock, in whole seconds.
    pub since: Timestamp,
    /// The SHA-256 hash of `tls.crt`, in hexadecimal. If the current `tls.crt` has a different hash, another client has changed
    /// the Secret since then.
    pub content: String,
    /// The names of the Machines that existed when the Secret got its content. `clusterctl move` and backups keep names, but not
    /// creation times.
    pub older: Vec<String>,
}

impl RotationRecord {
    /// The record on a Secret. `None` if it is absent or cannot be decoded.
    pub fn on(secret: &ObjectMeta) -> Option<Self> {
        let annotations = secret.annotations.as_ref()?;
        serde_json::from_str(annotations.get(annotation::CA_ROTATION)?).ok()
    }

    /// The Machines that do not have the content of the Secret, because they are older. Times have whole seconds, so a Machine
    /// that was created in the same second counts as older.
    pub fn older_machines<'m>(&self, machines: &'m [Machine]) -> Vec<&'m str> {
        let is_newer = |machine: &&Machine| {
            let created = machine.creation_timestamp();
            created.is_some_and(|created| created > self.since)
                && !self.older.iter().any(|name| name == machine.name())
        };
        let older = machines.iter().filter(|machine| !is_newer(machine));
        older.map(Machine::name).collect()
    }

    /// How far the rotation is, such as `phase 2 of 3, sign with the new key; 1 of 3 Machines has the new content of the
    /// Secret`. `None` if the rotation is complete.
    pub fn progress(&self, machines: &[Machine]) -> Option<String> {
        let older = self.older_machines(machines).len();
        if older == 0 && self.phase.next().is_none() {
            return None;
        }
        let newer = machines.len() - older;
        let has = if newer == 1 { "has" } else { "have" };
        Some(format!(
            "{}; {newer} of {} Machines {has} the new content of the Secret",
            self.phase.describe(),
            machines.len()
        ))
    }
}

#[cfg(test)]
mod tests {
    use kcp_api::{metadata::ObjectMeta, names::annotation};

    use super::{RotationPhase, RotationRecord};
    use crate::testing::{
        objects::{annotate, now},
        plan,
    };

    fn record() -> RotationRecord {
        RotationRecord {
            phase: RotationPhase::SignWithNew,
            since: now(),
            content: "ab".to_owned(),
            older: Vec::new(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let value = r#"{"phase":"signWithNew","since":"2026-08-21T12:00:00Z","content":"ab","older":[]}"#;
        assert_eq!(serde_json::to_string(&record()).expect("JSON"), value);
        let mut secret = ObjectMeta::default();
        assert_eq!(RotationRecord::on(&secret), None);
        annotate(&mut secret, annotation::CA_ROTATION, value);
        assert_eq!(RotationRecord::on(&secret), Some(record()));
        annotate(&mut secret, annotation::CA_ROTATION, "soon");
        assert_eq!(RotationRecord::on(&secret), None);
    }

    #[test]
    fn the_phases_end() {
        let phases = std::iter::successors(Some(RotationPhase::TrustBoth), |phase| phase.next());
        let lines: Vec<String> = phases.map(RotationPhase::describe).collect();
        assert_eq!(
            lines,
            [
                "phase 1 of 3, trust both keys",
                "phase 2 of 3, sign with the new key",
                "phase 3 of 3, trust only the new key"
            ]
        );
    }

    #[test]
    fn a_machine_of_the_same_second_is_older() {
        let mut machines = plan::observed().machines;
        for (machine, seconds) in machines.iter_mut().zip([-1, 0, 1]) {
            let created = now() + jiff::SignedDuration::from_secs(seconds);
            machine.metadata.creation_timestamp = Some(kcp_api::metadata::Time(created));
        }
        assert_eq!(record().older_machines(&machines), ["m1", "m2"]);
        let progress = |phase| RotationRecord { phase, ..record() }.progress(&machines);
        assert_eq!(
            progress(RotationPhase::SignWithNew).as_deref(),
            Some("phase 2 of 3, sign with the new key; 1 of 3 Machines has the new content of the Secret")
        );
        assert_eq!(
            progress(RotationPhase::TrustOnlyNew).as_deref(),
            Some("phase 3 of 3, trust only the new key; 1 of 3 Machines has the new content of the Secret")
        );
        let newer = RotationRecord {
            since: now() - jiff::SignedDuration::from_hours(1),
            ..record()
        };
        assert_eq!(
            newer.progress(&machines).as_deref(),
            Some("phase 2 of 3, sign with the new key; 3 of 3 Machines have the new content of the Secret")
        );
        let complete = RotationRecord {
            phase: RotationPhase::TrustOnlyNew,
            ..newer
        };
        assert_eq!(complete.progress(&machines), None);
        machines[2].metadata.creation_timestamp = None;
        assert_eq!(record().older_machines(&machines), ["m1", "m2", "m3"]);
    }

    #[test]
    fn a_machine_that_was_moved_stays_older() {
        let machines = plan::observed().machines;
        let moved = RotationRecord {
            since: now() - jiff::SignedDuration::from_hours(24),
            older: vec!["m2".to_owned()],
            ..record()
        };
        assert_eq!(moved.older_machines(&machines), ["m2"]);
    }
}
