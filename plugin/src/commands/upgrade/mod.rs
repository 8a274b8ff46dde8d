//! `kubectl kcp upgrade`: another Kubernetes version, with what it means to workers, manifests and configuration told
//! and confirmed before it is written.
//!
//! - [`screen`]: the text

pub mod screen;

mod arguments;

use anyhow::{Context as _, anyhow};
pub use arguments::UpgradeArguments;
use jiff::Timestamp;
use kcp_control_plane::verbs::upgrade::decision::{Outlook, Wanted, decide, machines_of_view};
use kcp_control_plane::verbs::upgrade::workers::Workers;
use kcp_rules::Configuration;

use crate::{
    change::telling::Telling,
    configuration,
    edit::{Edit, Edited, Outcome},
    session::Session,
    terminal::Terminal,
    verdict::Verdict,
    wait::follow,
};
use kcp_client::{
    ReadLimit,
    reader::Reader,
    reads::{
        change::{LIMIT, read_situation},
        workers::read_workers,
    },
};
use kcp_control_plane::{
    change::{
        decision::{Decision, Refusal},
        situation::{Extent, Situation},
    },
    judgement::Surroundings,
    plan::spec::with_leading_v,
    wait::Goal,
};

/// Runs `upgrade`.
///
/// # Errors
/// When nothing could be decided, or the outcome not be written.
pub async fn run(arguments: UpgradeArguments, session: &Session) -> anyhow::Result<Verdict> {
    let configuration = arguments.write.configuration.as_deref();
    let configuration = configuration.map(configuration::read).transpose()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let version = with_leading_v(&arguments.version);
    // Read before the write, so that no Machine comes up unseen.
    let before = match arguments.wait {
        Some(_) => Some(reader.snapshot(&connection.namespace, &arguments.name).await?),
        None => None,
    };
    let upgrade = Upgrade {
        arguments: &arguments,
        version: &version,
        configuration: configuration.as_ref(),
        reader: &reader,
        session,
    };
    let verdict = Box::pin(upgrade.run()).await?;
    let (Verdict::Met, Some(limit)) = (verdict, arguments.wait) else {
        return Ok(verdict);
    };
    session.terminal.on_interrupt(format!(
        "the upgrade goes on by itself; follow it with: kubectl kcp rollout status {} -n {} --watch",
        arguments.name, connection.namespace
    ));
    let limit = (!limit.is_zero()).then_some(limit);
    let goal = Goal::Version(version.clone());
    let verdict = follow(&reader, &arguments.name, goal, limit, before, &session.terminal).await?;
    if verdict == Verdict::Met {
        let text = screen::done(&arguments.name, &version);
        session.terminal.print(&text).context("cannot write to stdout")?;
    }
    Ok(verdict)
}

/// One upgrade.
#[derive(Clone, Copy)]
struct Upgrade<'u> {
    arguments: &'u UpgradeArguments,
    /// With its leading `v`.
    version: &'u str,
    configuration: Option<&'u Configuration>,
    reader: &'u Reader<'u>,
    session: &'u Session,
}

impl Upgrade<'_> {
    /// Shows what it comes to, asks, and writes.
    async fn run(&self) -> anyhow::Result<Verdict> {
        let UpgradeArguments { name, write, .. } = self.arguments;
        let namespace = &self.reader.connection.namespace;
        let situation = Box::pin(read_situation(self.reader, namespace, name, LIMIT)).await?;
        let cluster = situation.control_plane().cluster.as_deref();
        let makers = read_workers(self.reader, cluster, ReadLimit::each(LIMIT)).await;
        let shown = self.outlook(&situation, &makers)?;
        let from = situation.observed.spec.version.clone();
        let telling = self.telling();
        match &shown.decision {
            Decision::Unchanged => {
                let edited = Edited::without_write(situation, Outcome::Unchanged);
                return telling
                    .tell(&edited, &screen::unchanged(name, self.version))
                    .await;
            }
            Decision::Refused(refusal) => {
                telling.aside(&screen::outlook(&shown.plan, &shown.assessment))?;
                let edited = Edited::without_write(situation, Outcome::Refused(refusal.clone()));
                return telling.tell(&edited, &self.told(&edited, &from)).await;
            }
            Decision::Write(_) => telling.aside(&screen::outlook(&shown.plan, &shown.assessment))?,
        }
        let asks = write.dry_run.is_none() && !self.arguments.yes;
        if asks {
            if !Terminal::can_ask() {
                let error = anyhow!("cannot upgrade {name}: there is nobody to confirm it");
                self.session
                    .terminal
                    .error(&error, Some("confirm with --yes what is shown"));
                return Ok(Verdict::Undecided);
            }
            let question = screen::question(name, &from, self.version);
            if !self
                .session
                .terminal
                .confirm(&question)
                .await
                .context("cannot read the answer")?
            {
                let edited = Edited::without_write(situation, Outcome::Refused(Refusal::unconfirmed()));
                let text = screen::not_upgraded(name, self.version, "not confirmed", &[]);
                return telling.tell(&edited, &text).await;
            }
        }
        let edit = Edit {
            name,
            verb: "upgrade",
            extent: Extent::All,
            dry_run: write.dry_run,
            field_manager: &write.field_manager,
        };
        let judge = async |situation: &Situation| {
            // Nobody has confirmed what has become of it meanwhile.
            let confirmed = asks.then_some(&shown);
            Ok(self.outlook(situation, &makers)?.as_confirmed(confirmed))
        };
        let edited = Box::pin(edit.make(self.reader, &self.session.terminal, judge)).await?;
        telling.tell(&edited, &self.told(&edited, &from)).await
    }

    fn outlook(&self, situation: &Situation, makers: &Workers) -> anyhow::Result<Outlook> {
        let mut view = situation.view()?;
        view.machines = machines_of_view(&situation.observed.machines).into();
        let surroundings = Surroundings {
            now: Timestamp::now(),
            field_manager: &self.arguments.write.field_manager,
            view: &view,
            configuration: self.configuration,
        };
        let wanted = Wanted {
            version: self.version,
            force: self.arguments.force,
            makers,
        };
        Ok(decide(situation, wanted, surroundings)?)
    }

    const fn telling(&self) -> Telling<'_> {
        Telling {
            reader: self.reader,
            terminal: &self.session.terminal,
            output: self.arguments.write.output,
            dry_run: self.arguments.write.dry_run,
            is_configured: self.configuration.is_some(),
        }
    }

    /// What came of it, for people.
    fn told(&self, edited: &Edited, from: &str) -> String {
        let UpgradeArguments { name, write, .. } = self.arguments;
        let not_upgraded = |why: &str, lines: &[String]| screen::not_upgraded(name, self.version, why, lines);
        match &edited.outcome {
            Outcome::Made => screen::upgraded(name, from, self.version, write.dry_run, &edited.consequences),
            Outcome::Unchanged => screen::unchanged(name, self.version),
            Outcome::Refused(refusal) => {
                let by = format!("refused by {}", refusal.by(self.configuration.is_some()));
                not_upgraded(&by, &refusal.why)
            }
            Outcome::Rejected(why) => not_upgraded("refused by the server", why),
            Outcome::Overtaken(what) => not_upgraded("others were faster", what),
        }
    }
}
