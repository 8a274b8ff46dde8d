//! `kubectl kcp node token`: lists and revokes the bootstrap tokens of a cluster. Never shows their secret part.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use kcp_client::bootstrap_token::{ID_LENGTH, ListedToken, list_tokens, revoke_token};
use kcp_rules::syntax::is_dns1123_label;
use serde::Serialize;

use crate::{
    arguments::format_duration,
    document::API_VERSION,
    output::{OutputArguments, Report, print},
    session::Session,
    terminal::table::{Cell, Column, Layout, Table},
    verdict::Verdict,
};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// List the bootstrap tokens, without their secret part
    List(ListArguments),
    /// Delete bootstrap tokens, so that no host can join with them any more
    Revoke(RevokeArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp node token list
  kubectl kcp node token list -o json")]
pub struct ListArguments {
    /// The output format.
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl kcp node token revoke abc123
  kubectl kcp node token revoke abc123 --context edge")]
pub struct RevokeArguments {
    /// Ids of tokens: the six characters before the dot
    #[arg(value_name = "ID", value_parser = parse_id, required = true)]
    pub ids: Vec<String>,
}

/// Parses an id. Drops the secret part of a whole token, so that no error repeats it.
fn parse_id(text: &str) -> Result<String, String> {
    let id = text.split_once('.').map_or(text, |(id, _)| id);
    if id.len() <= ID_LENGTH && is_dns1123_label(id.as_bytes()) && !id.contains('-') {
        return Ok(id.to_owned());
    }
    Err("an id has six characters, a-z and 0-9".to_owned())
}

/// Runs `node token`.
///
/// # Errors
/// The tokens cannot be read or deleted, or the result cannot be printed.
pub(super) async fn run(command: &TokenCommand, session: &Session) -> anyhow::Result<Verdict> {
    let connection = session.connect().await?;
    match command {
        TokenCommand::List(arguments) => {
            let tokens = list_tokens(&connection).await?;
            let report = TokensReport {
                tokens,
                now: connection.now(),
            };
            print(&report, &arguments.output, &session.terminal)?;
            Ok(Verdict::Met)
        }
        TokenCommand::Revoke(arguments) => {
            let mut verdict = Verdict::Met;
            for id in &arguments.ids {
                let line = if revoke_token(&connection, id).await? {
                    format!("token {id} revoked")
                } else {
                    verdict = Verdict::Negative;
                    format!("token {id} does not exist")
                };
                session
                    .terminal
                    .print_line(&line)
                    .context("cannot write to stdout")?;
            }
            Ok(verdict)
        }
    }
}

struct TokensReport {
    tokens: Vec<ListedToken>,
    now: Timestamp,
}

/// The bootstrap tokens of a cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(title = "BootstrapTokenList"))]
#[serde(rename_all = "camelCase")]
struct TokensDocument<'r> {
    #[cfg_attr(test, schemars(extend("const" = API_VERSION)))]
    api_version: &'static str,
    #[cfg_attr(test, schemars(extend("const" = "BootstrapTokenList")))]
    kind: &'static str,
    items: Vec<BootstrapTokenDocument<'r>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct BootstrapTokenDocument<'r> {
    /// The part of the token before the dot, which is not secret.
    id: &'r str,
    /// Null if the token never expires.
    expires: Option<Timestamp>,
    is_expired: bool,
    /// `authentication`, `signing`.
    usages: &'r [&'static str],
    groups: &'r [String],
    description: &'r str,
}

impl TokensReport {
    fn is_expired(&self, token: &ListedToken) -> bool {
        token.expires.is_some_and(|expires| expires <= self.now)
    }
}

impl Report for TokensReport {
    fn table(&self, layout: Layout) -> String {
        let mut table = Table::with_columns([
            Column::new("ID"),
            Column::new("EXPIRES"),
            Column::new("USAGES"),
            Column::new("GROUPS").wide(),
            Column::new("DESCRIPTION"),
        ]);
        for token in &self.tokens {
            let expires = match token.expires {
                None => "never".to_owned(),
                Some(_) if self.is_expired(token) => "expired".to_owned(),
                Some(expires) => {
                    format!(
                        "in {}",
                        format_duration(expires.duration_since(self.now).unsigned_abs())
                    )
                }
            };
            table.add_row([
                Cell::from(&token.id),
                Cell::from(&expires),
                Cell::from(&token.usages.join(",")),
                Cell::from(&token.groups.join(",")),
                Cell::from(&token.description),
            ]);
        }
        table.render(layout)
    }

    fn document(&self) -> impl Serialize {
        let items = self.tokens.iter().map(|token| BootstrapTokenDocument {
            id: &token.id,
            expires: token.expires,
            is_expired: self.is_expired(token),
            usages: &token.usages,
            groups: &token.groups,
            description: &token.description,
        });
        TokensDocument {
            api_version: API_VERSION,
            kind: "BootstrapTokenList",
            items: items.collect(),
        }
    }

    fn names(&self) -> Vec<String> {
        let ids = self.tokens.iter().map(|token| &token.id);
        ids.map(|id| format!("secret/bootstrap-token-{id}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        terminal::plain,
        testing::{assert_every_format, schema},
    };

    fn report() -> TokensReport {
        let token = |id: &str, expires: Option<&str>| ListedToken {
            id: id.to_owned(),
            expires: expires.map(|at| at.parse().unwrap()),
            usages: vec!["authentication", "signing"],
            groups: vec!["system:bootstrappers:kubeadm:default-node-token".to_owned()],
            description: "for worker-1, by kubectl kcp node join-script".to_owned(),
        };
        TokensReport {
            tokens: vec![
                token("abc123", Some("2026-11-25T13:30:00Z")),
                token("def456", Some("2026-11-25T12:00:00Z")),
                token("ghi789", None),
            ],
            now: "2026-11-25T12:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn tokens_are_listed_without_their_secret() {
        let report = report();
        assert_every_format(&report);
        insta::assert_snapshot!(plain(&report.table(Layout::default())));
        insta::assert_snapshot!(
            "tokens_json",
            serde_json::to_string_pretty(&report.document()).unwrap()
        );
        schema::checked_in::<TokensDocument<'_>>("bootstraptokenlist.json");
    }

    #[test]
    fn a_whole_token_is_accepted_but_its_secret_is_dropped() {
        assert_eq!(parse_id("abc123"), Ok("abc123".to_owned()));
        assert_eq!(parse_id("abc123.0123456789abcdef"), Ok("abc123".to_owned()));
        for text in ["", "abc12345", "ABC123", "abc-23", "../../a", "a b"] {
            assert!(parse_id(text).is_err(), "{text}");
        }
    }
}
