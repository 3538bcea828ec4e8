//! The one way from a tenant to a host: a relay that looks at all that the tenant receives.

use crate::canary::{Canaries, Pieces, Viewer};
use anyhow::Result;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long a client may go on sending after the host has answered and closed.
const LINGER: Duration = Duration::from_secs(10);

/// What is relayed at once.
const PIECE: usize = 64 << 10;

/// Where a host listens, and how it is spoken to.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Of a host behind TLS. Its clients speak plainly to the tap.
    pub(crate) tls: Option<TlsConnector>,
}

/// See the module. It ends when this is dropped.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    relay: AbortHandle,
}

/// What a tap does for each of its connections.
struct Relay {
    target: Target,
    tenant: String,
    canaries: Arc<Canaries>,
}

impl Tap {
    /// A tap of what `tenant` receives.
    pub(crate) async fn open(target: Target, tenant: &str, canaries: &Arc<Canaries>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let relay = Arc::new(Relay {
            target,
            tenant: tenant.to_owned(),
            canaries: Arc::clone(canaries),
        });
        let relaying = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let relay = Arc::clone(&relay);
                connections.spawn(async move { relay.connect(client).await });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            relay: relaying.abort_handle(),
        })
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

impl Relay {
    /// Whatever ends a connection is for its client to see.
    async fn connect(&self, client: TcpStream) -> io::Result<()> {
        let host = TcpStream::connect(self.target.address).await?;
        host.set_nodelay(true)?;
        client.set_nodelay(true)?;
        match &self.target.tls {
            Some(tls) => {
                let name = ServerName::from(self.target.address.ip());
                self.join(client, tls.connect(name, host).await?).await
            }
            None => self.join(client, host).await,
        }
    }

    async fn join(&self, client: TcpStream, host: impl AsyncRead + AsyncWrite) -> io::Result<()> {
        let (mut asks, mut hears) = client.into_split();
        let (mut answers, mut listens) = tokio::io::split(host);
        let asking = async {
            let mut piece = vec![0; PIECE];
            loop {
                let bytes = asks.read(&mut piece).await?;
                let Some(piece) = piece.get(..bytes).filter(|piece| !piece.is_empty()) else {
                    return io::Result::Ok(());
                };
                if listens.write_all(piece).await.is_err() || listens.flush().await.is_err() {
                    // The host has closed, most likely with an answer in flight.
                    std::future::pending::<()>().await;
                }
            }
        };
        let answering = async {
            let (mut piece, mut stream) = (vec![0; PIECE], Pieces::default());
            // One that is cut off has ended.
            while let Ok(bytes @ 1..) = answers.read(&mut piece).await {
                let piece = piece.get(..bytes).unwrap_or_default();
                let viewer = Viewer::Tenant(&self.tenant);
                self.canaries
                    .inspect_piece(viewer, "an answer", &mut stream, piece);
                hears.write_all(piece).await?;
            }
            hears.shutdown().await
        };
        tokio::select! {
            // The client has left.
            left = asking => return left,
            answered = answering => answered?,
        }
        let mut nowhere = tokio::io::sink();
        let rest = tokio::io::copy(&mut asks, &mut nowhere);
        tokio::time::timeout(LINGER, rest)
            .await
            .map_or(Ok(()), |copied| copied.map(drop))
    }
}
