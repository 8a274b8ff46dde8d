//! One of the servers: its process, its certificate as a kubelet mounts it, and its metrics.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use kube::Client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::balancer::Backend;
use super::connection::Dialer;
use super::report::Life;
use crate::addresses::free_port;
use crate::api_server::{NO_ENVIRONMENT, ready};
use crate::pki::{Authority, Subject};
use crate::process::Process;
use crate::run::Run;
use crate::volume::Volume;
use crate::{kubeconfig, products, wait};

/// The keys of a certificate's Secret.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

const READS: &str = "certwatcher_read_certificate_total";

/// Two ports, a volume, and the current process.
pub(super) struct Replica {
    run: Arc<Run>,
    name: String,
    arguments: Vec<String>,
    address: SocketAddr,
    health: Client,
    is_ready: Arc<AtomicBool>,
    volume: Volume,
    scratch: PathBuf,
    dialer: Dialer,
    process: Process,
    /// The number of key pairs that this process must read.
    expected_reads: u64,
    ended: Life,
}

impl Replica {
    pub(super) async fn start(
        run: &Arc<Run>,
        number: usize,
        authority: &Authority,
        arguments: &[String],
    ) -> Result<Self> {
        let name = format!("load-kcp-webhook-{number}");
        let folder = run.subfolder(&name)?;
        let volume = Volume::at(folder.join("tls"));
        let scratch = folder.join("issued");
        issue(authority, &scratch, &volume)?;
        let (secure, health) = (free_port()?, free_port()?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, secure));
        let mut all = vec![
            "serve".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={secure}"),
            format!("--health-port={health}"),
            format!("--tls-cert-file={}", volume.file(CERTIFICATE).display()),
            format!("--tls-private-key-file={}", volume.file(KEY).display()),
            "--log-level=warn".to_owned(),
        ];
        all.extend_from_slice(arguments);
        let mut replica = Self {
            process: serve(run, &name, &all)?,
            run: run.clone(),
            name,
            arguments: all,
            address,
            health: kubeconfig::plain_client(&format!("http://127.0.0.1:{health}"))?,
            is_ready: Arc::new(AtomicBool::new(true)),
            volume,
            scratch,
            dialer: Dialer::new(address, super::HOST, authority.certificate())?,
            expected_reads: 1,
            ended: Life::default(),
        };
        replica.until_ready().await?;
        Ok(replica)
    }

    pub(super) fn backend(&self) -> Backend {
        Backend {
            address: self.address,
            health: self.health.clone(),
            is_ready: self.is_ready.clone(),
        }
    }

    /// Trusts other CAs when it asks for the certificate of the server.
    pub(super) fn trust(&mut self, bundle: &str) -> Result<()> {
        self.dialer = self.dialer.trusting(bundle)?;
        Ok(())
    }

    pub(super) async fn rotate(&mut self, authority: &Authority) -> Result<()> {
        self.until_read().await?;
        issue(authority, &self.scratch, &self.volume)?;
        self.expected_reads += 1;
        Ok(())
    }

    /// Waits until new connections get the certificate of the volume.
    pub(super) async fn until_certificate_shown(&self) -> Result<()> {
        let pem = fs::read(self.volume.file(CERTIFICATE)).context("reading the certificate")?;
        let expected = CertificateDer::from_pem_slice(&pem)?;
        wait::until(&format!("{} shows its new certificate", self.name), || async {
            ensure!(self.shown().await? == *expected, "it shows another");
            Ok(())
        })
        .await?;
        self.until_read().await
    }

    /// The certificate that a new connection gets.
    pub(super) async fn shown(&self) -> Result<Vec<u8>> {
        let connection = self.dialer.dial().await?;
        connection
            .certificate()
            .with_context(|| format!("{} shows no certificate", self.name))
    }

    /// Ends the server, replaces its certificate while it drains, and starts it again.
    pub(super) async fn restart(&mut self, authority: &Authority) -> Result<()> {
        let before = self.metrics().await?;
        let issued = issue(authority, &self.scratch, &self.volume);
        let how = self.process.terminate().await?;
        issued?;
        ensure!(
            how == "exit status: 0",
            "{} ended with {how}; see {}",
            self.name,
            self.process.log().display()
        );
        self.ended.reviews += before.reviews;
        self.ended.key_pairs.extend(before.key_pairs);
        self.process = serve(&self.run, &self.name, &self.arguments)?;
        self.expected_reads = 1;
        self.until_ready().await
    }

    /// Ends the server and returns the counts of all its processes.
    pub(super) async fn end(&mut self) -> Result<Life> {
        let last = self.metrics().await?;
        let how = self.process.terminate().await?;
        ensure!(how == "exit status: 0", "{} ended with {how}", self.name);
        let mut life = std::mem::take(&mut self.ended);
        life.reviews += last.reviews;
        life.key_pairs.extend(last.key_pairs);
        Ok(life)
    }

    async fn until_ready(&mut self) -> Result<()> {
        let health = &self.health;
        let what = format!("{} is ready", self.name);
        wait::until_served(&what, &mut self.process, || ready(health)).await
    }

    /// Waits until it has read all its key pairs.
    async fn until_read(&self) -> Result<()> {
        let expected = vec![self.expected_reads];
        wait::until(&format!("{} has read its key pair", self.name), || async {
            let read = self.metrics().await?.key_pairs;
            ensure!(
                read == expected,
                "it has read {read:?}, and was given {expected:?}"
            );
            Ok(())
        })
        .await
    }

    async fn metrics(&self) -> Result<Life> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let text = self.health.request_text(request).await.context("GET /metrics")?;
        let read = series(&text, READS);
        Ok(Life {
            reviews: series(&text, "controller_runtime_webhook_requests_total"),
            key_pairs: vec![read],
        })
    }
}

/// The sum over all series of a metric.
fn series(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with([' ', '{']))
        .filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

fn serve(run: &Arc<Run>, name: &str, arguments: &[String]) -> Result<Process> {
    let program = products::under_test("kcp-webhook")?;
    Process::start(run, name, &program, arguments, NO_ENVIRONMENT)
}

fn issue(authority: &Authority, scratch: &std::path::Path, volume: &Volume) -> Result<()> {
    let subject = Subject {
        common_name: "kcp-webhook",
        names: &[super::HOST],
        ..Subject::default()
    };
    let files = authority.issue(scratch, "tls", &subject)?;
    let read =
        |path: &PathBuf| fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let (certificate, key) = (read(&files.certificate)?, read(&files.key)?);
    volume.replace(&[(CERTIFICATE, &certificate), (KEY, &key)])
}

#[cfg(test)]
mod tests {
    use super::series;

    #[test]
    fn sums_the_series_of_a_name_and_of_no_longer_one() {
        let text = "# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3\na_total 7\nb 1\n";
        assert_eq!(series(text, "a"), 5);
        assert_eq!(series(text, "b"), 1);
        assert_eq!(series(text, "c"), 0);
    }
}
