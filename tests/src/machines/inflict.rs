//! Injects the faults of machines, and ends them.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::fault::Fault;
use super::kubelet;
use super::member::{Founding, Member, initial_cluster};
use super::peer_network::peer_url;
use super::workload_cluster::WorkloadCluster;
use crate::etcd::{Alarm, EtcdClient};
use crate::wait;

impl WorkloadCluster {
    /// Injects a fault, or ends one.
    #[expect(clippy::too_many_lines, reason = "one arm for each fault")]
    pub async fn inflict(&self, fault: Fault, machine: &str) -> Result<()> {
        match fault {
            Fault::Kill => {
                // The report comes first, because the API server may lose its quorum with this member.
                if self.has_quorum().await {
                    kubelet::report_etcd(self.client()?, machine, false).await?;
                }
                self.kill_member(machine).await
            }
            Fault::Restart => {
                let founding = Founding::Joining(String::new());
                let number = self.restart_member(machine, &founding).await?;
                self.recovers(machine).await?;
                // Without quorum the member answers no client, and the API server stores no report.
                if self.has_quorum().await {
                    self.answering(number).await?;
                    kubelet::report_etcd(self.client()?, machine, true).await?;
                }
                Ok(())
            }
            Fault::Freeze => {
                self.on_member(machine, async |member| {
                    self.etcd_route.withdraw(member.number);
                    member.process.freeze().await;
                })
                .await
            }
            Fault::Thaw => {
                self.on_member(machine, async |member| member.process.thaw().await)
                    .await?;
                self.recovers(machine).await
            }
            Fault::CutOff => {
                self.on_member(machine, async |member| {
                    self.etcd_route.withdraw(member.number);
                    self.peer_network.cut_off(member.number);
                })
                .await
            }
            Fault::Reconnect => {
                self.on_member(machine, async |member| self.peer_network.reconnect(member.number))
                    .await?;
                self.recovers(machine).await
            }
            Fault::Wipe => {
                let members = self.etcd().await?.members().await?;
                self.kill_member(machine).await?;
                self.remove_data(machine)?;
                let founding = Founding::Joining(initial_cluster(&members, machine));
                self.restart_member(machine, &founding).await.map(drop)
            }
            Fault::Split => {
                self.kill_member(machine).await?;
                self.remove_data(machine)?;
                self.restart_member(machine, &Founding::Alone).await?;
                self.on_member(machine, async |member| member.votes = false).await
            }
            Fault::NoSpace => {
                let id = self.member_id(machine).await?;
                self.etcd().await?.raise(Alarm::NoSpace, &id).await
            }
            Fault::Disarm => self.etcd().await?.disarm().await,
            Fault::Expire => {
                self.on_member(machine, async |member| {
                    self.etcd_route.withdraw(member.number);
                    self.expire_certificate(machine, member.number)
                })
                .await?
            }
            Fault::Renew => {
                self.on_member(machine, async |member| {
                    self.issue_certificate(machine, member.number)
                })
                .await??;
                self.recovers(machine).await
            }
            Fault::Remove => {
                let id = self.member_id(machine).await?;
                self.on_member(machine, async |member| {
                    self.etcd_route.withdraw(member.number);
                    member.votes = false;
                })
                .await?;
                // etcd refuses while it considers too few other members started.
                wait::until("etcd removes the member", || async {
                    self.etcd().await?.remove(&id).await
                })
                .await
            }
            Fault::Relearn => self.relearn(machine).await,
            Fault::Stray => self.join_member(machine).await.map(drop),
            Fault::HoldPromotions => {
                self.promotes.send_replace(false);
                Ok(())
            }
            Fault::Promote => {
                self.promotes.send_replace(true);
                Ok(())
            }
            Fault::HoldNodes => {
                self.gets_nodes.send_replace(false);
                Ok(())
            }
            Fault::ReleaseNodes => {
                self.gets_nodes.send_replace(true);
                Ok(())
            }
            Fault::ForceNewCluster => self.force_new_cluster(machine).await,
            Fault::PodNotReady => kubelet::report_etcd(self.client()?, machine, false).await,
            Fault::PodReady => kubelet::report_etcd(self.client()?, machine, true).await,
        }
    }

    /// Kills a machine's etcd member, as a power loss does. No kubelet reports it.
    pub async fn kill_member(&self, machine: &str) -> Result<()> {
        self.on_member(machine, async |member| {
            self.etcd_route.withdraw(member.number);
            member.process.kill().await
        })
        .await?
    }

