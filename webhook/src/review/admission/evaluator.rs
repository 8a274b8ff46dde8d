//! Evaluates rules, and reads the other objects that they need.

use std::sync::Arc;

use jiff::Timestamp;
use kcp_api::{Kind, kind::KUBEADM_CONTROL_PLANE};
use kcp_rules::{
    Action, Change, Configuration, Context, DowngradeReason, Finding, HasRules, Judgement, Operation,
    exemption::{self, Requester},
    judge,
    view::{Part, View},
};
use serde_json::{Value, json};

use crate::{
    cluster::{ClusterReader, LiveReads, ReadError, Source, Subject},
    configuration::CurrentConfiguration,
    decision::Decision,
    review::decode::Request,
};

/// Evaluates rules with the actions of the current configuration, and applies its exemptions.
pub(super) struct Evaluator {
    pub(super) cluster: ClusterReader,
    configuration: Arc<CurrentConfiguration>,
}

impl Evaluator {
    pub(super) const fn new(cluster: ClusterReader, configuration: Arc<CurrentConfiguration>) -> Self {
        Self {
            cluster,
            configuration,
        }
    }

    /// Evaluates all rules on a change to an object.
    ///
    /// The first evaluation knows only the Cluster, if it is cached, and finds out which objects the rules need (see
    /// [`kcp_rules::view`]). Most changes need no others. Otherwise these objects are all read at the same time, and the
    /// rules run again.
    ///
    /// The caches lag slightly behind the API server. They are good enough to allow a write, because the objects could
    /// also change right after it. Before the webhook denies or warns because of them, the rules run with live reads.
    /// Deletions use only live reads.
    pub(super) async fn evaluate<T: HasRules>(
        &self,
        request: &Request<'_>,
        change: Change<'_, T>,
        reads: &LiveReads<'_>,
    ) -> Evaluation {
        let configuration = self.configuration.get();
        let mut evaluation = self.judge_change(request, change, reads, &configuration).await;
        let unread = self
            .apply_exemptions(request, &mut evaluation.judgement, reads, &configuration)
            .await;
        evaluation.unread.extend(unread);
        evaluation
    }

    async fn judge_change<T: HasRules>(
        &self,
        request: &Request<'_>,
        change: Change<'_, T>,
        reads: &LiveReads<'_>,
        configuration: &Configuration,
    ) -> Evaluation {
        let context = Context {
            topology: change.context.topology,
            ..context(request)
        };
        let evaluate = |view: &View| {
            judge(
                &change.with_context(Context {
                    view: Some(view),
                    ..context
                }),
                configuration,
            )
        };
        let subject = subject(request, &change);
        let is_deletion = change.operation == Operation::Delete;
        let cached = match &subject {
            Some(subject) if !is_deletion => self.cluster.cached_cluster(subject),
            _ => View::default(),
        };
        let first = evaluate(&cached);
        let has_cached_cluster = cached.knows(Part::Cluster);
        let source = if is_deletion || needs_live_reads(&first) {
            Source::LiveReads
        } else {
            Source::Caches
        };
        if first.needs.is_empty() && !(has_cached_cluster && source == Source::LiveReads) {
            return first.into();
        }
        let unreadable = |error: &ReadError| {
            let view = View {
                failures: vec![format!("could not read other objects: {}", error.label())],
                ..View::default()
            };
            Evaluation::new(evaluate(&view), view.failures)
        };
        match self.cluster.access_error() {
            None => {}
            // The server runs without access on purpose. At its start, it logs which rules it cannot apply.
            Some(ReadError::NoAccess) => return first.into(),
            Some(error) => return unreadable(error),
        }
        let Some(mut subject) = subject else {
            return unreadable(&ReadError::BadName);
        };
        let mut parts = first.needs;
        if has_cached_cluster {
            parts.insert(Part::Cluster);
        }
        if parts.contains(&Part::MayOverride) {
            subject.override_access = override_access(request, &change);
        }
        let mut filled = self.cluster.read_view(reads, &parts, &subject, source).await;
        let mut judgement = evaluate(&filled.view);
        if filled.has_cached_parts && needs_live_reads(&judgement) {
            let read = self.cluster.read_view(reads, &parts, &subject, Source::LiveReads);
            filled = read.await;
            judgement = evaluate(&filled.view);
        }
        Evaluation::new(judgement, filled.view.failures)
    }

    /// Evaluates the rules that need no other object.
    pub(super) fn evaluate_object<T: HasRules>(
        &self,
        request: &Request<'_>,
        change: Change<'_, T>,
    ) -> Judgement {
        let mut judgement = judge(&change.with_context(context(request)), &self.configuration.get());
        judgement
            .findings
            .retain(|finding| finding.rule.reads().is_empty());
        judgement
    }

    /// Applies the exemptions of the configuration. If a read fails, the validating webhook reports it.
    pub(super) async fn apply_configured_exemptions(&self, request: &Request<'_>, judgement: &mut Judgement) {
        let (configuration, reads) = (
            self.configuration.get(),
            self.cluster.start_reads(request.read_limits),
        );
        self.apply_exemptions(request, judgement, &reads, &configuration)
            .await;
    }

