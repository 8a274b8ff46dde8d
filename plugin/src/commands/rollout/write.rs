//! What the verbs of `rollout` that write have in common: reading, deciding, writing, and saying what came of it.

use jiff::Timestamp;
use kcp_rules::{Configuration, api::DecodeError};

use crate::commands::rollout::screen;
use crate::{
    change::{arguments::WriteArguments, telling::Telling},
    configuration,
    edit::{Edit, Edited, Outcome},
    session::Session,
    verdict::Verdict,
};
use kcp_client::reader::Reader;
use kcp_control_plane::{
    change::{
        decision::Decision,
        situation::{Extent, Situation},
    },
    judgement::Surroundings,
};

/// A verb that writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verb {
    /// For messages of errors: `pause`.
    pub(super) infinitive: &'static str,
    /// That it was not done: `not paused`.
    pub(super) not_done: &'static str,
    /// What it is judged on.
    pub(super) extent: Extent,
}

/// What is said when it was done, and when there was nothing to do.
pub(super) struct Said {
    pub(super) done: String,
    pub(super) unchanged: String,
}

/// Decides, writes, and says what came of it.
pub(super) async fn carry_out(
    verb: Verb,
    name: &str,
    arguments: &WriteArguments,
    session: &Session,
    decide: impl Fn(&Situation, &Reader<'_>, Surroundings<'_>) -> Result<Decision, DecodeError>,
    say: impl FnOnce(&Edited) -> Said,
) -> anyhow::Result<Verdict> {
    let configuration = arguments.configuration.as_deref();
    let configuration: Option<Configuration> = configuration.map(configuration::read).transpose()?;
    let connection = session.connect().await?;
    let reader = Reader::discover(&connection).await?;
    let edit = Edit {
        name,
        verb: verb.infinitive,
        extent: verb.extent,
        dry_run: arguments.dry_run,
        field_manager: &arguments.field_manager,
    };
    let judge = async |situation: &Situation| {
        let surroundings = Surroundings {
            now: Timestamp::now(),
            field_manager: &arguments.field_manager,
            view: &situation.view()?,
            configuration: configuration.as_ref(),
        };
        Ok(decide(situation, &reader, surroundings)?)
    };
    let edited = Box::pin(edit.make(&reader, &session.terminal, judge)).await?;
    let is_configured = configuration.is_some();
    let not_done = |why: &str, lines: &[String]| screen::not_done(name, verb.not_done, why, lines);
    let said = say(&edited);
    let text = match &edited.outcome {
        Outcome::Made => screen::done(name, &said.done, arguments.dry_run, &edited.consequences),
        Outcome::Unchanged => screen::unchanged(name, &said.unchanged),
        Outcome::Refused(refusal) => {
            let by = format!("refused by {}", refusal.by(is_configured));
            not_done(&by, &refusal.why)
        }
        Outcome::Rejected(why) => not_done("refused by the server", why),
        Outcome::Overtaken(what) => not_done("others were faster", what),
    };
    let telling = Telling {
        reader: &reader,
        terminal: &session.terminal,
        output: arguments.output,
        dry_run: arguments.dry_run,
        is_configured,
    };
    telling.tell(&edited, &text).await
}
