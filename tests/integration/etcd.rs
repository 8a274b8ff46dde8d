//! `kcp-etcd` against real members: healthy, killed, frozen, learners, full, and without quorum.

#![expect(
    clippy::indexing_slicing,
    reason = "this is test code, of which clippy exempts only functions with #[test]"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use kcp_etcd::{
    Alarm, AlarmKind, Call, ClientCertificate, Connection, ConnectionStep, Endpoint, Error, Report, Tcp,
    Timeouts, Tls, Trust, survey,
};
use kcp_tests::addresses::MachineAddresses;
use kcp_tests::assets::Assets;
use kcp_tests::etcd::{CLIENT_PORT, PEER_PORT};
use kcp_tests::pki::{Authority, Subject};
use kcp_tests::process::Process;
use kcp_tests::run::Run;
use kcp_tests::wait;

use crate::shared::with_management_cluster;

/// For members that answer, however slowly.
const TIMEOUTS: Timeouts = Timeouts {
    dial: Duration::from_secs(60),
    handshake: Duration::from_secs(60),
    call: Duration::from_secs(60),
};

/// For calls that are never answered. etcd itself rejects a call after 7 s without a leader.
const SHORT_CALLS: Timeouts = Timeouts {
    call: Duration::from_secs(3),
    ..TIMEOUTS
};

/// For a member that never answers the TLS handshake.
const SHORT: Timeouts = Timeouts {
    handshake: Duration::from_secs(2),
    ..SHORT_CALLS
};

/// The members of one etcd cluster, `n1` to `nN`.
struct Members {
    run: Arc<Run>,
    folder: PathBuf,
    assets: Assets,
    authority: Authority,
    addresses: MachineAddresses,
    tls: Tls,
    processes: Vec<Process>,
}

impl Members {
    async fn start(run: &Arc<Run>, name: &str, count: u8, flags: &[&str]) -> Result<Self> {
        let authority = Authority::new("etcd-ca")?;
        let folder = run.subfolder(name)?;
        let key = std::fs::read(authority.write(&folder, "ca")?.key)?;
        let certificate = authority.certificate().as_bytes();
        let client = ClientCertificate::issue(certificate, &key, SystemTime::now())?;
        let tls = Tls::new(Trust::new(certificate)?, client);
        let mut members = Self {
            run: run.clone(),
            folder,
            assets: Assets::locate()?,
            addresses: MachineAddresses::find(CLIENT_PORT)?,
            authority,
            tls,
            processes: Vec::new(),
        };
        let initial: Vec<u8> = (1..=count).collect();
        for number in &initial {
            members.add(*number, &initial, "new", flags)?;
        }
        wait::until("all members know a leader", || members.agreed(count)).await?;
        Ok(members)
    }

    async fn agreed(&self, count: u8) -> Result<()> {
        for report in self.survey(count, TIMEOUTS).await {
            let status = report?.status?;
            ensure!(status.leader.is_some() && status.errors.is_empty(), "{status:?}");
        }
        Ok(())
    }

