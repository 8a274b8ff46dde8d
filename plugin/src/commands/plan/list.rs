//! `plan` without NAME: the next step of each control plane of one or all namespaces, one line each.
//!
//! Reads only the management cluster, because the controller also bases its decisions on the conditions there. `plan
//! NAME` also queries etcd.

use std::collections::BTreeSet;

use anyhow::bail;
use jiff::Timestamp;
use kcp_api::{Object as _, kind::KUBEADM_CONTROL_PLANE};
use kcp_client::{
    Connection, Error, ReadLimit,
    reader::Reader,
    reads::{
        self,
        change::LIMIT,
        planned::{Reads, fetch},
    },
};
use kcp_control_plane::{
    plan::{Desired, Plan, kubeadm_config::replaced_by_earlier_releases, messages, plan, step::Action},
    snapshot::{Reading, Snapshot},
};
use serde::Serialize;

use crate::{
    commands::plan::{PlanArguments, document::PlanVerdict},
    document::{Document, ObjectName, Versioned, resource_name},
    fleet::{self, InContexts, UnreadContext, no_control_planes, read_concurrently},
    output::{Report, print},
    session::Session,
    terminal::{
        Terminal,
        style::{BAD, GOOD, WARN},
        table::{Cell, Column, Layout, Table},
    },
    verdict::Verdict,
};

/// The plans of several control planes.
pub(super) struct PlanList {
    /// The namespace; `None` if the list covers all namespaces or several contexts.
    namespace: Option<String>,
    rows: Vec<PlanRow>,
    unread: Vec<UnreadContext>,
}

/// What the controller will do to a control plane next.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanRow {
    /// The kubeconfig context, if the list covers several contexts.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    metadata: ObjectName,
    /// Null if the control plane could not be read; the field `error` says why.
    verdict: Option<PlanVerdict>,
    /// The next step. Absent if the plan has no steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
    /// The number of steps.
    steps: usize,
    /// Why the first step is not taken now, or why there is no plan.
    blocked_by: Vec<String>,
    /// The names of the outdated Machines.
    outdated: Vec<String>,
    /// The names of the Machines that Cluster API v1.14.2 would replace, but that the running controller does not
    /// replace.
    after_provider_update: Vec<String>,
    /// The names of the up-to-date Machines that Cluster API v1.12, v1.13.0 to v1.13.5, v1.14.0 and v1.14.1 would replace,
    /// because their `KubeadmConfig` lacks `joinConfiguration.controlPlane`. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lack_control_plane_of_join: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What the plan assumes because it could not be read.
    #[serde(skip)]
    assumption: Option<String>,
}

/// Summaries of the plans of several control planes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanListDocument<'l> {
    items: &'l [PlanRow],
    /// The contexts whose control planes could not be listed.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unread_contexts: &'l [UnreadContext],
}

impl Document for PlanListDocument<'_> {
    const KIND: &'static str = "PlanList";
}

/// Runs `plan` for several control planes.
pub(super) async fn run(arguments: &PlanArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contexts.contradiction(&session.global) {
        bail!(contradiction);
    }
    let contexts = &arguments.contexts.contexts;
    let terminal = &session.terminal;
    let list = if contexts.is_empty() {
        let connection = session.connect().await?;
        PlanList {
            namespace: (!arguments.all_namespaces).then(|| connection.namespace.clone()),
            rows: Box::pin(read(&connection, arguments, terminal)).await?,
            unread: Vec::new(),
        }
    } else {
        let connections = fleet::connect(session, contexts, LIMIT).await;
        let read = fleet::read_each(&connections, async |connection| {
            Box::pin(read(connection, arguments, terminal)).await
        });
        PlanList::of_contexts(read.await)
    };
    for assumption in list.assumptions() {
        terminal.warning(assumption);
    }
    print(&list, &arguments.output, terminal)?;
    Ok(list.verdict())
}

