//! Daily usage counted by this host. These functions are pure: the caller passes the day.

use crate::day::Day;
use frostline_wire::Usage;
use std::collections::{BTreeMap, BTreeSet};

/// Usage by tenant.
pub(super) type Usages = BTreeMap<String, Usage>;

/// Uninterrupted counting of one day by a host. If the clock returns to an earlier day, a new period begins, because
/// stored totals must not be replaced by smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Period {
    /// Number of earlier periods of this host run.
    pub(super) number: u32,
    pub(super) day: Day,
}

/// Usage counted by this host, by period.
#[derive(Default)]
pub(super) struct Books {
    /// The previous reading of the counters, which start at zero when the host starts.
    last: Usages,
    current: Option<Period>,
    /// Usage of the current period and of those not yet written.
    periods: BTreeMap<Period, Usages>,
    /// Periods with changes that [`take_changed`](Self::take_changed) did not return yet, and periods that could
    /// not be written.
    changed: BTreeSet<Period>,
    /// Day and usage of other hosts, as last read.
    others: Option<(Day, Usages)>,
}

impl Books {
    /// Adds the increase of the counters since the last reading to `day`.
    pub(super) fn count(&mut self, day: Day, counters: Usages) {
        let next = self.current.map_or(0, |period| period.number.saturating_add(1));
        let period = self.current.filter(|period| period.day == day);
        let period = period.unwrap_or(Period { number: next, day });
        self.current = Some(period);
        let today = self.periods.entry(period).or_default();
        for (tenant, now) in &counters {
            let used = now.since(self.last.get(tenant).unwrap_or(&Usage::default()));
            let sum = today.entry(tenant.clone()).or_default();
            let before = *sum;
            sum.add_host(&used);
            if *sum != before {
                self.changed.insert(period);
            }
        }
        self.last = counters;
    }

    /// Returns the current period, which the last [`count`](Self::count) used.
    pub(super) fn current(&self) -> Option<Period> {
        self.current
    }

    /// Returns the usage of all periods with changes since the previous call.
    pub(super) fn take_changed(&mut self) -> BTreeMap<Period, Usages> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .filter_map(|period| Some((period, self.periods.get(&period)?.clone())))
            .collect()
    }

    /// Marks periods as changed again because they could not be written.
    pub(super) fn return_changed(&mut self, periods: impl IntoIterator<Item = Period>) {
        self.changed.extend(periods);
    }

    /// Removes all periods except the current one and those that still have to be written.
    pub(super) fn forget_written(&mut self) {
        let changed = &self.changed;
        let current = self.current;
        self.periods
            .retain(|known, _| Some(*known) == current || changed.contains(known));
    }

    /// Sets the usage of other hosts on `day`.
    pub(super) fn set_others(&mut self, day: Day, others: Usages) {
        self.others = Some((day, others));
    }

    /// Returns the usage of a tenant on `day` on this host and, if known, on other hosts. It includes the increase
    /// of the counters in `live` since they were last counted.
    pub(super) fn usage_on(&self, day: Day, tenant: &str, live: &Usage) -> Usage {
        let own = self.periods.iter().filter(|(period, _)| period.day == day);
        let own = own.filter_map(|(_, usages)| usages.get(tenant));
        let others = self.others.as_ref().filter(|(known, _)| *known == day);
        let others = others.and_then(|(_, usages)| usages.get(tenant));
        let mut used = live.since(self.last.get(tenant).unwrap_or(&Usage::default()));
        for usage in own.chain(others) {
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
        let day = Day::at(0);
        let next = Day::at(86_400);
        let mut books = Books::default();
        books.count(day, images(5));
        books.count(day, images(8));
        let first = Period { number: 0, day };
        assert_eq!(books.take_changed(), BTreeMap::from([(first, images(8))]));
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
        assert_eq!(taken[&first], images(9), "the previous day is written as well");
        books.return_changed([first]);
        books.forget_written();
        assert_eq!(
            books.take_changed()[&first],
            images(9),
            "written again after a failure"
        );
        books.forget_written();
        assert_eq!(books.usage_on(day, "acme", &Usage::default()), Usage::default());
    }

    #[test]
    fn a_budget_sees_other_hosts_of_the_same_day_alone() {
        let day = Day::at(0);
        let next = Day::at(86_400);
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

    #[test]
    fn a_day_that_comes_again_is_another_period() {
        let day = Day::at(0);
        let far = Day::at(500 * 86_400);
        let mut books = Books::default();
        let mut stored = BTreeMap::new();
        for (day, counted) in [(day, 5), (far, 6), (day, 8)] {
            books.count(day, images(counted));
            stored.extend(books.take_changed());
            books.forget_written();
        }
        let parts: Vec<(Day, u64)> = stored
            .iter()
            .map(|(period, usages)| (period.day, usages["acme"].images))
            .collect();
        assert_eq!(parts, [(day, 5), (far, 1), (day, 2)]);
    }
}
