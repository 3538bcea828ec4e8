//! Retries as people read them: one line when a host begins to fail, one when it answers again, however many requests were retried.

use crate::event_text::until;
use frostline_client::Notice;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A host whose next retry is this long over answers again. A batch that arrives proves nothing: it may have been on its way.
const QUIET: Duration = Duration::from_secs(10);

/// The hosts whose requests are being retried.
#[derive(Debug, Default)]
pub(crate) struct Outages(BTreeMap<String, Outage>);

#[derive(Debug)]
struct Outage {
    since: Instant,
    last: Instant,
    /// When the last request was to be sent again.
    next: Instant,
    retries: u64,
}

impl Outages {
    /// The line for a retry; none for a host of which it was said.
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

    /// The lines for hosts that answer again: called when images arrive.
    pub(crate) fn arrived(&mut self, now: Instant) -> Vec<String> {
        let over = |outage: &Outage| now.saturating_duration_since(outage.next) >= QUIET;
        let ended = self.0.extract_if(.., |_, outage| over(outage));
        ended
            .map(|(host, outage)| {
                let lasted = outage.last.duration_since(outage.since).as_secs_f64();
                let retries = outage.retries;
                format!(
                    "recovered  {host}: {retries} requests were retried in {lasted:.1} s; nothing was lost"
                )
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
        let (mut outages, start) = (Outages::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = outages.retried(&retry("a", 0.5), start).unwrap();
        assert_eq!(first, "retrying   a: connection refused, for another 150 s");
        for second in 1..30 {
            assert_eq!(outages.retried(&retry("a", 0.5), at(second)), None);
            // Batches that were on their way end no outage.
            assert!(outages.arrived(at(second)).is_empty());
        }
        assert!(outages.retried(&retry("b", 9.0), at(29)).is_some());
        assert!(outages.arrived(at(38)).is_empty());
        assert_eq!(
            outages.arrived(at(40)),
            ["recovered  a: 30 requests were retried in 29.0 s; nothing was lost"]
        );
        assert!(outages.arrived(at(47)).is_empty());
        assert_eq!(outages.arrived(at(48)).len(), 1);
        assert!(outages.arrived(at(60)).is_empty());
        assert!(outages.retried(&retry("a", 0.5), at(61)).is_some());
    }
}
