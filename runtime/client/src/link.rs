use crate::ClientError;
use crate::transport::{CONNECTIONS, Call, Transport};
use frostline_wire::Link;
use futures::future::try_join_all;
use http::Method;
use std::time::{Duration, Instant};

/// First answer size in bytes (0.25 s at 4 Mbit/s).
const FIRST: usize = 128 << 10;
/// Maximum answer size in bytes (0.05 s at 1.3 Gbit/s). Faster links are rarely a bottleneck.
const LARGEST: usize = 8 << 20;
/// Minimum duration of a useful measurement. Shorter answers may fit in a traffic shaper's burst or in a
/// growing window.
const ENOUGH: Duration = Duration::from_millis(50);
/// Minimum target duration when measuring multiple connections; four round trips if that is longer. This is
/// twice [`ENOUGH`], because new connections have to warm up.
const SHARE: Duration = Duration::from_millis(100);
/// Minimum bytes per connection, enough for two 16 KB bursts from a traffic shaper.
const LEAST_SHARE: usize = 32 << 10;
/// Minimum gain in throughput that justifies the buffers of more connections.
const WORTH: f64 = 1.25;

/// Measures one connection, then doubles the number of connections as long as the throughput grows by at
/// least a quarter. The measurement needs about 0.7 seconds.
pub(crate) async fn probe(transport: &Transport) -> Result<Link, ClientError> {
    let mut round_trip = Duration::MAX;
    for _ in 0..3 {
        round_trip = round_trip.min(answer(transport, 0, 0).await?.took());
    }
    let alone = one(transport).await?;
    let link = Link {
        bytes_per_second: alone,
        round_trip,
        connections: 1,
        connection_bytes_per_second: alone,
    };
    let link = widen(link, |connections, link| several(transport, connections, link)).await?;
    transport.use_connections(link.connections);
    Ok(link)
}

/// Doubles the connections of `link` while that is worth it. `measure` returns the throughput of a number of
/// connections in bytes per second.
async fn widen<F>(mut link: Link, mut measure: impl FnMut(usize, Link) -> F) -> Result<Link, ClientError>
where
    F: Future<Output = Result<f64, ClientError>>,
{
    while link.connections < CONNECTIONS {
        let connections = link.connections * 2;
        let mut rate = measure(connections, link).await?;
        if rate < link.bytes_per_second * WORTH {
            // Measure twice to exclude a temporary disturbance.
            rate = rate.max(measure(connections, link).await?);
        }
        if rate < link.bytes_per_second * WORTH {
            break;
        }
        // A disturbance during the measurement with fewer connections looks like a larger gain, so repeat
        // that measurement.
        let again = measure(link.connections, link).await?;
        link.bytes_per_second = link.bytes_per_second.max(again);
        if link.connections == 1 {
            link.connection_bytes_per_second = link.bytes_per_second;
        }
        if rate < link.bytes_per_second * WORTH {
            break;
        }
        (link.connections, link.bytes_per_second) = (connections, rate);
    }
    Ok(link)
}

/// Measures single-connection throughput in bytes per second.
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

/// Measures the throughput of concurrent connections in bytes per second.
async fn several(transport: &Transport, connections: usize, link: Link) -> Result<f64, ClientError> {
    // Open the connections in advance.
    try_join_all((0..connections).map(|connection| answer(transport, connection, 0))).await?;
    let seconds = SHARE.max(link.round_trip * 4).as_secs_f64();
    let share = (link.connection_bytes_per_second * seconds) as usize;
    let share = share.clamp(LEAST_SHARE, LARGEST / connections);
    let answers = (0..connections).map(|connection| answer(transport, connection, share));
    Ok(rate(&try_join_all(answers).await?))
}

/// Timing of an answer.
struct AnswerTiming {
    requested: Instant,
    /// Arrival of the first quarter, which is excluded from the measurement because buffers fill and windows
    /// open meanwhile. If the complete answer arrived at the same moment, the time of the request.
    settled: Instant,
    ended: Instant,
    /// Bytes that arrived after `settled`.
    later: usize,
}

