//! `kubectl kcp plan`: what Cluster API's controller will do to a control plane, step by step, and what keeps it from the
//! first step.
//!
//! All but [`fetch`] is pure: facts in, a plan out. The decisions are those of the kubeadm control plane controller of
//! Cluster API v1.14 (`controlplane/kubeadm`), without in-place updates of Machines, which are behind a gate there.
//!
//! - [`observed`]: the facts a plan is made from
//! - [`fetch`]: reading them
//! - [`spec`]: what a control plane asks for
//! - [`manifest`]: what a file asks for
//! - [`ask`]: what a change asks for, and whether the admission rules refuse that
//! - [`quorum`]: what etcd can stand
//! - [`failure_domain`], [`deletion_order`]: where the next Machine comes from and goes to
//! - [`remediation`]: which Machine is replaced because it is unhealthy
//! - [`state`]: a control plane between two steps
//! - [`rollout_reason`], [`kubeadm_config`], [`difference`]: which Machines are out of date, and why
//! - [`preflight`]: what keeps the controller from the first step
//! - [`step`], [`course`]: the steps one after another
//! - [`risk`]: what the first of them costs that the controller does not see
//! - [`outlook`]: all of it, for what is asked
//! - [`effect`]: what a change of each field does
//! - [`document`], [`screen`], [`wording`]: the JSON and the text
//!
//! `status` uses [`observed`], [`fetch`], [`rollout_reason`], [`preflight`], [`remediation`] and [`quorum`].

pub mod ask;
pub mod course;
pub mod deletion_order;
pub mod difference;
pub mod document;
pub mod effect;
pub mod failure_domain;
pub mod fetch;
pub mod kubeadm_config;
pub mod manifest;
pub mod observed;
pub mod outlook;
pub mod preflight;
pub mod quorum;
pub mod remediation;
pub mod risk;
pub mod rollout_reason;
pub mod screen;
pub mod spec;
pub mod state;
pub mod step;
pub(crate) mod wire;
pub mod wording;

mod arguments;

#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod properties;

use std::path::Path;

use anyhow::Context as _;
pub use arguments::PlanArguments;
use arguments::PlanOutput;
use ask::ask;
use document::{PlanDocument, Standing};
use fetch::Unread;
use jiff::Timestamp;
use manifest::Manifest;

use crate::{
    change::situation::{self, Situation},
    configuration,
    control_plane::Reader,
    document::text,
    file,
    judgement::Surroundings,
    session::Session,
    verdict::Verdict,
};

/// Under which name the rules are told that the change would be made.
const FIELD_MANAGER: &str = "kubectl-kcp";

/// Runs `plan`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: PlanArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.configuration.as_deref();
    let configuration = configuration.map(configuration::read).transpose()?;
    let manifest = match &arguments.file {
        Some(file) => Some(Manifest::read(&shown(file), &file::read(file)?, &arguments.name)?),
        None => None,
    };
    let connection = session.connect().await?;
    let mut reader = Reader::discover(&connection).await?;
    // It is compared with what the server writes in the same version.
    if let Some(manifest) = &manifest {
        reader = reader.in_version(&manifest.version)?;
    }
    let read = Situation::read(&reader, &connection.namespace, &arguments.name, situation::LIMIT);
    let mut situation = Box::pin(read).await?;
    // Each part decides about the steps.
    if let Some(Unread { error, .. }) = situation.unread.drain(..).next() {
        return Err(error.into());
    }
    let view = situation.view()?;
    let now = Timestamp::now();
    let mut warnings = situation.warnings();
    let patch = match (&manifest, &arguments.file) {
        (Some(manifest), Some(file)) => {
            let patch = manifest.patch(&shown(file), &serde_json::from_str(&situation.object)?)?;
            warnings.extend(manifest.warnings(&patch));
            patch
        }
        _ => arguments.change().patch(&reader.control_planes.api_version, now),
    };
    let surroundings = Surroundings {
        now,
        field_manager: FIELD_MANAGER,
        view: &view,
        configuration: configuration.as_ref(),
    };
    let (asked, of_rules) = ask(&situation.object, &patch, surroundings)?;
    for warning in warnings.iter().chain(&of_rules) {
        session.terminal.warning(warning);
    }
    let plan = outlook::plan(&situation.observed, &asked, now);
    let shown = match arguments.output {
        Some(PlanOutput::Json) => text(&PlanDocument::of(&plan))?,
        None => screen::screen(&plan),
    };
    session.terminal.print(&shown).context("cannot write to stdout")?;
    Ok(match Standing::of(&plan) {
        Standing::NothingToDo | Standing::Clear => Verdict::Met,
        Standing::Blocked | Standing::NoPlan => Verdict::Negative,
    })
}

/// As a message names it.
fn shown(file: &Path) -> String {
    if file == Path::new(file::STDIN) {
        "stdin".to_owned()
    } else {
        file.display().to_string()
    }
}
