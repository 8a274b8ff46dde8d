//! `kubectl kcp certificates rotate` under Cluster API's real controllers, by a user who has the shipped roles only: each phase is
//! shown, recorded and waited for. `real_machines::full` shows that the machines use the keys.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kcp_tests::cluster::Cluster;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::wait;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::roles;
use crate::schema;
use crate::shared::with_controllers;

const NAMESPACE: &str = "ca-rotation";
const NAME: &str = "edge";
const OPERATOR: &str = "rotation-operator";
const ROTATE: [&str; 6] = [
    "certificates",
    "rotate",
    NAME,
    "--ca",
    "front-proxy,service-account",
    "--tokens-renewed",
];

#[test]
#[ignore = "takes minutes: make test-long"]
fn each_phase_is_written_once_and_waited_for() {
    with_controllers(NAMESPACE, async |management| {
        let cluster = Cluster::create(management.client(), NAMESPACE, NAME, 1, "v1.34.2").await?;
        cluster.settled(1).await?;
        roles::bind_operator(management.kubectl(), OPERATOR, NAMESPACE).await?;
        let subject = Subject { management, cluster };
        subject.is_refused_without_its_role().await?;
        subject.is_bound().await?;
        for title in [
            "phase 1 of 3, trust both keys",
            "phase 2 of 3, sign with the new key",
            "phase 3 of 3, trust only the new key",
        ] {
            subject.phase(title).await?;
        }
        let complete = "every Machine has trusted only the new key of the front-proxy CA since";
        let ended = subject.rotate(&["--yes"]).await?;
        ensure!(ended.code == 0 && ended.words().contains(complete), "{ended}");
        let shown = subject.kcp(&["certificates", NAME]).await?;
        ensure!(!shown.stdout.contains("rotation:"), "{shown}");
        subject.what_others_have_written_is_refused().await?;
        subject.cluster.delete().await
    });
}

struct Subject<'m> {
    management: &'m ManagementCluster,
    cluster: Cluster,
}

impl Subject<'_> {
    async fn kcp(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let place = ["-n", NAMESPACE, "--as", OPERATOR];
        let command = ["kcp"].iter().chain(arguments).chain(&place);
        self.management.kubectl().run(command).await
    }

    async fn rotate(&self, more: &[&str]) -> Result<CommandOutput> {
        self.kcp(&[&ROTATE[..], more].concat()).await
    }

    async fn is_refused_without_its_role(&self) -> Result<()> {
        let unconfirmed = self.rotate(&[]).await?;
        ensure!(
            unconfirmed.code == 2 && unconfirmed.stderr.contains("confirm with --yes"),
            "{unconfirmed}"
        );
        let forbidden = self.rotate(&["--yes"]).await?;
        ensure!(
            forbidden.code == 2 && forbidden.words().contains("cannot patch secrets \"edge-proxy\""),
            "{forbidden}"
        );
        Ok(())
    }

    async fn is_bound(&self) -> Result<()> {
        let (role, user) = ("--clusterrole=kcp-ca-operator", format!("--user={OPERATOR}"));
        let bind = [
            "create",
            "rolebinding",
            "kcp-ca-operator",
            role,
            &user,
            "-n",
            NAMESPACE,
        ];
        self.management.kubectl().succeed(bind).await.map(drop)
    }

    /// Begins the next phase, and waits until every Machine has it.
    async fn phase(&self, title: &str) -> Result<()> {
        let ended = wait::until("nothing blocks the phase", || async {
            let ended = self.rotate(&["--yes"]).await?;
            ensure!(ended.code == 0, "{ended}");
            Ok(ended)
        })
        .await?;
        for line in [
            format!("secret/{NAME}-proxy changed: {title}\n"),
            format!("secret/{NAME}-sa changed: {title}\n"),
            format!("kubeadmcontrolplane/{NAME} rollout started\n"),
        ] {
            ensure!(ended.stdout.contains(&line), "{ended}");
        }
        let refused = self.rotate(&["--yes", "-o", "json"]).await?;
        let document = serde_json::from_str(&refused.stdout).with_context(|| refused.to_string())?;
        schema::holds("changerefused.json", &document)?;
        let why = format!("the front-proxy CA: {title}");
        ensure!(refused.code == 1 && refused.words().contains(&why), "{refused}");
        let shown = self.kcp(&["certificates", NAME, "-o", "wide"]).await?;
        ensure!(shown.words().contains(&format!("rotation: {title}; ")), "{shown}");
        let status = self.kcp(&["status", NAME, "-o", "json"]).await?;
        let status: Value = serde_json::from_str(&status.stdout).with_context(|| status.to_string())?;
        let findings = status.pointer("/findings").and_then(Value::as_array);
        let finding = findings
            .into_iter()
            .flatten()
            .find(|finding| finding.get("id") == Some(&json!("ca-rotation-unfinished")));
        ensure!(finding.is_some(), "{status:#}");
        self.is_recorded(title).await?;
        wait::until("the rollout is complete", || async {
            let ended = self.kcp(&["rollout", "status", NAME]).await?;
            ensure!(ended.code == 0, "{ended}");
            Ok(())
        })
        .await?;
        self.cluster.settled(1).await
    }

    async fn is_recorded(&self, title: &str) -> Result<()> {
        let events = ["get", "events.events.k8s.io", "-n", NAMESPACE, "-o", "json"];
        let events: Value = serde_json::from_str(&self.management.kubectl().succeed(events).await?.stdout)?;
        let items = events
            .get("items")
            .and_then(Value::as_array)
            .context("no items")?;
        for secret in ["front-proxy CA", "service account keys"] {
            let note = json!(format!(
                "CA rotation continued by {OPERATOR} with the {secret}: {title}"
            ));
            let recorded = items.iter().any(|event| event.get("note") == Some(&note));
            ensure!(recorded, "no Event has the note {note}");
        }
        Ok(())
    }

    /// A Secret that another client has changed to two entries.
    async fn what_others_have_written_is_refused(&self) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.management.client().clone(), NAMESPACE);
        let name = format!("{NAME}-proxy");
        let secret = secrets.get(&name).await?;
        let certificate = secret.data.and_then(|mut data| data.remove("tls.crt"));
        let certificate = String::from_utf8(certificate.context("no certificate")?.0)?;
        let patch = json!({"stringData": {"tls.crt": format!("{certificate}{certificate}")}});
        secrets
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        let refused = self.rotate(&["--yes"]).await?;
        let why = "Secret edge-proxy: tls.crt has 2 entries, but this command has not written them";
        ensure!(refused.code == 1 && refused.words().contains(why), "{refused}");
        Ok(())
    }
}
