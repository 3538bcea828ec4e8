//! Log lines of guests from the last hour, which their tenants can read. The memory is bounded per tenant and
//! in total.

use frostline_wire::{GuestLine, GuestLog};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Retention time of lines.
const RETENTION: Duration = Duration::from_secs(3600);

/// Maximum bytes per owner, enough for about 4,000 lines of usual length.
const OWNER_BYTES: usize = 1 << 20;

/// Maximum bytes of all owners. If this is exceeded, the owner with the most bytes loses the oldest line.
const TOTAL_BYTES: usize = 32 << 20;

/// Bytes counted for each line in addition to the text.
const LINE_OVERHEAD: usize = 128;

/// Maximum number of lines in an answer. A line is limited to 1 KiB.
const PAGE: usize = 1000;

/// Maximum size of an answer in bytes, including the JSON encoding.
pub(crate) const ANSWER: u64 = 3 << 20;

/// Owner of log lines. The creation time distinguishes a tenant from a removed tenant of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) tenant: String,
    /// Seconds since 1970.
    pub(crate) created_at: u64,
}

/// Origin of a log line.
pub(crate) struct LogOrigin {
    pub(crate) owner: Owner,
    pub(crate) guest: Arc<str>,
    pub(crate) extraction: Arc<str>,
}

/// See the module documentation.
pub(crate) struct GuestLogs(Mutex<Lines>);

struct Lines {
    /// The number of the next line.
    next: u64,
    bytes: usize,
    owners: HashMap<Owner, OwnerLines>,
}

#[derive(Default)]
struct OwnerLines {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Number of the newest line dropped to limit memory.
    dropped: u64,
}

struct Line {
    number: u64,
    /// Duration since 1970.
    at: Duration,
    guest: Arc<str>,
    extraction: Arc<str>,
    level: &'static str,
    text: Box<str>,
}

/// Returns the current time, measured from 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl GuestLogs {
    /// Creates an empty log. Line numbers start at `now` in microseconds, so they continue to increase after
    /// a restart.
    pub(crate) fn new(now: Duration) -> Self {
        Self(Mutex::new(Lines {
            next: u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2).max(1),
            bytes: 0,
            owners: HashMap::new(),
        }))
    }

    /// Appends a line.
    pub(crate) fn append(&self, source: &LogOrigin, level: &'static str, text: &str, now: Duration) {
        let line = Line {
            number: 0,
            at: now,
            guest: Arc::clone(&source.guest),
            extraction: Arc::clone(&source.extraction),
            level,
            text: text.into(),
        };
        self.0.lock().append(&source.owner, line);
    }

    /// Returns a page of the lines that `guest` logged after the line number `after`, or `None` if no line of
    /// this guest is stored.
    pub(crate) fn read(&self, owner: &Owner, guest: &str, after: u64, now: Duration) -> Option<GuestLog> {
        let mut all = self.0.lock();
        all.forget_old(owner, now);
        let kept = all.owners.get(owner)?;
        let newest = kept.lines.back()?.number;
        kept.lines.iter().find(|line| &*line.guest == guest)?;
        let mut lines: Vec<GuestLine> = kept
            .lines
            .iter()
            .filter(|line| &*line.guest == guest && line.number > after)
            .take(PAGE + 1)
            .map(to_wire)
            .collect();
        let more = lines.len() > PAGE;
        lines.truncate(PAGE);
        let last = lines.last().filter(|_| more).map(|line| line.number);
        Some(GuestLog {
            next: last.unwrap_or(newest.max(after)),
            lines,
            more,
            dropped: kept.dropped > after,
        })
    }

    /// Removes all lines of a removed tenant.
    pub(crate) fn forget(&self, tenant: &str) {
        let mut all = self.0.lock();
        let gone = all.owners.extract_if(|owner, _| owner.tenant == tenant);
        let bytes: usize = gone.map(|(_, kept)| kept.bytes).sum();
        all.bytes -= bytes;
    }

    /// Removes all lines older than an hour.
    pub(crate) fn sweep(&self, now: Duration) {
        let mut all = self.0.lock();
        let owners: Vec<Owner> = all.owners.keys().cloned().collect();
        owners.iter().for_each(|owner| all.forget_old(owner, now));
    }
}

impl Lines {
    fn append(&mut self, owner: &Owner, mut line: Line) {
        line.number = self.next;
        self.next += 1;
        self.forget_old(owner, line.at);
        let bytes = line.bytes();
        let kept = self.owners.entry(owner.clone()).or_default();
        kept.lines.push_back(line);
        kept.bytes += bytes;
        self.bytes += bytes;
        while self
            .owners
            .get(owner)
            .is_some_and(|kept| kept.bytes > OWNER_BYTES)
        {
            self.drop_oldest(owner);
        }
        while self.bytes > TOTAL_BYTES {
            let most = self.owners.iter().max_by_key(|(_, kept)| kept.bytes);
            let Some(most) = most.map(|(owner, _)| owner.clone()) else {
                return;
            };
            self.drop_oldest(&most);
        }
    }