async fn read(
    connection: &Connection,
    arguments: &PlanArguments,
    terminal: &Terminal,
) -> Result<Vec<PlanRow>, Error> {
    let reader = reads::discover(connection, reads::list_limit(LIMIT)).await?;
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    let selector = arguments.selector.as_deref();
    let limit = reads::list_limit(LIMIT);
    let listed = reads::list(&reader, namespace, selector, limit).await?;
    if let (Some(namespace), [], None) = (namespace, listed.as_slice(), selector) {
        reads::check_namespace_exists(connection, namespace, limit).await?;
    }
    let handlers = Reads {
        reader: &reader,
        namespace: &connection.namespace,
        limit: ReadLimit::per_read(LIMIT),
    };
    let handlers = Box::pin(handlers.read_in_place_handlers()).await;
    let rows = read_concurrently(terminal, &listed, async |listed| {
        Box::pin(plan_one(&reader, listed, &handlers)).await
    });
    Ok(rows.await)
}

async fn plan_one(reader: &Reader<'_>, listed: &Snapshot, handlers: &Reading<Vec<String>>) -> PlanRow {
    let control_plane = &listed.control_plane;
    let limit = reads::limit_per_control_plane(LIMIT);
    let fetched = Box::pin(fetch(
        reader,
        control_plane.namespace(),
        control_plane.name(),
        limit,
    ));
    let error = match fetched.await {
        Ok(mut fetched) => match fetched.unread.into_iter().next() {
            None => {
                fetched.observed.in_place_handlers = handlers.clone();
                return PlanRow::of_current(&fetched.observed, reader.connection.now());
            }
            Some(unread) => unread.error,
        },
        Err(error) => error,
    };
    PlanRow::unread(control_plane.into(), error.to_string())
}

impl PlanRow {
    /// The plan without a change.
    fn of_current(observed: &Snapshot, now: Timestamp) -> Self {
        Self {
            assumption: messages::unread_extensions(observed),
            ..Self::new(&plan(observed, &Desired::current(observed), now))
        }
    }

    fn new(plan: &Plan) -> Self {
        let outdated = plan.verdicts.iter().filter(|verdict| verdict.is_outdated());
        let differing = plan
            .verdicts
            .iter()
            .filter(|verdict| !verdict.is_outdated() && !verdict.paths_ignored_by_controller.is_empty());
        Self {
            context: None,
            metadata: ObjectName {
                name: plan.name.clone(),
                namespace: plan.namespace.clone(),
            },
            verdict: Some(PlanVerdict::new(plan)),
            next_step: plan.steps().first().map(|step| match step.action {
                Action::Create => "create a Machine".to_owned(),
                Action::Delete => format!("{} {}", messages::action(step), messages::names(step)),
                Action::Wait => format!("wait: {}", messages::why(step)),
            }),
            steps: plan.steps().len(),
            blocked_by: match &plan.steps {
                Ok(_) => {
                    let obstacles = plan.obstacles().into_iter().chain(plan.problems());
                    obstacles
                        .map(|(message, _)| message)
                        .chain(plan.endless_note().map(|(note, _)| note))
                        .collect()
                }
                Err(no_plan) => vec![messages::no_plan(no_plan)],
            },
            outdated: outdated.map(|verdict| verdict.machine.clone()).collect(),
            after_provider_update: differing.map(|verdict| verdict.machine.clone()).collect(),
            lack_control_plane_of_join: plan
                .verdicts
                .iter()
                .filter(|verdict| !verdict.is_outdated() && verdict.lacks_control_plane_of_join)
                .map(|verdict| verdict.machine.clone())
                .collect(),
            error: None,
            assumption: None,
        }
    }

    const fn unread(metadata: ObjectName, error: String) -> Self {
        Self {
            context: None,
            metadata,
            verdict: None,
            next_step: None,
            steps: 0,
            blocked_by: Vec::new(),
            outdated: Vec::new(),
            after_provider_update: Vec::new(),
            lack_control_plane_of_join: Vec::new(),
            error: Some(error),
            assumption: None,
        }
    }

    const fn exit(&self) -> Verdict {
        match self.verdict {
            Some(verdict) if verdict.is_good() => Verdict::Met,
            Some(_) => Verdict::Negative,
            None => Verdict::Undecided,
        }
    }

