//! Messages to the service manager that started this process, in systemd's protocol (`sd_notify(3)`). Does
//! nothing if there is no service manager.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

/// Time by which the service manager extends its timeout while the host starts or drains. A host that is
/// stuck is killed after this time.
const EXTENSION: Duration = Duration::from_secs(30);

/// Interval of these extensions. A message may be late by twice this time.
const EXTEND: Duration = Duration::from_secs(10);

/// Connection to the service manager.
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Interval of watchdog messages, if the service manager expects them.
    watchdog: Option<Interval>,
}

impl ServiceManager {
    /// Connects to the service manager in the environment variable `NOTIFY_SOCKET`, if it is set. A watchdog
    /// message is due twice in the time of `WATCHDOG_USEC`.
    pub(crate) fn from_environment() -> Self {
        let watchdog = env::var("WATCHDOG_USEC").ok();
        let watchdog = watchdog.and_then(|microseconds| microseconds.parse().ok());
        let watchdog = watchdog
            .filter(|microseconds| *microseconds > 1)
            .map(|microseconds| {
                let mut due = interval(Duration::from_micros(microseconds) / 2);
                due.set_missed_tick_behavior(MissedTickBehavior::Delay);
                due
            });
        Self {
            socket: connect(),
            watchdog,
        }
    }

    /// Sends a message such as `READY=1`.
    pub(crate) fn notify(&self, message: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, message, "cannot notify the service manager");
        }
    }

    /// Completes when the next watchdog message is due. Never completes without a watchdog.
    pub(crate) async fn watchdog_due(&mut self) {
        match &mut self.watchdog {
            Some(due) => drop(due.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Waits for `work`, and meanwhile extends the service manager's timeout for starting or stopping.
    pub(crate) async fn extend_until<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            self.notify(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
            if let Ok(done) = timeout(EXTEND, &mut work).await {
                return done;
            }
        }
    }
}

/// Opens a socket for messages. A name that starts with `@` is an abstract socket.
fn connect() -> Option<(UnixDatagram, SocketAddr)> {
    let name = env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(Path::new(&name)),
    };
    let opened = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        // A service manager that does not read must not block the host.
        socket.set_nonblocking(true)?;
        Ok((socket, address))
    });
    opened
        .inspect_err(|error| tracing::warn!(%error, "cannot use NOTIFY_SOCKET"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn a_long_drain_extends_the_timeout_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let received = UnixDatagram::bind(&path).unwrap();
        received.set_nonblocking(true).unwrap();
        let manager = ServiceManager {
            socket: Some((
                UnixDatagram::unbound().unwrap(),
                SocketAddr::from_pathname(&path).unwrap(),
            )),
            watchdog: None,
        };
        manager.extend_until(sleep(EXTEND * 5 / 2)).await;
        let mut message = [0; 64];
        for _ in 0..3 {
            let length = received.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"EXTEND_TIMEOUT_USEC=30000000");
        }
        assert!(received.recv(&mut message).is_err());
        assert!(EXTEND * 2 < EXTENSION);
    }
}
