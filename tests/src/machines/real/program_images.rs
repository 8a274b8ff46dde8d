//! Images for machines of programs on this host: kcp-webhook as Cargo has built it, Debian's `HAProxy`, and the managers of Cluster
//! API, each with its shared libraries. The image of a release of kcp-webhook contains a static program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};

use super::Site;
use crate::products;

/// The image of kcp-webhook in `manifests`.
const WEBHOOK: &str = "docker.io/library/kcp-webhook:0.1.0";

/// The image of `HAProxy` on machines.
pub const HAPROXY: &str = "docker.io/library/haproxy:debian";

/// Writes the archive of the image of kcp-webhook, for [`super::Machine::import_image`].
pub fn webhook_image(site: &Site) -> Result<PathBuf> {
    program_image(
        site,
        WEBHOOK,
        &products::under_test("kcp-webhook")?,
        "/kcp-webhook",
    )
}

/// Writes the archive of the image [`HAPROXY`].
pub fn haproxy_image(site: &Site) -> Result<PathBuf> {
    program_image(site, HAPROXY, Path::new("/usr/sbin/haproxy"), "/usr/sbin/haproxy")
}

/// Writes the archive of an image that contains one program, at the path `entrypoint`.
pub(crate) fn program_image(site: &Site, name: &str, program: &Path, entrypoint: &str) -> Result<PathBuf> {
    let file = program.file_name().context("a program has a name")?;
    let archive = site.folder().join(file).with_extension("tar");
    let mut command = Command::new(products::workspace().join("tests/envtest/image"));
    command.arg(&archive).args([name, entrypoint]);
    command.arg(format!("{}={entrypoint}", program.display()));
    for library in libraries(program)? {
        command.arg(format!("{library}={library}"));
    }
    output(&mut command)?;
    Ok(archive)
}

/// The paths of the shared libraries of a program, and of its loader. A static program has none.
fn libraries(program: &Path) -> Result<BTreeSet<String>> {
    let mut command = Command::new("ldd");
    let listed = command
        .arg(program)
        .output()
        .with_context(|| format!("running {command:?}"))?;
    if String::from_utf8_lossy(&listed.stderr).contains("not a dynamic executable") {
        return Ok(BTreeSet::new());
    }
    let listed = succeeded(&command, listed)?;
    let words = listed.split_whitespace();
    Ok(words
        .filter(|word| word.starts_with('/'))
        .map(str::to_owned)
        .collect())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    succeeded(command, output)
}

fn succeeded(command: &Command, output: Output) -> Result<String> {
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("reading the output of {command:?}"))
}