    fn cells(&self, is_of_all: bool) -> Vec<Cell> {
        let unknown = || ("-".to_owned(), "-".to_owned());
        let ((next, steps), why, style) = match (&self.error, self.verdict) {
            (Some(error), _) => (unknown(), format!("not planned: {error}"), BAD),
            (None, Some(PlanVerdict::NoPlan)) => (unknown(), self.blocked_by.join("; "), BAD),
            (None, _) => {
                let next = self.next_step.clone().unwrap_or_else(|| "none".to_owned());
                ((next, self.steps.to_string()), self.blocked_by.join("; "), WARN)
            }
        };
        let next = match self.verdict {
            Some(verdict) if verdict.is_good() => Cell::styled(next, GOOD),
            _ => Cell::from(next),
        };
        vec![
            Cell::from(self.context.as_deref().unwrap_or_default()),
            Cell::from(if is_of_all {
                self.metadata.namespace.as_str()
            } else {
                ""
            }),
            Cell::from(self.metadata.name.as_str()),
            Cell::from(if self.outdated.is_empty() {
                String::new()
            } else {
                self.outdated.len().to_string()
            }),
            next,
            Cell::from(steps),
            Cell::styled(why, style).extend_to_line_end(),
        ]
    }
}

impl PlanList {
    fn of_contexts(
        InContexts {
            results: read,
            unread_contexts: unread,
        }: InContexts<Vec<PlanRow>>,
    ) -> Self {
        let in_context = |(context, rows): (String, Vec<PlanRow>)| {
            rows.into_iter().map(move |row| PlanRow {
                context: Some(context.clone()),
                ..row
            })
        };
        Self {
            namespace: None,
            rows: read.into_iter().flat_map(in_context).collect(),
            unread,
        }
    }

    /// What plans assume because it could not be read, each once.
    fn assumptions(&self) -> BTreeSet<&String> {
        self.rows
            .iter()
            .filter_map(|row| row.assumption.as_ref())
            .collect()
    }

    fn verdict(&self) -> Verdict {
        let unread = self.unread.iter().map(|_| Verdict::Undecided);
        Verdict::worst(self.rows.iter().map(PlanRow::exit).chain(unread))
    }

    /// The Machines that an update of Cluster API would replace, one line for each control plane.
    fn provider_updates(&self) -> Vec<String> {
        let found = self
            .rows
            .iter()
            .filter(|row| !row.after_provider_update.is_empty());
        let lines = found.map(|row| {
            let machines = messages::join_names(&row.after_provider_update, "and");
            let ObjectName { name, namespace } = &row.metadata;
            format!("an update of Cluster API to v1.14.2 would replace {machines} of {namespace}/{name}")
        });
        let earlier = self
            .rows
            .iter()
            .filter(|row| !row.lack_control_plane_of_join.is_empty())
            .map(|row| {
                let machines = messages::join_names(&row.lack_control_plane_of_join, "and");
                let ObjectName { name, namespace } = &row.metadata;
                replaced_by_earlier_releases(&format!("{machines} of {namespace}/{name}"))
            });
        lines.chain(earlier).collect()
    }
}

impl<'l> PlanListDocument<'l> {
    fn new(list: &'l PlanList) -> Self {
        Self {
            items: &list.rows,
            unread_contexts: &list.unread,
        }
    }
}

impl Report for PlanList {
    fn table(&self, layout: Layout) -> String {
        if self.rows.is_empty() && self.unread.is_empty() {
            return no_control_planes(self.namespace.as_deref());
        }
        let mut table = Table::with_columns([
            Column::new("CONTEXT"),
            Column::new("NAMESPACE"),
            Column::new("NAME"),
            Column::new("OUTDATED").expendable(1),
            Column::new("NEXT STEP"),
            Column::new("STEPS").expendable(0),
            Column::new("BLOCKED BY"),
        ]);
        for row in &self.rows {
            table.add_row(row.cells(self.namespace.is_none()));
        }
        for UnreadContext { context, error } in &self.unread {
            table.add_row([
                Cell::from(context.as_str()),
                Cell::from(""),
                Cell::from(""),
                Cell::from(""),
                Cell::from("-"),
                Cell::from("-"),
                Cell::styled(format!("not read: {error}"), BAD).extend_to_line_end(),
            ]);
        }
        let updates = self.provider_updates();
        let mut text = table.render(layout);
        if !updates.is_empty() {
            text = layout.append_paragraphs(text + "\n", &updates);
        }
        text
    }

    fn document(&self) -> impl Serialize {
        Versioned(PlanListDocument::new(self))
    }

