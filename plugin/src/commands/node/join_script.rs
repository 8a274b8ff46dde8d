//! `kubectl kcp node join-script`: prints a script with which a host joins the cluster, with a new bootstrap token.
//!
//! - [`arguments`]: the arguments; only text that is safe in a script is accepted
//! - [`script`]: the script, with its values in quotes, and its wrappers for cloud-init and Ignition
//! - [`control_plane`]: reads the control plane that a host joins, and refuses the join if etcd is not ready for it
//! - [`report`]: what the command prints

mod arguments;
mod control_plane;
mod report;
mod script;

use std::{io::Write as _, time::Instant};

use anyhow::{Context as _, anyhow};
pub use arguments::JoinScriptArguments;
use control_plane::ControlPlane;
use jiff::{SignedDuration, Timestamp, Unit};
use kcp_client::{
    Action, Connection, Error, Token,
    bootstrap_token::{BootstrapToken, create_token, revoke_token},
    reads::{
        self,
        api_servers::read_api_servers,
        cluster_info::{ClusterInfo, read_cluster_info},
        node::read_node,
    },
};
use kcp_control_plane::{
    change::decision::{Refusal, RefusedBy},
    verbs::node::labelled_node::LabelledNode,
};
use kcp_rules::syntax::parse_version;
use report::JoinScriptReport;
use script::JoinValues;

use crate::{
    arguments::format_duration,
    change::arguments::FIELD_MANAGER,
    file::{self, NewFile},
    output::{CommandFormat, OutputArguments, OutputFormat, print},
    session::Session,
    verdict::Verdict,
};

/// The time between two reads of cluster-info. Kubernetes signs it within about ten seconds.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);

pub(super) async fn run(arguments: &JoinScriptArguments, session: &Session) -> anyhow::Result<Verdict> {
    let end = Instant::now() + arguments.timeout;
    let format = match &arguments.output {
        Some(OutputFormat::Special(format)) => *format,
        Some(OutputFormat::Table) | None => CommandFormat::Script,
        Some(_) if arguments.output_file.is_some() => CommandFormat::Script,
        Some(_) => {
            return Err(anyhow!(
                "this output format contains no secrets, and therefore not the script; to write the script to a file, add \
                 --output-file"
            ));
        }
    };
    arguments.proxy.check()?;
    let certificate_key = arguments
        .certificate_key_file
        .as_deref()
        .map(read_certificate_key);
    let certificate_key = certificate_key.transpose()?;
    // Create the file first, so that a folder that cannot be written is an error before a token exists.
    let file = arguments
        .output_file
        .as_deref()
        .map(NewFile::create)
        .transpose()?;
    let connection = session.connect_within(arguments.timeout).await?;
    if let Some(refusal) = refuse_name(&connection, arguments).await? {
        return Ok(refused(&refusal, session));
    }
    let control_plane = match ControlPlane::read(&connection, arguments, session, end).await? {
        Ok(control_plane) => control_plane,
        Err(refusal) => return Ok(refused(&refusal, session)),
    };
    let version = read_version(&connection).await?;
    let parsed =
        parse_version(&version).with_context(|| format!("the API server has the version {version:?}"))?;
    let cluster = read_cluster_info(&connection)
        .await
        .context("cannot find out how hosts join the cluster")?;
    let api_servers = if arguments.api_proxy {
        let limit = reads::list_limit(end.saturating_duration_since(Instant::now()));
        Some(read_api_servers(&connection, limit).await?)
    } else {
        None
    };
    let expires = expiry(connection.now(), arguments)?;
    let certificates = control_plane.as_ref().map(|read| read.certificates);
    if let Some(warning) = certificates.and_then(|certificates| certificates.warning(expires)) {
        session.terminal.warning(&warning);
    }
    let description = match &arguments.hostname {
        Some(name) => format!("for {name}, by kubectl kcp node join-script"),
        None => "by kubectl kcp node join-script".to_owned(),
    };
    let token = create_token(&connection, expires, &description, FIELD_MANAGER).await?;
    session.terminal.set_interrupt_note(format!(
        "the bootstrap token still exists; revoke it with: {}",
        token.revoke_command()
    ));
    let values = JoinValues {
        arguments,
        cluster: &cluster,
        version: &parsed.to_string(),
        minor: parsed.minor,
        token: &token,
        expires: &expires.to_string(),
        certificate_key: certificate_key.as_ref(),
        control_plane: control_plane.as_ref(),
        api_servers: api_servers.as_ref(),
    };
    let written = write(&values, format, file, &connection, session, end).await;
    if !matches!(written, Ok(Verdict::Met)) {
        revoke(&connection, &token, session).await;
    }
    written
}

