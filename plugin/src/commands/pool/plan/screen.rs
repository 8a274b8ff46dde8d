//! The text of `pool plan`.

use kcp_pool::plan::{PoolPlan, WhyStale};

use crate::terminal::{
    escape,
    style::{BAD, WARN},
    table::{Cell, Column, Table},
};

const ENTRIES: &[Column] = &[
    Column::new("ENTRY").name(),
    Column::new("CHANGE"),
    Column::new("EFFECT"),
];

const STALE: &[Column] = &[Column::new("CLUSTER").name(), Column::new("STALE BECAUSE")];

/// The screen within a number of columns; none for no limit.
pub(crate) fn screen(plan: &PoolPlan, width: Option<usize>) -> String {
    let mut parts = vec![summary(plan)];
    if !plan.entries.is_empty() {
        let mut table = Table::of(ENTRIES.iter().copied());
        for entry in &plan.entries {
            table.row([
                Cell::from(&entry.name),
                Cell::from(entry.change.as_str()),
                Cell::from(entry.effect.to_string()).rest(),
            ]);
        }
        parts.push(table.render_within(width, false));
    }
    if !plan.stale.is_empty() {
        let mut table = Table::of(STALE.iter().copied());
        for cluster in &plan.stale {
            let why = match cluster.why {
                WhyStale::Version => "it was made from another version",
                WhyStale::DroppedFromInventory => "its entry is dropped",
            };
            table.row([Cell::from(&cluster.name), Cell::styled(why, WARN).rest()]);
        }
        parts.push(table.render_within(width, false));
    }
    if !plan.problems.is_empty() {
        let mut table = Table::of([Column::new("WRONG AFTERWARDS")]);
        for problem in &plan.problems {
            table.row([Cell::styled(problem, BAD).rest()]);
        }
        parts.push(table.render_within(width, false));
    }
    parts.join("\n")
}

fn summary(plan: &PoolPlan) -> String {
    let new = if plan.is_new { ", which is new" } else { "" };
    let version = match (&plan.version.before, &plan.version.after) {
        (_, None) if plan.version.changes => {
            "changes; which it is cannot be told for this platform".to_owned()
        }
        (_, None) => "cannot be told for this platform".to_owned(),
        (Some(_), Some(after)) if !plan.version.changes => format!("{after}, as before"),
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (None, Some(after)) => after.clone(),
    };
    let stale = match plan.stale.len() {
        0 => "none becomes stale".to_owned(),
        1 => "1 becomes stale".to_owned(),
        stale => format!("{stale} become stale"),
    };
    let excess = match plan.excess {
        0 => String::new(),
        1 => ", 1 is above the size and is deleted".to_owned(),
        excess => format!(", {excess} are above the size and are deleted"),
    };
    let who = match (plan.is_destructive(), plan.is_run_by_hive) {
        (false, _) => "",
        (true, true) => "; Hive replaces stale ones one at a time",
        (true, false) => "; where no Hive runs that is left to you",
    };
    format!(
        "Pool:      {}/{}{new}\nVersion:   {version}\nUnclaimed: {stale}{excess}{who}\n",
        escape(&plan.namespace),
        escape(&plan.name)
    )
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::plans::plans;

    use super::screen;
    use crate::terminal::plain;

    #[test]
    fn screens() {
        for (name, plan) in plans() {
            insta::assert_snapshot!(name, plain(&screen(&plan, Some(80))));
        }
    }
}
