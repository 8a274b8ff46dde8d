use std::{io, net::Ipv4Addr, path::Path};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;
use crate::{
    arguments::{IssueArguments, LogArguments, LogFormat},
    manager::certs,
};

const DEADLINE: Duration = Duration::from_secs(20);

/// Arguments of a server without a shutdown delay.
fn arguments(folder: &Path) -> ServeArguments {
    let issue = IssueArguments {
        dir: folder.to_owned(),
        dns_names: vec!["localhost".to_owned()],
        ips: Vec::new(),
        days: 1,
        force: false,
    };
    certs::issue(&issue, &mut io::sink()).unwrap();
    ServeArguments {
        bind_address: Ipv4Addr::LOCALHOST.into(),
        secure_port: 0,
        health_port: 0,
        tls_cert_file: folder.join("tls.crt"),
        tls_private_key_file: folder.join("tls.key"),
        client_ca_file: None,
        client_allowed_names: Vec::new(),
        tls_reload_interval: Duration::from_secs(10),
        kubeconfig: None,
        configuration: None,
        shutdown_delay: Duration::ZERO,
        drain_timeout: DEADLINE,
        log: LogArguments {
            log_format: LogFormat::Text,
            log_level: "off".parse().unwrap(),
        },
    }
}

#[tokio::test]
async fn stops_when_a_background_task_panics() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::bind(&arguments(folder.path()), Limits::default())
        .await
        .unwrap();
    let (_stop, stopped) = Stop::channel();
    server
        .tasks
        .spawn("panics", async { panic!("a panic for the test") });
    let ended = time::timeout(DEADLINE, server.run(stopped)).await;
    assert_eq!(ended.unwrap(), StopReason::Failed);
}

#[tokio::test]
async fn stays_ready_while_all_background_tasks_run() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ServeArguments {
        shutdown_delay: DEADLINE,
        ..arguments(folder.path())
    };
    let server = Server::bind(&arguments, Limits::default()).await.unwrap();
    let (_stop, stopped) = Stop::channel();
    let address = server.health_address().unwrap();
    let _running = tokio::spawn(server.run(stopped));
    // When the probe is answered, every task has run at least once.
    let mut probe = TcpStream::connect(address).await.unwrap();
    probe
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 12];
    let read = time::timeout(DEADLINE, probe.read_exact(&mut answer)).await;
    read.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}
