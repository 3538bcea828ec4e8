//! Proxy in front of a store that stops answering or fails requests.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Behavior of a [`FaultProxy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFault {
    None,
    /// Connections are accepted, but requests are never answered.
    Hangs,
    /// Every request is answered with status 503.
    Fails,
    /// Connections are closed at once.
    Unreachable,
}

/// See the module documentation.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    target: SocketAddr,
    fault: Mutex<StoreFault>,
    /// Open connections of clients by number.
    clients: Mutex<HashMap<usize, TcpStream>>,
}

impl FaultProxy {
    pub(crate) fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ProxyState {
            target,
            fault: Mutex::new(StoreFault::None),
            clients: Mutex::default(),
        });
        let state = Arc::clone(&shared);
        thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let state = Arc::clone(&state);
                thread::spawn(move || {
                    let _ = state.serve(number, client);
                    state.clients.lock().remove(&number);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes the behavior and closes all connections.
    pub(crate) fn set(&self, fault: StoreFault) {
        *self.shared.fault.lock() = fault;
        for client in self.shared.clients.lock().values() {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

impl ProxyState {
    fn serve(&self, number: usize, mut client: TcpStream) -> io::Result<()> {
        let fault = {
            // The lock orders this connection before or after a change of behavior.
            let fault = self.fault.lock();
            self.clients.lock().insert(number, client.try_clone()?);
            *fault
        };
        match fault {
            StoreFault::None => {
                let mut server = TcpStream::connect(self.target)?;
                let (mut requests, mut to_server) = (client.try_clone()?, server.try_clone()?);
                thread::spawn(move || {
                    let _ = io::copy(&mut requests, &mut to_server);
                    to_server.shutdown(Shutdown::Write)
                });
                io::copy(&mut server, &mut client)?;
                client.shutdown(Shutdown::Both)
            }
            StoreFault::Hangs => io::copy(&mut client, &mut io::sink()).map(drop),
            StoreFault::Fails => fail(&mut client),
            StoreFault::Unreachable => client.shutdown(Shutdown::Both),
        }
    }
}

/// Reads a request and answers with status 503.
fn fail(client: &mut TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut read = [0; 64 * 1024];
    // The head of a request arrives with the first bytes.
    let _ = client.read(&mut read)?;
    let body = "<Error><Code>ServiceUnavailable</Code><Message>injected</Message></Error>";
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close";
    write!(client, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    client.shutdown(Shutdown::Write)?;
    // Closing before the client has sent everything would discard the answer.
    io::copy(client, &mut io::sink()).map(drop)
}
