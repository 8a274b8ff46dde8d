//! The progress of a soak between calls.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};
use kcp_tests::pools::counts::Counts;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// The seed of the first run. Each further run has the next seed.
    pub(crate) first_seed: u64,
    /// The counts of the finished runs.
    pub(crate) counts: Counts,
    /// Restarts of the API server during runs.
    pub(crate) restarts: u64,
    /// The time of the finished runs.
    pub(crate) seconds: u64,
}

impl State {
    /// The progress of a new soak.
    pub(crate) fn new(first_seed: u64) -> Self {
        Self {
            first_seed,
            counts: Counts::default(),
            restarts: 0,
            seconds: 0,
        }
    }

    /// Whether a soak of these runs and seeds continues from here.
    pub(crate) fn is_unfinished(&self, runs: u64, first_seed: Option<u64>) -> bool {
        self.counts.runs < runs && first_seed.is_none_or(|seed| seed == self.first_seed)
    }

    /// The saved progress, if there is any.
    pub(crate) fn load(file: &Path) -> Result<Option<Self>> {
        let reading = || format!("reading {}", file.display());
        match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).with_context(reading),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(reading),
        }
    }

    /// Replaces the file atomically, because a call may be killed at any time.
    pub(crate) fn save(&self, file: &Path) -> Result<()> {
        let new = file.with_extension("json.new");
        let writing = || format!("writing {}", file.display());
        fs::write(&new, serde_json::to_vec_pretty(self)?).with_context(writing)?;
        fs::rename(&new, file).with_context(writing)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first_seed,
            counts,
            restarts,
            seconds,
        } = self;
        write!(
            f,
            "seeds from {first_seed}, {restarts} restarts, {seconds} s: {counts}"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::State;

    #[test]
    fn what_was_saved_is_loaded() {
        let file = std::env::temp_dir().join(format!("kcp-soak-{}.json", std::process::id()));
        let _ = fs::remove_file(&file);
        assert_eq!(State::load(&file).unwrap(), None);
        let mut state = State::new(7);
        state.counts.runs = 50;
        state.restarts = 1;
        state.save(&file).unwrap();
        assert_eq!(State::load(&file).unwrap(), Some(state));
        fs::write(&file, "{").unwrap();
        State::load(&file).unwrap_err();
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn another_seed_or_no_runs_left_begin_anew() {
        let mut state = State::new(7);
        state.counts.runs = 50;
        for (runs, seed, goes_on) in [
            (100, None, true),
            (100, Some(7), true),
            (100, Some(8), false),
            (50, None, false),
            (40, Some(7), false),
        ] {
            assert_eq!(state.is_unfinished(runs, seed), goes_on, "{runs} {seed:?}");
        }
    }
}
