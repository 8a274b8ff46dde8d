//! The most memory that clients can make the server use, measured on the binary.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
};

use kcp_rules::case::Base;
use serde_json::json;

use crate::{
    client::{Answer, connect_from},
    process::{Serving, serve},
    running::Certificates,
};

/// The memory limit of `manifests/base/deployment.yaml`, in bytes.
const LIMIT: usize = 256 * MIB;

const MIB: usize = 1024 * 1024;

/// The connection limit of the server.
const CONNECTIONS: usize = 512;

/// The number of bodies of the largest size that fit into the limit for all bodies.
const BODIES: usize = 8;

/// The peak memory of a process, in bytes (proc(5), `VmHWM`).
fn peak(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

/// The number of files in a review at the value limit: each file has two values, and a problem that rules report.
const FILES: usize = 49_000 / 2;

/// A review that takes a lot of memory: a decoded value takes many times the bytes of its text.
fn costly_review() -> String {
    let mut object = Base::ControlPlane("v1beta2").object();
    object["spec"]["kubeadmConfigSpec"]["files"] = json!(vec![json!({}); FILES]);
    let resource = json!({
        "group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "resource": "kubeadmcontrolplanes"
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "7", "resource": resource, "operation": "CREATE", "object": object}
    });
    review.to_string()
}

#[tokio::test]
async fn clients_at_their_limits_stay_below_the_memory_limit() {
    let certificates = Certificates::new();
    let mut command = serve(&certificates, 0);
    let serving = Serving::start(command.arg("--log-format=json"));
    let event: serde_json::Value = serde_json::from_str(serving.started()).unwrap();
    let address: SocketAddr = event["secure"].as_str().unwrap().parse().unwrap();
    let idle = peak(serving.id());

    let ca = certificates.path("ca.crt");
    let mut connections = Vec::new();
    for number in 0..CONNECTIONS {
        // One address gets fewer connections than all together.
        let from = Ipv4Addr::new(127, 0, 0, if number < CONNECTIONS / 2 { 1 } else { 2 });
        let mut connection = connect_from(from, address, &ca).await.unwrap();
        // A connection without a complete review would be evicted for others.
        assert_eq!(connection.review().await, Answer::allowed(false));
        if number < BODIES {
            connection.send_head("/validate", 7 * MIB).await;
            connection.send(&" ".repeat(7 * MIB - 1)).await;
        } else {
            connection
                .send(&format!(
                    "POST /validate HTTP/1.1\r\nX: {}",
                    "x".repeat(60 * 1024)
                ))
                .await;
        }
        connections.push(connection);
    }
    let full = peak(serving.id());
    assert!(
        full > BODIES * 7 * MIB,
        "the server did not buffer the bodies: {full}"
    );
    // One for each thread that answers reviews.
    connections.truncate(CONNECTIONS - 2);
    let review = costly_review();
    let costly = async || {
        let mut connection = connect_from(Ipv4Addr::LOCALHOST, address, &ca).await.unwrap();
        connection.send_head("/validate", review.len()).await;
        connection.send(&review).await;
        let answer = connection.answer().await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        assert!(answer.body.contains("more warnings"), "{:.300}", answer.body);
    };
    tokio::join!(costly(), costly());
    let reviewed = peak(serving.id());
    println!("idle {idle}, with all bodies {full}, during the review {reviewed} bytes");
    assert!(reviewed < LIMIT, "{reviewed}");
}
