use super::transport::Transport;
use super::{ByteMeter, ClientError};
use http::Method;
use std::time::{Duration, Instant};

/// The link to a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// What one connection moves.
    pub bytes_per_second: f64,
    /// From a small request to its answer.
    pub round_trip: Duration,
}

/// The first answer: a quarter of a second at 4 Mbit/s.
const FIRST: usize = 128 << 10;
/// The largest answer: a fifth of a second at 2.5 Gbit/s, beyond which links are never what a job waits for.
const LARGEST: usize = 64 << 20;
/// An answer that took this long tells the rate; shorter ones lie within a shaper's burst or a window's growth.
const ENOUGH: Duration = Duration::from_millis(200);

pub(super) async fn probe(transport: &Transport, meter: &ByteMeter) -> Result<Link, ClientError> {
    let mut round_trip = Duration::MAX;
    for _ in 0..3 {
        round_trip = round_trip.min(answer(transport, 0, meter).await?.took);
    }
    let mut bytes = FIRST;
    loop {
        let answer = answer(transport, bytes, meter).await?;
        if answer.took >= ENOUGH || bytes >= LARGEST {
            return Ok(Link {
                bytes_per_second: answer.rate(),
                round_trip,
            });
        }
        bytes = (bytes * 4).min(LARGEST);
    }
}

struct Answer {
    took: Duration,
    /// Bytes that came behind the first quarter, and how long they took.
    later: (usize, Duration),
}

impl Answer {
    /// The first quarter fills buffers and opens windows, and does not count.
    fn rate(&self) -> f64 {
        let (bytes, took) = self.later;
        bytes as f64 / took.as_secs_f64().max(1e-6)
    }
}

async fn answer(transport: &Transport, bytes: usize, meter: &ByteMeter) -> Result<Answer, ClientError> {
    let started = Instant::now();
    let count = bytes.to_string();
    let query = [("bytes", count.as_str())];
    let mut body = transport
        .send(Method::GET, "/v1/probe", &query, None, meter)
        .await?
        .into_body();
    let (mut read, mut settled) = (0, None);
    while let Some(chunk) = transport.chunk(&mut body, meter).await? {
        read += chunk.len();
        if settled.is_none() && read >= bytes / 4 {
            settled = Some((read, Instant::now()));
        }
    }
    let (before, at) = settled.unwrap_or((0, started));
    Ok(Answer {
        took: started.elapsed(),
        later: (read - before, at.elapsed()),
    })
}
