//! `pool status`: what pools have, who has it, and what is wrong with it.
//!
//! - [`model`]: how things stand, decided
//! - [`document`], [`screen`]: how it is told
//! - [`changes`]: what has changed since the look before

mod arguments;
mod changes;
mod document;
#[cfg(test)]
mod example;
mod model;
mod screen;

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
pub(super) use arguments::PoolStatusArguments;
use arguments::PoolStatusOutput;
use jiff::Timestamp;

use crate::{
    cluster::{Connection, Error},
    document::{text, yaml},
    pool::{
        repair::proof::{Clock, GRACE},
        store::Store,
    },
    session::Session,
    terminal::{Size, Terminal},
    verdict::Verdict,
    watch::{Observation, watch},
};
use changes::changes;
use document::{PoolStatus, PoolStatusList};
use model::{PoolState, pool_state};
use screen::Layout;

/// A field manager under which nothing is written.
const READER: &str = "kubectl-kcp";

/// Runs `pool status`.
///
/// # Errors
/// When the cluster cannot be read or the result not be written.
pub(super) async fn run(arguments: PoolStatusArguments, session: &Session) -> anyhow::Result<Verdict> {
    if let Some(contradiction) = arguments.contradiction() {
        bail!(contradiction);
    }
    let connection = session.connect().await?;
    let namespace = (!arguments.all_namespaces).then_some(connection.namespace.as_str());
    let is_wide = arguments.output == Some(PoolStatusOutput::Wide);
    let screen = |pools: &[PoolState], now: Timestamp, layout: Layout| match (&arguments.pool, pools) {
        (Some(_), [only]) => screen::one(only, now, layout),
        _ => screen::list(pools, namespace, layout),
    };
    if arguments.watch {
        let look = async || Ok(look(&connection, &arguments).await?);
        let screen = |pools: &Vec<PoolState>, now: Timestamp, size: Size| {
            let width = Some(size.width);
            screen(pools, now, Layout { width, is_wide })
        };
        return Box::pin(watch(&session.terminal, look, screen)).await;
    }
    let pools = look(&connection, &arguments).await?;
    let layout = Layout {
        width: Terminal::size().map(|size| size.width),
        is_wide,
    };
    let printed = match (arguments.output, &arguments.pool, pools.as_slice()) {
        (None | Some(PoolStatusOutput::Wide), ..) => screen(&pools, Timestamp::now(), layout),
        (Some(PoolStatusOutput::Json), Some(_), [only]) => text(&PoolStatus::of(only))?,
        (Some(PoolStatusOutput::Json), ..) => text(&PoolStatusList::of(&pools))?,
        (Some(PoolStatusOutput::Yaml), Some(_), [only]) => yaml(&PoolStatus::of(only))?,
        (Some(PoolStatusOutput::Yaml), ..) => yaml(&PoolStatusList::of(&pools))?,
        (Some(PoolStatusOutput::Name), ..) => names(&pools),
    };
    session
        .terminal
        .print(&printed)
        .context("cannot write to stdout")?;
    Ok(pools.verdict())
}

impl Observation for Vec<PoolState> {
    fn changes(before: Option<&Self>, after: &Self) -> Vec<String> {
        changes(before.map(Vec::as_slice), after)
    }

    fn verdict(&self) -> Verdict {
        Verdict::worst(self.iter().map(PoolState::verdict))
    }
}

fn names(pools: &[PoolState]) -> String {
    pools.iter().fold(String::new(), |text, pool| {
        text + "clusterpool.hive.openshift.io/" + &pool.name + "\n"
    })
}

async fn look(connection: &Connection, arguments: &PoolStatusArguments) -> Result<Vec<PoolState>, Error> {
    let namespaces = if arguments.all_namespaces {
        let pools = Store::new(connection, READER).pools(None).await?;
        pools.into_iter().map(|pool| pool.metadata.namespace).collect()
    } else {
        BTreeSet::from([connection.namespace.clone()])
    };
    let mut states = Vec::new();
    for namespace in namespaces {
        let mut connection = connection.clone();
        connection.namespace = namespace;
        let store = Store::new(&connection, READER);
        let survey = store.survey().await?;
        let claims = store.claims().await?;
        let clock = Clock {
            now: Timestamp::now(),
            grace: GRACE,
        };
        if let Some(pool) = &arguments.pool
            && survey.pool(pool).is_none()
        {
            // The server's own answer says that there is none.
            store.pool(pool).await?;
        }
        let is_asked = |name: &str| arguments.pool.as_deref().is_none_or(|pool| pool == name);
        let pools = survey.pools.iter().filter(|pool| is_asked(pool.name()));
        states.extend(pools.map(|pool| pool_state(&survey, &claims, pool, clock)));
    }
    Ok(states)
}
