//! Summaries of retries for users: a line when a host starts to fail, and another line when it has recovered.

use crate::event_text::until;
use frostline_client::Notice;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time after the last scheduled retry until a host counts as recovered. Earlier batches may have been in
/// flight before the outage.
const QUIET: Duration = Duration::from_secs(10);

/// Hosts with failing requests.
#[derive(Debug, Default)]
pub(crate) struct Outages(BTreeMap<String, Outage>);

#[derive(Debug)]
struct Outage {
    since: Instant,
    last: Instant,
    /// Scheduled time of the last retry.
    next: Instant,
    retries: u64,
}

impl Outages {
    /// Returns the line for the first retry of an outage, or `None` for later retries.
    pub(crate) fn retried(&mut self, notice: &Notice, now: Instant) -> Option<String> {
        let (Notice::Retry {
            host,
            reason,
            wait_seconds,
            left_seconds,
            ..
        }
        | Notice::UploadRetry {
            host,
            reason,
            wait_seconds,
            left_seconds,
            ..
        }) = notice
        else {
            return None;
        };
        let wait = Duration::try_from_secs_f64(*wait_seconds).unwrap_or_default();
        if let Some(outage) = self.0.get_mut(host) {
            outage.last = now;
            outage.next = outage.next.max(now + wait);
            outage.retries += 1;
            return None;
        }
        let outage = Outage {
            since: now,
            last: now,
            next: now + wait,
            retries: 1,
        };
        self.0.insert(host.clone(), outage);
        Some(format!("retrying   {host}: {reason}{}", until(*left_seconds)))
    }

    /// Returns the lines for recovered hosts. Called when images arrive.
    pub(crate) fn arrived(&mut self, now: Instant) -> Vec<String> {
        let ended = self.0.extract_if(.., |_, outage| {
            now.saturating_duration_since(outage.next) >= QUIET
        });
        ended
            .map(|(host, outage)| {
                let lasted = outage.last.duration_since(outage.since).as_secs_f64();
                let retries = outage.retries;
                format!("recovered  {host}: {retries} retries in {lasted:.1} s, no samples were lost")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(host: &str, wait_seconds: f64) -> Notice {
        Notice::Retry {
            host: host.to_owned(),
            lost: 4,
            attempt: 1,
            wait_seconds,
            left_seconds: Some(150.0),
            reason: "connection refused".to_owned(),
        }
    }

    #[test]
    fn an_outage_is_a_line_at_its_begin_and_one_at_its_end() {
        let mut outages = Outages::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = outages.retried(&retry("a", 0.5), start).unwrap();
        assert_eq!(first, "retrying   a: connection refused, for another 150 s");
        for second in 1..30 {
            assert_eq!(outages.retried(&retry("a", 0.5), at(second)), None);
            // Batches that were in flight do not end the outage.
            assert!(outages.arrived(at(second)).is_empty());
        }
        assert!(outages.retried(&retry("b", 9.0), at(29)).is_some());
        assert!(outages.arrived(at(38)).is_empty());
        assert_eq!(
            outages.arrived(at(40)),
            ["recovered  a: 30 retries in 29.0 s, no samples were lost"]
        );
        assert!(outages.arrived(at(47)).is_empty());
        assert_eq!(outages.arrived(at(48)).len(), 1);
        assert!(outages.arrived(at(60)).is_empty());
        assert!(outages.retried(&retry("a", 0.5), at(61)).is_some());
    }
}