    fn add(&mut self, number: u8, initial: &[u8], state: &str, flags: &[&str]) -> Result<()> {
        let address = self.addresses.machine(number);
        let name = format!("n{number}");
        let folder = self.folder.join(&name);
        let subject = Subject {
            common_name: &name,
            names: &[&name, "localhost"],
            addresses: &[IpAddr::V4(address), IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ..Subject::default()
        };
        let pair = self.authority.issue(&folder, "member", &subject)?;
        let (certificate, key) = (pair.certificate.display(), pair.key.display());
        let authority = self.folder.join("ca.crt");
        let authority = authority.display();
        let client = format!("https://{address}:{CLIENT_PORT}");
        let peer = self.peer_url(number);
        let cluster: Vec<_> = initial
            .iter()
            .map(|other| format!("n{other}={}", self.peer_url(*other)))
            .collect();
        let mut arguments = vec![
            format!("--name={name}"),
            format!("--data-dir={}", folder.join("data").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", cluster.join(",")),
            format!("--initial-cluster-state={state}"),
            "--client-cert-auth=true".to_owned(),
            "--peer-client-cert-auth=true".to_owned(),
            format!("--trusted-ca-file={authority}"),
            format!("--peer-trusted-ca-file={authority}"),
            format!("--cert-file={certificate}"),
            format!("--key-file={key}"),
            format!("--peer-cert-file={certificate}"),
            format!("--peer-key-file={key}"),
            "--unsafe-no-fsync=true".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        let log = format!("{}-{name}", self.folder.file_name().unwrap_or_default().display());
        let process =
            Process::start::<_, &str>(&self.run, &log, &self.assets.program("etcd"), arguments, &[])?;
        self.processes.push(process);
        Ok(())
    }

    fn peer_url(&self, number: u8) -> String {
        format!("https://{}:{PEER_PORT}", self.addresses.machine(number))
    }

    fn endpoint(&self, number: u8) -> Endpoint {
        let address = self.addresses.machine(number);
        Endpoint::new(Tcp(format!("{address}:{CLIENT_PORT}")), [format!("n{number}")])
    }

    async fn open(&self, number: u8) -> Result<Connection> {
        Ok(Connection::open(&self.endpoint(number), &self.tls, TIMEOUTS).await?)
    }

    async fn survey(&self, count: u8, timeouts: Timeouts) -> Vec<Result<Report, Error>> {
        let endpoints: Vec<_> = (1..=count).map(|number| self.endpoint(number)).collect();
        survey(&endpoints, &self.tls, timeouts).await
    }

    fn process(&mut self, number: u8) -> Result<&mut Process> {
        self.processes
            .get_mut(usize::from(number) - 1)
            .context("no such member")
    }
}

#[test]
fn a_member_adds_a_learner_and_fills_its_database() {
    with_management_cluster(async |management| one_member(management.run()).await.unwrap());
}

async fn one_member(run: &Arc<Run>) -> Result<()> {
    // The smallest quota for an empty database, plus some room.
    let mut members = Members::start(run, "etcd-one", 1, &["--quota-backend-bytes=2097152"]).await?;
    let first = members.open(1).await?;
    ensure!(first.server().matches_endpoint_name, "{:?}", first.server());
    let status = first.status().await?;
    ensure!(
        status.leader == Some(status.member_id) && !status.is_learner,
        "{status:?}"
    );
    ensure!(
        status.db_size_quota == Some(2_097_152) && status.db_size >= status.db_size_in_use,
        "{status:?}"
    );
    ensure!(status.version.starts_with("3."), "{status:?}");
    ensure!(
        status.raft_index >= status.raft_applied_index && status.raft_term >= 2,
        "{status:?}"
    );
    ensure!(first.alarms().await?.is_empty(), "an alarm on a new member");
    ensure!(first.get(b"a").await?.is_none(), "a value from nowhere");
    first.put(b"a", b"1").await?;
    ensure!(
        first.get(b"a").await?.as_deref() == Some(b"1"),
        "the value is not what was stored"
    );

    let added = first.add_learner(vec![members.peer_url(2)]).await?;
    ensure!(
        added.is_learner && added.name.is_empty() && added.client_urls.is_empty(),
        "{added:?}"
    );
    let early = first.promote(added.id).await;
    ensure!(
        early.as_ref().is_err_and(Error::is_not_in_sync),
        "a learner that has never started: {early:?}"
    );
    members.add(2, &[1, 2], "existing", &[])?;
    let learner = wait::until("the learner answers", async || {
        let learner = members.open(2).await?;
        ensure!(learner.status().await?.is_learner, "it is not a learner");
        Ok(learner)
    })
    .await?;
    let refused = learner.members().await;
    ensure!(
        matches!(
            &refused,
            Err(Error::Rejected { call: Call::MemberList, message, .. })
                if message == "etcdserver: rpc not supported for learner"
        ),
        "{refused:?}"
    );
    let listed = first.members().await?;
    ensure!(
        listed
            .members
            .iter()
            .map(|member| member.is_learner)
            .eq([false, true])
            || listed
                .members
                .iter()
                .map(|member| member.is_learner)
                .eq([true, false]),
        "{listed:?}"
    );
    wait::until("the learner is promoted", async || {
        Ok(first.promote(added.id).await?)
    })
    .await?;
    // The leader acknowledges the promotion before the promoted member applies it.
    wait::until("the member knows that it is a voter", async || {
        ensure!(!learner.status().await?.is_learner, "it is still a learner");
        Ok(())
    })
    .await?;
    wait::until("the new voter leads", async || {
        Ok(first.move_leader(added.id).await?)
    })
    .await?;
    ensure!(
        first.status().await?.leader == Some(added.id),
        "leadership did not move"
    );
    learner.move_leader(status.member_id).await?;
    wait::until("the voter is removed", async || {
        Ok(first.remove(added.id).await?)
    })
    .await?;
    ensure!(first.members().await?.members.len() == 1, "it is still listed");

    fills_up(&first, status.member_id).await
}

async fn fills_up(member: &Connection, member_id: u64) -> Result<()> {
    let megabyte = vec![0; 1024 * 1024];
    let full = wait::until("the database is full", async || {
        match member.put(b"b", &megabyte).await {
            Err(Error::Rejected {
                call: Call::Put,
                message,
                ..
            }) => Ok(message),
            other => bail!("{other:?}"),
        }
    })
    .await?;
    ensure!(full == "etcdserver: mvcc: database space exceeded", "{full}");
    let alarm = Alarm {
        member_id,
        kind: AlarmKind::NoSpace,
    };
    wait::until("the alarm is raised", async || {
        let alarms = member.alarms().await?;
        ensure!(alarms == [alarm], "{alarms:?}");
        Ok(())
    })
    .await?;
    let errors = member.status().await?.errors;
    ensure!(errors.iter().any(|error| error.contains("NOSPACE")), "{errors:?}");
    Ok(())
}

#[test]
fn living_members_answer_when_others_are_killed_or_frozen() {
    with_management_cluster(async |management| three_members(management.run()).await.unwrap());
}

async fn three_members(run: &Arc<Run>) -> Result<()> {
    let mut members = Members::start(run, "etcd-three", 3, &[]).await?;
    let mut lists = Vec::new();
    for report in members.survey(3, TIMEOUTS).await {
        lists.push(report?.members?);
    }
    ensure!(lists.windows(2).all(|pair| pair[0] == pair[1]), "{lists:?}");
    let mut names: Vec<_> = lists[0]
        .members
        .iter()
        .map(|member| member.name.as_str())
        .collect();
    names.sort_unstable();
    ensure!(names == ["n1", "n2", "n3"], "{names:?}");

    members.process(3)?.kill().await?;
    let reports = members.survey(3, TIMEOUTS).await;
    ensure!(matches!(reports[2], Err(Error::Dial(_))), "{:?}", reports[2]);
    for report in &reports[..2] {
        let report = report.as_ref().ok().context("a living member did not answer")?;
        let listed = report.members.as_ref().ok().context("no members")?;
        ensure!(listed == &lists[0], "{listed:?}");
    }
    // Their leader is the dead member for a second, and alarms need a living leader.
    let alarms = wait::until("the two answer for alarms", async || {
        Ok(members.open(1).await?.alarms().await?)
    })
    .await?;
    ensure!(alarms.is_empty(), "{alarms:?}");

    let known = Connection::open(&members.endpoint(2), &members.tls, SHORT_CALLS).await?;
    members.process(2)?.freeze().await;
    wait::until("the last one knows of no leader", async || {
        let status = members.open(1).await?.status().await?;
        ensure!(status.leader.is_none(), "{status:?}");
        ensure!(status.errors == ["etcdserver: no leader"], "{status:?}");
        Ok(())
    })
    .await?;
    // A busy machine may need several tries to answer within the short timeouts.
    let reports = wait::until("the last one answers", async || {
        let reports = members.survey(2, SHORT).await;
        let alone = reports[0].as_ref().map_err(|error| anyhow!("{error}"))?;
        ensure!(
            alone.members.as_ref().ok() == Some(&lists[0]),
            "{:?}",
            alone.members
        );
        Ok(reports)
    })
    .await?;
    let frozen = reports[1].as_ref().err().context("a frozen member answered")?;
    ensure!(
        matches!(
            frozen,
            Error::Deadline {
                step: ConnectionStep::Handshake,
                ..
            }
        ),
        "{frozen:?}"
    );
    let late = known.status().await;
    ensure!(
        matches!(
            late,
            Err(Error::Deadline {
                step: ConnectionStep::Call(Call::Status),
                ..
            })
        ),
        "{late:?}"
    );
    let alone = reports[0]
        .as_ref()
        .ok()
        .context("the last member did not answer")?;
    let alarms = alone.connection.alarms().await;
    ensure!(
        matches!(
            alarms,
            Err(Error::Deadline {
                step: ConnectionStep::Call(Call::Alarm),
                ..
            })
        ),
        "{alarms:?}"
    );
    Ok(())
}
