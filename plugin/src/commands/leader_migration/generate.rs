//! `leader-migration generate`.

use anyhow::Context as _;
use kcp_rules::leader_migration::generate::{self as model, Request};
use serde_json::Value;

use crate::{
    commands::leader_migration::{arguments::GenerateArguments, input},
    printer::yaml,
    session::Session,
    verdict::Verdict,
};

/// Runs `leader-migration generate`.
///
/// # Errors
/// There is nothing to migrate, the file cannot be read, or the result cannot be printed.
pub(super) fn run(arguments: &GenerateArguments, session: &Session) -> anyhow::Result<Verdict> {
    let file = arguments.file.as_deref();
    let control_plane = file.map(input::control_plane).transpose()?;
    let text = generated(arguments, control_plane.as_ref())?;
    session.terminal.print(&text).context("cannot write to stdout")?;
    Ok(Verdict::Met)
}

/// A merge patch replaces whole lists.
const LISTS_REPLACED: &str = "\
# The patch replaces all extraArgs, extraVolumes and files of the control plane. To keep them, run this command with its
# manifest: kubectl get kubeadmcontrolplane NAME -o yaml > control-plane.yaml, then add -f control-plane.yaml
";

fn generated(arguments: &GenerateArguments, control_plane: Option<&Value>) -> anyhow::Result<String> {
    let configuration = model::configuration(&Request {
        from: arguments.from,
        to: arguments.to,
        node_ipam: arguments.node_ipam,
        leader_name: arguments.leader_name.clone(),
    })?;
    let patch = yaml(&model::patch(
        control_plane.unwrap_or(&Value::Null),
        &configuration,
    ))?;
    let warning = if control_plane.is_none() {
        LISTS_REPLACED
    } else {
        ""
    };
    Ok(format!(
        "# The configuration of kube-controller-manager 1.{} and cloud-controller-manager 1.{}.\n{configuration}---\n\
         # Save this as patch.yaml. Before the upgrade, install the configuration on the control plane:\n\
         #   kubectl patch kubeadmcontrolplane NAME --type merge --patch-file patch.yaml\n\
         # In the write that sets the new version, remove both flags again, and disable the migrated controllers.\n{warning}{patch}",
        arguments.from, arguments.to
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_and_the_patch_are_written() {
        let arguments = GenerateArguments {
            from: 35,
            to: 36,
            node_ipam: true,
            leader_name: "ipam-migration".to_owned(),
            file: None,
        };
        insta::assert_snapshot!(generated(&arguments, None).unwrap());
    }

    #[test]
    fn a_refusal_says_why() {
        let arguments = GenerateArguments {
            from: 34,
            to: 35,
            node_ipam: false,
            leader_name: "m".to_owned(),
            file: None,
        };
        assert_eq!(
            generated(&arguments, None).unwrap_err().to_string(),
            "nothing to migrate: kube-controller-manager 1.34 runs no cloud controller; --node-ipam migrates Node IPAM"
        );
    }
}
