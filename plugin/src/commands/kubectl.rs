//! `kubectl kcp kubectl`: runs kubectl against the workload cluster of a control plane.
//!
//! kubectl replaces this process, so signals, stdin, the terminal and the exit code are its own. It inherits an
//! anonymous file in memory with the kubeconfig, so the credentials are never on a disk.

use std::{
    ffi::OsString,
    io,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::Args;
use kcp_client::reads::{self, workload::read_kubeconfig};

use crate::{
    arguments::{ControlPlaneName, parse_control_plane},
    session::Session,
    verdict::Verdict,
};

/// The time limit for reading the kubeconfig.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// Run kubectl against the workload cluster of a control plane.
#[derive(Debug, Args)]
#[command(
    after_help = "The flags before -- select the control plane in the management cluster; kubectl gets the arguments after \
        --. The kubeconfig comes from Cluster API's Secret CLUSTER-kubeconfig. On Linux, it stays in memory, and no file \
        contains it. On other systems, the command refuses to run kubectl. The exit code is that of kubectl.

Examples:
  kubectl kcp kubectl edge -- get nodes
  kubectl kcp kubectl cluster/edge -n team -- logs -n kube-system etcd-edge-9hng4"
)]
pub struct KubectlArguments {
    /// Control plane, as NAME, kcp/NAME or cluster/NAME
    #[arg(value_parser = parse_control_plane)]
    pub name: ControlPlaneName,

    /// The arguments of kubectl
    #[arg(last = true, required = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

/// Runs `kubectl`. Returns only if kubectl cannot be run.
pub async fn run(arguments: KubectlArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + READ_LIMIT;
    let connection = session.connect_within(READ_LIMIT).await?;
    let reader = reads::discover(&connection, reads::list_limit(READ_LIMIT)).await?;
    let name = arguments
        .name
        .read(&reader, reads::list_limit(READ_LIMIT))
        .await?;
    let (_, control_plane) = reader.read_control_plane(&connection.namespace, &name).await?;
    let (error, hint) = match read_kubeconfig(&connection, &control_plane, end).await {
        Ok(kubeconfig) => {
            session.terminal.stop_spinning();
            let error = exec(&kubeconfig, &arguments.arguments);
            let hint = match error.kind() {
                io::ErrorKind::NotFound => Some("install kubectl, or add its folder to PATH".to_owned()),
                io::ErrorKind::Unsupported => Some(format!(
                    "save the kubeconfig in a file that only you can read: clusterctl get kubeconfig {} -n {}",
                    control_plane.cluster().unwrap_or_default(),
                    connection.namespace
                )),
                _ => None,
            };
            (anyhow!("cannot run kubectl: {error}"), hint)
        }
        Err(failure) => (
            anyhow!("cannot use {}: {}", failure.object, failure.message),
            failure.hint,
        ),
    };
    session.terminal.error(&error, hint.as_deref());
    Ok(Verdict::Undecided)
}

/// Replaces this process with kubectl. Returns why this is not possible.
#[cfg(target_os = "linux")]
fn exec(kubeconfig: &[u8], arguments: &[OsString]) -> io::Error {
    use std::{
        fs::File,
        io::Write as _,
        os::{fd::AsRawFd as _, unix::process::CommandExt as _},
        process::Command,
    };

    use rustix::fs::{MemfdFlags, memfd_create};

    let file = || -> io::Result<File> {
        // Without CLOEXEC, kubectl inherits the file.
        let mut file = File::from(memfd_create("kubeconfig", MemfdFlags::empty())?);
        file.write_all(kubeconfig)?;
        Ok(file)
    };
    match file() {
        Ok(file) => Command::new("kubectl")
            .args(arguments)
            .env("KUBECONFIG", format!("/proc/self/fd/{}", file.as_raw_fd()))
            .exec(),
        Err(error) => error,
    }
}

#[cfg(not(target_os = "linux"))]
fn exec(_kubeconfig: &[u8], _arguments: &[OsString]) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "only on Linux can this command give kubectl the kubeconfig without writing it to a disk",
    )
}
