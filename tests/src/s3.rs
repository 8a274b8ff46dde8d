//! A real S3 server, versitygw. Its buckets are folders, and its objects are files.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::addresses::free_port;
use crate::assets;
use crate::pki::{Authority, Subject};
use crate::process::Process;
use crate::run::Run;
use crate::wait;

const ACCESS_KEY: &str = "AKIATEST";

/// The secret key of the server's only user.
pub const SECRET_KEY: &str = "a-secret-that-no-output-contains";

/// The folder in which versitygw collects the parts of uploads, in a folder per object.
const PARTS: &str = ".sgwtmp/multipart";

/// An S3 server with TLS and one bucket.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    port: u16,
    buckets: PathBuf,
    authority: PathBuf,
}

/// How much a server can store.
#[derive(Debug, Clone, Copy)]
pub enum Capacity {
    Disk,
    /// This many mebibytes of memory. Needs the permission to mount.
    Mebibytes(u32),
}

impl S3Server {
    /// The name of the bucket.
    pub const BUCKET: &str = "backups";

    /// Starts a server. `name` names its folder and its log.
    pub async fn start(run: &Arc<Run>, name: &str, capacity: Capacity) -> Result<Self> {
        let program = assets::s3_server()?;
        let folder = run.subfolder(name)?;
        let authority = Authority::new("s3-ca")?;
        let subject = Subject {
            common_name: "s3",
            addresses: &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ..Subject::default()
        };
        let files = authority.issue(&folder, "s3", &subject)?;
        let ca = authority.write(&folder, "ca")?.certificate;
        let buckets = folder.join("buckets");
        fs::create_dir_all(&buckets)?;
        let port = free_port()?;
        let text = |path: &Path| path.to_str().map(str::to_owned).context("text");
        let mount = match capacity {
            Capacity::Disk => String::new(),
            Capacity::Mebibytes(size) => format!("mount -t tmpfs -o size={size}m tmpfs \"$buckets\" && "),
        };
        // The mount is in a namespace of the server alone, so that it ends with the server.
        let script = format!(
            "buckets=$1; shift; {mount}mkdir -p \"$buckets/{}\" && exec \"$@\"",
            Self::BUCKET
        );
        let (shell, unshare): (&str, &[&str]) = match capacity {
            Capacity::Disk => ("/bin/sh", &[]),
            Capacity::Mebibytes(_) => ("unshare", &["--mount", "/bin/sh"]),
        };
        let mut arguments: Vec<String> = unshare.iter().map(ToString::to_string).collect();
        arguments.extend(["-c".to_owned(), script, "sh".to_owned(), text(&buckets)?]);
        arguments.extend([text(&program)?, format!("--port=127.0.0.1:{port}")]);
        arguments.extend([
            format!("--cert={}", text(&files.certificate)?),
            format!("--key={}", text(&files.key)?),
            "--quiet".to_owned(),
            "posix".to_owned(),
        ]);
        // Not every file system has extended attributes.
        arguments.push(format!("--sidecar={}", text(&folder)?));
        arguments.push(text(&buckets)?);
        let environment = [
            ("ROOT_ACCESS_KEY_ID", ACCESS_KEY),
            ("ROOT_SECRET_ACCESS_KEY", SECRET_KEY),
        ];
        let process = Process::start(run, name, Path::new(shell), arguments, &environment)?;
        let mut server = Self {
            process,
            port,
            buckets,
            authority: ca,
        };
        wait::until_served("the S3 server listens", &mut server.process, async || {
            TcpStream::connect(("127.0.0.1", port)).await?;
            Ok(())
        })
        .await?;
        Ok(server)
    }

    /// The environment of a client with the user's credentials, as `NAME=VALUE`.
    pub fn environment(&self) -> Vec<String> {
        vec![
            format!("AWS_ENDPOINT_URL=https://127.0.0.1:{}", self.port),
            format!("AWS_CA_BUNDLE={}", self.authority.display()),
            "AWS_REGION=us-east-1".to_owned(),
            format!("AWS_ACCESS_KEY_ID={ACCESS_KEY}"),
            format!("AWS_SECRET_ACCESS_KEY={SECRET_KEY}"),
        ]
    }

    /// Uploads a file with curl in one request, as a person would, and returns the command.
    pub fn upload(&self, file: &Path, key: &str) -> Command {
        let mut command = Command::new("curl");
        command
            .args([
                "--fail",
                "--silent",
                "--show-error",
                "--aws-sigv4",
                "aws:amz:us-east-1:s3",
            ])
            .arg("--user")
            .arg(format!("{ACCESS_KEY}:{SECRET_KEY}"))
            // The server demands the header, and curl 7 does not set it.
            .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
            .arg("--cacert")
            .arg(&self.authority)
            .arg("--upload-file")
            .arg(file)
            .arg(format!("https://127.0.0.1:{}/{}/{key}", self.port, Self::BUCKET))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The folder of the bucket, as this process sees it.
    pub fn bucket(&self) -> Result<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.process.id()?));
        let buckets = self.buckets.strip_prefix("/").context("an absolute path")?;
        Ok(root.join(buckets).join(Self::BUCKET))
    }

    /// The file of an object.
    pub fn object(&self, key: &str) -> Result<PathBuf> {
        Ok(self.bucket()?.join(key))
    }

    /// How many bytes of an object's uploads that are not complete the server has.
    pub fn incomplete_bytes(&self, key: &str) -> Result<u64> {
        fn size(folder: &Path) -> u64 {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => size(&entry.path()),
                    Ok(metadata) => metadata.len(),
                    Err(_) => 0,
                })
                .sum()
        }
        let hash = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
        let bytes = hash.as_ref().iter();
        let folder = bytes.fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        Ok(size(&self.bucket()?.join(PARTS).join(folder)))
    }
}
