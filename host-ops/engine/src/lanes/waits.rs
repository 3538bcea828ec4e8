//! Recent waiting times of tenants.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Length of a period. Waiting times expire after one to two periods.
const LATELY: Duration = Duration::from_secs(60);

/// Maximum number of recorded tenants.
const TENANTS: usize = 1024;

/// Longest recent waits by tenant. Times are relative to an arbitrary origin.
#[derive(Default)]
pub(super) struct Waits {
    /// Start of the current period.
    since: Duration,
    present: HashMap<Arc<str>, Duration>,
    before: HashMap<Arc<str>, Duration>,
}

impl Waits {
    /// Records the waiting time of rows that start at `now`.
    pub(super) fn note(&mut self, now: Duration, tenant: &Arc<str>, waited: Duration) {
        let age = now.saturating_sub(self.since);
        if age >= LATELY {
            let present = std::mem::take(&mut self.present);
            self.before = if age < 2 * LATELY { present } else { HashMap::new() };
            self.since = now;
        }
        if self.present.len() < TENANTS || self.present.contains_key(tenant) {
            let longest = self.present.entry(Arc::clone(tenant)).or_default();
            *longest = waited.max(*longest);
        }
    }

    /// Returns the longest wait of each tenant at `now`, including the waits of queued work in `wait`.
    pub(super) fn longest(
        &self,
        now: Duration,
        wait: impl Iterator<Item = (Arc<str>, Duration)>,
    ) -> HashMap<Arc<str>, Duration> {
        let age = now.saturating_sub(self.since);
        let present = (age < 2 * LATELY).then_some(&self.present);
        let before = (age < LATELY).then_some(&self.before);
        let noted = present.into_iter().chain(before).flatten();
        let noted = noted.map(|(tenant, waited)| (Arc::clone(tenant), *waited));
        let mut longest = HashMap::<Arc<str>, Duration>::new();
        for (tenant, waited) in noted.chain(wait) {
            let most = longest.entry(tenant).or_default();
            *most = waited.max(*most);
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_longest_wait_is_remembered_for_a_while_and_what_waits_still_counts() {
        let mut waits = Waits::default();
        let (long, short): (Arc<str>, Arc<str>) = ("long".into(), "short".into());
        waits.note(SECOND, &long, 9 * SECOND);
        waits.note(2 * SECOND, &long, SECOND);
        waits.note(62 * SECOND, &short, 2 * SECOND);
        let of = |waits: &Waits, at: u32, tenant: &Arc<str>| {
            waits.longest(at * SECOND, iter::empty()).get(tenant).copied()
        };
        assert_eq!(of(&waits, 62, &long), Some(9 * SECOND));
        assert_eq!(of(&waits, 62, &short), Some(2 * SECOND));
        assert_eq!(of(&waits, 130, &long), None);
        assert_eq!(of(&waits, 130, &short), Some(2 * SECOND));
        assert_eq!(of(&waits, 190, &short), None);
        let still = waits.longest(62 * SECOND, iter::once((Arc::clone(&short), 5 * SECOND)));
        assert_eq!(still[&short], 5 * SECOND);
    }

    #[test]
    fn the_number_of_recorded_tenants_is_limited() {
        let mut waits = Waits::default();
        for tenant in 0..2 * TENANTS {
            waits.note(SECOND, &tenant.to_string().into(), SECOND);
        }
        assert_eq!(waits.longest(SECOND, iter::empty()).len(), TENANTS);
    }
}
