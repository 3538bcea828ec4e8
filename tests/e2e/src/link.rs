use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum chunk size in bytes. At 5 Mbit/s a chunk uses the link for 26 ms: small enough to share it evenly,
/// large enough that 10 Gbit/s needs fewer than 80,000 writes per second.
const TURN: usize = 16 * 1024;

/// Simulates a slow link in user space, for machines without permission to shape traffic. It relays loopback
/// connections and limits the total rate in each direction.
pub struct Link {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    downstream: Arc<Pace>,
    upstream: Arc<Pace>,
}

impl Link {
    /// Relays from a free loopback port to `target` at `bits_per_second` in each direction, or without a
    /// limit if None.
    ///
    /// # Errors
    /// Returns an error if no port can be opened.
    pub fn open(target: SocketAddr, bits_per_second: Option<u64>) -> io::Result<Self> {
        Self::open_with_cuts(target, bits_per_second, &[])
    }

    /// Like [`open`](Self::open), on the loopback port `listen`.
    ///
    /// # Errors
    /// Returns an error if the port cannot be opened.
    pub fn listen(listen: u16, target: SocketAddr, bits_per_second: Option<u64>) -> io::Result<Self> {
        Self::relay(listen, target, bits_per_second, &[])
    }

    /// Like [`open`](Self::open), but connections break: one when `cuts[0]` bytes were sent to `target` over
    /// all connections, another after `cuts[1]` more, and so on.
    ///
    /// # Errors
    /// Returns the same errors as [`open`](Self::open).
    pub fn open_with_cuts(
        target: SocketAddr,
        bits_per_second: Option<u64>,
        cuts: &[u64],
    ) -> io::Result<Self> {
        Self::relay(0, target, bits_per_second, cuts)
    }

    fn relay(port: u16, target: SocketAddr, bits_per_second: Option<u64>, cuts: &[u64]) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let downstream = Arc::new(Pace::new(bits_per_second, &[]));
        let upstream = Arc::new(Pace::new(bits_per_second, cuts));
        let (stop, up, down) = (
            Arc::clone(&stopping),
            Arc::clone(&upstream),
            Arc::clone(&downstream),
        );
        thread::spawn(move || {
            for client in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else {
                    continue;
                };
                let _ = join(&client, &server, &up, &down);
            }
        });
        Ok(Self {
            address,
            stopping,
            downstream,
            upstream,
        })
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of bytes sent to clients, including protocol overhead.
    pub fn bytes_to_clients(&self) -> u64 {
        self.downstream.carried.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes received from clients, including protocol overhead.
    pub fn bytes_from_clients(&self) -> u64 {
        self.upstream.carried.load(Ordering::Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Unblocks the listener, which then checks the flag.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn join(
    client: &TcpStream,
    server: &TcpStream,
    upstream: &Arc<Pace>,
    downstream: &Arc<Pace>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    pump(client.try_clone()?, server.try_clone()?, Arc::clone(upstream));
    pump(server.try_clone()?, client.try_clone()?, Arc::clone(downstream));
    Ok(())
}

fn pump(mut from: TcpStream, mut to: TcpStream, pace: Arc<Pace>) {
    thread::spawn(move || {
        let mut buffer = vec![0; TURN];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if pace.breaks(count) {
                let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
                break;
            }
            pace.wait_for(count);
            let Some(chunk) = buffer.get(..count) else { break };
            if to.write_all(chunk).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    });
}

/// Shares the link's time between connections. A sender waits until all earlier bytes have left.
struct Pace {
    seconds_per_byte: f64,
    idle_at: Mutex<Instant>,
    carried: AtomicU64,
    /// Descending values of `carried` at which connections break.
    breaks_at: Mutex<Vec<u64>>,
}

impl Pace {
    fn new(bits_per_second: Option<u64>, cuts: &[u64]) -> Self {
        let seconds_per_byte = bits_per_second.map_or(0.0, |rate| 8.0 / rate.max(1) as f64);
        let reached = cuts.iter().scan(0, |sum: &mut u64, cut| {
            *sum += cut;
            Some(*sum)
        });
        let mut breaks_at: Vec<u64> = reached.collect();
        breaks_at.reverse();
        Self {
            breaks_at: Mutex::new(breaks_at),
            seconds_per_byte,
            idle_at: Mutex::new(Instant::now()),
            carried: AtomicU64::new(0),
        }
    }

    /// True if the connection breaks before these bytes. Removes the reported break.
    fn breaks(&self, bytes: usize) -> bool {
        let mut breaks_at = self.breaks_at.lock();
        let after = self.carried.load(Ordering::Relaxed) + bytes as u64;
        breaks_at.pop_if(|cut| after > *cut).is_some()
    }

    fn wait_for(&self, bytes: usize) {
        self.carried.fetch_add(bytes as u64, Ordering::Relaxed);
        let taken = Duration::from_secs_f64(bytes as f64 * self.seconds_per_byte);
        let done = {
            let mut free_at = self.idle_at.lock();
            *free_at = (*free_at).max(Instant::now()) + taken;
            *free_at
        };
        thread::sleep(done.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_whole_and_are_counted() {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let link = Link::open(server.local_addr().unwrap(), Some(80_000_000)).unwrap();
        let sent: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        let copy = sent.clone();
        let writer = thread::spawn(move || server.accept().unwrap().0.write_all(&copy).unwrap());
        let mut received = Vec::new();
        TcpStream::connect(link.address)
            .unwrap()
            .read_to_end(&mut received)
            .unwrap();
        writer.join().unwrap();
        assert_eq!(received, sent);
        assert_eq!(link.bytes_to_clients(), 100_000);
    }

    #[test]
    fn the_pace_delays_bytes() {
        let pace = Pace::new(Some(8_000_000), &[]);
        let start = Instant::now();
        pace.wait_for(20_000);
        assert!(*pace.idle_at.lock() >= start + Duration::from_millis(20));
    }
}
