//! A connection to one etcd member over one stream, and the API calls that it can make.

use std::future::Future;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flate2::read::GzDecoder;
use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::transport::{self, Channel};
use tonic::{Response, Status as Answered};
use tower::{ServiceExt as _, service_fn};

use crate::endpoint::{BoxedStream, Endpoint};
use crate::error::{Call, ConnectionStep, Error, HandshakeError, with_time_limit};
use crate::response::{Alarm, KeyRevision, KeySpaceHash, Member, Members, Status};
use crate::rpc::etcdserverpb as wire;
use crate::rpc::etcdserverpb::cluster_client::ClusterClient;
use crate::rpc::etcdserverpb::kv_client::KvClient;
use crate::rpc::etcdserverpb::maintenance_client::MaintenanceClient;
use crate::snapshot::SnapshotStream;
use crate::stream::{FirstError, WatchedStream};
use crate::trust::Tls;

/// The maximum size of a response from etcd. It exceeds etcd's default request limit of 1.5 MiB.
const MAX_RESPONSE_BYTES: usize = 2 * 1024 * 1024;

/// The maximum size of a member's metrics. The metrics of etcd 3.6 have about 150 KiB, and a tenth of that when they are
/// compressed.
const MAX_METRICS_BYTES: usize = 4 * 1024 * 1024;

/// The encoding in which etcd sends its metrics if the client accepts it.
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// The maximum size of the headers of a response, which include etcd's error messages.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// How many bytes a member may send before this client acknowledges them. So it is also the most that can arrive of a snapshot
/// per round trip. With 1 MiB, a port-forward on one machine is idle for half of the time. HTTP/2's default is 64 KiB. The window
/// of grpc-go, which etcdctl uses, grows to 16 MiB.
const WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// The time limits of a connection to one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The time limit for opening a stream.
    pub dial: Duration,
    /// The time limit for setting up TLS and HTTP/2 over the stream.
    pub handshake: Duration,
    /// The time limit for the response to one call.
    pub call: Duration,
}

/// What the TLS handshake revealed about the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Whether the member's certificate is for one of the endpoint's names. The certificate chain is always verified.
    pub matches_endpoint_name: bool,
    /// When the member's certificate expires, in seconds since 1970. `None` if it cannot be parsed.
    pub certificate_not_after: Option<i64>,
}

/// A connection to one etcd member. It never connects again after it breaks, and closes when it is dropped.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    first_error: FirstError,
    server: ServerIdentity,
    call_timeout: Duration,
}

impl Connection {
    /// Opens a stream and sets up TLS and HTTP/2 over it. Fails with [`Error::Dial`], [`Error::Handshake`] or
    /// [`Error::Deadline`].
    pub async fn open(endpoint: &Endpoint, tls: &Tls, timeouts: Timeouts) -> Result<Self, Error> {
        let stream = with_time_limit(ConnectionStep::Dial, timeouts.dial, endpoint.dial())
            .await?
            .map_err(Error::Dial)?;
        let (config, seen) = tls
            .configure(endpoint.names())
            .map_err(|error| Error::Handshake(HandshakeError::from_tls(&error)))?;
        let handshake = async {
            // rustls requires a name, but does not use it: SNI is off, and `Verifier` checks the names.
            let name = ServerName::try_from("etcd").map_err(io::Error::other)?;
            TlsConnector::from(Arc::new(config)).connect(name, stream).await
        };
        let stream = with_time_limit(ConnectionStep::Handshake, timeouts.handshake, handshake)
            .await?
            .map_err(|error| Error::Handshake(HandshakeError::from_io(&error)))?;
        let certificate = seen.certificate();
        let server = ServerIdentity {
            matches_endpoint_name: certificate.is_some_and(|certificate| certificate.matches_endpoint_name),
            certificate_not_after: certificate.and_then(|certificate| certificate.not_after),
        };
        Self::over(Box::new(stream), server, timeouts).await
    }

    /// Sets up HTTP/2 over a stream without TLS, such as a socket in a folder that only this user can open. Fails with
    /// [`Error::Handshake`] or [`Error::Deadline`].
    pub async fn open_without_tls(stream: BoxedStream, timeouts: Timeouts) -> Result<Self, Error> {
        let server = ServerIdentity {
            matches_endpoint_name: true,
            certificate_not_after: None,
        };
        Self::over(stream, server, timeouts).await
    }

    async fn over(stream: BoxedStream, server: ServerIdentity, timeouts: Timeouts) -> Result<Self, Error> {
        let (stream, first_error) = WatchedStream::new(stream);
        let channel = with_time_limit(ConnectionStep::Handshake, timeouts.handshake, channel(stream))
            .await?
            .map_err(|error| Error::Handshake(HandshakeError::Protocol(error.to_string())))?;
        Ok(Self {
            channel,
            first_error,
            server,
            call_timeout: timeouts.call,
        })
    }

