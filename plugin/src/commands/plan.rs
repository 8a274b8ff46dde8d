//! `kubectl kcp plan`: shows the steps that Cluster API's controller will take to change a control plane, and what blocks the first step.
//!
//! The decisions copy those of the kubeadm control plane controller of Cluster API v1.14 (`controlplane/kubeadm`).
//! Whether the controller updates a Machine in place is unknown, because a feature gate enables in-place updates, and
//! an extension decides which Machines it can update.
//!
//! - [`list`]: the next step of several control planes
//! - [`manifest`]: the change in a file; [`pool`]: the effect of a change to a cluster pool
//! - [`template`]: the changes in a new infrastructure template

pub mod document;
pub mod manifest;
pub mod screen;

mod arguments;
mod list;
mod pool;
mod template;

use std::{path::Path, time::Instant};

pub use arguments::PlanArguments;
use document::{PlanDocument, PlanVerdict};
use kcp_control_plane::{
    addon_update::{ImpossibleUpdate, impossible_updates},
    drain::forecast,
    plan::{
        Plan,
        messages::unread_extensions,
        options::{PlanOptions, review_desired},
    },
    release_changes::removals,
    review::ReviewContext,
    snapshot::Snapshot,
    topology::{delaying_annotations, upgrade_steps},
};
use kcp_pool::plan::manifest::parse_pool;
use manifest::ManifestFile;
use serde::Serialize;
use serde_json::Value;

