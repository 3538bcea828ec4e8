//! Who did what when: a line of JSON for everything that admins do, and for what tenants keep here. Each host writes down what was done
//! at it, in its local directory: admins' acts in `audit.jsonl`, tenants' in `audit-tenants.jsonl`, each with one such file of the past. So
//! tenants push nothing out of what admins did, and of each only so many acts a minute are written.

use frostline_wire::AuditEntry;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// A file, and the one before it.
type Files = [&'static str; 2];

const ADMINS: Files = ["audit.jsonl", "audit.1.jsonl"];
const TENANTS: Files = ["audit-tenants.jsonl", "audit-tenants.1.jsonl"];

/// Bytes of a file: some 50,000 lines, months of an admin's work.
const BYTES: u64 = 8 << 20;

/// The longest detail; names and reasons are far shorter.
const DETAIL: usize = 1000;

/// Entries that wait to be written, at 2 kB at most: some seconds of all that a busy host does, while a disk writes thousands a second.
const WAITING: usize = 1024;

/// How long a disk may take for what waits before whoever wants to see it is told so.
const PATIENCE: Duration = Duration::from_secs(5);

/// Acts of a tenant that are written within a minute: a script that uploads a model for each of its jobs stays below; who uploads and removes
/// in a loop fills the files with little else.
const A_MINUTE: u32 = 60;

/// Tenants whose acts are counted. Beyond these, who did nothing for a minute is forgotten.
const COUNTED: usize = 1024;

/// What is written in place of acts that were not.
const LEFT_OUT: &str = "acts not written";

/// What the thread that writes is to do.
enum Work {
    Write(AuditEntry),
    /// Tell when all before this was written, or why the last of it was not.
    Flush(SyncSender<io::Result<()>>),
}

/// See the module.
pub(crate) struct Audit {
    admins: Log,
    tenants: Log,
    rates: Mutex<Rates>,
}

impl Audit {
    /// Uses `folder`, making it where it is missing.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            admins: Log::open(folder, ADMINS)?,
            tenants: Log::open(folder, TENANTS)?,
            rates: Mutex::default(),
        })
    }

    /// Notes what an admin did. That it cannot be written down stops nobody, and is said in the log.
    pub(crate) fn admin(&self, who: &str, what: &str, tenant: &str, detail: impl Into<String>) {
        self.admins
            .note(entry(who.to_owned(), what, tenant, detail.into()));
    }

    /// The same of a tenant, of whose acts only so many are written.
    pub(crate) fn tenant(&self, tenant: &str, what: &str, detail: impl Into<String>) {
        let note = |what: &str, detail| {
            self.tenants
                .note(entry(format!("tenant {tenant}"), what, tenant, detail));
        };
        let counted = self.rates.lock().count(tenant, frostline_profile::now() / 60);
        if counted.left_out > 0 {
            note(
                LEFT_OUT,
                format!("{} over the limit of {A_MINUTE} per minute", counted.left_out),
            );
        }
        match counted.place {
            Place::Within => note(what, detail.into()),
            Place::FirstBeyond => note(LEFT_OUT, format!("over the limit of {A_MINUTE} per minute")),
            Place::Beyond => {}
        }
    }

    /// Waits until all that was noted is written. Blocks.
    ///
    /// # Errors
    /// Why the last of it was not.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.admins.flush().and(self.tenants.flush())
    }

    /// The last `limit` entries, oldest first; only those of `tenant` where one is named. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn last(&self, tenant: Option<&str>, limit: usize) -> io::Result<Vec<AuditEntry>> {
        let mut entries = self.admins.last(tenant, limit)?;
        entries.extend(self.tenants.last(tenant, limit)?);
        entries.sort_by_key(|entry| entry.at);
        Ok(entries.split_off(entries.len().saturating_sub(limit)))
    }
}

fn entry(who: String, what: &str, tenant: &str, mut detail: String) -> AuditEntry {
    detail.truncate(detail.floor_char_boundary(DETAIL));
    AuditEntry {
        at: frostline_profile::now(),
        who,
        what: what.to_owned(),
        tenant: tenant.to_owned(),
        detail,
    }
}

/// How many acts each tenant did within its last minute.
#[derive(Default)]
struct Rates(HashMap<String, Rate>);

struct Rate {
    minute: u64,
    acts: u32,
}

/// What becomes of an act.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    /// Acts of the tenant's last minute that were not written.
    left_out: u32,
    place: Place,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Within,
    FirstBeyond,
    Beyond,
}