    /// Returns what the TLS handshake revealed about the member.
    pub fn server(&self) -> ServerIdentity {
        self.server
    }

    /// Queries the member for its own status. The member responds even without a leader. Like every call, it can fail with
    /// [`Error::Deadline`], [`Error::Broken`], [`Error::Rejected`], [`Error::Malformed`], and with [`Error::Handshake`] if the
    /// member rejects the client certificate.
    pub async fn status(&self) -> Result<Status, Error> {
        let mut client = self.maintenance();
        let request = client.status(wire::StatusRequest {});
        self.call(Call::Status, request).await.map(Status::from)
    }

    /// Asks the member for the hash of its keys and values up to this revision. The member reads its whole database.
    pub async fn hash_key_space(&self, revision: i64) -> Result<KeySpaceHash, Error> {
        let mut client = self.maintenance();
        let request = client.hash_kv(wire::HashKvRequest { revision });
        self.call(Call::HashKV, request).await.map(KeySpaceHash::from)
    }

    /// Reads the member's metrics in Prometheus' text format. etcd serves them beside its API, on the same port. Fails like each
    /// call. Metrics of more than 4 MiB are [`Error::Malformed`].
    pub async fn metrics(&self) -> Result<String, Error> {
        const CALL: Call = Call::Metrics;
        let malformed = |message: String| Error::Malformed { call: CALL, message };
        let broken = |error: &dyn std::error::Error| Error::Broken {
            call: CALL,
            cause: self
                .first_error
                .cause()
                .map_or_else(|| error.to_string(), ToString::to_string),
        };
        let too_long = || format!("more than {MAX_METRICS_BYTES} bytes");
        let request = http::Request::get("/metrics").header(ACCEPT_ENCODING, GZIP);
        let request = request.body(Body::empty());
        let request = request.map_err(|error| malformed(error.to_string()))?;
        let read = async {
            let response = self.channel.clone().oneshot(request).await;
            let response = response.map_err(|error| broken(&error))?;
            if response.status() != http::StatusCode::OK {
                return Err(malformed(format!(
                    "the response has the status {}",
                    response.status()
                )));
            }
            let is_compressed = response
                .headers()
                .get(CONTENT_ENCODING)
                .is_some_and(|encoding| encoding == GZIP);
            let body = Limited::new(response.into_body(), MAX_METRICS_BYTES)
                .collect()
                .await;
            let body = body.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    return malformed(too_long());
                }
                broken(&*error)
            });
            let body = body?.to_bytes();
            if !is_compressed {
                return String::from_utf8(body.into()).map_err(|error| malformed(error.to_string()));
            }
            let mut text = String::new();
            GzDecoder::new(&*body)
                .take(MAX_METRICS_BYTES as u64 + 1)
                .read_to_string(&mut text)
                .map_err(|error| malformed(error.to_string()))?;
            if text.len() > MAX_METRICS_BYTES {
                return Err(malformed(too_long()));
            }
            Ok(text)
        };
        with_time_limit(ConnectionStep::Call(CALL), self.call_timeout, read).await?
    }

    /// Queries the member for its own list of members (not linearizable). The member responds even without a leader; a
    /// member that is disconnected from the others returns the last list that it received.
    pub async fn members(&self) -> Result<Members, Error> {
        let mut client = self.cluster();
        let request = client.member_list(wire::MemberListRequest { linearizable: false });
        self.call(Call::MemberList, request).await.map(Members::from)
    }

    /// Queries the alarms of all members. The call goes through raft and gets no response without quorum.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, Error> {
        let mut client = self.maintenance();
        let request = client.alarm(wire::AlarmRequest::default());
        let response = self.call(Call::Alarm, request).await?;
        Ok(response.alarms.into_iter().map(Alarm::from).collect())
    }

    /// Adds a member with these peer URLs to the cluster, as a learner.
    pub async fn add_learner(&self, peer_urls: Vec<String>) -> Result<Member, Error> {
        let mut client = self.cluster();
        let request = client.member_add(wire::MemberAddRequest {
            peer_ur_ls: peer_urls,
            is_learner: true,
        });
        let response = self.call(Call::MemberAdd, request).await?;
        response.member.map(Member::from).ok_or_else(|| Error::Malformed {
            call: Call::MemberAdd,
            message: "the response does not contain the new member".to_owned(),
        })
    }

    /// Promotes a learner to a voter. etcd refuses this while the learner lags behind.
    pub async fn promote(&self, id: u64) -> Result<(), Error> {
        let mut client = self.cluster();
        let request = client.member_promote(wire::MemberPromoteRequest { id });
        self.call(Call::MemberPromote, request).await.map(drop)
    }

    /// Removes a member from the etcd cluster.
    pub async fn remove(&self, id: u64) -> Result<(), Error> {
        let mut client = self.cluster();
        let request = client.member_remove(wire::MemberRemoveRequest { id });
        self.call(Call::MemberRemove, request).await.map(drop)
    }

    /// Transfers leadership to another voter. Only the leader accepts this call.
    pub async fn move_leader(&self, target_id: u64) -> Result<(), Error> {
        let mut client = self.maintenance();
        let request = client.move_leader(wire::MoveLeaderRequest { target_id });
        self.call(Call::MoveLeader, request).await.map(drop)
    }

    /// Starts a snapshot of the member's database. Each part of it must arrive within the time limit of a call. The member
    /// sends its own data, even without a leader.
    pub async fn start_snapshot(&self) -> Result<SnapshotStream, Error> {
        let mut client = self.maintenance();
        let request = client.snapshot(wire::SnapshotRequest {});
        let responses = self.call(Call::Snapshot, request).await?;
        Ok(SnapshotStream::new(
            responses,
            self.first_error.clone(),
            self.call_timeout,
        ))
    }

    /// Rewrites the member's database file without its free pages. The member serves no requests until it has finished.
    pub async fn defragment(&self) -> Result<(), Error> {
        let mut client = self.maintenance();
        let request = client.defragment(wire::DefragmentRequest {});
        self.call(Call::Defragment, request).await.map(drop)
    }

    /// Deletes all revisions of keys before `revision`, on all members. The member responds once its own
    /// database is compacted.
    pub async fn compact(&self, revision: i64) -> Result<(), Error> {
        let mut client = self.kv();
        let request = client.compact(wire::CompactionRequest {
            revision,
            physical: true,
        });
        self.call(Call::Compact, request).await.map(drop)
    }

    /// Disarms an alarm.
    pub async fn disarm(&self, alarm: Alarm) -> Result<(), Error> {
        let mut client = self.maintenance();
        let request = client.alarm(wire::AlarmRequest {
            action: wire::alarm_request::AlarmAction::Deactivate.into(),
            ..wire::AlarmRequest::from(alarm)
        });
        self.call(Call::Alarm, request).await.map(drop)
    }

    /// Reads the value of a key from the current revision (linearizable). `None` if the key does not exist.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut client = self.kv();
        let request = client.range(wire::RangeRequest {
            key: key.to_vec(),
            ..wire::RangeRequest::default()
        });
        let response = self.call(Call::Range, request).await?;
        Ok(response.kvs.into_iter().next().map(|pair| pair.value))
    }

    /// Reads the revision at which a key was last written (linearizable). `None` if the key does not exist.
    pub async fn read_key_revision(&self, key: &[u8]) -> Result<Option<KeyRevision>, Error> {
        let mut client = self.kv();
        let request = client.range(wire::RangeRequest {
            key: key.to_vec(),
            ..wire::RangeRequest::default()
        });
        let response = self.call(Call::Range, request).await?;
        let pair = response.kvs.into_iter().next();
        Ok(pair.map(|pair| KeyRevision {
            modified: pair.mod_revision,
        }))
    }

    /// Counts the keys that existed at a revision (linearizable).
    pub async fn count_keys(&self, revision: i64) -> Result<u64, Error> {
        // A zero byte as the start and as the end means all keys (etcd, `api/etcdserverpb/rpc.proto`).
        const EVERY_KEY: &[u8] = &[0];
        let mut client = self.kv();
        let request = client.range(wire::RangeRequest {
            key: EVERY_KEY.to_vec(),
            range_end: EVERY_KEY.to_vec(),
            revision,
            count_only: true,
        });
        let response = self.call(Call::Range, request).await?;
        u64::try_from(response.count).map_err(|_| Error::Malformed {
            call: Call::Range,
            message: format!("the member counts {} keys", response.count),
        })
    }

    /// Stores a key with its value.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut client = self.kv();
        let request = client.put(wire::PutRequest {
            key: key.to_vec(),
            value: value.to_vec(),
        });
        self.call(Call::Put, request).await.map(drop)
    }

    async fn call<T>(
        &self,
        call: Call,
        request: impl Future<Output = Result<Response<T>, Answered>>,
    ) -> Result<T, Error> {
        with_time_limit(ConnectionStep::Call(call), self.call_timeout, request)
            .await?
            .map(Response::into_inner)
            .map_err(|status| Error::from_status(call, &status, self.first_error.cause()))
    }

    fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES)
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(MAX_RESPONSE_BYTES)
    }
}

/// Sets up HTTP/2 over an open stream. If the stream breaks, tonic's attempt to reconnect fails.
async fn channel(stream: WatchedStream) -> Result<Channel, transport::Error> {
    let stream = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let connector = service_fn(move |_: http::Uri| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        async {
            stream.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the connection has ended"))
        }
    });
    transport::Endpoint::from_static("http://etcd")
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .connect_with_connector(connector)
        .await
}
