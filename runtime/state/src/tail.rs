//! Sizes of the changes at the end of the log. A tenant's uploads and removals append to the log, each with all
//! versions of a name, so the bytes are limited by tenant until a snapshot replaces them.

use std::collections::VecDeque;

/// Maximum bytes that a tenant's changes append between two snapshots, and the bytes after which a snapshot is due.
/// The metadata of a thousand models with 44 cuts has 5 MB. A tenant at the limit waits for the next snapshot, so
/// it appends this much in about a minute.
pub(crate) const TENANT_BYTES: u64 = 16 << 20;

/// Number of changes kept in addition to the snapshot. A host that is further behind continues from the
/// snapshot.
const KEPT: u64 = 1000;

/// Maximum bytes of the kept changes: four tenants at the limit. Other hosts read changes within seconds.
const KEPT_BYTES: u64 = 64 << 20;

/// Bytes that a change needs in addition to the content: an object, and a block of a file system.
const OVERHEAD: u64 = 4 << 10;

/// Changes that this host has applied, oldest first.
#[derive(Default)]
pub(crate) struct LogTail {
    changes: VecDeque<TailChange>,
    /// Number of the newest snapshot.
    snapshot: u64,
}

struct TailChange {
    number: u64,
    /// Tenant in the name of the document, or the name itself.
    owner: String,
    bytes: u64,
}

impl LogTail {
    /// Starts again after a snapshot was loaded.
    pub(crate) fn restart(&mut self, snapshot: u64) {
        self.changes.clear();
        self.snapshot = snapshot;
    }

    /// Adds a change of the document `name`.
    pub(crate) fn add(&mut self, number: u64, name: &str, content: usize) {
        let owner = name.split_once('/').map_or(name, |(owner, _)| owner);
        self.changes.push_back(TailChange {
            number,
            owner: owner.to_owned(),
            bytes: content as u64 + OVERHEAD,
        });
    }

    /// Sets the number of the newest snapshot.
    pub(crate) fn snapshot(&mut self, number: u64) {
        self.snapshot = self.snapshot.max(number);
    }

    fn since_snapshot(&self) -> impl Iterator<Item = &TailChange> {
        self.changes
            .iter()
            .rev()
            .take_while(|change| change.number > self.snapshot)
    }

    /// Returns the bytes of all changes since the newest snapshot.
    pub(crate) fn bytes(&self) -> u64 {
        self.since_snapshot().map(|change| change.bytes).sum()
    }

    /// Returns the bytes of the owner's changes since the newest snapshot.
    pub(crate) fn bytes_of(&self, owner: &str) -> u64 {
        let own = self.since_snapshot().filter(|change| change.owner == owner);
        own.map(|change| change.bytes).sum()
    }

    /// Forgets the changes that are not needed next to a snapshot at `position`. Returns the number of the last
    /// one.
    pub(crate) fn take_outdated(&mut self, position: u64) -> u64 {
        let mut outdated = position.saturating_sub(KEPT);
        let mut bytes = 0;
        for change in self
            .changes
            .iter()
            .rev()
            .filter(|change| change.number <= position)
        {
            bytes += change.bytes;
            if bytes > KEPT_BYTES {
                outdated = outdated.max(change.number);
                break;
            }
        }
        self.changes.retain(|change| change.number > outdated);
        outdated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_by_owner_until_a_snapshot() {
        let mut tail = LogTail::default();
        tail.restart(5);
        for (number, name) in [(6, "acme/a"), (7, "acme"), (8, "bolt/a"), (9, "acme/b")] {
            tail.add(number, name, 100);
        }
        let each = 100 + OVERHEAD;
        assert_eq!(
            (tail.bytes(), tail.bytes_of("acme"), tail.bytes_of("bolt")),
            (4 * each, 3 * each, each)
        );
        tail.snapshot(8);
        tail.snapshot(6);
        assert_eq!(
            (tail.bytes(), tail.bytes_of("acme"), tail.bytes_of("bolt")),
            (each, each, 0)
        );
    }

    #[test]
    fn changes_are_kept_up_to_a_number_and_a_size() {
        let mut tail = LogTail::default();
        for number in 1..=KEPT + 10 {
            tail.add(number, "a", 0);
        }
        assert_eq!(tail.take_outdated(KEPT + 10), 10);
        let large = (KEPT_BYTES / 4) as usize;
        for number in 1..=5 {
            tail.add(KEPT + 10 + number, "a", large);
        }
        let position = KEPT + 14;
        assert_eq!(
            tail.take_outdated(position),
            KEPT + 11,
            "the size limit allows three"
        );
        assert_eq!(tail.changes.len(), 4);
    }
}
