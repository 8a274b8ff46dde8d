//! The image of kcp-webhook for machines: the program that Cargo has built, with its shared libraries. The image of a release
//! contains a static program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Site;
use crate::products;

/// The image in `manifests`.
const IMAGE: &str = "docker.io/library/kcp-webhook:0.1.0";

const ENTRYPOINT: &str = "/kcp-webhook";

/// Writes the archive of the image, for [`super::Machine::import_image`].
pub fn webhook_image(site: &Site) -> Result<PathBuf> {
    let program = products::under_test("kcp-webhook")?;
    let archive = site.folder().join("kcp-webhook.tar");
    let mut command = Command::new(products::workspace().join("tests/envtest/image"));
    command.arg(&archive).args([IMAGE, ENTRYPOINT]);
    command.arg(format!("{}={ENTRYPOINT}", program.display()));
    for library in libraries(&program)? {
        command.arg(format!("{library}={library}"));
    }
    output(&mut command)?;
    Ok(archive)
}

/// The paths of the shared libraries of a program, and of its loader.
fn libraries(program: &Path) -> Result<BTreeSet<String>> {
    let listed = output(Command::new("ldd").arg(program))?;
    let words = listed.split_whitespace();
    Ok(words
        .filter(|word| word.starts_with('/'))
        .map(str::to_owned)
        .collect())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("reading the output of {command:?}"))
}
