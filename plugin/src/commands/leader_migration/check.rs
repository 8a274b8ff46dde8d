//! `leader-migration check`.

use std::path::Path;

use anyhow::Context as _;
use kcp_api::kind::KUBEADM_CONTROL_PLANE;
use kcp_client::reader::Reader;
use kcp_rules::{
    api::{KubeadmControlPlane, decode},
    leader_migration::{Pair, Side},
    topics::controller_managers::{self, Unknown},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    commands::leader_migration::{
        arguments::CheckArguments, document::LeaderMigrationCheck, input, screen::screen, upgrade::Check,
    },
    document::resource_name,
    output::{Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict as Outcome,
};

/// Runs `leader-migration check`.
///
/// # Errors
/// A file or the cluster cannot be read, or the result cannot be printed.
pub(super) async fn run(arguments: &CheckArguments, session: &Session) -> anyhow::Result<Outcome> {
    let old = match (&arguments.old, &arguments.name) {
        (Some(old), _) => input::control_plane(old)?,
        (None, Some(name)) => {
            let connection = session.connect().await?;
            let reader = Reader::discover(&connection).await?;
            let (text, _) = reader.control_plane(&connection.namespace, name).await?;
            serde_json::from_str(&text)?
        }
        (None, None) => anyhow::bail!("name a control plane, or give two manifests with -f and --old"),
    };
    let check = check(arguments, &old)?;
    print(&check, &arguments.output, &session.terminal)?;
    Ok(if check.has_problem() {
        Outcome::Negative
    } else {
        Outcome::Met
    })
}

fn check(arguments: &CheckArguments, old: &Value) -> anyhow::Result<Check> {
    let mut new = match &arguments.file {
        Some(file) => input::control_plane(file)?,
        None => old.clone(),
    };
    if let (Some(minor), Some(version)) = (arguments.to, new.pointer_mut("/spec/version")) {
        *version = format!("v1.{minor}.0").into();
    }
    let mut unknown_clouds = Vec::new();
    let mut side = |object, ccm: Option<&Path>, version| {
        let (side, unknown) = side(object, ccm, version, arguments)?;
        unknown_clouds.extend(unknown.filter(|unknown| !unknown_clouds.contains(unknown)));
        anyhow::Ok(side)
    };
    let now = side(old, arguments.old_ccm.as_deref(), arguments.old_ccm_version)
        .context("cannot check the control plane before the upgrade")?;
    let then = side(&new, arguments.ccm.as_deref(), arguments.ccm_version)
        .context("cannot check the control plane after the upgrade")?;
    Ok(Check {
        name: input::text(&new, "/metadata/name").to_owned(),
        namespace: input::text(&new, "/metadata/namespace").to_owned(),
        replicas: new.pointer("/spec/replicas").and_then(Value::as_i64),
        pair: Pair { now, then },
        unknown_clouds,
    })
}

/// The controller managers, and why `files` does not tell whether there is a cloud-controller-manager.
fn side(
    object: &Value,
    ccm: Option<&Path>,
    ccm_version: Option<u64>,
    arguments: &CheckArguments,
) -> anyhow::Result<(Side, Option<Unknown>)> {
    let text = object.to_string();
    let control_plane: KubeadmControlPlane<'_> = decode(&text)?;
    let spec = control_plane.common_spec();
    let kube = controller_managers::kube(&spec, !arguments.no_pod_network)?;
    let (cloud, unknown) = match ccm {
        Some(file) => (Some(input::cloud(file, ccm_version)?), None),
        None => match controller_managers::cloud(&spec) {
            Ok(cloud) => (cloud.map(|cloud| cloud.manager), None),
            Err(unknown) => (None, Some(unknown)),
        },
    };
    Ok((Side { kube, cloud }, unknown))
}

impl Report for Check {
    fn table(&self, layout: Layout) -> String {
        screen(self, layout)
    }

    fn document(&self) -> impl Serialize {
        LeaderMigrationCheck::new(self)
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, &self.name)]
    }
}
