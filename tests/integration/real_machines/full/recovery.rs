//! Two of three machines of Cluster API lose their power and their disks. One script on the host that is left, and one command, bring
//! back three healthy members with every write that the member there had. Both are killed at random moments, and run again. This
//! happens as often as `RECOVERY_ROUNDS` says, the first time with kills.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context as _, Result, bail, ensure};
use kcp_tests::cluster::Cluster;
use kcp_tests::etcd::EtcdClient;
use kcp_tests::kubectl::CommandOutput;
use kcp_tests::machines::real::Machine;
use kcp_tests::management_cluster::ManagementCluster;
use kcp_tests::run::random;
use kcp_tests::wait;
use tokio::time::timeout;

use crate::real_machines::full::cluster_api::{
    NAME, NAMESPACE, changes_are_as_planned, findings, is_healthy, kcp, status, three_machines,
};
use crate::real_machines::full::{Clock, etcd_on, with_cluster_api};
use crate::real_machines::scripts::refuses;

const ROUNDS: &str = "RECOVERY_ROUNDS";

/// A write has no answer after this time: the machine has no power.
const ANSWER: Duration = Duration::from_secs(5);

/// How often the script and the command are killed, each after a random number of seconds up to a limit.
const SCRIPT_KILLS: usize = 7;
const LONGEST_SCRIPT: u64 = 30;
const COMMAND_KILLS: usize = 10;
const LONGEST_COMMAND: u64 = 20;

const SCRIPT: &str = "/var/tmp/recover.sh";
pub(super) const STATE: &str = "/etc/kubernetes/kcp-etcd-recovery";
pub(super) const CONTINUE: [&str; 5] = ["etcd", "recover", NAME, "--continue", "--yes"];

#[test]
#[ignore = "needs root: make test-machines PART=full"]
fn etcd_is_recovered_from_the_machine_that_is_left() {
    with_cluster_api("recovery", async |_, management| recovers(management).await);
}

async fn recovers(management: &ManagementCluster) -> Result<()> {
    let rounds: u32 = env::var(ROUNDS).map_or(Ok(1), |rounds| rounds.parse())?;
    let mut clock = Clock::start();
    let fleet = management.machines().fleet()?;
    fleet.give_disks();
    let cluster = three_machines(management, &mut clock).await?;
    // kubeadm and the kubelet sync hardly anything. The kernel writes it within half a minute.
    for machine in fleet.machines().await {
        machine.succeed(["sync"]).await?;
    }
    let refused = kcp(management, &["etcd", "recover", NAME]).await?;
    ensure!(
        refused.code == 1
            && refused
                .words()
                .contains("etcd has a quorum: 3 of 3 voting members healthy"),
        "{refused}"
    );
    for round in 1..=rounds {
        is_recovered(management, &cluster, round, &mut clock)
            .await
            .with_context(|| format!("round {round} of {rounds}"))?;
    }
    changes_are_as_planned(management, &cluster, &mut clock).await?;
    // Their disks take gigabytes, which a failure keeps.
    for machine in fleet.machines().await {
        machine.wipe().await?;
    }
    Ok(())
}

