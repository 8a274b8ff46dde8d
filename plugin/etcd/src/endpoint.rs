//! The way to a member: any stream that can be opened anew.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What TLS can be spoken over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream of whatever kind.
pub type BoxedStream = Box<dyn Stream>;

/// A stream in the opening.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<BoxedStream>> + Send + 'a>>;

/// A way to a member's client port. Each call opens a stream of its own; dropping the stream closes it.
pub trait Dial: Send + Sync {
    /// Opens a stream. Whoever calls sets the deadline.
    fn dial(&self) -> Dialing<'_>;
}

/// A member that can be reached.
#[derive(Clone)]
pub struct Endpoint {
    dial: Arc<dyn Dial>,
    names: Vec<String>,
}

impl Endpoint {
    /// A member behind `dial`, whose certificate should be for one of `names`: host names or addresses.
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

/// Directly: `host:port`.
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
