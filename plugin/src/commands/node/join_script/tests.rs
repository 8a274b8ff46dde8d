//! The join script, in each format, and what bash makes of it.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Parser as _;
use kcp_client::{Token, bootstrap_token::BootstrapToken, reads::cluster_info::ClusterInfo};
use kcp_control_plane::verbs::node::join::UploadedCertificates;
use serde_json::{Value, json};

use super::{
    arguments::JoinScriptArguments,
    control_plane::ControlPlane,
    report::{JoinScriptDocument, JoinScriptReport},
    script::JoinValues,
};
use crate::{
    command::{Arguments, Command as KcpCommand},
    commands::node::{NodeArguments, NodeCommand},
    output::{CommandFormat, Report},
    terminal::table::Layout,
    testing::{assert_every_format, schema},
};

const SECRET: &str = "0123456789abcdef";
const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn arguments(words: &str) -> JoinScriptArguments {
    let words = ["kubectl-kcp", "node", "join-script"]
        .into_iter()
        .chain(words.split_whitespace());
    match Arguments::try_parse_from(words).unwrap().command {
        KcpCommand::Node(NodeArguments {
            command: NodeCommand::JoinScript(arguments),
        }) => arguments,
        other => panic!("{other:?}"),
    }
}

fn cluster() -> ClusterInfo {
    ClusterInfo {
        endpoint: "10.0.0.1:6443".to_owned(),
        ca: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
        ca_hashes: vec!["sha256:b7e4".to_owned()],
        signed_ids: Vec::new(),
    }
}

fn written(words: &str, version: &str, format: CommandFormat) -> String {
    let arguments = arguments(words);
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok())
        .unwrap();
    let key = arguments.control_plane.then(|| Token::from(KEY.to_owned()));
    let control_plane = arguments.control_plane.then(|| ControlPlane {
        etcd_folder: Some("/data/etcd".to_owned()),
        certificates: UploadedCertificates::Until(Some("2026-11-25T14:00:00Z".parse().unwrap())),
    });
    let api_servers = ["10.0.0.1:6443".parse().unwrap()].into();
    let values = JoinValues {
        arguments: &arguments,
        cluster: &cluster(),
        version,
        minor,
        token: &BootstrapToken::known("abc123", SECRET),
        expires: "2026-11-25T13:30:00Z",
        certificate_key: key.as_ref(),
        control_plane: control_plane.as_ref(),
        api_servers: arguments.api_proxy.then_some(&api_servers),
    };
    values.write(format).unwrap()
}

const ALL: &str = "--hostname worker-7 --labels rack=r1,pool=batch --taints dedicated=batch:NoSchedule,gpu:NoExecute \
    --cri-socket unix:///run/containerd/containerd.sock --ignore-preflight-errors Swap,SystemVerification \
    --ready-timeout 90s --api-proxy --proxy-port 8445 --install kubelet=https://example.com/k?a=1,sha256=\
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The value that bash reads for a variable of the script.
fn value(script: &str, name: &str) -> String {
    let until_values_end = script.split("readonly CLOCK").next().unwrap();
    let values = until_values_end.split("# Values.").nth(1).unwrap();
    let print = format!("#{values}\nprintf %s \"${name}\"");
    let output = Command::new("bash").arg("-c").arg(print).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn options_of_the_proxy_need_the_proxy_and_two_ports() {
    for option in [
        "--proxy-image a/b:1",
        "--proxy-port 8445",
        "--proxy-health-port 8446",
    ] {
        let words = ["kubectl-kcp", "node", "join-script"]
            .into_iter()
            .chain(option.split(' '));
        let error = Arguments::try_parse_from(words).unwrap_err().to_string();
        assert!(
            error.contains("required arguments were not provided:\n  --api-proxy"),
            "{error}"
        );
    }
    let same = arguments("--api-proxy --proxy-port 7446")
        .proxy
        .check()
        .unwrap_err();
    assert_eq!(
        same.to_string(),
        "--proxy-port and --proxy-health-port are both 7446; use two ports"
    );
    assert!(arguments("--api-proxy --proxy-port 8445").proxy.check().is_ok());
}

#[test]
fn the_script_contains_the_values() {
    let script = written(ALL, "1.36.3", CommandFormat::Script);
    for (name, expected) in [
        ("token_id", "abc123"),
        ("token_secret", SECRET),
        ("endpoint", "10.0.0.1:6443"),
        ("ca", &cluster().ca),
        ("expected_name", "worker-7"),
        ("cluster_version", "1.36.3"),
        ("is_control_plane", "no"),
        ("etcd_folder", ""),
        ("certificates_expire", ""),
        ("cri_socket", "unix:///run/containerd/containerd.sock"),
        ("ignored_errors", "Swap,SystemVerification"),
        (
            "downloads",
            "kubelet 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef https://example.com/k?a=1",
        ),
        ("proxy_port", "8445"),
        ("proxy_health_port", "7446"),
        ("ready_seconds", "90"),
    ] {
        assert_eq!(value(&script, name), expected, "{name}");
    }
    let configuration: Value = serde_json::from_str(&value(&script, "join_configuration")).unwrap();
    assert_eq!(
        configuration,
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "JoinConfiguration",
            "discovery": {"bootstrapToken": {
                "apiServerEndpoint": "10.0.0.1:6443",
                "token": format!("abc123.{SECRET}"),
                "caCertHashes": ["sha256:b7e4"],
            }},
            "nodeRegistration": {
                "criSocket": "unix:///run/containerd/containerd.sock",
                "ignorePreflightErrors": ["Swap", "SystemVerification"],
                "kubeletExtraArgs": [{"name": "node-labels", "value": "rack=r1,pool=batch,kubectl-kcp.dev/api-proxy="}],
                "taints": [
                    {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
                    {"key": "gpu", "value": "", "effect": "NoExecute"},
                ],
            },
            "timeouts": {"discovery": "1m0s"},
        })
    );
}

