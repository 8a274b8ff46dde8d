//! Judges a write of a Cluster's topology as the change that the topology controller makes to the control plane.
//!
//! No rule is written twice. A write of a Cluster becomes a change of its `KubeadmControlPlane`: the values that the write
//! changes are merged into the control plane. If there is no control plane yet, they are merged into the template of the class.
//! The rules whose field `topology` says so judge that change, and [`place`] moves their findings to the fields of the Cluster.
//!
//! A value that the write does not change stays as it is in the control plane, so no rule denies the write because of this value.
//! A value that the control plane already has is not a change either.

use std::collections::BTreeMap;

use kcp_api::names::annotation;

use crate::{
    api::{
        Cluster, DecodeError, KubeadmControlPlane, KubeadmControlPlaneTemplate, Metadata, Text,
        cluster::ClusterTopology,
        control_plane::{Rollout, Shape},
        decode,
        machine_template::{MachineTemplate, ObjectMeta},
    },
    change::Change,
    context::{Context, OfTopology, TOPOLOGY_MANAGER},
    finding::Finding,
    rule::InTopology,
};

/// The labels or annotations that a topology sets.
type Values<'a> = Option<BTreeMap<Text<'a>, Option<Text<'a>>>>;

/// What is known about the control plane of a Cluster.
#[derive(Clone, Copy, Debug)]
pub enum Source<'s> {
    /// The control plane, as JSON.
    ControlPlane(&'s str),
    /// The template of the class as JSON, if there is no control plane yet, and whether patches of the class may change it.
    Template {
        text: &'s str,
        is_patched: bool,
    },
    /// The class creates another kind of control plane.
    OtherKind,
    Unknown,
}

/// The change of a control plane that a write of the topology of its Cluster asks for.
#[derive(Clone, Debug)]
pub struct ControlPlaneChange<'a> {
    /// `None` if the Cluster had no topology before.
    before: Option<KubeadmControlPlane<'a>>,
    after: KubeadmControlPlane<'a>,
    of_topology: OfTopology,
}

impl<'a> ControlPlaneChange<'a> {
    /// `None` if no `KubeadmControlPlane` changes: the Cluster has no topology, or another kind of control plane. `stored` is the
    /// Cluster before the write; `None` if the write creates it.
    pub fn new(
        source: Source<'a>,
        stored: Option<&Cluster<'a>>,
        written: &Cluster<'a>,
    ) -> Result<Option<Self>, DecodeError> {
        let Some(asked) = written.topology() else {
            return Ok(None);
        };
        let is_other = |cluster: &Cluster<'_>| cluster.has_other_control_plane();
        if is_other(written) || stored.is_some_and(is_other) || matches!(source, Source::OtherKind) {
            return Ok(None);
        }
        let was = stored.and_then(|stored| asked_before(stored, written));
        let known = match source {
            Source::ControlPlane(text) => decode(text)?,
            Source::Template { text, .. } => new_control_plane(written, Some(&decode(text)?))?,
            Source::OtherKind | Source::Unknown => new_control_plane(written, None)?,
        };
        let (before, after) = match (source, &was) {
            (Source::ControlPlane(_), _) => {
                let (before, after) = changed(&known, was.as_ref(), asked);
                (Some(before), after)
            }
            // Without the control plane, the old topology says which values the control plane has.
            (_, Some(was)) => {
                let (before, after) = changed(&changed(&known, None, was).1, Some(was), asked);
                (Some(before), after)
            }
            (_, None) => (None, changed(&known, None, asked).1),
        };
        let stored_class = stored.unwrap_or(written).topology();
        let is_same_class =
            stored_class.and_then(|stored| class_of(stored, written)) == class_of(asked, written);
        let applied = known
            .metadata
            .applied_version(TOPOLOGY_MANAGER)
            .filter(|_| is_same_class && matches!(source, Source::ControlPlane(_)));
        let of_topology = OfTopology {
            knows_configuration: match source {
                Source::ControlPlane(_) => is_same_class,
                Source::Template { is_patched, .. } => !is_patched,
                Source::OtherKind | Source::Unknown => false,
            },
            written_shape: applied.as_deref().map(Shape::from_api_version),
            is_copy: stored.is_none() && written.is_moved(),
            has_override: written.metadata.has_annotation(annotation::OVERRIDE_RULES),
        };
        Ok(Some(Self {
            before,
            after,
            of_topology,
        }))
    }