async fn is_recovered(
    management: &ManagementCluster,
    cluster: &Cluster,
    round: u32,
    clock: &mut Clock,
) -> Result<()> {
    let has_kills = round == 1;
    let prefix = format!("acknowledged-{round}/");
    let Loss {
        survivor,
        known,
        lost,
    } = two_machines_are_lost(management, &prefix).await?;
    clock.lap("two machines have lost their power and their disks");
    let loss = Instant::now();
    status_names_the_command(management).await?;
    clock.lap("status names the command");

    let script = script(management, &survivor).await?;
    the_check_changes_nothing(&survivor, &script, &lost).await?;
    clock.lap("the script without an argument");
    let copies = copies_of_the_data(&survivor)?;
    let known = if has_kills {
        survivor.cut_power().await?;
        survivor.power_on().await?;
        a_member_that_was_started_again_is_checked(&survivor, &lost).await?;
        clock.lap("the script without an argument, after a loss of power");
        let kills = script_is_killed(&survivor, &lost).await?;
        clock.lap(&format!("the script, killed {kills} times"));
        without_the_last_write(&survivor, &prefix, known).await?
    } else {
        let ended = survivor.exec(["bash", SCRIPT, "--lost", &lost]).await?;
        ensure!(ended.code == 0, "{ended}");
        clock.lap("the script");
        known
    };
    the_data_is_kept(&survivor, &copies)?;

    if has_kills {
        let kills = command_is_killed(management).await?;
        clock.lap(&format!("the command, killed {kills} times"));
    }
    let recovered = kcp(management, &CONTINUE).await?;
    ensure!(
        recovered.code == 0 && recovered.words().contains("every etcd member is healthy"),
        "{recovered}"
    );
    is_healthy(management, cluster, 3).await?;
    clock.lap(&format!(
        "three healthy members, {} s after the loss",
        loss.elapsed().as_secs()
    ));
    has_every_write(&survivor, &prefix, &known).await?;
    let manifest = survivor.file("/etc/kubernetes/manifests/etcd.yaml");
    let manifest =
        fs::read_to_string(&manifest).with_context(|| format!("reading {}", manifest.display()))?;
    ensure!(!manifest.contains("force-new-cluster"), "{manifest}");
    refuses(
        &survivor,
        &script,
        &[
            "etcd has a leader, and so a quorum",
            "nothing was changed on this host\n",
        ],
    )
    .await?;
    Ok(())
}

struct Loss {
    survivor: Arc<Machine>,
    /// The keys that the member of the survivor has.
    known: BTreeSet<String>,
    /// The names of the lost members, as the script wants them.
    lost: String,
}

/// Two machines lose their power and their disks while a client writes through one of them.
async fn two_machines_are_lost(management: &ManagementCluster, prefix: &str) -> Result<Loss> {
    let mut machines = management.machines().fleet()?.machines().await;
    let chosen = usize::try_from(random() % 3)?;
    let survivor = machines.swap_remove(chosen);
    let [first, second] = machines.as_slice() else {
        bail!("there are {} other machines", machines.len());
    };
    let through = etcd_on(first).await?;
    let writer = tokio::spawn(write(through, prefix.to_owned()));
    let etcd = etcd_on(&survivor).await?;
    wait::until("the writes have begun", || async {
        let count = etcd.known_keys(prefix).await?.len();
        ensure!(count > 100, "{count} writes");
        Ok(())
    })
    .await?;
    tokio::try_join!(first.power_off(), second.power_off())?;
    for lost in [first, second] {
        for folder in ["/var/lib", "/etc/kubernetes"] {
            fs::remove_dir_all(lost.file(folder)).with_context(|| format!("removing {folder}"))?;
        }
    }
    let acknowledged = writer.await?;
    let known: BTreeSet<String> = etcd.known_keys(prefix).await?.into_iter().collect();
    eprintln!(
        "{} acknowledged writes, of which the survivor lacks {}",
        acknowledged.len(),
        acknowledged.difference(&known).count()
    );
    let lost = format!("{},{}", first.name(), second.name());
    Ok(Loss {
        survivor,
        known,
        lost,
    })
}

/// Writes until a write fails. Returns the keys that etcd has acknowledged.
async fn write(etcd: EtcdClient, prefix: String) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for number in 0_u64.. {
        let key = format!("{prefix}{number:08}");
        match timeout(ANSWER, etcd.put(&key, "")).await {
            Ok(Ok(())) => acknowledged.insert(key),
            _ => break,
        };
    }
    acknowledged
}

async fn status_names_the_command(management: &ManagementCluster) -> Result<()> {
    wait::until("status reports the loss", || async {
        let (status, document) = status(management).await?;
        let found = findings(&document);
        ensure!(
            status.code == 1 && status.stdout.contains("kubectl kcp etcd recover edge -n real"),
            "{} {found:#?}",
            status.code
        );
        Ok(())
    })
    .await
}

