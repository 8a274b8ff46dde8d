//! Arguments of `kubectl kcp node labels`.

use anyhow::bail;
use clap::{Args, Subcommand};
use kcp_control_plane::verbs::node::labels::LabelEdit;
use kcp_rules::syntax::key_fault;

use crate::{
    arguments::{parse_label, parse_node},
    change::{arguments::WriteArguments, confirmation::ConfirmArguments},
};

#[derive(Debug, Subcommand)]
pub enum LabelsCommand {
    /// Set exactly these labels on Nodes, but keep labels in Kubernetes' own domains unless you name them
    Set(SetArguments),
}

#[derive(Debug, Args)]
#[command(
    after_help = "`set` removes each label that you do not name, unless its key is in the domain kubernetes.io, \
        k8s.io or x-k8s.io, or Cluster API copied it from a Machine. To remove a label in these domains, write KEY-. \
        --dry-run shows what would change.

Examples:
  kubectl kcp node labels set worker-1 rack=r1 pool=batch --yes
  kubectl kcp node labels set worker-1 rack=r1 node-role.kubernetes.io/gateway- --yes
  kubectl kcp node labels set -l rack=r1 rack=r1 pool=batch --dry-run=server"
)]
pub struct SetArguments {
    #[command(flatten)]
    pub request: RequestArguments,

    #[command(flatten)]
    pub write: WriteArguments,

    #[command(flatten)]
    pub confirm: ConfirmArguments,
}

#[derive(Debug, Args)]
pub struct RequestArguments {
    /// Nodes, as NAME or node/NAME, and labels, as KEY=VALUE, or KEY- to remove one
    #[arg(value_name = "NODE|KEY=VALUE|KEY-", value_parser = parse_word)]
    pub words: Vec<Word>,

    /// Change the Nodes that match this label selector
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
}

/// A word of the command line: a Node or a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Node(String),
    /// The key and the value. No value removes the label.
    Label(String, Option<String>),
}

/// Which Nodes a command is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selection {
    Named(Vec<String>),
    Matching(String),
}

impl RequestArguments {
    /// The Nodes and the labels that the user names. Fails if no Node is given, or a key is given twice.
    pub(super) fn parse(&self) -> anyhow::Result<(Selection, LabelEdit)> {
        let mut names: Vec<String> = Vec::new();
        let mut labels = LabelEdit::new();
        for word in &self.words {
            match word {
                Word::Node(name) if names.contains(name) => {}
                Word::Node(name) => names.push(name.clone()),
                Word::Label(key, value) => {
                    if labels.insert(key.clone(), value.clone()).is_some() {
                        bail!("label {key} is given twice");
                    }
                }
            }
        }
        let selection = match (&self.selector, names.is_empty()) {
            (Some(selector), true) => Selection::Matching(selector.clone()),
            (Some(_), false) => bail!("specify Nodes or a selector (-l), not both"),
            (None, false) => Selection::Named(names),
            (None, true) => bail!("no Node given: specify a Node, or use a selector (-l)"),
        };
        Ok((selection, labels))
    }
}

/// Parses a word. As in `kubectl label`, a word with `=` or with `-` at its end is a label; no Node name looks like that.
fn parse_word(text: &str) -> Result<Word, String> {
    if text.contains('=') {
        return parse_label(text).map(|(key, value)| Word::Label(key, Some(value)));
    }
    let Some(key) = text.strip_suffix('-') else {
        return parse_node(text).map(Word::Node);
    };
    match key_fault(key) {
        Some(fault) => Err(fault.to_owned()),
        None => Ok(Word::Label(key.to_owned(), None)),
    }
}

#[cfg(test)]
mod tests {
    use kcp_control_plane::verbs::node::labels::LabelEdit;

    use super::{RequestArguments, Selection, Word, parse_word};

    #[test]
    fn a_word_is_a_node_or_a_label() {
        let label = |key: &str, value: Option<&str>| Word::Label(key.to_owned(), value.map(str::to_owned));
        for (text, expected) in [
            ("worker-1", Word::Node("worker-1".to_owned())),
            ("node/worker-1", Word::Node("worker-1".to_owned())),
            ("rack=r1", label("rack", Some("r1"))),
            ("example.com/rack=", label("example.com/rack", Some(""))),
            ("example.com/rack-", label("example.com/rack", None)),
            ("a-=b-c", label("a-", Some("b-c"))),
        ] {
            match parse_word(text) {
                Ok(word) => assert_eq!(word, expected, "{text}"),
                // A key cannot end with a hyphen.
                Err(_) => assert_eq!(text, "a-=b-c"),
            }
        }
        for text in [
            "",
            "-",
            "=a",
            "pod/a",
            "A",
            "rack=a b",
            "rack=$(id)",
            "rack=a\n",
            "rack='",
            "; rm -",
            "a=b=c",
            "a,b-",
        ] {
            assert!(parse_word(text).is_err(), "{text:?}");
        }
    }

    fn parse(words: &[&str], selector: Option<&str>) -> Result<(Selection, LabelEdit), String> {
        let words = words.iter().map(|word| parse_word(word).unwrap());
        let request = RequestArguments {
            words: words.collect(),
            selector: selector.map(str::to_owned),
        };
        request.parse().map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_and_labels_are_told_apart() {
        let (selection, edit) = parse(&["b", "rack=r1", "a", "b", "old-"], None).unwrap();
        assert_eq!(selection, Selection::Named(vec!["b".to_owned(), "a".to_owned()]));
        let labels = [("rack", Some("r1")), ("old", None)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
        assert_eq!(edit, labels.into());
        let (selection, _) = parse(&[], Some("a=b")).unwrap();
        assert_eq!(selection, Selection::Matching("a=b".to_owned()));
    }

    #[test]
    fn an_incomplete_request_is_an_error() {
        for (words, selector, expected) in [
            (
                &["rack=r1"][..],
                None,
                "no Node given: specify a Node, or use a selector (-l)",
            ),
            (&["a"], Some("b=c"), "specify Nodes or a selector (-l), not both"),
            (&["a", "b=c", "b-"], None, "label b is given twice"),
        ] {
            assert_eq!(parse(words, selector).unwrap_err(), expected);
        }
    }
}
