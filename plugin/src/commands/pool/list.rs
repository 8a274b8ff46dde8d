//! Runs `kubectl kcp pool list`, which prints the entries of pools, one per line.

use clap::Args;
use jiff::Timestamp;
use kcp_pool::status::{EntryUse, EntryUseState, PoolSelection, PoolState, pool_states};
use serde::Serialize;

use crate::{
    arguments::{format_duration, parse_cluster_pool, parse_object_name},
    commands::pool::{HiveArgument, resource_name},
    document::API_VERSION,
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::{
        style::{BAD, GOOD, WARN},
        table::{Cell, Column, Layout, Table},
    },
    verdict::Verdict,
};

/// Arguments of `pool list`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp pool list hosts
  kubectl kcp pool list -A --holder paris")]
pub struct ListArguments {
    /// Cluster pool to list; all pools of the namespace if omitted
    #[arg(value_parser = parse_cluster_pool, conflicts_with = "all_namespaces")]
    pub pool: Option<String>,

    /// List the pools of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// List the pools that match this label selector, such as team=edge,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "pool")]
    pub selector: Option<String>,

    /// List only entries that this cluster deployment holds
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    pub holder: Option<String>,

    /// Whether Hive manages the pools
    #[arg(long, value_enum, default_value = "auto")]
    pub hive: HiveArgument,

    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// Runs `pool list`.
///
/// # Errors
/// The cluster cannot be read.
pub(crate) async fn run(arguments: ListArguments, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    let selection = PoolSelection {
        includes_all_namespaces: arguments.all_namespaces,
        pool: arguments.pool.as_deref(),
        labels: arguments.selector.as_deref(),
        hive: arguments.hive.into(),
    };
    let pools = pool_states(&connection, selection).await?;
    let holder = arguments.holder.as_deref();
    let list = PoolEntryList::new(&pools, holder, arguments.all_namespaces, connection.now());
    for unseen in pools.iter().flat_map(|pool| &pool.unread_kinds) {
        session.terminal.warning(unseen);
    }
    print(&list, &arguments.output, &session.terminal)?;
    Ok(Verdict::Met)
}

/// The entries of one or several pools' inventories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct PoolEntryList {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "PoolEntryList")))]
    kind: &'static str,
    items: Vec<EntryItem>,
    #[serde(skip)]
    is_of_all_namespaces: bool,
    #[serde(skip)]
    now: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct EntryItem {
    namespace: String,
    pool: String,
    name: String,
    /// One of: free, held, in-use, gone, expired, reserved, unreadable, deleting, missing, cordoned (the entry is free but
    /// cordoned).
    state: &'static str,
    /// The `ClusterDeployment` that holds the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<String>,
    /// When the lease ends; absent if the entry has no lease, or if the lease never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    ends: Option<Timestamp>,
    /// The user who leased the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Why the entry is cordoned; absent if it is not cordoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cordoned: Option<String>,
}

impl PoolEntryList {
    fn new(pools: &[PoolState], holder: Option<&str>, is_of_all_namespaces: bool, now: Timestamp) -> Self {
        let is_meant = |entry: &&EntryUse| holder.is_none() || entry.holder.as_deref() == holder;
        let items = pools.iter().flat_map(|pool| {
            let entries = pool.entries.iter().filter(is_meant);
            entries.map(|entry| EntryItem::new(pool, entry))
        });
        Self {
            api_version: API_VERSION,
            kind: "PoolEntryList",
            items: items.collect(),
            is_of_all_namespaces,
            now,
        }
    }
}

impl EntryItem {
    fn new(pool: &PoolState, entry: &EntryUse) -> Self {
        let lease = entry.lease.as_ref();
        Self {
            namespace: pool.namespace.clone(),
            pool: pool.name.clone(),
            name: entry.name.clone(),
            state: match (entry.state, &entry.cordon_reason) {
                (EntryUseState::Free, Some(_)) => "cordoned",
                (state, _) => state.as_str(),
            },
            holder: entry.holder.clone(),
            lease_id: lease.map(|lease| lease.id.clone()),
            ends: lease.and_then(|lease| lease.deadline),
            user: lease.and_then(|lease| lease.user.clone()),
            cordoned: entry.cordon_reason.clone(),
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::new("NAMESPACE"),
    Column::new("POOL"),
    Column::new("ENTRY"),
    Column::new("STATE"),
    Column::new("HOLDER"),
    Column::new("ENDS"),
    Column::new("LEASE ID").expendable(2),
    Column::new("USER").expendable(1),
];

impl Report for PoolEntryList {
    fn table(&self, layout: Layout) -> String {
        if self.items.is_empty() {
            return "No entries found.\n".to_owned();
        }
        let mut table = Table::with_columns(COLUMNS.iter().copied());
        for item in &self.items {
            let style = match item.state {
                "free" => GOOD,
                "missing" | "unreadable" => BAD,
                _ => WARN,
            };
            let namespace = if self.is_of_all_namespaces {
                item.namespace.as_str()
            } else {
                ""
            };
            table.add_row([
                Cell::from(namespace),
                Cell::from(&item.pool),
                Cell::from(&item.name),
                Cell::styled(item.state, style),
                Cell::from(item.holder.as_deref().unwrap_or_default()),
                Cell::from(ends(item, self.now)),
                Cell::from(item.lease_id.as_deref().unwrap_or_default()),
                Cell::from(item.user.as_deref().unwrap_or_default()),
            ]);
        }
        table.render(layout)
    }

    fn document(&self) -> impl Serialize {
        self
    }

    fn names(&self) -> Vec<String> {
        self.items
            .iter()
            .map(|item| resource_name(&item.name.as_str().into()))
            .collect()
    }
}

fn ends(item: &EntryItem, now: Timestamp) -> String {
    let Some(end) = item.ends else {
        return if item.lease_id.is_some() {
            "never".to_owned()
        } else {
            String::new()
        };
    };
    let left = end.duration_since(now);
    match left.try_into() {
        Ok(left) => format!("in {}", format_duration(left)),
        Err(_) => format!("{} ago", format_duration((-left).try_into().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use kcp_pool::testing::{objects::NOW, states::states};

    use super::{Layout, PoolEntryList, Report as _};
    use crate::{
        terminal::plain,
        testing::{
            assert_every_format,
            schema::{checked_in, conforms},
        },
    };

    #[test]
    fn entries() {
        let pools: Vec<_> = states().into_iter().map(|(_, state)| state).take(1).collect();
        let now = NOW.parse().unwrap();
        let all = PoolEntryList::new(&pools, None, true, now);
        conforms(&all);
        assert_every_format(&all);
        checked_in::<PoolEntryList>("poolentrylist.json");
        let layout = Layout {
            width: Some(100),
            ..Layout::default()
        };
        let of_paris = PoolEntryList::new(&pools, Some("paris"), false, now);
        let screens = [all.table(layout), of_paris.table(layout)].join("\n");
        insta::with_settings!({snapshot_path => "snapshots"}, {
            insta::assert_snapshot!("list", plain(&screens));
        });
    }
}