/// The script for the host that is left. Without the name of the host, the script only checks.
async fn script(management: &ManagementCluster, survivor: &Machine) -> Result<String> {
    let unchosen = kcp(management, &["etcd", "recover", NAME]).await?;
    ensure!(
        unchosen.code == 0 && unchosen.stderr.contains("is not chosen yet"),
        "{unchosen}"
    );
    survivor.write(SCRIPT, &unchosen.stdout)?;
    let refused = survivor.exec(["bash", SCRIPT, "--lost", "a,b"]).await?;
    for why in [
        "this script only checks, because it was written without --survivor: run it without an argument on each host that is left",
        "--lost names a, but the other etcd members are: ",
        "nothing was changed on this host\n",
    ] {
        ensure!(refused.code == 1 && refused.stderr.contains(why), "{refused}");
    }
    let file = management.kubectl().scratch_file("recover.sh");
    // The command replaces no file.
    if file.exists() {
        fs::remove_file(&file)?;
    }
    let path = file.display().to_string();
    let command = [
        "etcd",
        "recover",
        NAME,
        "--survivor",
        survivor.name(),
        "--output-file",
        &path,
    ];
    let written = kcp(management, &command).await?;
    ensure!(
        written.code == 0 && written.words().contains("may be lost:"),
        "{written}"
    );
    fs::read_to_string(&file).with_context(|| format!("reading {path}"))
}

async fn the_check_changes_nothing(survivor: &Machine, script: &str, lost: &str) -> Result<()> {
    survivor.write(SCRIPT, script)?;
    survivor.succeed(["sync", SCRIPT]).await?;
    let checked = wait::until("the script reads the member", || async {
        let checked = survivor.exec(["bash", SCRIPT]).await?;
        ensure!(checked.code == 0, "{checked}");
        Ok(checked.stdout)
    })
    .await?;
    let member = format!("member: {}, without a leader\n", survivor.name());
    let others = checked.matches("does not answer\n").count();
    let named = lost.split(',').all(|name| checked.contains(name));
    ensure!(
        checked.contains(&member) && others == 2 && named && checked.contains(" --lost "),
        "{checked}"
    );
    eprintln!("{checked}");
    let partly = lost.split(',').next().unwrap_or_default();
    let refused = survivor.exec(["bash", SCRIPT, "--lost", partly]).await?;
    let why = "--lost does not name the etcd member";
    ensure!(refused.code == 1 && refused.stderr.contains(why), "{refused}");
    let state = survivor.file(STATE);
    ensure!(!state.exists(), "{} exists", state.display());
    Ok(())
}

/// A member that starts without a quorum serves no clients.
async fn a_member_that_was_started_again_is_checked(survivor: &Machine, lost: &str) -> Result<()> {
    let checked = wait::until("the script reads the member that was started again", || async {
        let checked = survivor.exec(["bash", SCRIPT]).await?;
        ensure!(checked.code == 0, "{checked}");
        Ok(checked.stdout)
    })
    .await?;
    let number = |what: &str| {
        let mut lines = checked.lines().filter_map(|line| line.strip_prefix(what));
        lines.next().and_then(|number| number.parse::<u64>().ok())
    };
    ensure!(
        checked.contains("the member was started without a quorum")
            && number("revision: ") > Some(100)
            && number("raft index: ") > Some(100)
            && lost.split(',').all(|name| checked.contains(name)),
        "{checked}"
    );
    eprintln!("{checked}");
    Ok(())
}