    fn drop_oldest(&mut self, owner: &Owner) {
        let Some(kept) = self.owners.get_mut(owner) else {
            return;
        };
        if let Some(line) = kept.lines.pop_front() {
            kept.bytes -= line.bytes();
            kept.dropped = line.number;
            self.bytes -= line.bytes();
        }
    }

    fn forget_old(&mut self, owner: &Owner, now: Duration) {
        let Some(kept) = self.owners.get_mut(owner) else {
            return;
        };
        while let Some(line) = kept.lines.pop_front_if(|line| line.at + RETENTION < now) {
            kept.bytes -= line.bytes();
            self.bytes -= line.bytes();
        }
        if kept.lines.is_empty() {
            self.owners.remove(owner);
        }
    }
}

impl Line {
    fn bytes(&self) -> usize {
        self.text.len() + LINE_OVERHEAD
    }
}

fn to_wire(line: &Line) -> GuestLine {
    GuestLine {
        number: line.number,
        at: line.at.as_millis() as f64 / 1000.0,
        level: line.level.to_owned(),
        extraction: (*line.extraction).to_owned(),
        text: (*line.text).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn owner(tenant: &str) -> Owner {
        Owner {
            tenant: tenant.to_owned(),
            created_at: 7,
        }
    }

    fn empty_logs(now: Duration) -> GuestLogs {
        GuestLogs::new(now)
    }

    fn write(lines: &GuestLogs, tenant: &str, guest: &str, text: &str, now: Duration) {
        let source = LogOrigin {
            owner: owner(tenant),
            guest: guest.into(),
            extraction: "x1".into(),
        };
        lines.append(&source, "info", text, now);
    }

    fn texts(log: &GuestLog) -> Vec<&str> {
        log.lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn everybody_reads_their_own_guests_alone_and_what_follows() {
        let lines = empty_logs(SECOND);
        write(&lines, "acme", "mine", "one", SECOND);
        write(&lines, "acme", "other", "two", SECOND);
        write(&lines, "bolt", "mine", "three", SECOND);
        let read = |tenant: &str, after| lines.read(&owner(tenant), "mine", after, SECOND);
        let first = read("acme", 0).unwrap();
        assert_eq!(texts(&first), ["one"]);
        assert!(!first.more && !first.dropped);
        assert_eq!(texts(&read("acme", first.next).unwrap()), [""; 0]);
        write(&lines, "acme", "mine", "four", SECOND);
        assert_eq!(texts(&read("acme", first.next).unwrap()), ["four"]);
        assert_eq!(texts(&read("bolt", 0).unwrap()), ["three"]);
        assert!(read("nobody", 0).is_none());
        let later = Owner {
            created_at: 8,
            ..owner("acme")
        };
        assert!(
            lines.read(&later, "mine", 0, SECOND).is_none(),
            "a later tenant with the same name"
        );
        // Line numbers continue to increase after a restart.
        assert!(empty_logs(SECOND * 2).0.lock().next > lines.0.lock().next);
    }

    #[test]
    fn lines_are_forgotten_after_an_hour() {
        let lines = empty_logs(SECOND);
        write(&lines, "acme", "mine", "old", SECOND);
        write(&lines, "acme", "mine", "new", SECOND * 3000);
        let now = SECOND * 3602;
        assert_eq!(
            texts(&lines.read(&owner("acme"), "mine", 0, now).unwrap()),
            ["new"]
        );
        write(&lines, "bolt", "mine", "new", now);
        lines.forget("bolt");
        assert!(lines.read(&owner("bolt"), "mine", 0, now).is_none());
        lines.sweep(SECOND * 7000);
        assert!(lines.0.lock().owners.is_empty());
        assert_eq!(lines.0.lock().bytes, 0);
    }

    #[test]
    fn who_logs_much_loses_its_own_oldest_lines_page_by_page() {
        let lines = empty_logs(SECOND);
        let long = "x".repeat(1024 - LINE_OVERHEAD);
        write(&lines, "quiet", "mine", "still there", SECOND);
        (0..2000).for_each(|_| write(&lines, "loud", "mine", &long, SECOND));
        let read = |after| lines.read(&owner("loud"), "mine", after, SECOND).unwrap();
        let first = read(0);
        assert!(first.dropped && first.more && first.lines.len() == PAGE);
        let rest = read(first.next);
        assert!(!rest.dropped && !rest.more);
        assert_eq!(rest.lines.len(), OWNER_BYTES / 1024 - PAGE);
        (0..2000).for_each(|number| write(&lines, &format!("t{}", number % 50), "mine", &long, SECOND));
        for tenant in 0..50 {
            (0..1000).for_each(|_| write(&lines, &format!("t{tenant}"), "mine", &long, SECOND));
        }
        assert!(lines.0.lock().bytes <= TOTAL_BYTES);
        let quiet = lines.read(&owner("quiet"), "mine", 0, SECOND).unwrap();
        assert_eq!(texts(&quiet), ["still there"]);
    }
}
