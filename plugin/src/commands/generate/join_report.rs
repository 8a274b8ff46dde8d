//! `kubectl kcp generate join-report`: prints the fields with which a new control plane Machine reports why kubeadm has failed on its
//! host, and the objects that permit this in the workload cluster.

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use kcp_control_plane::snapshot::workload::JoinReport;
use kcp_rules::anchor::text;
use serde_json::{Value, json};

use crate::{arguments::parse_timeout, session::Session, verdict::Verdict};

/// The script on the host. It is not below `/run` or `/tmp`, where a host may not execute files.
const SCRIPT: &str = include_str!("join-report.sh");
const PATH: &str = "/etc/kubernetes/kcp-join-report.sh";

/// The group of the bootstrap tokens that Cluster API creates (`createToken` in bootstrap/kubeadm/reconcilers/kubeadmconfig).
const JOINING_HOSTS: &str = "system:bootstrappers:kubeadm:default-node-token";

#[derive(Debug, Args)]
#[command(
    after_help = "Apply the objects to the workload cluster first. Then append the items of both lists to the lists of the \
        KubeadmControlPlane; this replaces all its Machines. If the KubeadmControlPlane has neither list, the fields are a merge \
        patch. The fields are the same in v1beta1 and v1beta2.

A host whose kubeadm fails creates an Event in namespace kcp-join-reports of the workload cluster, with the phase, the cause and a few \
lines of logs. 'why', 'status' and 'machine diagnose' show the Event. If the host cannot create an Event, it writes one line to its \
console. The price: anyone with a bootstrap token can create Events in this namespace. So 'why' names the host as the source.

Examples:
  kubectl kcp generate join-report
  kubectl kcp generate join-report --part control-plane --slow-after 5m"
)]
pub struct JoinReportArguments {
    /// Print only this part
    #[arg(long, value_name = "PART", value_enum)]
    pub part: Option<Part>,

    /// After this time, also report a kubeadm that still runs, if a cause is found
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout, default_value = "2m")]
    pub slow_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The fields of the KubeadmControlPlane
    ControlPlane,
    /// The objects of the workload cluster
    WorkloadCluster,
}

pub(super) fn run(arguments: &JoinReportArguments, session: &Session) -> anyhow::Result<Verdict> {
    let printed = parts(arguments);
    session
        .terminal
        .print(&printed)
        .context("cannot write to stdout")?;
    Ok(Verdict::Met)
}

fn parts(arguments: &JoinReportArguments) -> String {
    let control_plane = || {
        let fields = kubeadm_config(arguments.slow_after);
        "# Add these fields to the KubeadmControlPlane; append their list items to its lists. This replaces all its Machines.\n"
            .to_owned()
            + &text(&json!({"spec": {"kubeadmConfigSpec": fields}}))
    };
    let workload_cluster = || {
        let objects: Vec<String> = workload_objects().iter().map(text).collect();
        "# Apply these objects to the workload cluster. Anyone with a bootstrap token can then create Events in this namespace.\n"
            .to_owned()
            + &objects.join("---\n")
    };
    match arguments.part {
        Some(Part::ControlPlane) => control_plane(),
        Some(Part::WorkloadCluster) => workload_cluster(),
        None => format!("{}---\n{}", control_plane(), workload_cluster()),
    }
}

/// Ignition runs kubeadm in a unit that ends with its shell, so the script runs in a unit of its own. With Ignition, a command that
/// fails ends the shell before kubeadm, so this one never fails.
fn kubeadm_config(slow_after: Duration) -> Value {
    let seconds = slow_after.as_secs();
    json!({
        "files": [{"path": PATH, "owner": "root:root", "permissions": "0600", "content": SCRIPT}],
        "preKubeadmCommands": [format!(
            "systemd-run --unit=kcp-join-report --collect --property=RuntimeMaxSec=2h /bin/sh {PATH} $$ {seconds} || true"
        )],
    })
}

