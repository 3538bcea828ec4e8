//! Placement of objects on hosts by rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
//! increase hit rates", IEEE/ACM Transactions on Networking 1998). Hosts are scored for each key, and the
//! host with the highest score is selected. Thus an object is always read at the same host, which has it in
//! caches. If a host leaves, only the objects of that host move, evenly to the other hosts.

use super::Member;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Returns the placement key of each host in `hosts`, which must be a subset of `all`. Hosts that report the same
/// name are distinguished by address.
pub(crate) fn placement_keys(hosts: &[Arc<Member>], all: &[Arc<Member>]) -> Vec<Arc<str>> {
    let names: Vec<Arc<str>> = all.iter().map(|host| host.key()).collect();
    let keys = hosts.iter().map(|host| {
        let key = host.key();
        let same = names.iter().filter(|other| **other == key).count();
        if same > 1 { host.url().into() } else { key }
    });
    keys.collect()
}

/// Returns the index of the host for the object `key`, or `None` if `hosts` is empty. The choice depends only
/// on the names in `hosts` and on `key`, not on the order of the hosts.
pub fn place<T: AsRef<str>>(hosts: &[T], key: &str) -> Option<usize> {
    match hosts {
        [] => None,
        [_] => Some(0),
        _ => (0..hosts.len()).max_by_key(|host| hosts.get(*host).map(|known| score(known.as_ref(), key))),
    }
}

/// SHA-256 is stable across versions and machines. The cost is less than a microsecond per host and sample.
fn score(host: &str, key: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(host.as_bytes());
    hash.update([0]);
    hash.update(key.as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [&str; 4] = ["http://a:8080", "http://b:8080", "http://c:8080", "http://d:8080"];

    fn key(number: usize) -> String {
        format!("train/cat/{number}.jpg")
    }

    #[test]
    fn placement_never_changes() {
        let placed: Vec<_> = (0..12).filter_map(|number| place(&HOSTS, &key(number))).collect();
        // Computed by another implementation of SHA-256 (in Python). A different result would invalidate the
        // caches on all hosts.
        assert_eq!(placed, [3, 3, 3, 2, 0, 3, 3, 2, 1, 2, 3, 3]);
        assert_eq!(
            (place::<&str>(&[], "x"), place(&HOSTS[..1], "x")),
            (None, Some(0))
        );
    }

    #[test]
    fn objects_are_divided_evenly() {
        let mut counts = [0; 3];
        (0..6000).for_each(|number| counts[place(&HOSTS[..3], &key(number)).unwrap()] += 1);
        // Expected value 2000, tolerance of four standard deviations (37).
        assert!(
            counts.iter().all(|count| (1850..2150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_host_that_goes_away_moves_its_own_objects_only_and_evenly() {
        let mut moved = [0; 2];
        for number in 0..6000 {
            let before = place(&HOSTS[..3], &key(number)).unwrap();
            let after = place(&HOSTS[..2], &key(number)).unwrap();
            match before {
                2 => moved[after] += 1,
                stays => assert_eq!(after, stays),
            }
        }
        assert!(moved.iter().all(|count| (850..1150).contains(count)), "{moved:?}");
    }
}
