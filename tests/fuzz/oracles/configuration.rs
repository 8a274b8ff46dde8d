//! The server's configuration file.

use std::path::Path;

use kcp_rules::topics;
use kcp_webhook::configuration::parse;

/// What is accepted names rules that there are, and is the same configuration when it is written and read again.
pub(crate) fn holds(content: &[u8]) {
    let path = Path::new("configuration.yaml");
    match parse(path, content) {
        Ok(configuration) => {
            assert!(configuration.rules.keys().all(|id| topics::is_rule(id)));
            let written = serde_json::to_vec(&configuration).unwrap();
            assert_eq!(parse(path, &written).unwrap(), configuration);
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("configuration.yaml: "), "{said}");
        }
    }
}
