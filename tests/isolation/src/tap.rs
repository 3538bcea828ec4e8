//! Relay from a tenant to a host that inspects all answers.

use crate::canary::{Canaries, StreamTail, Viewer};
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

/// Time that a client may continue to send after the host has answered and closed the connection.
const LINGER: Duration = Duration::from_secs(10);

/// Buffer size in bytes.
const PIECE: usize = 64 << 10;

/// Address and protocol of a host.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Set for hosts with TLS. Clients connect to the tap without TLS.
    pub(crate) tls: Option<TlsConnector>,
}

/// Relay that stops on drop.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    relay: AbortHandle,
}

/// State shared by the connections of a tap.
struct Relay {
    target: Target,
    tenant: String,
    canaries: Arc<Canaries>,
}

impl Tap {
    /// Starts a tap that inspects data for `tenant`.
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
    /// Relays one connection. The client sees any failure as a closed connection.
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
                    // The host has closed the connection, most likely with an answer in flight.
                    std::future::pending::<()>().await;
                }
            }
        };
        let answering = async {
            let (mut piece, mut stream) = (vec![0; PIECE], StreamTail::default());
            // An error means that the host reset the connection.
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
            // The client disconnected.
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
