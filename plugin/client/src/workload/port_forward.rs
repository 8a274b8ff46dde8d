//! Opens streams to a pod's port, through the API server and the kubelet, over a WebSocket.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use k8s_openapi::api::core::v1::Pod;
use kcp_etcd::{BoxedStream, Dial, Dialing};
use kube::{Api, Client, api::Portforwarder};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// A port of a pod. Each stream uses its own port-forward, so that a stream that hangs does not block others.
pub struct PortForward {
    pods: Api<Pod>,
    pod: String,
    port: u16,
}

impl PortForward {
    /// To open a stream, the user needs the verbs `get` and `create` on `pods/portforward`.
    pub fn new(client: Client, namespace: &str, pod: &str, port: u16) -> Self {
        Self {
            pods: Api::namespaced(client, namespace),
            pod: pod.to_owned(),
            port,
        }
    }
}

impl Dial for PortForward {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async {
            let forwarder = self.pods.portforward(&self.pod, &[self.port]).await;
            let mut forwarder = forwarder.map_err(io::Error::other)?;
            let absent = || io::Error::other("the API server did not open a stream for the port-forward");
            let stream = forwarder.take_stream(self.port).ok_or_else(absent)?;
            let failure = forwarder.take_error(self.port).ok_or_else(absent)?;
            Ok(Box::new(ForwardedStream {
                stream,
                failure: Some(Box::pin(failure)),
                forwarder,
            }) as BoxedStream)
        })
    }
}

/// The error channel of a port-forward. It resolves to a message, or to none when the port-forward ends.
type ErrorChannel = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// A stream that ends when the kubelet reports an error, because the data channel does not end on its own.
struct ForwardedStream {
    stream: DuplexStream,
    /// The error channel of the port-forward. `None` after it has resolved.
    failure: Option<ErrorChannel>,
    forwarder: Portforwarder,
}

impl Drop for ForwardedStream {
    fn drop(&mut self) {
        // Dropping the forwarder does not stop its task.
        self.forwarder.abort();
    }
}

impl AsyncRead for ForwardedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buffer.filled().len();
        let outcome = Pin::new(&mut this.stream).poll_read(context, buffer);
        let has_ended = outcome.is_ready() && buffer.filled().len() == filled;
        if outcome.is_ready() && !has_ended {
            return outcome;
        }
        // The error channel is checked first, because its message explains why the data ended.
        if let Some(failure) = &mut this.failure
            && let Poll::Ready(message) = failure.as_mut().poll(context)
        {
            this.failure = None;
            if let Some(message) = message {
                return Poll::Ready(Err(io::Error::other(message)));
            }
            if !has_ended {
                return Poll::Ready(Err(io::Error::other("the port-forward has ended")));
            }
        }
        outcome
    }
}

impl AsyncWrite for ForwardedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