    pub fn change(&self) -> Change<'_, KubeadmControlPlane<'a>> {
        let change = self
            .before
            .as_ref()
            .map_or(Change::create(&self.after), |before| {
                Change::update(before, &self.after)
            });
        change.with_context(Context {
            topology: Some(self.of_topology),
            ..Context::UNKNOWN
        })
    }

    /// The control plane after the write, as if a cluster already stored it.
    pub fn stored(&self) -> Change<'_, KubeadmControlPlane<'a>> {
        Change::create(&self.after).with_context(Context {
            is_stored: true,
            topology: Some(self.of_topology),
            ..Context::UNKNOWN
        })
    }
}

/// The control plane before and after a write of the topology of its Cluster.
///
/// The version before the write is the one that the old topology asks for, although the control plane may not have it yet: until
/// then, Cluster API treats the control plane as in an upgrade.
fn changed<'a>(
    control_plane: &KubeadmControlPlane<'a>,
    old: Option<&ClusterTopology<'a>>,
    new: &ClusterTopology<'a>,
) -> (KubeadmControlPlane<'a>, KubeadmControlPlane<'a>) {
    let (mut before, mut after) = (control_plane.clone(), control_plane.clone());
    let pending = old.and_then(|old| old.version.as_ref());
    if let Some(version) = new
        .version
        .as_ref()
        .filter(|version| Some(*version) != control_plane.spec.version.as_ref())
    {
        if let Some(pending) = pending {
            before.spec.version = Some(pending.clone());
        }
        after.spec.version = Some(version.clone());
    }
    let replicas = |topology: &ClusterTopology<'_>| topology.control_plane.as_ref()?.replicas;
    let asked = replicas(new);
    if asked != old.and_then(replicas) {
        after.spec.replicas = asked;
    }
    let was = old.and_then(|old| rollout_after(old));
    if let Some(time) = rollout_after(new).filter(|time| Some(*time) != was) {
        set_rollout_after(&mut after, time.clone());
    }
    set_metadata(&mut after, old, new);
    (before, after)
}

/// The class of a topology: its namespace, if it is not that of the Cluster, and its name.
fn class_of<'t>(
    topology: &'t ClusterTopology<'_>,
    cluster: &Cluster<'_>,
) -> Option<(Option<&'t str>, &'t str)> {
    let own = cluster.metadata.namespace.as_deref();
    let (namespace, name) = topology.class()?;
    let other = namespace.filter(|namespace| !namespace.is_empty() && Some(*namespace) != own);
    Some((other, name))
}

/// The topology that a write replaces; `None` if the Cluster had none. If the write has the annotation [`UNCHECKED_VERSION`], the
/// version of the control plane counts instead of the version of this topology, so that a user can take back a pending version.
fn asked_before<'a>(old: &Cluster<'a>, new: &Cluster<'a>) -> Option<ClusterTopology<'a>> {
    let mut topology = old.topology()?.clone();
    if new.metadata.has_annotation(annotation::UNCHECKED_VERSION) {
        topology.version = None;
    }
    Some(topology)
}

/// The control plane that the topology controller creates for a Cluster, without the values of its topology and without the patches
/// of the class.
fn new_control_plane<'a>(
    cluster: &Cluster<'a>,
    template: Option<&KubeadmControlPlaneTemplate<'a>>,
) -> Result<KubeadmControlPlane<'a>, DecodeError> {
    let mut control_plane: KubeadmControlPlane<'a> =
        decode(r#"{"apiVersion":"controlplane.cluster.x-k8s.io/v1beta2","spec":{}}"#)?;
    if let Some(template) = template {
        control_plane.api_version.clone_from(&template.api_version);
        if let Some(spec) = template.template().and_then(|template| template.spec.as_deref()) {
            control_plane.spec = spec.clone();
        }
    }
    control_plane.metadata = Metadata {
        namespace: cluster.metadata.namespace.clone(),
        ..Metadata::default()
    };
    Ok(control_plane)
}

