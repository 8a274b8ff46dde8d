//! The most memory that clients can make the server use, measured on the binary.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use kcp_rules::testing::case::Base;
use serde_json::{Value, json};

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

/// The number of bodies of the largest size that clients send, more than fit into the share of an address.
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
    let mut review = review(&object);
    review["request"]["userInfo"] = json!({"groups": vec!["a"; 15_000]});
    review.to_string()
}

fn review(object: &Value) -> Value {
    let resource = json!({
        "group": "controlplane.cluster.x-k8s.io", "version": "v1beta2", "resource": "kubeadmcontrolplanes"
    });
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "7", "resource": resource, "operation": "CREATE", "object": object}
    })
}

fn start(certificates: &Certificates) -> (Serving, SocketAddr) {
    let serving = Serving::start(serve(certificates, 0).arg("--log-format=json"));
    let event: Value = serde_json::from_str(serving.started()).unwrap();
    (serving, event["secure"].as_str().unwrap().parse().unwrap())
}

/// A review whose response would quote a large key, because a label is not text.
fn review_with_large_key(bytes: usize) -> String {
    let mut object = Base::ControlPlane("v1beta2").object();
    object["spec"]["machineTemplate"]["metadata"]["labels"] = json!({"k".repeat(bytes): 3});
    review(&object).to_string()
}

/// The memory that clients need that send a large review and do not read the response.
const SLOW_READERS: usize = 28;
const SLOW_READERS_LIMIT: usize = 160 * MIB;

#[tokio::test]
async fn clients_that_do_not_read_take_little_memory() {
    let certificates = Certificates::new();
    let (serving, address) = start(&certificates);
    let ca = certificates.path("ca.crt");
    let review = review_with_large_key(4 * MIB);
    let mut unread = Vec::new();
    for _ in 0..SLOW_READERS {
        let mut connection = connect_from(Ipv4Addr::LOCALHOST, address, &ca).await.unwrap();
        connection.send_head("/validate", review.len()).await;
        connection.send(&review).await;
        unread.push(connection);
    }
    // The last response comes after the server has handled the others.
    let first = unread[SLOW_READERS - 1].answer().await;
    let peak = peak(serving.id());
    println!("{peak} bytes, and a response of {} bytes", first.body.len());
    assert!(peak < SLOW_READERS_LIMIT, "{peak}");
}

#[tokio::test]
async fn clients_at_their_limits_stay_below_the_memory_limit() {
    let certificates = Certificates::new();
    let (serving, address) = start(&certificates);
    let cgroup = Cgroup::with(serving.id());
    let idle = peak(serving.id());
    let ca = certificates.path("ca.crt");
    let connect = async |last| {
        let from = Ipv4Addr::new(127, 0, 0, last);
        connect_from(from, address, &ca).await.unwrap()
    };
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        let mut connection = connect(if number < CONNECTIONS / 2 { 1 } else { 2 }).await;
        assert_eq!(connection.review().await, Answer::allowed(false));
        open.push(connection);
    }
    let mut slow: Vec<_> = open.drain(..SLOW_READERS + BODIES).collect();
    let unread = review_with_large_key(MIB / 4);
    for connection in slow.drain(..SLOW_READERS) {
        let mut connection = connection;
        connection.send_head("/validate", unread.len()).await;
        connection.send(&unread).await;
        open.push(connection);
    }
    for connection in &mut slow {
        connection.send_head("/validate", 7 * MIB).await;
        // The server reads as many of these bodies as the share of the address has room for.
        connection.send(&" ".repeat(64 * 1024)).await;
    }
    let rest = " ".repeat(7 * MIB - 64 * 1024 - 1);
    for connection in &mut slow {
        _ = connection.try_send(&rest).await;
    }
    for connection in &mut open[..CONNECTIONS - BODIES - SLOW_READERS] {
        let head = "x".repeat(30 * 1024);
        connection
            .send(&format!("POST /validate HTTP/1.1\r\nX: {head}"))
            .await;
    }
    let full = peak(serving.id());
    assert!(
        full > idle + 4 * 7 * MIB,
        "the server did not read the bodies: {full}"
    );
    // One for each thread that handles reviews.
    let review = costly_review();
    let costly = async || {
        let mut connection = connect(3).await;
        connection.send_head("/validate", review.len()).await;
        connection.send(&review).await;
        connection.answer().await
    };
    // The server decodes them even if it then finds no memory free beside the bodies.
    let (first, second) = tokio::join!(costly(), costly());
    for answer in [first, second] {
        assert!([200, 503].contains(&answer.code), "{answer:?}");
    }
    drop((open, slow));
    let answer = costly().await;
    assert!(answer.body.contains("more warnings"), "{:.300}", answer.body);
    let reviewed = peak(serving.id());
    println!("idle {idle}, with all bodies {full}, during the review {reviewed} bytes");
    assert!(reviewed < LIMIT, "{reviewed}");
    match cgroup {
        // The cgroup has not counted what the process used before.
        Some(cgroup) => {
            let peak = cgroup.peak();
            println!("in the cgroup {peak} bytes");
            assert!(peak + idle < LIMIT, "{peak}");
        }
        None => println!("no cgroup with a memory controller: the memory of the kernel is not measured"),
    }
}

/// A cgroup whose memory limit is that of the container.
struct Cgroup {
    folder: PathBuf,
    /// The files with the peak: in version 1, the buffers of TCP connections have a counter of their own.
    peaks: &'static [&'static str],
}

impl Cgroup {
    /// Moves a process to a new cgroup. Returns `None` without a memory controller, or without permission.
    fn with(process: u32) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let find = |prefix| own.lines().find_map(|line| Some(line.split_once(prefix)?.1));
        let (parent, limits, peaks): (_, &[_], &'static [_]) = match find(":memory:/") {
            Some(path) => (
                Path::new("/sys/fs/cgroup/memory").join(path),
                &["memory.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"],
                &["memory.max_usage_in_bytes", "memory.kmem.tcp.max_usage_in_bytes"],
            ),
            None => (
                Path::new("/sys/fs/cgroup").join(find("0::/")?),
                &["memory.max"],
                &["memory.peak"],
            ),
        };
        let folder = parent.join(format!("kcp-webhook-{process}"));
        fs::create_dir(&folder).ok()?;
        let cgroup = Self { folder, peaks };
        for limit in limits {
            // Outside a hierarchy, a file of this name would only be a file.
            let limit = cgroup.folder.join(limit);
            limit.exists().then_some(())?;
            fs::write(limit, LIMIT.to_string()).ok()?;
        }
        fs::write(cgroup.folder.join("cgroup.procs"), process.to_string()).ok()?;
        Some(cgroup)
    }

    fn peak(&self) -> usize {
        let peak = |file| fs::read_to_string(self.folder.join(file)).unwrap();
        self.peaks
            .iter()
            .map(|file| peak(file).trim().parse::<usize>().unwrap())
            .sum()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        _ = fs::remove_dir(&self.folder);
    }
}
