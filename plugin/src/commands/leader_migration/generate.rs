//! Runs `kubectl kcp leader-migration generate`.

use anyhow::Context as _;
use kcp_rules::leader_migration::{
    generate::{self as model, Request},
    steps,
};
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
    let control_plane = file.map(input::read_control_plane).transpose()?;
    let text = generated(arguments, control_plane.as_ref())?;
    session.terminal.print(&text).context("cannot write to stdout")?;
    Ok(Verdict::Met)
}

fn generated(arguments: &GenerateArguments, control_plane: Option<&Value>) -> anyhow::Result<String> {
    let configuration = model::configuration(&Request {
        from: arguments.from,
        to: arguments.to,
        migrates_node_ipam: arguments.node_ipam,
        leader_name: arguments.leader_name.clone(),
    })?;
    let title = format!(
        "# The configuration of kube-controller-manager 1.{} and cloud-controller-manager 1.{}.\n",
        arguments.from, arguments.to
    );
    // The patch needs the control plane, because a merge patch replaces whole lists and must repeat their items.
    let Some(control_plane) = control_plane else {
        return Ok(format!(
            "{title}# To also get the patch that installs it, save the control plane in a file, and pass the file \
             with --filename:\n\
             #   kubectl get kubeadmcontrolplane NAME -o yaml > control-plane.yaml\n{configuration}"
        ));
    };
    let patch = yaml(&steps::start(&configuration).patch(control_plane))?;
    Ok(format!(
        "{title}{configuration}---\n\
         # Save this as patch.yaml. Before the upgrade, install the configuration on the control plane:\n\
         #   kubectl patch kubeadmcontrolplane NAME --type merge --patch-file patch.yaml\n\
         # In the update that changes spec.version, remove --enable-leader-migration and\n\
         # --leader-migration-config, and disable the migrated controllers.\n{patch}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let control_plane = json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "spec": {"kubeadmConfigSpec": {"files": [{"path": "/etc/kubernetes/manifests/vip.yaml", "content": "vip"}]}},
        });
        insta::assert_snapshot!(generated(&arguments, Some(&control_plane)).unwrap());
        let alone = generated(&arguments, None).unwrap();
        assert!(
            !alone.contains("patch.yaml") && alone.contains("leaderName: ipam-migration"),
            "{alone}"
        );
        let old = json!({"apiVersion": "controlplane.cluster.x-k8s.io/v1beta1"});
        let flags_of_map = "extraArgs:\n          enable-leader-migration: \"true\"";
        let patch = generated(&arguments, Some(&old)).unwrap();
        assert!(patch.contains(flags_of_map), "{patch}");
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
            "nothing to migrate, because kube-controller-manager 1.34 runs no cloud controllers; to migrate Node \
             IPAM, use --node-ipam"
        );
    }
}