impl AnswerTiming {
    fn took(&self) -> Duration {
        self.ended.duration_since(self.requested)
    }
}

/// Returns the throughput of concurrent answers in bytes per second, from the earliest `settled` to the
/// latest `ended`.
fn rate(answers: &[AnswerTiming]) -> f64 {
    let bytes: usize = answers.iter().map(|answer| answer.later).sum();
    let settled = answers.iter().map(|answer| answer.settled).min();
    let ended = answers.iter().map(|answer| answer.ended).max();
    let took = match (settled, ended) {
        (Some(settled), Some(ended)) => ended.duration_since(settled),
        _ => Duration::ZERO,
    };
    bytes as f64 / took.as_secs_f64().max(1e-6)
}

async fn answer(transport: &Transport, connection: usize, bytes: usize) -> Result<AnswerTiming, ClientError> {
    let requested = Instant::now();
    let count = bytes.to_string();
    let query = [("bytes", count.as_str())];
    let call = Call {
        query: &query,
        answer_limit: bytes as u64,
        ..Call::new(Method::GET, "/v1/probe")
    };
    let mut answer = transport.send_over(connection, call).await?;
    let mut read = 0;
    let mut settled = None;
    while let Some(chunk) = answer.chunk().await? {
        read += chunk.len();
        if settled.is_none() && read >= bytes / 4 {
            settled = Some((read, Instant::now()));
        }
    }
    // If the last piece completed the first quarter, only the total duration is known.
    let (before, settled) = settled
        .filter(|(before, _)| *before < read)
        .unwrap_or((0, requested));
    Ok(AnswerTiming {
        requested,
        settled,
        ended: Instant::now(),
        later: read - before,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widens a link of 1 MB/s. `rates` are the measurements by number of connections, in order.
    async fn widened(rates: &[(usize, f64)]) -> Link {
        let mut rates = rates.iter();
        let link = Link {
            bytes_per_second: 1e6,
            round_trip: Duration::from_millis(1),
            connections: 1,
            connection_bytes_per_second: 1e6,
        };
        let measure = |connections, _| {
            let (expected, rate) = *rates.next().unwrap();
            assert_eq!(connections, expected);
            std::future::ready(Ok(rate))
        };
        let link = widen(link, measure).await.unwrap();
        assert_eq!(rates.next(), None);
        link
    }

    #[tokio::test]
    async fn a_link_that_limits_each_connection_is_used_over_four() {
        let link = widened(&[(2, 2e6), (1, 1e6), (4, 4e6), (2, 2e6)]).await;
        assert_eq!((link.connections, link.bytes_per_second), (4, 4e6));
        assert_eq!(link.connection_bytes_per_second, 1e6);
    }

    #[tokio::test]
    async fn a_link_that_one_connection_fills_is_used_over_one() {
        let link = widened(&[(2, 1e6), (2, 1.1e6)]).await;
        assert_eq!((link.connections, link.bytes_per_second), (1, 1e6));
    }

    #[tokio::test]
    async fn a_single_disturbed_measurement_does_not_count() {
        // Two connections are disturbed once, then one connection turns out to be as fast.
        let link = widened(&[(2, 0.2e6), (2, 1.9e6), (1, 1.8e6)]).await;
        assert_eq!((link.connections, link.bytes_per_second), (1, 1.8e6));
        assert_eq!(link.connection_bytes_per_second, 1.8e6);
    }

    #[test]
    fn a_rate_spans_all_answers_that_came_side_by_side() {
        let start = Instant::now();
        let answer = |settled: u64, ended: u64| AnswerTiming {
            requested: start,
            settled: start + Duration::from_millis(settled),
            ended: start + Duration::from_millis(ended),
            later: 1000,
        };
        assert!((rate(&[answer(10, 110)]) - 10_000.0).abs() < 1.0);
        assert!((rate(&[answer(10, 110), answer(60, 210)]) - 10_000.0).abs() < 1.0);
    }
}
