//! Measurements of the hosts. Several hosts are combined into one, because a batch has to wait for the
//! slowest host.

use crate::{Event, Events, Measuring, TrainerError};
use frostline_client::{ClientError, HostClient, Hosts};
use frostline_wire::{Link, Profile, ProfileRequest};

/// Link and load of the hosts, which get equal parts of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostConditions {
    /// Sum of all links.
    pub(crate) link: Link,
    pub(crate) hosts: usize,
    /// Number of other extractions on the busiest host.
    pub(crate) neighbors: u64,
}

impl HostConditions {
    /// Measures the links to all available hosts and queries the load.
    pub(crate) async fn measure(hosts: &Hosts, events: &Events) -> Result<Self, TrainerError> {
        events(Event::Measuring {
            what: Measuring::Link,
        });
        let all = hosts.each(Self::probe).await?.into_iter();
        all.reduce(Self::joined)
            .ok_or(TrainerError::Ended { part: "survey" })
    }

    async fn probe(client: HostClient) -> Result<Self, ClientError> {
        Ok(Self {
            link: client.probe().await?,
            hosts: 1,
            neighbors: client.load().await?.running,
        })
    }

    fn joined(self, other: Self) -> Self {
        Self {
            link: self.link.joined(other.link),
            hosts: self.hosts + other.hosts,
            neighbors: self.neighbors.max(other.neighbors),
        }
    }
}

/// Measures the sum of the links to all available hosts.
///
/// # Errors
/// Returns [`TrainerError::Client`] if no host can be measured.
pub(crate) async fn probe(hosts: &Hosts, events: &Events) -> Result<Link, TrainerError> {
    events(Event::Measuring {
        what: Measuring::Link,
    });
    let links = hosts.each(|client| async move { client.probe().await }).await?;
    let all = links.into_iter().reduce(Link::joined);
    all.ok_or(TrainerError::Ended { part: "probe" })
}

/// Requests profiles from all hosts. Returns the profile of the slowest host and the errors of hosts without
/// a profile.
pub(crate) async fn profiles(
    hosts: &Hosts,
    request: &ProfileRequest,
    events: &Events,
) -> (Option<Profile>, Vec<ClientError>) {
    events(Event::Measuring {
        what: Measuring::Host,
    });
    let answers = hosts.all(|client| async move { client.profile_soon(request).await });
    let mut profiles = Vec::new();
    let mut lacking = Vec::new();
    for answer in answers.await {
        match answer {
            Ok(profile) => profiles.push(profile),
            Err(error) => lacking.push(error),
        }
    }
    (slowest(profiles), lacking)
}

/// Returns the profile of the slowest host.
fn slowest(profiles: impl IntoIterator<Item = Profile>) -> Option<Profile> {
    let all = profiles.into_iter();
    all.max_by(|one, other| whole(one).total_cmp(&whole(other)))
}

/// Seconds per sample up to the freeze cut.
fn whole(profile: &Profile) -> f64 {
    let decoding = profile.decode_seconds_per_sample / profile.platform.decode_threads.max(1) as f64;
    let prefix = profile.cuts.last().map_or(0.0, |cut| cut.busy_seconds_per_sample);
    decoding + prefix
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::Platform;
    use std::time::Duration;

    fn reach(megabytes: f64, milliseconds: u64, neighbors: u64) -> HostConditions {
        let rate = megabytes * 1e6;
        HostConditions {
            link: Link {
                bytes_per_second: rate,
                round_trip: Duration::from_millis(milliseconds),
                connections: 2,
                connection_bytes_per_second: rate / 2.0,
            },
            hosts: 1,
            neighbors,
        }
    }

    fn profile(decode: f64) -> Profile {
        Profile {
            platform: Platform {
                machine: String::new(),
                device: "cpu".to_owned(),
                library: String::new(),
                lanes: 1,
                threads_per_lane: 1,
                decode_threads: 2,
                rows: 16,
            },
            read_seconds_per_sample: 0.0,
            reads_at_once: 8,
            read_busy_seconds_per_sample: 0.0,
            decode_seconds_per_sample: decode,
            input: Default::default(),
            cuts: Vec::new(),
            measured_in_seconds: 0.0,
            measured_at: 0,
            disturbed: false,
        }
    }

    #[test]
    fn links_add_up_and_the_slowest_host_counts() {
        let all = [reach(1.0, 5, 0), reach(3.0, 20, 4), reach(2.0, 1, 1)];
        let together = HostConditions {
            link: Link {
                bytes_per_second: 6e6,
                round_trip: Duration::from_millis(20),
                connections: 6,
                connection_bytes_per_second: 0.5e6,
            },
            hosts: 3,
            neighbors: 4,
        };
        assert_eq!(all.into_iter().reduce(HostConditions::joined), Some(together));
        let slowest = slowest([0.1, 0.3, 0.2].map(profile)).unwrap();
        assert_eq!(slowest.decode_seconds_per_sample, 0.3);
    }
}