impl Rates {
    fn count(&mut self, tenant: &str, minute: u64) -> Counted {
        if self.0.len() >= COUNTED {
            self.0.retain(|_, rate| rate.minute == minute);
        }
        let fresh = Rate { minute, acts: 0 };
        let rate = self.0.entry(tenant.to_owned()).or_insert(fresh);
        let mut left_out = 0;
        if rate.minute != minute {
            left_out = rate.acts.saturating_sub(A_MINUTE);
            *rate = Rate { minute, acts: 0 };
        }
        rate.acts = rate.acts.saturating_add(1);
        let place = match rate.acts {
            acts if acts <= A_MINUTE => Place::Within,
            acts if acts == A_MINUTE + 1 => Place::FirstBeyond,
            _ => Place::Beyond,
        };
        Counted { left_out, place }
    }
}

/// One file of entries, and the thread that writes it, in the order in which they were noted: a slow disk holds up no request.
struct Log {
    folder: PathBuf,
    files: Files,
    work: SyncSender<Work>,
    /// Entries that found no room to wait in since the last one that did.
    dropped: AtomicU64,
}

impl Log {
    fn open(folder: &Path, files: Files) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (work, waiting) = sync_channel(WAITING);
        let writer = Writer {
            folder: folder.to_owned(),
            files,
            // The one before may have been killed while it wrote.
            cut_off: true,
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || writer.run(&waiting))?;
        Ok(Self::new(folder, files, work))
    }

    fn new(folder: &Path, files: Files, work: SyncSender<Work>) -> Self {
        Self {
            folder: folder.to_owned(),
            files,
            work,
            dropped: AtomicU64::new(0),
        }
    }

    fn note(&self, entry: AuditEntry) {
        let AuditEntry {
            who,
            what,
            tenant,
            detail,
            ..
        } = &entry;
        tracing::info!(who, what, tenant, detail, "audit");
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let detail = format!("{dropped}, since the disk was too slow");
            self.send(self::entry("host".to_owned(), LEFT_OUT, "", detail), dropped);
        }
        self.send(entry, 1);
    }

    /// Hands over an entry that stands for so many.
    fn send(&self, entry: AuditEntry, entries: u64) {
        let error = match self.work.try_send(Work::Write(entry)) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => "the disk is too slow",
            Err(TrySendError::Disconnected(_)) => "the audit thread has exited",
        };
        self.dropped.fetch_add(entries, Ordering::Relaxed);
        unwritten(&self.folder, &error);
    }

    fn flush(&self) -> io::Result<()> {
        let (told, wait) = sync_channel(1);
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the disk is too slow");
        self.work.try_send(Work::Flush(told)).map_err(|_| late())?;
        wait.recv_timeout(PATIENCE).map_err(|_| late())?
    }

    fn last(&self, tenant: Option<&str>, limit: usize) -> io::Result<Vec<AuditEntry>> {
        // What cannot be written was said in the log; what is there can be seen.
        self.flush().ok();
        let mut entries = Vec::new();
        for name in self.files.iter().rev() {
            let file = match File::open(self.folder.join(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).split(b'\n') {
                // A line that was being written when the host was killed is no entry.
                let Ok(entry) = serde_json::from_slice::<AuditEntry>(&line?) else {
                    continue;
                };
                if tenant.is_none_or(|tenant| entry.tenant == tenant) {
                    entries.push(entry);
                }
            }
        }
        Ok(entries.split_off(entries.len().saturating_sub(limit)))
    }
}

fn unwritten(folder: &Path, error: &dyn std::fmt::Display) {
    tracing::error!(%error, folder = %folder.display(), "cannot write the audit log");
}

/// What the thread has.
struct Writer {
    folder: PathBuf,
    files: Files,
    /// Whether the file may end within a line.
    cut_off: bool,
}

impl Writer {
    /// Writes until nobody notes anything any more.
    fn run(mut self, waiting: &Receiver<Work>) {
        let mut failed = Ok(());
        for work in waiting {
            match work {
                Work::Write(entry) => {
                    failed = self.write(&entry);
                    if let Err(error) = &failed {
                        unwritten(&self.folder, error);
                    }
                    self.cut_off = failed.is_err();
                }
                // Whoever asked may have gone.
                Work::Flush(told) => {
                    told.send(std::mem::replace(&mut failed, Ok(()))).ok();
                }
            }
        }
    }

    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let [path, before] = self.files.map(|name| self.folder.join(name));
        let mut file = append(&path)?;
        if file.metadata()?.len() >= BYTES {
            std::fs::rename(&path, before)?;
            file = append(&path)?;
        }
        let mut line = Vec::new();
        if self.cut_off && ends_within_a_line(&mut file)? {
            line.push(b'\n');
        }
        serde_json::to_writer(&mut line, entry)?;
        line.push(b'\n');
        file.write_all(&line)
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).read(true).append(true).open(path)
}

fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_found_again_by_tenant_and_across_files() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        audit.admin("admin uid 0", "tenant added", "acme", "");
        audit.flush().unwrap();
        // As if the first file were full.
        std::fs::rename(folder.path().join(ADMINS[0]), folder.path().join(ADMINS[1])).unwrap();
        audit.tenant("acme", "guest uploaded", "prefix");
        audit.tenant("other", "guest uploaded", "x".repeat(2 * DETAIL));
        let whats = |tenant, limit| -> Vec<String> {
            let entries = audit.last(tenant, limit).unwrap();
            entries.into_iter().map(|entry| entry.what).collect()
        };
        assert_eq!(whats(Some("acme"), 10), ["tenant added", "guest uploaded"]);
        assert_eq!(whats(None, 2), ["guest uploaded", "guest uploaded"]);
        assert_eq!(audit.last(Some("other"), 1).unwrap()[0].detail.len(), DETAIL);
    }

    #[test]
    fn a_line_that_was_cut_off_hides_no_other() {
        for cut_off in ["{\"at\":1,\"wh\n", "{\"at\":1,\"wh", "{\"at\":1,\"who\":\"\u{fc}"] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(
                folder.path().join(ADMINS[0]),
                &cut_off.as_bytes()[..cut_off.len() - 1],
            )
            .unwrap();
            let audit = Audit::open(folder.path()).unwrap();
            audit.admin("admin uid 0", "drained", "", "");
            assert_eq!(audit.last(None, 10).unwrap().len(), 1, "{cut_off}");
        }
    }

    #[test]
    fn a_full_disk_holds_nobody_up_and_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ADMINS[0]);
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        audit.admin("admin uid 0", "drained", "", "");
        let error = audit.flush().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        std::fs::remove_file(path).unwrap();
        audit.admin("admin uid 0", "drained", "", "");
        audit.flush().unwrap();
        assert_eq!(audit.last(None, 10).unwrap().len(), 1);
    }

    #[test]
    fn a_disk_that_stands_still_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer {
            folder: folder.path().to_owned(),
            files: ADMINS,
            cut_off: false,
        };
        let (work, waiting) = sync_channel(WAITING);
        let audit = Log::new(folder.path(), ADMINS, work);
        // The thread does not get on: more than can wait is noted all the same.
        for _ in 0..2 * WAITING {
            audit.note(entry("admin uid 0".to_owned(), "drained", "", String::new()));
        }
        assert!(audit.flush().is_err(), "the queue is full");
        let thread = std::thread::spawn(move || writer.run(&waiting));
        while audit.flush().is_err() {
            std::thread::yield_now();
        }
        assert_eq!(audit.last(None, 2 * WAITING).unwrap().len(), WAITING);
        audit.note(entry("admin uid 0".to_owned(), "drained", "", String::new()));
        let last = audit.last(None, 2).unwrap();
        assert_eq!(
            (last[0].what.as_str(), last[1].what.as_str()),
            (LEFT_OUT, "drained")
        );
        assert!(
            last[0].detail.starts_with(&format!("{WAITING},")),
            "{}",
            last[0].detail
        );
        drop(audit);
        thread.join().unwrap();
    }

    #[test]
    fn a_tenants_acts_push_out_none_of_an_admins_and_are_counted_beyond_a_rate() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        audit.admin("admin uid 0", "tenant added", "acme", "");
        audit.flush().unwrap();
        // As if tenants had filled all that is kept of them.
        for name in TENANTS {
            std::fs::write(folder.path().join(name), vec![b'\n'; BYTES as usize]).unwrap();
        }
        audit.tenant("acme", "guest removed", "prefix");
        let whats: Vec<_> = audit
            .last(None, 10)
            .unwrap()
            .into_iter()
            .map(|entry| entry.what)
            .collect();
        assert_eq!(whats, ["tenant added", "guest removed"]);

        let mut rates = Rates::default();
        let mut count = |tenant: &str, minute| rates.count(tenant, minute);
        let counted = |left_out, place| Counted { left_out, place };
        for _ in 0..A_MINUTE {
            assert_eq!(count("acme", 7), counted(0, Place::Within));
        }
        assert_eq!(count("acme", 7), counted(0, Place::FirstBeyond));
        assert_eq!(count("acme", 7), counted(0, Place::Beyond));
        assert_eq!(count("other", 7), counted(0, Place::Within));
        assert_eq!(count("acme", 8), counted(2, Place::Within));
        assert_eq!(count("acme", 9), counted(0, Place::Within));
    }
}
