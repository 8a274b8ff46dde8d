//! Commands whose wall clock is wrong, with a library that is preloaded into them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};

/// The library's source.
const SOURCE: &str = include_str!("shifted_clock.c");

/// The seconds by which a command's wall clock is ahead.
const SHIFT: &str = "KCP_CLOCK_SHIFT";

/// The compiled library.
#[derive(Clone, Debug)]
pub(super) struct ShiftedClock {
    library: PathBuf,
}

impl ShiftedClock {
    /// Compiles the library with the C compiler that Rust links with, and checks that it works.
    pub(super) fn compile(folder: &Path) -> Result<Self> {
        let (source, library) = (folder.join("shifted_clock.c"), folder.join("shifted_clock.so"));
        fs::write(&source, SOURCE).with_context(|| format!("writing {}", source.display()))?;
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output()
            .context("running cc")?;
        let errors = String::from_utf8_lossy(&compiled.stderr);
        ensure!(compiled.status.success(), "cc {}: {errors}", source.display());
        let clock = Self { library };
        clock.check()?;
        Ok(clock)
    }

    /// The environment of a command whose wall clock is ahead by this much.
    pub(super) fn environment(&self, ahead: SignedDuration) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            (SHIFT, ahead.as_secs().to_string()),
        ]
    }

    /// Without this check, a library without an effect would go unnoticed.
    fn check(&self) -> Result<()> {
        let ahead = SignedDuration::from_mins(-10);
        let date = Command::new("date")
            .arg(OsStr::new("+%s"))
            .envs(self.environment(ahead))
            .output()
            .context("running date")?;
        let date: i64 = String::from_utf8_lossy(&date.stdout).trim().parse()?;
        let found = SignedDuration::from_secs(date - Timestamp::now().as_second());
        ensure!(
            (found - ahead).abs() < SignedDuration::from_mins(1),
            "the preloaded library shifts the clock by {found}, not by {ahead}"
        );
        Ok(())
    }
}