fn workload_objects() -> [Value; 3] {
    let name = JoinReport::NAMESPACE;
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({
            "apiVersion": version,
            "kind": "Role",
            "metadata": {"name": name, "namespace": name},
            "rules": [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}],
        }),
        json!({
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": JOINING_HOSTS}],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(part: Option<Part>) -> String {
        parts(&JoinReportArguments {
            part,
            slow_after: Duration::from_secs(120),
        })
    }

    #[test]
    fn the_objects_of_the_workload_cluster_permit_no_more_than_events() {
        insta::assert_snapshot!(printed(Some(Part::WorkloadCluster)));
    }

    #[test]
    fn the_fields_of_the_control_plane_are_the_script_and_its_start() {
        let both = printed(None);
        let fields = printed(Some(Part::ControlPlane));
        assert_eq!(
            both,
            format!("{fields}---\n{}", printed(Some(Part::WorkloadCluster)))
        );
        let short = kubeadm_config(Duration::from_secs(90))["preKubeadmCommands"].clone();
        assert_eq!(
            short,
            json!([
                "systemd-run --unit=kcp-join-report --collect --property=RuntimeMaxSec=2h /bin/sh \
                 /etc/kubernetes/kcp-join-report.sh $$ 90 || true"
            ])
        );
        let parsed: Value = serde_saphyr::from_str(&fields).unwrap();
        let content = parsed.pointer("/spec/kubeadmConfigSpec/files/0/content");
        assert_eq!(content, Some(&json!(SCRIPT)));
    }

    #[test]
    fn the_script_is_no_template_of_cloud_init_and_names_what_is_read() {
        for begin in ["{{", "{%", "{#"] {
            assert!(!SCRIPT.contains(begin), "the script contains {begin}");
        }
        for name in [
            JoinReport::NAMESPACE,
            JoinReport::CONTROLLER,
            JoinReport::FAILED,
            JoinReport::ADDRESSES,
        ] {
            assert!(SCRIPT.contains(name), "the script does not contain {name}");
        }
    }

    /// What the script reports about logs, of which kubeadm has written `log`.
    fn reported(log: &str) -> String {
        let (functions, _) = SCRIPT.split_once("\nbegan=").unwrap();
        let others = "journalctl() { :; }\ndf() { :; }\nclock() { :; }\nls() { :; }\n";
        let script = format!(
            "{functions}\n{others}kubeadm_log() {{ printf '%s\\n' \"$KUBEADM_LOG\"; }}\ndescribe KubeadmFailed\n"
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &script, "join-report.sh", "1", "120"])
            .env("KUBEADM_LOG", log)
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_report_has_the_phase_the_cause_and_only_lines_without_secrets() {
        let failed =
            |phase: &str, error: &str| format!("W1130 noise\nerror execution phase {phase}: {error}");
        for (log, expected) in [
            (
                failed(
                    "preflight",
                    "[preflight] Some fatal errors occurred:\n\t[ERROR ImagePull]: failed to pull image x:v1",
                ),
                "kubeadm has failed in its phase preflight: an image cannot be pulled:\n[ERROR ImagePull]: failed to pull image x:v1\n",
            ),
            // The cause is named, but no word of the line.
            (
                failed(
                    "preflight",
                    "could not find a JWS signature for token ID \"abcdef\"",
                ),
                "kubeadm has failed in its phase preflight: the bootstrap token has expired, or the cluster does not know it\n",
            ),
            (
                failed(
                    "preflight",
                    "x509: certificate has expired or is not yet valid: current time 2026-01-01T00:00:00Z is before \
                     2040-01-01T00:00:00Z",
                ),
                "kubeadm has failed in its phase preflight: a certificate is not valid at the time of the host's clock:\n\
                 current time 2026-01-01T00:00:00Z is before 2040-01-01T00:00:00Z\n",
            ),
            (
                format!(
                    "unknown flag: --a\nunknown flag: --a\nunknown flag: --b abcdef.0123456789abcdef {}\u{1b}[2J\nunknown flag: \
                     --service-account-key-file\nunknown flag: --x password=1\n",
                    "Q".repeat(50)
                ),
                "kubeadm has failed: a program on the host does not know one of its flags:\nunknown flag: --b ... ... [2J\nunknown flag: --a\n",
            ),
            // As klog quotes an error: the shell must not interpret it.
            (
                r#"err="failed to pull https://x/y?sig=ab%2Bcd\tb\nPASSWORD=\nsecret""#.to_owned(),
                "kubeadm has failed: an image cannot be pulled\n",
            ),
            (
                r#"err="failed to pull https://x/y?sig=ab%2Bcd\n\c and more""#.to_owned(),
                "kubeadm has failed: an image cannot be pulled:\nerr=\"failed to pull https://x/y?... and more\"\n",
            ),
            // Without an endpoint: kubeadm init.
            (
                "dial tcp 10.0.0.1:6443: connect: connection refused".to_owned(),
                "kubeadm has failed: no line of its log has a known cause\n",
            ),
            (
                "unrelated\npassword: unrelated".to_owned(),
                "kubeadm has failed: no line of its log has a known cause\n",
            ),
        ] {
            assert_eq!(reported(&log), expected, "{log}");
        }
    }
}
