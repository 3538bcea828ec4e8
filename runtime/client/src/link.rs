use crate::ClientError;
use crate::transport::{CONNECTIONS, Call, Transport};
use futures::future::try_join_all;
use http::Method;
use std::time::{Duration, Instant};

/// The link to a host, or the links to several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// What all connections together move.
    pub bytes_per_second: f64,
    /// From a small request to its answer; of several hosts, the longest.
    pub round_trip: Duration,
    /// Connections it takes to move that much.
    pub connections: usize,
    /// What one connection moves alone; of several hosts, the least.
    pub connection_bytes_per_second: f64,
}

impl Link {
    /// Both links used at the same time, as they were measured at the same time.
    pub fn joined(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            round_trip: self.round_trip.max(other.round_trip),
            connections: self.connections + other.connections,
            connection_bytes_per_second: self
                .connection_bytes_per_second
                .min(other.connection_bytes_per_second),
        }
    }
}

/// The first answer: a quarter of a second at 4 Mbit/s.
const FIRST: usize = 128 << 10;
/// The largest answer: a twentieth of a second at 1.3 Gbit/s, beyond which links are hardly ever what a job waits for.
const LARGEST: usize = 8 << 20;
/// An answer that took this long tells the rate; shorter ones lie within a shaper's burst or a window's growth.
const ENOUGH: Duration = Duration::from_millis(50);
/// How long one connection would take for its share of an answer over several: twice what tells, since it has yet to warm up.
const SHARE: Duration = Duration::from_millis(100);
/// The least share: two pieces of a shaper that sends 16 KB at a time.
const LEAST_SHARE: usize = 32 << 10;
/// More connections must move this many times as much to be worth their buffers.
const WORTH: f64 = 1.25;

/// Measures with one connection, then with twice as many as long as that moves more than a quarter more. It ends after some two
/// thirds of a second.
pub(crate) async fn probe(transport: &Transport) -> Result<Link, ClientError> {
    let mut round_trip = Duration::MAX;
    for _ in 0..3 {
        round_trip = round_trip.min(answer(transport, 0, 0).await?.took());
    }
    let alone = one(transport).await?;
    let mut link = Link {
        bytes_per_second: alone,
        round_trip,
        connections: 1,
        connection_bytes_per_second: alone,
    };
    while link.connections < CONNECTIONS {
        let connections = link.connections * 2;
        let mut rate = several(transport, connections, &link).await?;
        if rate < link.bytes_per_second * WORTH {
            // A hiccup may have hidden the gain.
            rate = rate.max(several(transport, connections, &link).await?);
        }
        if rate < link.bytes_per_second * WORTH {
            break;
        }
        // A hiccup while fewer were measured looks like a gain by more, so those are measured once again.
        let again = several(transport, link.connections, &link).await?;
        link.bytes_per_second = link.bytes_per_second.max(again);
        if link.connections == 1 {
            link.connection_bytes_per_second = link.bytes_per_second;
        }
        if rate < link.bytes_per_second * WORTH {
            break;
        }
        (link.connections, link.bytes_per_second) = (connections, rate);
    }
    transport.use_connections(link.connections);
    Ok(link)
}

/// Bytes a second over one connection.
async fn one(transport: &Transport) -> Result<f64, ClientError> {
    let mut bytes = FIRST;
    loop {
        let answer = answer(transport, 0, bytes).await?;
        if answer.took() >= ENOUGH || bytes >= LARGEST {
            return Ok(rate(&[answer]));
        }
        bytes = LARGEST.min(bytes * 4);
    }
}

/// Bytes a second over several connections at once.
async fn several(transport: &Transport, connections: usize, link: &Link) -> Result<f64, ClientError> {
    // Opens those that are not open yet.
    try_join_all((0..connections).map(|connection| answer(transport, connection, 0))).await?;
    let seconds = SHARE.max(link.round_trip * 4).as_secs_f64();
    let share = (link.connection_bytes_per_second * seconds) as usize;
    let share = share.clamp(LEAST_SHARE, LARGEST / connections);
    let answers = (0..connections).map(|connection| answer(transport, connection, share));
    Ok(rate(&try_join_all(answers).await?))
}

/// When parts of an answer came.
struct Timing {
    asked: Instant,
    /// When the first quarter was there: it fills buffers and opens windows, and does not count. When it was asked for, where all of it came at once.
    settled: Instant,
    ended: Instant,
    /// Bytes that came after that.
    later: usize,
}

impl Timing {
    fn took(&self) -> Duration {
        self.ended.duration_since(self.asked)
    }
}

/// What answers that came side by side moved, from when the first was settled until the last ended.
fn rate(answers: &[Timing]) -> f64 {
    let bytes: usize = answers.iter().map(|answer| answer.later).sum();
    let settled = answers.iter().map(|answer| answer.settled).min();
    let ended = answers.iter().map(|answer| answer.ended).max();
    let took = match (settled, ended) {
        (Some(settled), Some(ended)) => ended.duration_since(settled),
        _ => Duration::ZERO,
    };
    bytes as f64 / took.as_secs_f64().max(1e-6)
}

async fn answer(transport: &Transport, connection: usize, bytes: usize) -> Result<Timing, ClientError> {
    let asked = Instant::now();
    let count = bytes.to_string();
    let query = [("bytes", count.as_str())];
    let call = Call {
        query: &query,
        answer_limit: bytes as u64,
        ..Call::new(Method::GET, "/v1/probe")
    };
    let mut answer = transport.send_over(connection, call).await?;
    let (mut read, mut settled) = (0, None);
    while let Some(chunk) = answer.chunk().await? {
        read += chunk.len();
        if settled.is_none() && read >= bytes / 4 {
            settled = Some((read, Instant::now()));
        }
    }
    // Where the last piece was the first to settle it, all that is known is when all of it was there.
    let (before, settled) = settled.filter(|(before, _)| *before < read).unwrap_or((0, asked));
    Ok(Timing {
        asked,
        settled,
        ended: Instant::now(),
        later: read - before,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spans_all_answers_that_came_side_by_side() {
        let start = Instant::now();
        let answer = |settled: u64, ended: u64| Timing {
            asked: start,
            settled: start + Duration::from_millis(settled),
            ended: start + Duration::from_millis(ended),
            later: 1000,
        };
        assert!((rate(&[answer(10, 110)]) - 10_000.0).abs() < 1.0);
        assert!((rate(&[answer(10, 110), answer(60, 210)]) - 10_000.0).abs() < 1.0);
    }
}
