//! The load balancer of a site: a real `HAProxy` in front of the API servers of its machines.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use super::site::{LOAD_BALANCER, NUMBERS, PREFIX};
use crate::api_server::NO_ENVIRONMENT;
use crate::process::Process;
use crate::run::Run;

/// The port of every API server, and of the load balancer.
pub(super) const API_PORT: u16 = 6443;

// A check waits 3 s for a response, because an API server on a busy machine can take longer than a second. A machine without power
// is found by `timeout connect`.
const SETTINGS: &str = "\
global
  maxconn 1000
defaults
  mode tcp
  timeout connect 2s
  timeout check 3s
  timeout client 10m
  timeout server 10m
backend api-servers
  option httpchk GET /readyz
  default-server check check-ssl verify none inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
";

/// Starts it. Every machine that the site can have is a server, which is down while its API server is not ready.
pub(super) fn start(run: &Arc<Run>, site: &str, folder: &Path) -> Result<Process> {
    let mut text = format!(
        "{SETTINGS}{}frontend api\n  bind {PREFIX}.{LOAD_BALANCER}:{API_PORT}\n  default_backend api-servers\n",
        servers()
    );
    text.push('\n');
    let file = folder.join("haproxy.cfg");
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    let arguments = ["-db".as_ref(), "-f".as_ref(), file.as_os_str()];
    Process::start(
        run,
        &format!("site-{site}-haproxy"),
        Path::new("haproxy"),
        arguments,
        NO_ENVIRONMENT,
    )
}

fn servers() -> String {
    NUMBERS.fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "  server machine-{number} {PREFIX}.{number}:{API_PORT}");
        text
    })
}
