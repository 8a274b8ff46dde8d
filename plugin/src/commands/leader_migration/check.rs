//! Runs `kubectl kcp leader-migration check`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use kcp_api::{KubeadmControlPlane as ReadControlPlane, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::{
    Connection, ReadLimit,
    reader::Reader,
    reads::{DEFAULT_TIMEOUT, leader_migration::read_cloud_workload},
};
use kcp_rules::{
    api::{KubeadmControlPlane, decode},
    leader_migration::{ControllerManagerChange, ControllerManagers, Manager},
    topics::controller_managers::{self, Unknown},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    commands::leader_migration::{
        arguments::{CheckArguments, CloudSource},
        checked_upgrade::CheckedUpgrade,
        document::LeaderMigrationCheck,
        input,
        screen::render,
    },
    document::{Versioned, resource_name},
    output::{Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};

/// The time limit for reading an object of the workload cluster.
const TIMEOUT: Duration = DEFAULT_TIMEOUT;

/// The control plane that was read, and the connection to its management cluster.
struct Origin {
    connection: Connection,
    control_plane: ReadControlPlane,
}

/// The cloud-controller-managers that `--old-ccm` and `--ccm` name, before and after the upgrade.
#[derive(Default)]
struct Clouds {
    now: Option<Manager>,
    then: Option<Manager>,
}

pub(super) async fn run(arguments: &CheckArguments, session: &Session) -> anyhow::Result<Verdict> {
    let (old, origin) = match (&arguments.old, &arguments.name) {
        (Some(old), _) => (input::read_control_plane(old)?, None),
        (None, Some(name)) => {
            let connection = session.connect().await?;
            let reader = Reader::discover(&connection).await?;
            let name = name.read(&reader, ReadLimit::per_read(TIMEOUT)).await?;
            let (text, control_plane) = reader.read_control_plane(&connection.namespace, &name).await?;
            let object = serde_json::from_str(&text)?;
            let origin = Origin {
                connection,
                control_plane,
            };
            (object, Some(origin))
        }
        (None, None) => bail!("specify a control plane, or give two manifests with -f and --old"),
    };
    let new = new(arguments, &old)?;
    let cloud = async |source: Option<&CloudSource>, object: &Value, minor: Option<u64>| match source {
        Some(source) => {
            let namespace = &arguments.ccm_namespace;
            read_cloud(source, object, minor, origin.as_ref(), namespace)
                .await
                .map(Some)
        }
        None => Ok(None),
    };
    let clouds = Clouds {
        now: Box::pin(cloud(arguments.old_ccm.as_ref(), &old, arguments.old_ccm_version)).await?,
        then: Box::pin(cloud(arguments.ccm.as_ref(), &new, arguments.ccm_version)).await?,
    };
    let check = check(arguments, &old, &new, clouds)?;
    print(&check, &arguments.output, &session.terminal)?;
    Ok(if check.has_problem() {
        Verdict::Negative
    } else {
        Verdict::Met
    })
}

/// The manifest of the control plane after the upgrade.
fn new(arguments: &CheckArguments, old: &Value) -> anyhow::Result<Value> {
    let mut new = match &arguments.file {
        Some(file) => input::read_control_plane(file)?,
        None => old.clone(),
    };
    if let (Some(to), Some(version)) = (&arguments.to, new.pointer_mut("/spec/version")) {
        *version = to.as_str().into();
    }
    Ok(new)
}

/// Reads a cloud-controller-manager and its configuration, which may be in a file of `control_plane`. `minor` is the minor
/// version of its Kubernetes libraries; if `None`, the tag of its image must contain the version.
async fn read_cloud(
    source: &CloudSource,
    control_plane: &Value,
    minor: Option<u64>,
    origin: Option<&Origin>,
    namespace: &str,
) -> anyhow::Result<Manager> {
    let (kind, name) = match source {
        CloudSource::File(path) => return input::read_cloud_controller_manager(path, control_plane, minor),
        CloudSource::Object { kind, name } => (*kind, name),
    };
    let Some(origin) = origin else {
        bail!(
            "cannot read {}/{name} with --old, because it is an object of the workload cluster; specify the \
             control plane instead of --old, or pass a file with the manifest",
            kind.resource()
        );
    };
    let end = Instant::now() + TIMEOUT;
    let read = read_cloud_workload(
        &origin.connection,
        &origin.control_plane,
        (kind, namespace, name),
        end,
    );
    let objects = Box::pin(read)
        .await
        .map_err(|failure| anyhow!("cannot read {}: {}", failure.object, failure.message))?;
    input::find_cloud_controller_manager(&objects, control_plane, minor)
        .with_context(|| format!("cannot use {}/{name} in namespace {namespace}", kind.resource()))
}

fn check(
    arguments: &CheckArguments,
    old: &Value,
    new: &Value,
    clouds: Clouds,
) -> anyhow::Result<CheckedUpgrade> {
    let mut unknown_clouds = Vec::new();
    let mut managers = |object, cloud| {
        let (managers, unknown) = controller_managers(object, cloud, arguments)?;
        unknown_clouds.extend(unknown.filter(|unknown| !unknown_clouds.contains(unknown)));
        anyhow::Ok(managers)
    };
    let now = managers(old, clouds.now).context("cannot check the control plane before the upgrade")?;
    let then = managers(new, clouds.then).context("cannot check the control plane after the upgrade")?;
    Ok(CheckedUpgrade {
        name: input::text(new, "/metadata/name").to_owned(),
        namespace: input::text(new, "/metadata/namespace").to_owned(),
        replicas: new.pointer("/spec/replicas").and_then(Value::as_i64),
        change: ControllerManagerChange {
            before: now,
            after: then,
        },
        unknown_clouds,
    })
}

/// The controller managers, and why it is unknown whether `files` contains a cloud-controller-manager. `cloud` is the
/// cloud-controller-manager that a flag names.
fn controller_managers(
    object: &Value,
    cloud: Option<Manager>,
    arguments: &CheckArguments,
) -> anyhow::Result<(ControllerManagers, Option<Unknown>)> {
    let text = object.to_string();
    let control_plane: KubeadmControlPlane<'_> = decode(&text)?;
    let spec = control_plane.common_spec();
    let kube = controller_managers::kube_controller_manager(&spec, !arguments.no_pod_network)?;
    let (cloud, unknown) = match cloud {
        Some(cloud) => (Some(cloud), None),
        None => match controller_managers::cloud_controller_manager(&spec) {
            Ok(cloud) => (cloud.map(|cloud| cloud.manager), None),
            Err(unknown) => (None, Some(unknown)),
        },
    };
    Ok((ControllerManagers { kube, cloud }, unknown))
}

impl Report for CheckedUpgrade {
    fn table(&self, layout: Layout) -> String {
        render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(LeaderMigrationCheck::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, &self.name)]
    }
}
