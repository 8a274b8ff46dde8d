//! The server's configuration file.

use std::path::Path;

use kcp_rules::topics;
use kcp_webhook::configuration::{Parsed, parse};

/// What is accepted names rules that there are, and is the same configuration when it is written and read again.
pub(crate) fn holds(content: &[u8]) {
    let path = Path::new("configuration.yaml");
    match parse(path, content) {
        Ok(Parsed {
            configuration,
            unknown_rules,
        }) => {
            assert!(configuration.rule_ids().all(|id| topics::is_rule(id)));
            assert!(!unknown_rules.iter().any(|id| topics::is_rule(id)));
            let written = serde_json::to_vec(&configuration).unwrap();
            let again = parse(path, &written).unwrap();
            assert_eq!(again.configuration, configuration);
            assert!(again.unknown_rules.is_empty());
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("configuration.yaml: "), "{message}");
        }
    }
}
