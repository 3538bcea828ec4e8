//! Who did what when: a line of JSON for everything that admins do, and for what tenants keep here. Each host writes down what was done
//! at it, in `audit.jsonl` of its local directory, and one such file of the past.

use frostline_wire::AuditEntry;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// The file, and the one before it.
const FILES: [&str; 2] = ["audit.jsonl", "audit.1.jsonl"];

/// Bytes of a file: some 50,000 lines, months of an admin's work.
const BYTES: u64 = 8 << 20;

/// The longest detail; names and reasons are far shorter.
const DETAIL: usize = 1000;

/// Entries that wait to be written, at 2 kB at most: some seconds of all that a busy host does, while a disk writes thousands a second.
const WAITING: usize = 1024;

/// How long a disk may take for what waits before whoever wants to see it is told so.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the thread that writes is to do.
enum Work {
    Write(AuditEntry),
    /// Tell when all before this was written, or why the last of it was not.
    Flush(SyncSender<io::Result<()>>),
}

/// See the module. A thread of its own writes, in the order in which things were noted: a slow disk holds up no request.
pub(crate) struct Audit {
    folder: PathBuf,
    work: SyncSender<Work>,
}

impl Audit {
    /// Uses `folder`, making it where it is missing.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (work, waiting) = sync_channel(WAITING);
        let writer = Writer {
            folder: folder.to_owned(),
            // The one before may have been killed while it wrote.
            cut_off: true,
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || writer.run(&waiting))?;
        Ok(Self {
            folder: folder.to_owned(),
            work,
        })
    }

    /// Notes what was done. That it cannot be written down stops nobody, and is said in the log.
    pub(crate) fn note(&self, who: &str, what: &str, tenant: &str, detail: impl Into<String>) {
        let mut detail = detail.into();
        detail.truncate(detail.floor_char_boundary(DETAIL));
        let entry = AuditEntry {
            at: frostline_profile::now(),
            who: who.to_owned(),
            what: what.to_owned(),
            tenant: tenant.to_owned(),
            detail,
        };
        tracing::info!(who, what, tenant, detail = entry.detail, "audit");
        let error = match self.work.try_send(Work::Write(entry)) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => "the disk is too slow",
            Err(TrySendError::Disconnected(_)) => "the thread that writes is gone",
        };
        unwritten(&self.folder, &error);
    }

    /// Waits until all that was noted is written. Blocks.
    ///
    /// # Errors
    /// Why the last of it was not.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let (told, wait) = sync_channel(1);
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the disk is too slow");
        self.work.try_send(Work::Flush(told)).map_err(|_| late())?;
        wait.recv_timeout(PATIENCE).map_err(|_| late())?
    }

    /// The last `limit` entries, oldest first; only those of `tenant` where one is named. Blocks.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn last(&self, tenant: Option<&str>, limit: usize) -> io::Result<Vec<AuditEntry>> {
        // What cannot be written was said in the log; what is there can be seen.
        self.flush().ok();
        let mut entries = Vec::new();
        for name in FILES.iter().rev() {
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
    tracing::error!(%error, folder = %folder.display(), "the audit cannot be written");
}

/// What the thread has.
struct Writer {
    folder: PathBuf,
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
        let [path, before] = FILES.map(|name| self.folder.join(name));
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
        audit.note("admin uid 0", "tenant added", "acme", "");
        audit.flush().unwrap();
        // As if the first file were full.
        std::fs::rename(folder.path().join(FILES[0]), folder.path().join(FILES[1])).unwrap();
        audit.note("tenant acme", "guest uploaded", "acme", "prefix");
        audit.note("tenant other", "guest uploaded", "other", "x".repeat(2 * DETAIL));
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
                folder.path().join(FILES[0]),
                &cut_off.as_bytes()[..cut_off.len() - 1],
            )
            .unwrap();
            let audit = Audit::open(folder.path()).unwrap();
            audit.note("admin uid 0", "drained", "", "");
            assert_eq!(audit.last(None, 10).unwrap().len(), 1, "{cut_off}");
        }
    }

    #[test]
    fn a_full_disk_holds_nobody_up_and_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILES[0]);
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        audit.note("admin uid 0", "drained", "", "");
        let error = audit.flush().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        std::fs::remove_file(path).unwrap();
        audit.note("admin uid 0", "drained", "", "");
        audit.flush().unwrap();
        assert_eq!(audit.last(None, 10).unwrap().len(), 1);
    }

    #[test]
    fn a_disk_that_stands_still_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer {
            folder: folder.path().to_owned(),
            cut_off: false,
        };
        let (work, waiting) = sync_channel(WAITING);
        let audit = Audit {
            folder: folder.path().to_owned(),
            work,
        };
        // The thread does not get on: more than can wait is noted all the same.
        for _ in 0..2 * WAITING {
            audit.note("admin uid 0", "drained", "", "");
        }
        assert!(audit.flush().is_err(), "the queue is full");
        let thread = std::thread::spawn(move || writer.run(&waiting));
        while audit.flush().is_err() {
            std::thread::yield_now();
        }
        assert_eq!(audit.last(None, 2 * WAITING).unwrap().len(), WAITING);
        drop(audit);
        thread.join().unwrap();
    }
}
