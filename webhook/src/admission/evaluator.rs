//! Evaluates rules, and reads the other objects that they need.

use std::sync::Arc;

use jiff::Timestamp;
use kcp_rules::{Action, Change, Context, Judged, Judgement, Operation, Scope, judge, view::View};

use crate::{
    cluster::{Cluster, LiveReads, Source, Subject},
    configuration::CurrentConfiguration,
    decision::Decision,
    review::Request,
};

/// Evaluates rules as the current configuration sets them.
pub(super) struct Evaluator {
    pub(super) cluster: Cluster,
    configuration: Arc<CurrentConfiguration>,
}

impl Evaluator {
    pub(super) const fn new(cluster: Cluster, configuration: Arc<CurrentConfiguration>) -> Self {
        Self {
            cluster,
            configuration,
        }
    }

    /// Evaluates all rules on a change.
    ///
    /// The first evaluation runs without other objects and records which of them the rules need: see
    /// [`kcp_rules::view`]. Most changes need none. Otherwise they are read in one go, and the rules run again.
    ///
    /// The caches lag behind the API server slightly. They are good enough to allow a write, because the objects could
    /// change just as well right after it. A denial, a warning, and anything that would lift a denial are evaluated
    /// again on live reads. Deletions use live reads only.
    pub(super) async fn evaluate<T: Judged>(
        &self,
        request: &Request<'_>,
        change: Change<'_, T>,
        reads: &LiveReads<'_>,
    ) -> Evaluation {
        let configuration = self.configuration.get();
        let context = context(request);
        let evaluate = |view: &View| {
            judge(
                &change.within(Context {
                    view: Some(view),
                    ..context
                }),
                &configuration,
            )
        };
        let empty = View::default();
        let without_reads = evaluate(&empty);
        let missing = empty.missing();
        if !missing.any() || !self.cluster.has_access() {
            return without_reads.into();
        }
        // The stored object where there is one: a client can leave owners and labels out of what it writes.
        let metadata = change.old.unwrap_or(change.new).metadata();
        let subject = Subject::new(&request.namespace, &request.name, metadata.cluster_name());
        let Some(subject) = subject else {
            return without_reads.into();
        };
        let source = match change.operation {
            Operation::Delete => Source::LiveReads,
            Operation::Create | Operation::Update => Source::Caches,
        };
        let mut filled = self.cluster.view(reads, missing, &subject, source).await;
        let mut judgement = evaluate(&filled.view);
        if filled.from_caches && (without_reads.is_denied() || needs_live_reads(&judgement)) {
            let source = Source::LiveReads;
            filled = self.cluster.view(reads, missing, &subject, source).await;
            judgement = evaluate(&filled.view);
        }
        Evaluation {
            judgement,
            unread: filled.unread,
        }
    }

    /// Evaluates the rules that need no other object.
    pub(super) fn evaluate_object<T: Judged>(
        &self,
        request: &Request<'_>,
        change: Change<'_, T>,
    ) -> Judgement {
        let mut judgement = judge(&change.within(context(request)), &self.configuration.get());
        judgement
            .findings
            .retain(|finding| finding.rule.scope != Scope::Cluster);
        judgement
    }
}

/// The findings for a change, and the objects that could not be read for it.
#[derive(Debug)]
pub(super) struct Evaluation {
    judgement: Judgement,
    /// One warning for each.
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
    pub(super) fn decision(
        self,
        group: &'static str,
        kind: &'static str,
        name: impl FnOnce() -> String,
    ) -> Decision {
        let mut decision = Decision::of(group, kind, name, self.judgement);
        decision.notes.extend(self.unread);
        decision
    }
}

fn needs_live_reads(judgement: &Judgement) -> bool {
    let mut findings = judgement.findings.iter();
    findings.any(|finding| finding.action == Action::Deny || finding.rule.scope == Scope::Cluster)
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