/// Runs the script until it has succeeded. The host loses its power and every unsynced write once. Returns how often the script was killed.
async fn script_is_killed(survivor: &Machine, lost: &str) -> Result<usize> {
    let mut kills = 0;
    for _ in 0..SCRIPT_KILLS {
        let limit = (1 + random() % LONGEST_SCRIPT).to_string();
        let command = ["timeout", "--signal=KILL", &limit, "bash", SCRIPT, "--lost", lost];
        let ended = survivor.exec(command).await?;
        kills += usize::from(is_killed(&ended));
        if is_killed(&ended) && kills == 2 {
            survivor.cut_power().await?;
            survivor.power_on().await?;
        }
    }
    // The programs that a killed script has started may not have ended yet.
    let ended = wait::until("the script succeeds", || async {
        let ended = survivor.exec(["bash", SCRIPT, "--lost", lost]).await?;
        ensure!(ended.code == 0, "{ended}");
        Ok(ended)
    })
    .await?;
    ensure!(
        ended
            .stderr
            .contains("serves, and so does its API server; next: "),
        "{ended}"
    );
    Ok(kills)
}

/// The folders that the script has copied etcd's data to.
fn copies_of_the_data(survivor: &Machine) -> Result<BTreeSet<String>> {
    let folder = survivor.file("/var/lib");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: BTreeSet<String> = names.collect::<Result<_>>()?;
    Ok(names
        .into_iter()
        .filter(|name| name.starts_with("etcd-"))
        .collect())
}

/// Succeeds if the script has made exactly one complete copy of etcd's data, and left nothing else that it needed.
fn the_data_is_kept(survivor: &Machine, earlier: &BTreeSet<String>) -> Result<()> {
    let copies = copies_of_the_data(survivor)?;
    let copies: Vec<&String> = copies.difference(earlier).collect();
    let [copy] = copies.as_slice() else {
        bail!("the copies of etcd's data are {copies:?}");
    };
    let database = survivor.file("/var/lib").join(copy).join("member/snap/db");
    ensure!(database.is_file(), "{} is missing", database.display());
    let state = survivor.file(STATE);
    ensure!(!state.exists(), "{} is left", state.display());
    Ok(())
}

/// Runs the command until it has been killed often enough. Returns how often.
async fn command_is_killed(management: &ManagementCluster) -> Result<usize> {
    let mut kills = 0;
    for _ in 0..COMMAND_KILLS {
        let limit = (1 + random() % LONGEST_COMMAND).to_string();
        let killed = ["--signal=KILL", limit.as_str(), "kubectl", "kcp"];
        let command = killed.iter().chain(&CONTINUE).chain(&["-n", NAMESPACE]);
        let ended = management.kubectl().script("timeout", command).await?;
        ensure!(is_killed(&ended) || ended.code == 0, "{ended}");
        kills += usize::from(is_killed(&ended));
    }
    Ok(kills)
}

/// `timeout` kills itself with the command.
pub(super) const fn is_killed(ended: &CommandOutput) -> bool {
    ended.code == 137 || ended.code < 0
}

/// Succeeds if etcd has every write that the surviving member had, but not necessarily the last one: a member that is killed forgets
/// which of its last writes the others have acknowledged. Returns those that etcd has.
async fn without_the_last_write(
    survivor: &Machine,
    prefix: &str,
    mut known: BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let last = known.pop_last().context("there is no write")?;
    has_every_write(survivor, prefix, &known).await?;
    if has_every_write(survivor, prefix, &BTreeSet::from([last.clone()]))
        .await
        .is_ok()
    {
        known.insert(last);
    } else {
        eprintln!("the last write is lost, which the member had before its host lost its power");
    }
    Ok(known)
}

/// Succeeds if etcd has every write that the surviving member had.
async fn has_every_write(survivor: &Machine, prefix: &str, known: &BTreeSet<String>) -> Result<()> {
    let keys = wait::until("etcd lists the keys", || async {
        etcd_on(survivor).await?.keys(prefix).await
    })
    .await?;
    let keys: BTreeSet<String> = keys.into_iter().collect();
    let lost: Vec<&String> = known.difference(&keys).collect();
    ensure!(
        lost.is_empty(),
        "of {} writes these are lost: {lost:?}",
        known.len()
    );
    Ok(())
}
