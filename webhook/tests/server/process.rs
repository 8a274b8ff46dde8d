//! The binary: arguments, signals, exit codes.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, Output, Stdio},
};

use crate::running::Certificates;

fn webhook() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kcp-webhook"));
    // Without this, a pod that runs these tests would use its own service account.
    command.env_remove("KUBERNETES_SERVICE_HOST");
    command
}

pub(crate) fn serve(certificates: &Certificates, port: u16) -> Command {
    let mut command = webhook();
    command
        .args(["serve", "--bind-address=127.0.0.1", "--health-port=0"])
        .arg(format!("--secure-port={port}"))
        .arg("--tls-cert-file")
        .arg(certificates.path("tls.crt"))
        .arg("--tls-private-key-file")
        .arg(certificates.path("tls.key"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must fail with exit code 2. Returns its stderr.
fn fails(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    assert_eq!(status.code(), Some(2), "{}", text(&stderr));
    assert_eq!(text(&stdout), "");
    text(&stderr)
}

/// A running server. Dropping it kills the process.
pub(crate) struct Serving {
    child: Child,
    log: BufReader<ChildStderr>,
    started: String,
}

impl Serving {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut serving = Self {
            child,
            log,
            started: String::new(),
        };
        serving.started = serving.until("serving");
        serving
    }

    /// The log line with the server's addresses.
    pub(crate) fn started(&self) -> &str {
        &self.started
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next log line that contains `text`.
    fn until(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(
                self.log.read_line(&mut line).unwrap(),
                0,
                "{text:?} is not in the log"
            );
        }
        line
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    fn exit_code(mut self) -> Option<i32> {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // In a passing test, the process has exited already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn both_signals_end_it_with_exit_code_0() {
    for signal in ["TERM", "INT"] {
        let certificates = Certificates::new();
        let mut serving = Serving::start(serve(&certificates, 0).arg("--shutdown-delay=0s"));
        serving.signal(signal);
        serving.until(&format!("reason=\"SIG{signal}\""));
        assert_eq!(serving.exit_code(), Some(0), "{signal}");
    }
}

#[test]
fn a_second_signal_ends_it_with_exit_code_1() {
    let certificates = Certificates::new();
    let mut serving = Serving::start(serve(&certificates, 0).arg("--shutdown-delay=1h"));
    serving.signal("TERM");
    serving.until("no longer ready");
    serving.signal("TERM");
    assert_eq!(serving.exit_code(), Some(1));
}

#[test]
fn logs_at_start_which_rules_it_cannot_evaluate() {
    let certificates = Certificates::new();
    let mut serving = Serving::start(&mut serve(&certificates, 0));
    let line = serving.until("no API access");
    assert!(line.contains("kubeadmcontrolplanes/scale"), "{line}");
    assert!(line.contains("\"replicas-even\""), "{line}");
    assert!(!line.contains("\"inventory-empty\""), "{line}");
}

#[test]
fn logs_json_objects() {
    let certificates = Certificates::new();
    let mut serving = Serving::start(serve(&certificates, 0).arg("--log-format=json"));
    let line = serving.until("no API access");
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["level"], "WARN");
    assert_eq!(event["target"], "kcp_webhook::serve");
}

#[test]
fn fails_with_exit_code_2_and_one_line() {
    let certificates = Certificates::new();
    let missing = certificates.path("missing");
    assert_eq!(
        fails(serve(&certificates, 0).arg("--kubeconfig").arg(&missing)),
        format!(
            "error: cannot use the kubeconfig {}: failed to read kubeconfig from '{missing:?}': No such file or \
             directory (os error 2)\n",
            missing.display()
        )
    );
    fs::remove_file(certificates.path("tls.key")).unwrap();
    assert_eq!(
        fails(&mut serve(&certificates, 0)),
        format!(
            "error: cannot read {}: No such file or directory (os error 2)\n",
            certificates.path("tls.key").display()
        )
    );
}

#[test]
fn fails_when_the_port_is_in_use() {
    let certificates = Certificates::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(
        fails(&mut serve(&certificates, port)),
        format!("error: cannot listen on 127.0.0.1, port {port}: Address already in use (os error 98)\n")
    );
}

#[test]
fn issues_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let issue = || {
        let mut command = webhook();
        command
            .args([
                "certs",
                "issue",
                "--dns-name=localhost",
                "--ip=127.0.0.1",
                "--dir",
            ])
            .arg(dir.path());
        command
    };
    let Output { status, stdout, .. } = issue().output().unwrap();
    assert_eq!(status.code(), Some(0));
    let path = dir.path().display();
    assert_eq!(
        text(&stdout),
        format!("{path}/ca.crt\n{path}/tls.crt\n{path}/tls.key\n")
    );
    assert_eq!(
        fails(&mut issue()),
        format!("error: {path}/ca.crt already exists; use --force to overwrite it\n")
    );
}
