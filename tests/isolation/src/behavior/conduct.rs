//! Conducts of clients on a connection.

use super::request::{RouteRequest, Size};
use super::routes::Route;
use crate::scene::Scene;
use anyhow::Result;
use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Number of concurrent connections.
const CONNECTIONS: usize = 16;

/// Number of connections with bodies of the maximum size, which all tenants of a mixture send from one
/// machine.
const LARGE_CONNECTIONS: usize = 4;

/// Number of connections and streams per connection of a client that reads nothing. A host serves 128 streams
/// per connection, and each answer that is not sent occupies memory.
const UNREAD_CONNECTIONS: usize = 24;
const UNREAD_STREAMS: usize = 120;

/// Number of requests per connection of a client that sends many.
const REQUESTS: usize = 8;

/// Duration of an act, after which the client leaves in any case.
const LIMIT: Duration = Duration::from_secs(10);

/// Time that a client stays without reading.
const STAY: Duration = Duration::from_secs(3);

/// Maximum time until a client leaves at a random moment.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

/// Pause between two bytes.
const BYTE_INTERVAL: Duration = Duration::from_millis(5);

/// Conduct of a client that a host cannot prevent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Opens many streams with a flow control window of 0.
    ReadNothing,
    /// Disconnects at a random moment, possibly within the request.
    Leave,
    /// Sends a byte at a time.
    ByteAtATime,
    /// Sends names, texts and uploads of the maximum size.
    Largest,
    /// Sends many small requests.
    ManySmall,
    /// Opens the same streams as [`Conduct::ReadNothing`] without a token.
    WithoutToken,
}

impl Conduct {
    pub(crate) const ALL: [Self; 6] = [
        Self::ReadNothing,
        Self::Leave,
        Self::ByteAtATime,
        Self::Largest,
        Self::ManySmall,
        Self::WithoutToken,
    ];

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::ReadNothing => "reads nothing",
            Self::Leave => "leaves at a random moment",
            Self::ByteAtATime => "sends a byte at a time",
            Self::Largest => "sends maximum sizes",
            Self::ManySmall => "sends many small requests",
            Self::WithoutToken => "sends no token",
        }
    }

    /// Behaves like this on a route as the acting tenant, on new connections. The host may end them at any
    /// time.
    ///
    /// # Errors
    /// Returns an error if the request cannot be built.
    pub(super) async fn act(self, scene: &Scene, route: Route, seed: u64) -> Result<()> {
        let size = match self {
            Self::Largest => Size::Largest,
            Self::ManySmall => Size::Small,
            // Long names, which a host may repeat in its answers.
            Self::ReadNothing | Self::WithoutToken if route.method == "GET" && seed.is_multiple_of(2) => {
                Size::Largest
            }
            _ => Size::Usual,
        };
        let request = RouteRequest::new(scene, route, size, seed).await?;
        let address = scene.address()?;
        let connections = match self {
            Self::ReadNothing | Self::WithoutToken => UNREAD_CONNECTIONS,
            Self::Largest => LARGE_CONNECTIONS,
            _ => CONNECTIONS,
        };
        let mut acting = JoinSet::new();
        for number in 0..connections as u64 {
            let random = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(CONNECTIONS as u64) + number);
            acting.spawn(timeout(LIMIT, self.connect(address, request.clone(), random)));
        }
        acting.join_all().await;
        Ok(())
    }

    async fn connect(self, address: SocketAddr, request: RouteRequest, random: ChaCha8Rng) -> Result<()> {
        match self {
            Self::ReadNothing => unread_streams(address, &request).await,
            Self::Leave => leave(address, &request.http1(), random).await,
            Self::ByteAtATime => byte_at_a_time(address, &request.http1()).await,
            Self::Largest => exchange(address, &request.http1()).await,
            Self::ManySmall => {
                let bytes = request.http1();
                for _ in 0..REQUESTS {
                    exchange(address, &bytes).await?;
                }
                Ok(())
            }
            Self::WithoutToken => unread_streams(address, &request.of_stranger()).await,
        }
    }
}

/// Sends a request and reads the answer.
async fn exchange(address: SocketAddr, request: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    // The host may answer before it has read everything.
    let _ = stream.write_all(request).await;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Opens streams on one connection that the host cannot answer, because the window is empty.
async fn unread_streams(address: SocketAddr, request: &RouteRequest) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    let (mut client, connection) = h2::client::Builder::new()
        .initial_window_size(0)
        .handshake::<_, Bytes>(stream)
        .await?;
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let opening = async {
        let mut open = Vec::new();
        for _ in 0..UNREAD_STREAMS {
            client = client.clone().ready().await?;
            let is_empty = request.body.is_empty();
            let (answer, mut body) = client.send_request(request.http2(address)?, is_empty)?;
            if !is_empty {
                body.send_data(request.body.clone(), true)?;
            }
            open.push((answer, body));
        }
        sleep(STAY).await;
        anyhow::Ok(())
    };
    // Streams above the host's limit wait for others.
    timeout(STAY * 2, opening).await?
}

/// Sends all or a part of a request, and disconnects after a random time.
async fn leave(address: SocketAddr, request: &[u8], mut random: ChaCha8Rng) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let length = request.len() as u64 + 1;
    let sent = match random.next_u64() % 3 {
        0 => usize::try_from(random.next_u64() % length)?,
        _ => request.len(),
    };
    stream.write_all(request.get(..sent).unwrap_or_default()).await?;
    let stays = LEAVES_WITHIN.mul_f64(random.next_u64() as f64 / u64::MAX as f64);
    let mut answer = Vec::new();
    // Half of the clients read until they leave.
    match random.next_u64() % 2 {
        0 => drop(timeout(stays, stream.read_to_end(&mut answer)).await),
        _ => sleep(stays).await,
    }
    Ok(())
}

async fn byte_at_a_time(address: SocketAddr, request: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let sending = async {
        for byte in request {
            stream.write_all(&[*byte]).await?;
            sleep(BYTE_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    // Bodies are longer than what can be sent in this time.
    timeout(STAY, sending).await?
}