#[test]
fn an_older_cluster_gets_the_older_configuration() {
    let script = written("--labels rack=r1", "1.31.4", CommandFormat::Script);
    let configuration: Value = serde_json::from_str(&value(&script, "join_configuration")).unwrap();
    assert_eq!(configuration["apiVersion"], json!("kubeadm.k8s.io/v1beta3"));
    assert_eq!(configuration["discovery"]["timeout"], json!("1m0s"));
    assert_eq!(
        configuration["nodeRegistration"],
        json!({"kubeletExtraArgs": {"node-labels": "rack=r1"}})
    );
}

#[test]
fn a_member_of_the_control_plane_gets_the_certificate_key() {
    let script = written(
        "--control-plane --certificate-key-file key",
        "1.36.3",
        CommandFormat::Script,
    );
    assert_eq!(value(&script, "is_control_plane"), "yes");
    assert_eq!(value(&script, "etcd_folder"), "/data/etcd");
    assert_eq!(value(&script, "certificates_expire"), "2026-11-25T14:00:00Z");
    let configuration: Value = serde_json::from_str(&value(&script, "join_configuration")).unwrap();
    assert_eq!(configuration["controlPlane"], json!({ "certificateKey": KEY }));
}

/// Runs a checker on the script, and returns its output.
fn checked_by(program: &str, arguments: &[&str], script: &str) -> Option<String> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.ok()?;
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

#[test]
fn bash_and_shellcheck_find_no_fault() {
    for words in ["", ALL, "--control-plane --certificate-key-file key"] {
        let script = written(words, "1.36.3", CommandFormat::Script);
        assert!(!script.contains("@@\n"), "{script}");
        assert_eq!(checked_by("bash", &["-n"], &script).as_deref(), Some(""));
        // Not every machine has shellcheck.
        let faults = checked_by("shellcheck", &["-"], &script);
        assert_eq!(faults.unwrap_or_default(), "");
    }
}

#[test]
fn cloud_init_writes_and_runs_the_script() {
    let script = written(ALL, "1.36.3", CommandFormat::Script);
    let text = written(ALL, "1.36.3", CommandFormat::CloudInit);
    assert!(text.starts_with("#cloud-config\n"), "{text}");
    let data: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(data["hostname"], json!("worker-7"));
    let file = &data["write_files"][0];
    assert_eq!(
        (&file["permissions"], &file["encoding"]),
        (&json!("0700"), &json!("b64"))
    );
    let content = STANDARD.decode(file["content"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(content).unwrap(), script);
    assert_eq!(data["runcmd"][0], json!(["bash", file["path"]]));
}

#[test]
fn ignition_writes_and_runs_the_script() {
    let script = written(ALL, "1.36.3", CommandFormat::Script);
    let text = written(ALL, "1.36.3", CommandFormat::Ignition);
    // Not every machine has ignition-validate.
    let faults = checked_by("ignition-validate", &["-"], &text);
    assert_eq!(faults.unwrap_or_default(), "");
    let configuration: Value = serde_json::from_str(&text).unwrap();
    let [file, hostname] = configuration["storage"]["files"].as_array().unwrap().as_slice() else {
        panic!("{text}");
    };
    let content = |file: &Value| {
        let source = file["contents"]["source"].as_str().unwrap();
        let (_, data) = source.split_once("base64,").unwrap();
        String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
    };
    assert_eq!((content(file), &file["mode"]), (script, &json!(0o700)));
    assert_eq!(content(hostname), "worker-7\n");
    let unit = &configuration["systemd"]["units"][0];
    let runs = unit["contents"].as_str().unwrap().lines();
    let runs = runs.filter_map(|line| line.strip_prefix("ConditionPathExists="));
    let path = file["path"].as_str().unwrap();
    assert_eq!(runs.collect::<Vec<_>>(), [path]);
}

#[test]
fn a_summary_has_no_secret() {
    let arguments = arguments("--hostname worker-7 --output-file join.sh");
    let report = JoinScriptReport {
        arguments: &arguments,
        token_id: "abc123",
        expires: "2026-11-25T13:30:00Z",
        cluster: &cluster(),
        script: None,
    };
    assert_every_format(&report);
    assert_eq!(
        report.table(Layout::default()),
        "join script written to join.sh\n"
    );
    let document = serde_json::to_string_pretty(&report.document()).unwrap();
    assert!(!document.contains(SECRET));
    insta::assert_snapshot!(document);
    schema::checked_in::<JoinScriptDocument<'_>>("joinscript.json");
}

#[test]
fn secrets_are_not_in_debug_output() {
    let token = BootstrapToken::known("abc123", SECRET);
    let debug = format!("{token:?}{:?}", Token::from(KEY.to_owned()));
    assert!(!debug.contains(SECRET) && !debug.contains(KEY), "{debug}");
}
