use super::StartError;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpListener, UnixListener};

pub(super) async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    Ok((listener, address))
}

/// A socket that only its owner may use. It is made in a folder of its own and moved to its place when its permissions are right.
pub(super) fn admin_listener(path: &Path) -> std::io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::AddrInUse,
            "another host answers there; give each a local directory of its own",
        ));
    }
    let private = tempfile::Builder::new().prefix(".admin").tempdir_in(folder)?;
    let made = private.path().join("s");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    std::fs::rename(&made, path)?;
    Ok(listener)
}