use crate::{
    change::arguments::FIELD_MANAGER,
    configuration,
    document::{Versioned, resource_name},
    file,
    output::{Report, print},
    session::Session,
    terminal::table::Layout,
    verdict::Verdict,
};
use kcp_api::{KubeadmControlPlaneSpec, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::{
    ReadLimit,
    reader::Reader,
    reads::{
        change::{LIMIT, read_everything_or_fail},
        deprecated_apis::read_used_apis,
        planned::Reads,
        topology::read_upgrade,
    },
};

pub async fn run(arguments: PlanArguments, session: &Session) -> anyhow::Result<Verdict> {
    let file = arguments.file.as_deref();
    let file =
        file.map(|path| Ok::<_, anyhow::Error>(ManifestFile::parse(display_file(path), &file::read(path)?)?));
    let file = file.transpose()?;
    let named = match (&arguments.name, &file) {
        (Some(_), _) => None,
        (None, None) => return Box::pin(list::run(&arguments, session)).await,
        (None, Some(file)) => {
            let Some((namespace, name)) = file.control_plane()? else {
                let pool = parse_pool(&file.objects, &file.file)?;
                return Box::pin(pool::run(&pool, &arguments.output, session)).await;
            };
            Some((namespace.to_owned(), name.to_owned()))
        }
    };
    let configuration = arguments.configuration.as_deref();
    let configuration = configuration.map(configuration::read).transpose()?;
    let mut connection = session.connect().await?;
    if let Some((namespace, _)) = named.as_ref().filter(|(namespace, _)| !namespace.is_empty()) {
        namespace.clone_into(&mut connection.namespace);
    }
    let mut reader = Reader::discover(&connection).await?;
    let name = match (&arguments.name, named) {
        (Some(name), _) => name.read(&reader, ReadLimit::per_read(LIMIT)).await?,
        (None, named) => named.map(|(_, name)| name).unwrap_or_default(),
    };
    let manifest = file.map(|file| file.manifest(&name)).transpose()?;
    // Read the control plane in the manifest's API version, so that both can be compared.
    if let Some(manifest) = &manifest {
        reader = reader.in_version(&manifest.api_version)?;
    }
    // The steps depend on every part of what is read, so no part may be missing.
    let read = read_everything_or_fail(&reader, &connection.namespace, &name, LIMIT);
    let mut snapshot = Box::pin(read).await?;
    let view = snapshot.view();
    let now = connection.now();
    let mut warnings = snapshot.warnings();
    let versions = versions(&reader, &mut snapshot.observed, &arguments, &mut warnings).await;
    let patch = if let Some(manifest) = &manifest {
        manifest.patch(&serde_json::from_str(&snapshot.json)?)?
    } else {
        let options = planned(arguments.plan_options(), &versions);
        options.patch(&reader.control_plane_resource.api_version, now)
    };
    let context = ReviewContext {
        now,
        field_manager: FIELD_MANAGER,
        view: &view,
        configuration: configuration.as_ref(),
    };
    let (mut desired, of_rules) = review_desired(&snapshot.json, &patch, context)?;
    let template = desired.spec.infrastructure_ref.clone();
    warnings.extend(
        manifest
            .iter()
            .flat_map(|manifest| manifest.warnings(&patch, &template)),
    );
    let in_file = manifest
        .as_ref()
        .and_then(|manifest| manifest.template(&template));
    let reads = Reads {
        reader: &reader,
        namespace: &connection.namespace,
        limit: ReadLimit::per_read(LIMIT),
    };
    snapshot.observed.in_place_handlers = Box::pin(reads.read_in_place_handlers()).await;
    warnings.extend(unread_extensions(&snapshot.observed));
    let compared = template::compare(&reads, &mut snapshot.observed, &mut desired, in_file);
    warnings.extend(Box::pin(compared).await);
    warnings.extend(unmet_parts(&snapshot.observed, &desired.spec, &patch));
    let (from, to) = (
        snapshot.observed.control_plane.spec.version(),
        desired.spec.version(),
    );
    let used_apis = read_used_apis(&connection, &snapshot.observed, to, Instant::now() + LIMIT);
    warnings.extend(removals(from, to, Some(&Box::pin(used_apis).await)).in_use);
    if arguments.to.is_some() {
        // The upgrade changes the topology of the Cluster, which then asks for this version.
        snapshot.observed.set_topology_version(desired.spec.version());
    }
    let plan = Plan {
        upgrade_steps: upgrade_steps(&snapshot.observed, &versions),
        ..kcp_control_plane::plan::plan(&snapshot.observed, &desired, now)
    };
    let drains = forecast(&snapshot.observed, &plan.deleted_machines());
    for warning in warnings.iter().chain(&of_rules).chain(&drains) {
        session.terminal.warning(warning);
    }
    print(&plan, &arguments.output, &session.terminal)?;
    Ok(if PlanVerdict::new(&plan).is_good() {
        Verdict::Met
    } else {
        Verdict::Negative
    })
}

/// The parts of a change that Cluster API does not make, or makes only after somebody else has acted: one line each.
fn unmet_parts(observed: &Snapshot, desired: &KubeadmControlPlaneSpec, patch: &Value) -> Vec<String> {
    let impossible = impossible_updates(observed, desired, Some(patch));
    let impossible = impossible.iter().map(ImpossibleUpdate::warning);
    impossible
        .chain(delaying_annotations(observed, desired))
        .collect()
}

/// The versions over which the topology controller upgrades the control plane; empty if there is no topology, or no upgrade.
async fn versions(
    reader: &Reader<'_>,
    observed: &mut Snapshot,
    arguments: &PlanArguments,
    warnings: &mut Vec<String>,
) -> Vec<String> {
    let versions = Box::pin(read_upgrade(reader, observed, arguments.to.as_deref())).await;
    let unread = observed.workers.iter();
    warnings.extend(unread.flat_map(|workers| workers.read_failures.iter().cloned()));
    versions.unwrap_or_else(|error| {
        warnings.push(format!(
            "could not read the versions of the ClusterClass: {error}; the steps of an upgrade are unknown"
        ));
        Vec::new()
    })
}

/// The change to plan. If the topology controller upgrades over several versions, the plan is for the first version. If the user
/// requests no change, the plan is for the version that the topology requests.
fn planned(options: PlanOptions, versions: &[String]) -> PlanOptions {
    let is_upgrade = options.version.is_some() || (options.replicas.is_none() && !options.restart);
    let first = versions.first().filter(|_| is_upgrade).cloned();
    PlanOptions {
        version: first.or(options.version),
        ..options
    }
}

impl Report for Plan {
    fn table(&self, layout: Layout) -> String {
        screen::render(self, layout)
    }

    fn document(&self) -> impl Serialize {
        Versioned(PlanDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        vec![resource_name(&KUBEADM_CONTROL_PLANE, &self.name)]
    }
}

fn display_file(file: &Path) -> String {
    if file == Path::new(file::STDIN) {
        "stdin".to_owned()
    } else {
        file.display().to_string()
    }
}