    /// The names of the machines with an etcd member, in order.
    pub(crate) async fn machines(&self) -> Vec<String> {
        self.members.lock().await.keys().cloned().collect()
    }

    /// A client for a machine's member in any state.
    pub async fn etcd_of(&self, machine: &str) -> Result<EtcdClient> {
        let number = self.on_member(machine, async |member| member.number).await?;
        self.etcd_at(self.addresses.machine(number)).await
    }

    /// [`Self::etcd_of`] with another CA, which is a PEM file.
    pub async fn etcd_trusting(&self, machine: &str, authority: &Path) -> Result<EtcdClient> {
        let number = self.on_member(machine, async |member| member.number).await?;
        let client = &self.certificates()?.etcd_client;
        EtcdClient::new(self.addresses.machine(number), authority, client).await
    }

    /// Waits until learners may be promoted.
    pub(super) async fn promotion_allowed(&self) -> Result<()> {
        let mut promotes = self.promotes.subscribe();
        promotes.wait_for(|promotes| *promotes).await?;
        Ok(())
    }

    /// Waits until new machines may get a Node.
    pub(super) async fn node_allowed(&self) -> Result<()> {
        let mut gets_nodes = self.gets_nodes.subscribe();
        gets_nodes.wait_for(|gets_nodes| *gets_nodes).await?;
        Ok(())
    }

    /// What a person does who adds a member again that has lost its data, and then leaves it a learner.
    async fn relearn(&self, machine: &str) -> Result<()> {
        let id = self.member_id(machine).await?;
        self.kill_member(machine).await?;
        self.remove_data(machine)?;
        wait::until("etcd removes the member", || async {
            self.etcd().await?.remove(&id).await
        })
        .await?;
        let number = self
            .on_member(machine, async |member| {
                member.votes = false;
                member.number
            })
            .await?;
        let added = wait::until("etcd accepts the member again", || async {
            self.etcd().await?.add_learner(&peer_url(number)).await
        })
        .await?;
        let founding = Founding::Joining(initial_cluster(&added.members, machine));
        self.restart_member(machine, &founding).await?;
        self.publish_again(machine, number, &founding).await
    }

    /// What a person does with the flag in the static pod of a member, and then without it.
    async fn force_new_cluster(&self, machine: &str) -> Result<()> {
        for founding in [Founding::Forced, Founding::Joining(String::new())] {
            self.kill_member(machine).await?;
            self.restart_member(machine, &founding).await?;
            let etcd = self.etcd_of(machine).await?;
            wait::until("the member leads", || etcd.has_leader()).await?;
        }
        self.recovers(machine).await
    }

    /// Whether a majority of the voters has no fault.
    async fn has_quorum(&self) -> bool {
        let voters = self
            .members
            .lock()
            .await
            .values()
            .filter(|member| member.votes)
            .count();
        2 * self.etcd_route.members() > voters
    }

    /// Allows connections of the API server to the member again, if it is a voter.
    async fn recovers(&self, machine: &str) -> Result<()> {
        self.on_member(machine, async |member| {
            if member.votes {
                let address = self.addresses.machine(member.number);
                self.etcd_route.offer(member.number, address);
            }
        })
        .await
    }

    pub(super) async fn restart_member(&self, machine: &str, founding: &Founding) -> Result<u8> {
        let mut members = self.members.lock().await;
        let member = members.get_mut(machine);
        let member = member.with_context(|| format!("{} has no machine {machine}", self.name))?;
        ensure!(!member.process.is_running(), "{machine}'s member runs");
        let (number, votes) = (member.number, member.votes);
        let mut member = self.start_member(machine, number, founding).await?;
        member.votes = votes;
        members.insert(machine.to_owned(), member);
        Ok(number)
    }

    async fn on_member<T>(&self, machine: &str, act: impl AsyncFnOnce(&mut Member) -> T) -> Result<T> {
        let mut members = self.members.lock().await;
        let member = members.get_mut(machine);
        let member = member.with_context(|| format!("{} has no machine {machine}", self.name))?;
        Ok(act(member).await)
    }

    async fn member_id(&self, machine: &str) -> Result<String> {
        let members = self.etcd().await?.members().await?;
        let named = members.into_iter().find(|member| member.name == machine);
        Ok(named.with_context(|| format!("etcd has no member {machine}"))?.id)
    }
}
