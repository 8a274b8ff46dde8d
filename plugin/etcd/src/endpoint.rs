//! Opens streams to an etcd member, over any transport.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream that can carry TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A boxed [`Stream`] of any type.
pub type BoxedStream = Box<dyn Stream>;

/// A future that opens a stream to a member.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<BoxedStream>> + Send + 'a>>;

/// A way to open streams to a member's client port. A stream closes when it is dropped.
pub trait Dial: Send + Sync {
    /// Opens a new stream to the member. The caller sets the time limit.
    fn dial(&self) -> Dialing<'_>;
}

/// How to reach a member, and the names expected in its certificate.
#[derive(Clone)]
pub struct Endpoint {
    dial: Arc<dyn Dial>,
    names: Vec<String>,
}

impl Endpoint {
    /// `names` are host names or addresses. The member's certificate should be for one of them.
    pub fn new(dial: impl Dial + 'static, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            dial: Arc::new(dial),
            names: names.into_iter().map(Into::into).collect(),
        }
    }

    pub(crate) fn dial(&self) -> Dialing<'_> {
        self.dial.dial()
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// Opens TCP streams to this `host:port`, without a proxy or port-forward.
#[derive(Debug, Clone)]
pub struct Tcp(pub String);

impl Dial for Tcp {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async {
            let stream = TcpStream::connect(&self.0).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedStream)
        })
    }
}
