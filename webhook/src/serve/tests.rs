use std::{io, net::Ipv4Addr, path::Path};

use super::*;
use crate::{
    arguments::{IssueArguments, LogFormat},
    certs,
};

/// Arguments of a server that stops at once.
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
        tls_reload_interval: Duration::from_secs(10),
        kubeconfig: None,
        configuration: None,
        shutdown_delay: Duration::ZERO,
        drain_timeout: Duration::from_secs(20),
        log_format: LogFormat::Text,
        log_level: "off".parse().unwrap(),
    }
}

#[tokio::test]
async fn ends_when_a_task_of_it_panics_and_serves_while_all_run() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = arguments(folder.path());
    let mut server = Server::bind(&arguments, Limits::default()).await.unwrap();
    let (_stop, stopped) = Stop::channel();
    server
        .tasks
        .spawn("doomed", async { panic!("as the test wants it") });
    let ended = time::timeout(Duration::from_secs(20), server.run(stopped)).await;
    assert_eq!(ended.unwrap(), Ended::Failed);

    let server = Server::bind(&arguments, Limits::default()).await.unwrap();
    let (_stop, stopped) = Stop::channel();
    let address = server.health_address().unwrap();
    let running = tokio::spawn(server.run(stopped));
    // Once a probe is answered, every task has had its turn.
    let mut probe = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut probe, request)
        .await
        .unwrap();
    let answer = tokio::io::AsyncReadExt::read_u8(&mut probe);
    assert_eq!(
        time::timeout(Duration::from_secs(20), answer)
            .await
            .unwrap()
            .unwrap(),
        b'H'
    );
    assert!(!running.is_finished());
}