    fn names(&self) -> Vec<String> {
        let rows = self.rows.iter();
        rows.map(|row| resource_name(&KUBEADM_CONTROL_PLANE, &row.metadata.name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use kcp_control_plane::testing::{
        objects::now,
        plan::{machine, observed, restarted, spec},
        snapshot::failure,
    };

    use super::{
        Desired, InContexts, Layout, ObjectName, PlanList, PlanListDocument, PlanRow, Reading, Report as _,
        Snapshot, UnreadContext, plan,
    };
    use crate::{
        commands::plan::screen::tests::{blocked, no_plan},
        terminal::plain,
        testing::{assert_every_format, schema},
        verdict::Verdict,
    };

    fn list(rows: Vec<PlanRow>) -> PlanList {
        PlanList {
            namespace: Some("d".to_owned()),
            rows,
            unread: Vec::new(),
        }
    }

    fn up_to_date() -> PlanRow {
        PlanRow::of_current(&observed(), now())
    }

    #[test]
    fn unread_extensions_are_said_once() {
        let row = |handlers: Reading<Vec<String>>| {
            let observed = Snapshot {
                in_place_handlers: handlers,
                ..observed()
            };
            PlanRow::of_current(&observed, now())
        };
        let unread = || Reading::Failed(failure("ExtensionConfig", "forbidden"));
        let said = "could not list ExtensionConfigs: forbidden; the plan assumes that no extension updates Machines in place";
        for (handlers, expected) in [
            (vec![Reading::Read(Vec::new()), Reading::NotYet], vec![]),
            (vec![unread(), unread()], vec![said]),
        ] {
            let list = list(handlers.into_iter().map(row).collect());
            assert_eq!(list.assumptions().into_iter().collect::<Vec<_>>(), expected);
        }
    }

    fn rolling_out() -> PlanRow {
        let mut observed = observed();
        observed.machines.push(machine("m4", "a", 0));
        let desired = Desired {
            spec: restarted(spec(), now()),
            ..Desired::current(&observed)
        };
        PlanRow::new(&plan(&observed, &desired, now()))
    }

    fn unread() -> PlanRow {
        let metadata = ObjectName {
            name: "lost".to_owned(),
            namespace: "d".to_owned(),
        };
        PlanRow::unread(metadata, "cannot get kubeadmconfigs: forbidden".to_owned())
    }

    fn differing() -> PlanRow {
        PlanRow {
            after_provider_update: vec!["m1".to_owned(), "m2".to_owned()],
            lack_control_plane_of_join: vec!["m3".to_owned()],
            ..up_to_date()
        }
    }

    fn of_contexts() -> PlanList {
        PlanList::of_contexts(InContexts {
            results: vec![
                ("east".to_owned(), vec![up_to_date()]),
                ("west".to_owned(), vec![PlanRow::new(&blocked())]),
            ],
            unread_contexts: vec![UnreadContext {
                context: "north".to_owned(),
                error: "cannot reach https://north: connection refused".to_owned(),
            }],
        })
    }

    #[test]
    fn one_line_for_each_control_plane() {
        let rows = vec![
            up_to_date(),
            rolling_out(),
            PlanRow::new(&blocked()),
            PlanRow::new(&no_plan()),
            unread(),
            differing(),
        ];
        insta::assert_snapshot!(plain(&list(rows).table(Layout::default())));
    }

    #[test]
    fn one_table_for_all_contexts() {
        insta::assert_snapshot!(plain(&of_contexts().table(Layout::default())));
    }

    #[test]
    fn the_worst_plan_decides_the_exit_code() {
        for (rows, expected) in [
            (vec![], Verdict::Met),
            (vec![up_to_date(), rolling_out()], Verdict::Met),
            (vec![up_to_date(), PlanRow::new(&blocked())], Verdict::Negative),
            (vec![PlanRow::new(&no_plan())], Verdict::Negative),
            (vec![PlanRow::new(&blocked()), unread()], Verdict::Undecided),
        ] {
            assert_eq!(list(rows).verdict(), expected);
        }
        assert_eq!(of_contexts().verdict(), Verdict::Undecided);
    }

    #[test]
    fn every_document_matches_its_schema() {
        for list in [list(vec![up_to_date(), unread()]), of_contexts()] {
            schema::conforms(&PlanListDocument::new(&list));
            assert_every_format(&list);
        }
        schema::checked_in::<PlanListDocument<'_>>("planlist.json");
    }

    #[test]
    fn an_empty_list_names_the_namespace() {
        assert_eq!(
            list(Vec::new()).table(Layout::default()),
            "No control planes found in d namespace.\n"
        );
    }
}
