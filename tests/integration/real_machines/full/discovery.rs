//! Local discovery of API servers on real machines: a worker that joined with `--api-proxy` works without the load balancer, its
//! proxy learns of new and lost API servers, and the cluster comes back after power failures, also with two of three control
//! plane machines.

use std::sync::Arc;
use std::{fs, path};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kcp_tests::machines::real::{
    Addons, HAPROXY, IGNORED_CHECK, Images, KubeadmCluster, Machine, Site, haproxy_image, webhook_image,
};
use kcp_tests::wait;

use crate::real_machines::full::{Clock, kubelet_uses_proxy, listed_servers, servers_of};
use crate::real_machines::on_machines;

/// The machines of the control plane. The worker joins last.
const CONTROL_PLANE: [&str; 3] = ["one", "two", "three"];
const ALL: [&str; 4] = ["one", "two", "three", "worker"];

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn a_cluster_comes_back_without_a_load_balancer() {
    on_machines("discovery", Images::ControlPlane, async |site| {
        let mut discovery = Discovery::install(site).await?;
        discovery.a_new_api_server_is_used().await?;
        discovery.the_load_balancer_ends().await?;
        discovery.power_failure(&ALL).await?;
        discovery.power_failure(&["two", "three", "worker"]).await
    });
}

struct Discovery {
    site: Arc<Site>,
    control_plane: Vec<Arc<Machine>>,
    worker: Arc<Machine>,
    /// The cluster through the load balancer.
    cluster: KubeadmCluster,
    clock: Clock,
}

impl Discovery {
    /// Two machines of the control plane, and a worker with the proxy.
    async fn install(site: &Arc<Site>) -> Result<Self> {
        let mut clock = Clock::start();
        let control_plane: Vec<_> = CONTROL_PLANE
            .iter()
            .map(|name| site.machine(name))
            .collect::<Result<_>>()?;
        let worker = site.machine("worker")?;
        let [first, second, third] = control_plane.as_slice() else {
            anyhow::bail!("there are not three machines");
        };
        tokio::try_join!(
            first.power_on(),
            second.power_on(),
            third.power_on(),
            worker.power_on()
        )?;
        let cluster = KubeadmCluster::init(first, Addons::None).await?;
        let joined = cluster.join(second, &cluster.control_plane()).await?;
        ensure!(joined.code == 0, "{joined}");
        for image in [webhook_image(site)?, haproxy_image(site)?] {
            worker.import_image(&image).await?;
        }

        let file = site.folder().join("join.sh").display().to_string();
        let created = cluster
            .kubectl()
            .run([
                "kcp",
                "node",
                "join-script",
                "--api-proxy",
                "--proxy-image",
                HAPROXY,
                "--ignore-preflight-errors",
                IGNORED_CHECK,
                "--output-file",
                &file,
            ])
            .await?;
        ensure!(created.code == 0, "{created}");
        let script = fs::read_to_string(path::Path::new(&file)).with_context(|| format!("reading {file}"))?;
        worker.write("/root/join.sh", &script)?;
        let joined = worker.exec(["bash", "/root/join.sh"]).await?;
        ensure!(
            joined.code == 0 && joined.stderr.ends_with("node worker is Ready\n"),
            "{joined}"
        );
        kubelet_uses_proxy(&worker)?;

        cluster
            .kubectl()
            .apply_kustomization("manifests/api-proxy")
            .await?;
        cluster.ready(&["one", "two", "worker"]).await?;
        clock.lap("two control plane machines, and a worker with a proxy");
        let discovery = Self {
            site: site.clone(),
            control_plane,
            worker,
            cluster,
            clock,
        };
        discovery.lists(&["one", "two"]).await?;
        Ok(discovery)
    }

    async fn a_new_api_server_is_used(&mut self) -> Result<()> {
        let third = self.machine("three")?;
        let joined = self.cluster.join(&third, &self.cluster.control_plane()).await?;
        ensure!(joined.code == 0, "{joined}");
        self.lists(&CONTROL_PLANE).await?;
        self.cluster.ready(&ALL).await?;
        // HAProxy has loaded the list without a start of its container.
        let starts = ["get", "pod", "kcp-api-proxy-worker", "-n", "kube-system", "-o"];
        let starts = starts
            .iter()
            .chain(&["jsonpath={.status.containerStatuses[0].restartCount}"]);
        let starts = self.cluster.kubectl().succeed(starts).await?.stdout;
        ensure!(starts == "0", "HAProxy has started {starts} times again");
        self.clock.lap("the proxy lists a new API server");
        Ok(())
    }

    async fn the_load_balancer_ends(&mut self) -> Result<()> {
        self.site.stop_load_balancer().await?;
        let ended = Timestamp::now();
        let cluster = self.cluster.through(&*self.machine("one")?).await?;
        wait::until("every Node is ready without the load balancer", || {
            cluster.are_nodes_ready_since(&ALL, ended)
        })
        .await?;
        self.clock
            .lap("every Node renews its Lease without the load balancer");
        Ok(())
    }

    /// Switches every machine off, and these on.
    async fn power_failure(&mut self, on: &[&str]) -> Result<()> {
        for machine in self.control_plane.iter().chain([&self.worker]) {
            machine.power_off().await?;
        }
        self.clock.lap("power-off");
        let switched_on = Timestamp::now();
        for machine in self.control_plane.iter().chain([&self.worker]) {
            if on.contains(&machine.name()) {
                machine.power_on().await?;
            }
        }
        // The certificate of the last machine that is on.
        let cluster = self.cluster.through(&*self.machine("three")?).await?;
        wait::until("the API serves", || async {
            cluster.kubectl().succeed(["get", "nodes"]).await.map(drop)
        })
        .await?;
        self.clock.lap("the API serves");
        wait::until("the Nodes are ready", || {
            cluster.are_nodes_ready_since(on, switched_on)
        })
        .await?;
        self.clock.lap(&format!("ready: {}", on.join(", ")));
        let servers: Vec<&str> = CONTROL_PLANE
            .into_iter()
            .filter(|name| on.contains(name))
            .collect();
        self.lists(&servers).await?;
        self.clock.lap("the proxy lists the API servers that are on");
        Ok(())
    }

    fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        let found = self.control_plane.iter().find(|machine| machine.name() == name);
        found
            .cloned()
            .with_context(|| format!("there is no machine {name}"))
    }

    /// Waits until the proxy of the worker has these API servers. An API server that was lost leaves the list of Kubernetes
    /// after 15 seconds.
    async fn lists(&self, names: &[&str]) -> Result<()> {
        let machines = names.iter().map(|name| self.machine(name));
        let machines = machines.collect::<Result<Vec<_>>>()?;
        let expected = servers_of(machines.iter().map(|machine| &**machine));
        wait::until(
            &format!("the proxy has the API servers {}", names.join(", ")),
            || async {
                let listed = listed_servers(&self.worker)?;
                ensure!(listed == expected, "it has {listed:?}");
                Ok(())
            },
        )
        .await
    }
}
