//! Several hosts as one.

use crate::{ClientError, HostClient, Link};
use frostline_wire::{Profile, ProfileRequest};

/// What is known about one host.
pub(crate) struct Look {
    link: Link,
    /// Extractions of others.
    running: u64,
    profile: Profile,
}

/// Measures the link to a host and what a model takes there.
///
/// # Errors
/// [`ClientError`].
pub(crate) async fn look(client: HostClient, request: &ProfileRequest) -> Result<Look, ClientError> {
    Ok(Look {
        link: client.probe().await?,
        running: client.load().await?.running,
        profile: client.profile(request).await?,
    })
}

/// Several hosts of which each has the same share of a batch: the slowest one is what the others wait for.
pub(crate) struct Together {
    /// All links at the same time.
    pub(crate) link: Link,
    /// How many hosts.
    pub(crate) count: usize,
    /// Extractions of others on the busiest.
    pub(crate) neighbours: u64,
    /// The profile of the slowest.
    pub(crate) slowest: Profile,
}

impl Together {
    /// `None` without any.
    pub(crate) fn of(looks: Vec<Look>) -> Option<Self> {
        let link = looks.iter().map(|look| look.link).reduce(Link::beside)?;
        let neighbours = looks.iter().map(|look| look.running).max()?;
        let count = looks.len();
        let profiles = looks.into_iter().map(|look| look.profile);
        let slowest = profiles.max_by(|one, other| whole(one).total_cmp(&whole(other)))?;
        Some(Self {
            link,
            count,
            neighbours,
            slowest,
        })
    }
}

/// Seconds of one sample up to the freeze cut.
fn whole(profile: &Profile) -> f64 {
    let decoding = profile.decode_seconds_per_sample / profile.place.decode_threads.max(1) as f64;
    let prefix = profile.cuts.last().map_or(0.0, |cut| cut.busy_seconds_per_sample);
    decoding + prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::Place;
    use std::time::Duration;

    fn look(megabytes: f64, milliseconds: u64, running: u64, decode: f64) -> Look {
        let rate = megabytes * 1e6;
        Look {
            link: Link {
                bytes_per_second: rate,
                round_trip: Duration::from_millis(milliseconds),
                connections: 2,
                connection_bytes_per_second: rate / 2.0,
            },
            running,
            profile: Profile {
                place: Place {
                    machine: String::new(),
                    device: "cpu".to_owned(),
                    library: String::new(),
                    lanes: 1,
                    threads_per_lane: 1,
                    decode_threads: 2,
                },
                read_seconds_per_sample: 0.0,
                read_busy_seconds_per_sample: 0.0,
                decode_seconds_per_sample: decode,
                input: Default::default(),
                cuts: Vec::new(),
                measured_in_seconds: 0.0,
                measured_at: 0,
                disturbed: false,
            },
        }
    }

    #[test]
    fn links_add_up_and_the_slowest_host_counts() {
        let all = vec![look(1.0, 5, 0, 0.1), look(3.0, 20, 4, 0.3), look(2.0, 1, 1, 0.2)];
        let together = Together::of(all).unwrap();
        let link = Link {
            bytes_per_second: 6e6,
            round_trip: Duration::from_millis(20),
            connections: 6,
            connection_bytes_per_second: 0.5e6,
        };
        assert_eq!((together.link, together.count, together.neighbours), (link, 3, 4));
        assert_eq!(together.slowest.decode_seconds_per_sample, 0.3);
        assert!(Together::of(Vec::new()).is_none());
    }
}
