//! Sends reviews at a steady rate through a balancer to two servers, while one server restarts and the certificates of
//! both are replaced, and reports the result of each review.
//!
//! The report contains the speed, but no test depends on it, because it depends on the machine.

mod balancer;
mod client;
mod connection;
mod replica;
mod report;
mod reviews;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::balancer::Balancer;
use self::client::Client;
use self::connection::Dialer;
use self::replica::Replica;
pub use self::report::Report;
use crate::pki::Authority;
use crate::run::Run;

/// The host name of the certificates, as the API server derives it from the Service.
const HOST: &str = "kcp-webhook.kcp-webhook-system.svc";

/// After the first and the third quarter of the load, both certificates are replaced. After the second, one server
/// restarts while both certificates are replaced.
const QUARTERS: u64 = 4;

/// The load and the configuration of the servers.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Reviews per second.
    pub rate: u32,
    /// The load lasts this long, and until the restart is over.
    pub duration: Duration,
    /// Additional arguments of the servers.
    pub arguments: Vec<String>,
}

/// Starts the servers, sends the load and returns the report. Fails if anything but a review fails.
pub async fn run(run: &Arc<Run>, plan: &Plan) -> Result<Report> {
    let authority = Authority::new("load")?;
    let mut replicas = [
        Replica::start(run, 1, &authority, &plan.arguments).await?,
        Replica::start(run, 2, &authority, &plan.arguments).await?,
    ];
    let balancer = Balancer::start(replicas.iter().map(Replica::backend).collect()).await?;
    let dialer = Dialer::new(balancer.address(), HOST, authority.certificate())?;
    let reviews = reviews::all(&dialer).await.context("asking each review once")?;
    let client = Client::new(dialer, reviews);

    let sending = client.clone().send(plan.rate, plan.duration);
    let (steps, outcomes) = tokio::join!(
        async {
            let steps = disturb(&client, &mut replicas, &authority, plan).await;
            client.may_end();
            steps
        },
        sending
    );
    steps?;
    let mut lives = Vec::new();
    for replica in &mut replicas {
        lives.push(replica.end().await?);
    }
    Ok(Report::new(plan, outcomes?, lives))
}

async fn disturb(
    client: &Client,
    replicas: &mut [Replica; 2],
    authority: &Authority,
    plan: &Plan,
) -> Result<()> {
    let quarter = u64::from(plan.rate) * plan.duration.as_secs() / QUARTERS;
    let [steady, restarted] = replicas;
    client.until_sent(quarter).await?;
    rotate(steady, restarted, authority).await?;

    client.until_sent(quarter * 2).await?;
    let before = restarted.shown().await?;
    let (restarting, rotating) = tokio::join!(restarted.restart(authority), async {
        steady.rotate(authority).await?;
        steady.until_certificate_shown().await
    });
    restarting?;
    rotating?;
    restarted.until_certificate_shown().await?;
    ensure!(
        restarted.shown().await? != before,
        "the restarted server shows the certificate of before"
    );

    client.until_sent(quarter * 3).await?;
    rotate(steady, restarted, authority).await
}

async fn rotate(steady: &mut Replica, restarted: &mut Replica, authority: &Authority) -> Result<()> {
    for replica in [&mut *steady, &mut *restarted] {
        replica.rotate(authority).await?;
    }
    steady.until_certificate_shown().await?;
    restarted.until_certificate_shown().await
}
