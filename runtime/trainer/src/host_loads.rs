//! Polls the load of the hosts and adapts the job's requests to it.

use crate::Events;
use crate::event::warn;
use crate::pipeline::Steering;
use frostline_client::{Fetcher, Hosts, Source};
use frostline_wire::{Load, Split, StageLoad};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// Polling interval. The load usually changes within seconds to minutes, and a response costs the host only
/// microseconds.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout for a host's response. If the host does not respond, nothing is changed.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Minimum number of open requests per host. With two requests, the host can read samples for the next
/// request while it computes.
const MIN_OPEN_REQUESTS: usize = 2;

/// A job is warned if its token ends within this time in seconds: a week, which leaves time to ask the operator.
const TOKEN_NOTICE: u64 = 7 * 86_400;

/// Loads of the responding hosts by address.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostLoads(Vec<(String, Load)>);

impl HostLoads {
    /// Queries all `hosts` concurrently.
    pub(crate) async fn ask(hosts: &Hosts) -> Self {
        let told = hosts.all(|client| async move {
            let load = tokio::time::timeout(TIMEOUT, client.load()).await;
            Ok(load
                .ok()
                .and_then(Result::ok)
                .map(|load| (client.url().to_owned(), load)))
        });
        Self(told.await.into_iter().flatten().flatten().collect())
    }

    /// Samples per guest call, or `None` if no host reports it. This is the maximum over the hosts because
    /// requests have the same size for all hosts.
    pub(crate) fn grant(&self) -> Option<usize> {
        let grants = self.0.iter().filter_map(|(_, load)| load.grant);
        grants.max().and_then(|grant| usize::try_from(grant).ok())
    }

    /// Returns the URL of any responding host that saturates int8 dot products.
    pub(crate) fn without_exact_int8(&self) -> Option<&str> {
        let host = self.0.iter().find(|(_, load)| !load.exact_int8);
        host.map(|(url, _)| url.as_str())
    }

    /// Returns the host at which the job's token ends first within [`TOKEN_NOTICE`], with the seconds left.
    fn token_ends(&self) -> Option<(&str, u64)> {
        let all = self.0.iter();
        let ends = all.filter_map(|(url, load)| Some((url.as_str(), load.token_seconds?)));
        ends.filter(|(_, seconds)| *seconds < TOKEN_NOTICE)
            .min_by_key(|(_, seconds)| *seconds)
    }

    /// Samples per engine batch for the layers of `source` if enough samples are queued, or `None` if no host
    /// reports it. This is the maximum over the hosts.
    pub(crate) fn engine_batch(&self, source: &Source) -> Option<usize> {
        let known = self
            .0
            .iter()
            .filter_map(|(_, load)| Some(stage(load, source)?.efficient_batch));
        known.max().and_then(|rows| usize::try_from(rows).ok())
    }

    /// Limits the open requests for `source` at each host to what the tenant's part of the host can process
    /// in a second.
    fn limit_requests(&self, fetcher: &Fetcher, source: &Source) {
        for (url, load) in &self.0 {
            if let Some(requests) = open_requests(load, source) {
                fetcher.allow(url, requests);
            }
        }
    }
}

/// Returns the number of requests per second that the tenant's part of the host can process, or `None` if the
/// host does not report it. The minimum is [`MIN_OPEN_REQUESTS`].
fn open_requests(load: &Load, source: &Source) -> Option<usize> {
    let rate = load.rows_per_second(stage(load, source)?)?;
    let requests = rate / source.request_samples.max(1) as f64;
    Some((requests as usize).max(MIN_OPEN_REQUESTS))
}

fn stage<'a>(load: &'a Load, source: &Source) -> Option<&'a StageLoad> {
    match (&source.model, &source.split) {
        (Some(model), Split::Cut(cut)) => load.stage(&model.sha256, cut),
        _ => None,
    }
}

/// Polls the hosts while a job runs, and adapts the job's requests to the load. The first poll is immediate, and
/// polling stops when the handle is dropped. `events` receives a single warning if the job's token ends soon.
///
/// If the frozen layers have int8 weights with eight bits, `may_saturate` must be set. A single warning then
/// names a host that saturates int8 dot products.
pub(crate) fn watch_loads(
    hosts: &Hosts,
    fetcher: &Fetcher,
    steering: &Arc<Steering>,
    events: &Events,
    may_saturate: bool,
) -> AbortOnDropHandle<()> {
    let hosts = hosts.clone();
    let fetcher = fetcher.clone();
    let steering = Arc::clone(steering);
    let mut on_saturation = may_saturate.then(|| Arc::clone(events));
    let mut on_token_end = Some(Arc::clone(events));
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let share = HostLoads::ask(&hosts).await;
            steering.round_to_grants(share.grant());
            share.limit_requests(&fetcher, &steering.current());
            if let Some(host) = share.without_exact_int8()
                && let Some(events) = on_saturation.take()
            {
                warn(&events, saturates(host));
            }
            if let Some((host, seconds)) = share.token_ends()
                && let Some(events) = on_token_end.take()
            {
                warn(&events, token_ends(host, seconds));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }))
}

