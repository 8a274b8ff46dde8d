//! The programs that this workspace builds: the programs under test, and `supervise`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};

pub fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// The folder of Cargo's programs in this profile.
pub fn folder() -> Result<PathBuf> {
    let this = env::current_exe().context("finding this program")?;
    let folder = this.parent().context("this program is in no folder")?;
    // Test binaries are in its subfolder `deps`.
    let folder = if folder.ends_with("deps") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    Ok(folder.to_owned())
}

/// Cargo's target folder.
pub fn target() -> Result<PathBuf> {
    let folder = folder()?;
    let target = folder.parent().context("the programs are in no target folder")?;
    Ok(target.to_owned())
}

/// The path of a program under test. Fails if the program is missing or older than one of its sources, because tests
/// must not run an outdated program.
pub fn under_test(name: &str) -> Result<PathBuf> {
    let program = folder()?.join(name);
    let remedy = "build all programs first: cargo build --workspace --all-features --bins --tests";
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    let built = modified(&program).with_context(|| format!("{} is missing; {remedy}", program.display()))?;
    for source in sources(&program.with_extension("d"))? {
        // A deleted source counts as changed.
        let changed = modified(&source).unwrap_or_else(|_| SystemTime::now());
        ensure!(
            changed <= built,
            "{} is older than {}; {remedy}",
            program.display(),
            source.display()
        );
    }
    Ok(program)
}

/// The sources of a program according to the make rule that Cargo writes: `PROGRAM: SOURCE...`. Unlike the source tree,
/// the rule excludes files that only unit tests use.
fn sources(rule: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(rule).with_context(|| format!("reading {}", rule.display()))?;
    parse_rule(&text).with_context(|| format!("{} is not a make rule", rule.display()))
}

fn parse_rule(text: &str) -> Option<Vec<PathBuf>> {
    let (_, sources) = text.split_once(": ")?;
    // A space within a name is escaped.
    let sources = sources.trim_end().replace("\\ ", "\0");
    Some(
        sources
            .split(' ')
            .map(|source| source.replace('\0', " ").into())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::parse_rule;

    #[test]
    fn reads_the_sources_of_a_make_rule() {
        let sources = parse_rule("/target/debug/program: /a.rs /with\\ space.rs\n").unwrap();
        assert_eq!(sources, [Path::new("/a.rs"), Path::new("/with space.rs")]);
        assert_eq!(parse_rule("no rule"), None);
    }
}
