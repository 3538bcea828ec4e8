//! Several hosts as one.

use crate::{Event, Events, Measuring};
use frostline_client::{ClientError, HostClient, Hosts, Link};
use frostline_wire::{Profile, ProfileRequest};

/// How one host is reached, and how busy it is.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    link: Link,
    /// Extractions of others.
    running: u64,
}

/// Measures the link to a host and asks how busy it is.
///
/// # Errors
/// [`ClientError`].
pub(crate) async fn reach(client: HostClient) -> Result<Reached, ClientError> {
    Ok(Reached {
        link: client.probe().await?,
        running: client.load().await?.running,
    })
}

/// Several hosts of which each has the same share of a batch: the slowest one is what the others wait for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Together {
    /// All links at the same time.
    pub(crate) link: Link,
    /// How many hosts.
    pub(crate) count: usize,
    /// Extractions of others on the busiest.
    pub(crate) neighbours: u64,
}

impl Together {
    /// `None` without any.
    pub(crate) fn of(reached: &[Reached]) -> Option<Self> {
        Some(Self {
            link: reached.iter().map(|host| host.link).reduce(Link::joined)?,
            count: reached.len(),
            neighbours: reached.iter().map(|host| host.running).max()?,
        })
    }
}

/// The profile of the slowest of the hosts that answer in time, and why others have none.
pub(crate) async fn profiles(
    hosts: &Hosts,
    request: &ProfileRequest,
    events: &Events,
) -> (Option<Profile>, Vec<ClientError>) {
    events(Event::Measuring {
        what: Measuring::Host,
    });
    let answers = hosts.all(|client| async move { client.profile_soon(request).await });
    let (mut profiles, mut lacking) = (Vec::new(), Vec::new());
    for answer in answers.await {
        match answer {
            Ok(profile) => profiles.push(profile),
            Err(error) => lacking.push(error),
        }
    }
    (slowest(profiles), lacking)
}

/// The profile of the slowest host.
fn slowest(profiles: impl IntoIterator<Item = Profile>) -> Option<Profile> {
    let all = profiles.into_iter();
    all.max_by(|one, other| whole(one).total_cmp(&whole(other)))
}

/// Seconds of one sample up to the freeze cut.
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

    fn reached(megabytes: f64, milliseconds: u64, running: u64) -> Reached {
        let rate = megabytes * 1e6;
        Reached {
            link: Link {
                bytes_per_second: rate,
                round_trip: Duration::from_millis(milliseconds),
                connections: 2,
                connection_bytes_per_second: rate / 2.0,
            },
            running,
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
        let all = [reached(1.0, 5, 0), reached(3.0, 20, 4), reached(2.0, 1, 1)];
        let together = Together {
            link: Link {
                bytes_per_second: 6e6,
                round_trip: Duration::from_millis(20),
                connections: 6,
                connection_bytes_per_second: 0.5e6,
            },
            count: 3,
            neighbours: 4,
        };
        assert_eq!(Together::of(&all), Some(together));
        assert_eq!(Together::of(&[]), None);
        let slowest = slowest([0.1, 0.3, 0.2].map(profile)).unwrap();
        assert_eq!(slowest.decode_seconds_per_sample, 0.3);
    }
}