/// Creates the warning for a token that ends soon.
fn token_ends(host: &str, seconds: u64) -> String {
    let left = match seconds / 3600 {
        0 => format!("{} minutes", seconds / 60),
        hours @ 1..48 => format!("{hours} hours"),
        hours => format!("{} days", hours / 24),
    };
    format!(
        "the token for {host} expires in {left}, after which the job fails; write a new token from the host's operator to the token file, which the \
         job reads again"
    )
}

/// Creates the warning for a host with different int8 activations.
fn saturates(host: &str) -> String {
    format!(
        "host {host} has no VNNI, so its int8 activations differ from the other hosts'; remove the host, or restart the job with it so that all hosts \
         use weights with seven bits"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_client::RowKind;
    use frostline_wire::{Encoding, Terms, UploadRef};

    fn source(split: &str, request_samples: usize) -> Source {
        let pin = UploadRef {
            name: "net".to_owned(),
            sha256: "5e".to_owned(),
        };
        Source {
            root: "data".to_owned(),
            split: Split::from(split),
            encoding: Encoding::F32,
            guest: Some(pin.clone()),
            model: Some(pin),
            parameters: String::new(),
            terms: Terms::default(),
            view: None,
            rows: RowKind::Values,
            shape: vec![1],
            tensors: Vec::new(),
            request_samples,
        }
    }

    #[test]
    fn a_host_without_exact_int8_is_named() {
        let exact = Load {
            exact_int8: true,
            ..Load::default()
        };
        let host = |name: &str, load: &Load| (name.to_owned(), load.clone());
        let mut loads = HostLoads(vec![host("a", &exact), host("b", &exact)]);
        assert_eq!(loads.without_exact_int8(), None);
        loads.0.push(host("c", &Load::default()));
        assert_eq!(loads.without_exact_int8(), Some("c"));
    }

    #[test]
    fn a_job_is_warned_a_week_before_its_token_ends() {
        let host = |name: &str, token_seconds| {
            let load = Load {
                token_seconds,
                ..Load::default()
            };
            (name.to_owned(), load)
        };
        let mut loads = HostLoads(vec![host("a", None), host("b", Some(TOKEN_NOTICE))]);
        assert_eq!(loads.token_ends(), None);
        loads.0.push(host("c", Some(3 * 86_400)));
        loads.0.push(host("d", Some(3 * 86_400 + 1)));
        let (host, seconds) = loads.token_ends().unwrap();
        let message = token_ends(host, seconds);
        assert!(message.contains("for c expires in 3 days"), "{message}");
        assert!(token_ends("c", 90).contains("1 minutes") && token_ends("c", 7300).contains("2 hours"));
    }

    fn load(share: f64, seconds_per_row: f64) -> Load {
        Load {
            lanes: 2,
            share: Some(share),
            grant: Some(16),
            stages: vec![StageLoad {
                model: "5e".to_owned(),
                from: "data".to_owned(),
                to: "cut".to_owned(),
                efficient_batch: 4,
                seconds_per_row,
            }],
            ..Load::default()
        }
    }

    #[test]
    fn no_more_is_open_than_the_share_serves_in_a_second() {
        let open = |share, seconds| open_requests(&load(share, seconds), &source("cut", 32));
        assert_eq!(open(1.0, 0.005), Some(12));
        assert_eq!(open(0.25, 0.005), Some(3));
        assert_eq!(open(0.25, 1.0), Some(MIN_OPEN_REQUESTS));
        // No limit applies if the host does not execute layers or does not report the load.
        assert_eq!(open_requests(&load(1.0, 0.005), &source("input", 32)), None);
        assert_eq!(open_requests(&load(1.0, 0.005), &source("other", 32)), None);
        assert_eq!(open_requests(&Load::default(), &source("cut", 32)), None);
    }

    #[test]
    fn of_several_hosts_the_largest_grant_and_batch_count() {
        let small = Load {
            grant: Some(4),
            ..load(1.0, 0.1)
        };
        let hosts = [small, Load::default(), load(0.5, 0.1)];
        let hosts = hosts.map(|load| (String::new(), load)).to_vec();
        let share = HostLoads(hosts);
        assert_eq!(
            (share.grant(), share.engine_batch(&source("cut", 1))),
            (Some(16), Some(4))
        );
        assert_eq!(HostLoads::default().grant(), None);
    }
}
