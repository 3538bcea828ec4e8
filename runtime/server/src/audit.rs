//! Who did what when: a line of JSON for everything that admins do, and for what tenants keep here. Each host writes down what was done
//! at it, in `audit.jsonl` of its local directory, and one such file of the past.

use frostline_wire::AuditEntry;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The file, and the one before it.
const FILES: [&str; 2] = ["audit.jsonl", "audit.1.jsonl"];

/// Bytes of a file: some 50,000 lines, months of an admin's work.
const BYTES: u64 = 8 << 20;

/// The longest detail; names and reasons are far shorter.
const DETAIL: usize = 1000;

/// See the module.
pub(crate) struct Audit {
    folder: PathBuf,
    /// Held by who writes.
    writing: Mutex<()>,
}

impl Audit {
    /// Uses `folder`, making it where it is missing.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            writing: Mutex::default(),
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
        if let Err(error) = self.write(&entry) {
            tracing::error!(%error, folder = %self.folder.display(), "the audit cannot be written");
        }
    }

    /// The last `limit` entries, oldest first; only those of `tenant` where one is named.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn last(&self, tenant: Option<&str>, limit: usize) -> io::Result<Vec<AuditEntry>> {
        let mut entries = Vec::new();
        for name in FILES.iter().rev() {
            let file = match File::open(self.folder.join(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for line in BufReader::new(file).lines() {
                // A line that was being written when the host was killed is no entry.
                let Ok(entry) = serde_json::from_str::<AuditEntry>(&line?) else {
                    continue;
                };
                if tenant.is_none_or(|tenant| entry.tenant == tenant) {
                    entries.push(entry);
                }
            }
        }
        Ok(entries.split_off(entries.len().saturating_sub(limit)))
    }

    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let [path, before] = FILES.map(|name| self.folder.join(name));
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        if file.metadata()?.len() >= BYTES {
            std::fs::rename(&path, before)?;
            file = OpenOptions::new().create(true).append(true).open(&path)?;
        }
        file.write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_found_again_by_tenant_and_across_files() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        audit.note("admin uid 0", "tenant added", "acme", "");
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
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        std::fs::write(folder.path().join(FILES[0]), "{\"at\":1,\"wh\n").unwrap();
        audit.note("admin uid 0", "drained", "", "");
        assert_eq!(audit.last(None, 10).unwrap().len(), 1);
    }
}
