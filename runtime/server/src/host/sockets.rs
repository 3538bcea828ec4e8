//! Listening sockets of a host.

use super::error::StartError;
use crate::config::HostConfig;
use crate::http::RemoteAdmins;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpListener, UnixListener};

/// A listening socket and the bound address.
pub(super) type Bound = (TcpListener, SocketAddr);

/// Listening sockets of a host. Connections are not accepted yet, and dropping this closes all sockets.
pub(super) struct Listeners {
    pub(super) tenants: Bound,
    pub(super) admin: Option<(RemoteAdmins, Bound)>,
    pub(super) admin_socket: Option<UnixListener>,
    pub(super) metrics: Option<Bound>,
}

impl Listeners {
    /// Opens all configured sockets. The port for tenants is opened last.
    pub(super) async fn open(config: &HostConfig) -> Result<Self, StartError> {
        let admin = match config.admin_listen {
            Some(listen) => {
                let admins = RemoteAdmins::open(&config.live.get().admins)?;
                Some((admins, bind(listen).await?))
            }
            None => None,
        };
        let metrics = match config.metrics_listen {
            Some(listen) => Some(bind(listen.address).await?),
            None => None,
        };
        let admin_socket = config
            .admin_socket
            .as_deref()
            .map(|path| {
                admin_listener(path).map_err(|source| StartError::AdminSocket {
                    path: path.to_owned(),
                    source,
                })
            })
            .transpose()?;
        Ok(Self {
            tenants: bind(config.listen).await?,
            admin,
            admin_socket,
            metrics,
        })
    }
}

async fn bind(address: SocketAddr) -> Result<Bound, StartError> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })?;
    let bound = listener
        .local_addr()
        .map_err(|source| StartError::Listen { address, source })?;
    Ok((listener, bound))
}

/// Creates a socket that only the owner can use. The socket is created in a private folder and moved to
/// `path` once the permissions are set, so that other users can never connect.
fn admin_listener(path: &Path) -> std::io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::AddrInUse,
            "another host is already listening on it; use a separate local directory for each host",
        ));
    }
    let private = tempfile::Builder::new().prefix(".admin").tempdir_in(folder)?;
    let made = private.path().join("s");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    std::fs::rename(&made, path)?;
    Ok(listener)
}