fn rollout_after<'t, 'a>(topology: &'t ClusterTopology<'a>) -> Option<&'t Text<'a>> {
    topology.control_plane.as_ref()?.rollout.as_ref()?.after.as_ref()
}

fn set_rollout_after<'a>(control_plane: &mut KubeadmControlPlane<'a>, time: Text<'a>) {
    match control_plane.shape() {
        Shape::V1Beta1 => control_plane.spec.rollout_after = Some(time),
        Shape::V1Beta2 => {
            let rollout = control_plane.spec.rollout.get_or_insert_with(Rollout::default);
            rollout.after = Some(time);
        }
    }
}

/// Sets the labels and annotations that a write changes, which the control plane and its Machines get.
fn set_metadata<'a>(
    control_plane: &mut KubeadmControlPlane<'a>,
    old: Option<&ClusterTopology<'a>>,
    new: &ClusterTopology<'a>,
) {
    fn of<'t, 'a>(topology: &'t ClusterTopology<'a>) -> Option<&'t ObjectMeta<'a>> {
        topology.control_plane.as_ref()?.metadata.as_ref()
    }
    let Some(new) = of(new) else { return };
    let old = old.and_then(of);
    let of_machines = control_plane
        .spec
        .machine_template
        .get_or_insert_with(MachineTemplate::default)
        .metadata
        .get_or_insert_with(ObjectMeta::default);
    let metadata = &mut control_plane.metadata;
    set(
        &mut metadata.labels,
        &mut of_machines.labels,
        old.map(|old| &old.labels),
        &new.labels,
    );
    let before = old.map(|old| &old.annotations);
    set(
        &mut metadata.annotations,
        &mut of_machines.annotations,
        before,
        &new.annotations,
    );
}

fn set<'a>(
    own: &mut Option<BTreeMap<Text<'a>, Text<'a>>>,
    of_machines: &mut Values<'a>,
    old: Option<&Values<'a>>,
    new: &Values<'a>,
) {
    let old = old.and_then(Option::as_ref);
    let changed = new.iter().flatten();
    for (key, value) in changed.filter(|(key, value)| old.and_then(|old| old.get(*key)) != Some(*value)) {
        let text = value.clone().unwrap_or_else(|| "".into());
        own.get_or_insert_default().insert(key.clone(), text);
        of_machines
            .get_or_insert_default()
            .insert(key.clone(), value.clone());
    }
}

/// Moves a finding from a field of the control plane to the field of the Cluster from which it comes.
pub(crate) fn place(finding: &mut Finding) {
    const VERSION: &str = "spec.topology.version";
    const CONTROL_PLANE: &str = "spec.topology.controlPlane";
    let fault = &mut finding.fault;
    let metadata = fault.field.strip_prefix("spec.machineTemplate.metadata");
    let metadata = metadata.or_else(|| fault.field.strip_prefix("metadata"));
    let field = match (&*fault.field, metadata) {
        (_, Some(below)) => format!("{CONTROL_PLANE}.metadata{below}"),
        ("spec", _) => "spec.topology".to_owned(),
        ("spec.version", _) => VERSION.to_owned(),
        ("spec.rollout.after" | "spec.rolloutAfter" | "spec.upgradeAfter", _) => {
            format!("{CONTROL_PLANE}.rollout.after")
        }
        (path, _) if finding.rule.topology == InTopology::Strands => {
            fault.detail = format!("in the KubeadmControlPlane, {path}: {}", fault.detail).into();
            let remedy = &fault.remedy;
            fault.remedy = format!("first change the ClusterClass or its variables: {remedy}").into();
            fault.value = None;
            VERSION.to_owned()
        }
        (path, _) => {
            if path != "spec.replicas" {
                fault.value = None;
            }
            format!("{CONTROL_PLANE}.replicas")
        }
    };
    fault.field = field.into();
    finding.exact_field = None;
}
