//! Daily usage counted by this host. These functions are pure: the caller passes the day.

use crate::state::Day;
use frostline_wire::Usage;
use std::collections::{BTreeMap, BTreeSet};

/// Usage by tenant.
pub(crate) type Usages = BTreeMap<String, Usage>;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Books {
    /// The previous reading of the counters, which start at zero when the host starts.
    last: Usages,
    /// Usage of today and previous days not yet written.
    days: BTreeMap<Day, Usages>,
    /// Days with changes that [`take_changed`](Self::take_changed) did not return yet, and days that could
    /// not be written.
    changed: BTreeSet<Day>,
    /// Day and usage of other hosts, as last read.
    others: Option<(Day, Usages)>,
}

impl Books {
    /// Adds the increase of the counters since the last reading to `day`.
    pub(super) fn count(&mut self, day: Day, counters: Usages) {
        let today = self.days.entry(day).or_default();
        for (tenant, now) in &counters {
            let used = now.since(self.last.get(tenant).unwrap_or(&Usage::default()));
            let sum = today.entry(tenant.clone()).or_default();
            let before = *sum;
            sum.add_host(&used);
            if *sum != before {
                self.changed.insert(day);
            }
        }
        self.last = counters;
    }

    /// Returns the usage of all days with changes since the previous call.
    pub(super) fn take_changed(&mut self) -> BTreeMap<Day, Usages> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .filter_map(|day| Some((day, self.days.get(&day)?.clone())))
            .collect()
    }

    /// Marks days as changed again because they could not be written.
    pub(super) fn return_changed(&mut self, days: impl IntoIterator<Item = Day>) {
        self.changed.extend(days);
    }

    /// Removes days before `day` unless they still have to be written.
    pub(super) fn forget_before(&mut self, day: Day) {
        let changed = &self.changed;
        self.days
            .retain(|known, _| *known >= day || changed.contains(known));
    }

    /// Sets the usage of other hosts on `day`.
    pub(super) fn set_others(&mut self, day: Day, others: Usages) {
        self.others = Some((day, others));
    }

    /// Returns the usage of a tenant on `day` on this host and, if known, on other hosts. It includes the increase
    /// of the counters in `live` since they were last counted.
    pub(super) fn usage_on(&self, day: Day, tenant: &str, live: &Usage) -> Usage {
        let own = self.days.get(&day).and_then(|usages| usages.get(tenant));
        let others = self.others.as_ref().filter(|(known, _)| *known == day);
        let others = others.and_then(|(_, usages)| usages.get(tenant));
        let mut used = live.since(self.last.get(tenant).unwrap_or(&Usage::default()));
        for usage in own.into_iter().chain(others) {
            used.add_host(usage);
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(images: u64) -> Usages {
        let usage = Usage {
            images,
            stored_bytes: images * 10,
            ..Usage::default()
        };
        Usages::from([("acme".to_owned(), usage)])
    }

    #[test]
    fn a_day_has_what_counters_gained_on_it() {
        let (day, next) = (Day::at(0), Day::at(86_400));
        let mut books = Books::default();
        books.count(day, images(5));
        books.count(day, images(8));
        assert_eq!(books.take_changed(), BTreeMap::from([(day, images(8))]));
        assert!(books.take_changed().is_empty(), "nothing is new");
        books.count(day, images(9));
        books.count(next, images(12));
        let today = books.usage_on(next, "acme", &images(12)["acme"]);
        assert_eq!(
            (today.images, today.stored_bytes),
            (3, 120),
            "stored bytes should not be added up"
        );
        let taken = books.take_changed();
        assert_eq!(taken[&day], images(9), "the previous day is written as well");
        books.return_changed([day]);
        books.forget_before(next);
        assert_eq!(
            books.take_changed()[&day],
            images(9),
            "written again after a failure"
        );
        books.forget_before(next);
        assert_eq!(books.usage_on(day, "acme", &Usage::default()), Usage::default());
    }

    #[test]
    fn a_budget_sees_other_hosts_of_the_same_day_alone() {
        let (day, next) = (Day::at(0), Day::at(86_400));
        let mut books = Books::default();
        books.count(day, images(5));
        books.set_others(day, images(7));
        let live = &images(5)["acme"];
        assert_eq!(books.usage_on(day, "acme", live).images, 12);
        assert_eq!(books.usage_on(day, "other", &Usage::default()), Usage::default());
        assert_eq!(books.usage_on(next, "acme", live).images, 0);
        let later = &images(9)["acme"];
        assert_eq!(
            books.usage_on(day, "acme", later).images,
            16,
            "includes usage since the last count"
        );
    }
}
