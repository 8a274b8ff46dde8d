//! What is done of a soak, kept between calls.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};
use kcp_tests::pools::counts::Counts;
use serde::{Deserialize, Serialize};

/// Runs that kept every promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// That of the first run; each has the next.
    pub(crate) first_seed: u64,
    /// What the runs that are done came to.
    pub(crate) counts: Counts,
    /// Of the API server, in the midst of runs.
    pub(crate) restarts: u64,
    /// That they took.
    pub(crate) seconds: u64,
}

impl State {
    /// Nothing is done.
    pub(crate) fn new(first_seed: u64) -> Self {
        Self {
            first_seed,
            counts: Counts::default(),
            restarts: 0,
            seconds: 0,
        }
    }

    /// Whether so many runs with seeds from that one go on from here.
    pub(crate) fn is_unfinished(&self, runs: u64, first_seed: Option<u64>) -> bool {
        self.counts.runs < runs && first_seed.is_none_or(|seed| seed == self.first_seed)
    }

    /// What an earlier call left; none when there was none.
    pub(crate) fn load(file: &Path) -> Result<Option<Self>> {
        let reading = || format!("reading {}", file.display());
        match fs::read(file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).with_context(reading),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(reading),
        }
    }

    /// Replaces it whole: a call may be killed at any time.
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