    /// Applies the exemptions of the configuration. Returns a warning if the labels of the namespace cannot be read,
    /// because exemptions by namespace then do not apply.
    async fn apply_exemptions(
        &self,
        request: &Request<'_>,
        judgement: &mut Judgement,
        reads: &LiveReads<'_>,
        configuration: &Configuration,
    ) -> Option<String> {
        let Configuration {
            exemptions,
            warn_only,
            ..
        } = configuration;
        let is_effective = |finding: &Finding| finding.action > Action::Audit;
        if exemptions.is_empty() && warn_only.is_none() || !judgement.findings.iter().any(is_effective) {
            return None;
        }
        let labels = if configuration.reads_namespaces() {
            // Box the future, which is large and which most reviews do not need.
            Some(Box::pin(reads.read_namespace_labels(&request.namespace)).await)
        } else {
            None
        };
        let groups = request.user_info.groups();
        let requester = Requester {
            user: request.user_info.name(),
            groups: &groups,
            namespace_labels: labels.as_ref().and_then(|labels| labels.as_ref().ok()),
        };
        let now = Timestamp::now();
        exemption::apply(
            &mut judgement.findings,
            exemptions,
            warn_only.as_ref(),
            &requester,
            now,
        );
        let error = labels?.err()?;
        Some(format!(
            "could not read the labels of the namespace: {}; exemptions by namespace do not apply",
            error.label()
        ))
    }
}

/// The findings for a change, and the objects that could not be read for it.
#[derive(Debug)]
pub(super) struct Evaluation {
    judgement: Judgement,
    /// One warning for each object that could not be read.
    unread: Vec<String>,
}

impl From<Judgement> for Evaluation {
    fn from(judgement: Judgement) -> Self {
        Self {
            judgement,
            unread: Vec::new(),
        }
    }
}

impl Evaluation {
    /// If rules were skipped, returns a warning for each of the `failures` that caused this.
    fn new(judgement: Judgement, failures: Vec<String>) -> Self {
        let shown = if judgement.skipped.is_empty() {
            Vec::new()
        } else {
            failures
        };
        let warn = |failure| format!("{failure}; skipped the rules that need this information");
        Self {
            judgement,
            unread: shown.into_iter().map(warn).collect(),
        }
    }

    pub(super) fn decision(self, kind: Kind, name: impl FnOnce() -> String) -> Decision {
        let mut decision = Decision::from_judgement(kind, name, self.judgement);
        decision.other_warnings.extend(self.unread);
        decision
    }
}

/// The names of the object under review; `None` if one is not a valid Kubernetes name.
fn subject<T: HasRules>(request: &Request<'_>, change: &Change<'_, T>) -> Option<Subject> {
    // Use the stored object if there is one, because a client can omit owners and labels from the new object.
    let metadata = change.old.unwrap_or(change.new).metadata();
    let name = match change.context.topology {
        // The name in the request is that of the Cluster, not of its control plane.
        Some(_) => metadata.name.as_deref().unwrap_or_default(),
        None => &request.name,
    };
    Subject::new(&request.namespace, name, metadata.cluster_name())?
        .with_customization(change.new.customization())
}

/// The `spec` of a `SubjectAccessReview` that asks whether the user may override rules for the object. For a topology, the object
/// is the control plane, because the topology controller copies the override annotation from the topology to it.
fn override_access<T: HasRules>(request: &Request<'_>, change: &Change<'_, T>) -> Value {
    let mut spec = request.user_info.as_subject();
    let (group, plural, name) = match change.context.topology {
        Some(_) => {
            let metadata = change.old.unwrap_or(change.new).metadata();
            (
                KUBEADM_CONTROL_PLANE.group,
                KUBEADM_CONTROL_PLANE.plural,
                metadata.name.as_deref().unwrap_or_default(),
            )
        }
        None => (
            &*request.resource.group,
            &*request.resource.plural,
            &*request.name,
        ),
    };
    if let Some(spec) = spec.as_object_mut() {
        let attributes = json!({
            "verb": "override", "group": group, "resource": plural, "namespace": &*request.namespace, "name": name
        });
        spec.insert("resourceAttributes".to_owned(), attributes);
    }
    spec
}

/// Whether cached objects, which may be out of date, could have affected the judgement: it contains a denial, a lifted denial, or
/// a finding of a rule that reads other objects.
fn needs_live_reads(judgement: &Judgement) -> bool {
    let mut findings = judgement.findings.iter();
    findings.any(|finding| {
        let is_lifted = finding
            .downgrade_reason
            .is_some_and(DowngradeReason::needs_permission);
        finding.action == Action::Deny || is_lifted || !finding.rule.reads().is_empty()
    })
}

fn context<'r>(request: &'r Request<'_>) -> Context<'r> {
    Context {
        writer: request.user_info.username.as_deref(),
        field_manager: request
            .options
            .as_ref()
            .and_then(|options| options.field_manager.as_deref()),
        now: Some(Timestamp::now()),
        ..Context::UNKNOWN
    }
}