fn refused(refusal: &Refusal, session: &Session) -> Verdict {
    for why in &refusal.why {
        session.terminal.note(&format!("no script was written: {why}"));
    }
    for remedy in &refusal.remedies {
        session.terminal.hint(remedy);
    }
    Verdict::Negative
}

/// Waits for the signature of cluster-info, and writes the script to the file or to stdout.
async fn write(
    values: &JoinValues<'_>,
    format: CommandFormat,
    file: Option<NewFile>,
    connection: &Connection,
    session: &Session,
    end: Instant,
) -> anyhow::Result<Verdict> {
    let arguments = values.arguments;
    let script = values.write(format)?;
    if !wait_for_signature(connection, values.token, session, end).await? {
        session.terminal.note(&format!(
            "no script was written: the cluster did not sign ConfigMap kube-public/cluster-info with the token within {}",
            format_duration(arguments.timeout)
        ));
        session.terminal.hint(
            "check that kube-controller-manager runs with the controllers bootstrapsigner and tokencleaner; or allow \
             more time with --timeout",
        );
        return Ok(Verdict::Negative);
    }
    let is_in_file = file.is_some();
    if let Some(mut file) = file {
        file.write_all(script.as_bytes())
            .context("cannot write the script")?;
        file.finish()?;
    }
    let report = JoinScriptReport {
        arguments,
        token_id: values.token.id(),
        expires: values.expires,
        cluster: values.cluster,
        script: (!is_in_file).then_some(&script),
    };
    let output = OutputArguments {
        // A summary, because the file contains the script.
        output: arguments
            .output
            .clone()
            .filter(|output| !(is_in_file && matches!(output, OutputFormat::Special(_)))),
        no_headers: arguments.no_headers,
    };
    print(&report, &output, &session.terminal)?;
    session.terminal.note(&format!(
        "token {} expires at {} (in {}); revoke it earlier with: {}",
        values.token.id(),
        values.expires,
        format_duration(arguments.ttl),
        values.token.revoke_command()
    ));
    Ok(Verdict::Met)
}

/// Refuses a script for a host whose name a Node has.
async fn refuse_name(
    connection: &Connection,
    arguments: &JoinScriptArguments,
) -> anyhow::Result<Option<Refusal>> {
    let Some(name) = &arguments.hostname else {
        return Ok(None);
    };
    match read_node(connection, name, LabelledNode::new).await {
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(_) => {
            let why = format!("the cluster already has a Node {name}");
            let remedy = format!(
                "choose another name; or, if the host is gone, delete its Node: kubectl delete node {name}"
            );
            Ok(Some(Refusal {
                remedies: vec![remedy],
                ..Refusal::new(RefusedBy::Command, vec![why])
            }))
        }
    }
}

/// Reads the key from a file or from stdin. It never appears in an error.
fn read_certificate_key(path: &std::path::Path) -> anyhow::Result<Token> {
    let content = file::read(path)?;
    let key = String::from_utf8_lossy(&content).trim().to_owned();
    let is_key = key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key.then(|| key.into()).with_context(|| {
        format!(
            "{} does not contain a certificate key of 64 hexadecimal digits",
            path.display()
        )
    })
}

async fn read_version(connection: &Connection) -> Result<String, Error> {
    let action = Action::path("get", "/version");
    let version = connection
        .read(&action, || connection.client.apiserver_version())
        .await?;
    Ok(version.git_version)
}

/// When a token expires that the command creates at `now`.
fn expiry(now: Timestamp, arguments: &JoinScriptArguments) -> anyhow::Result<Timestamp> {
    let ttl = SignedDuration::try_from(arguments.ttl)?;
    Ok(now.checked_add(ttl)?.round(Unit::Second)?)
}

/// Waits until the cluster has signed cluster-info with the token. False at the end of the time limit.
async fn wait_for_signature(
    connection: &Connection,
    token: &BootstrapToken,
    session: &Session,
    end: Instant,
) -> anyhow::Result<bool> {
    session
        .terminal
        .spin("waiting until cluster-info is signed with the token");
    let signed = loop {
        let ClusterInfo { signed_ids, .. } = read_cluster_info(connection).await?;
        if signed_ids.iter().any(|id| id == token.id()) {
            break true;
        }
        if Instant::now() + POLL_INTERVAL >= end {
            break false;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    session.terminal.stop_spinning();
    Ok(signed)
}

/// Revokes a token for which no script was written. A failure causes only a warning, because the token expires.
async fn revoke(connection: &Connection, token: &BootstrapToken, session: &Session) {
    if let Err(error) = revoke_token(connection, token).await {
        session.terminal.warning(&format!(
            "could not revoke bootstrap token {}: {error}; try: {}",
            token.id(),
            token.revoke_command()
        ));
    }
}

#[cfg(test)]
mod tests;
