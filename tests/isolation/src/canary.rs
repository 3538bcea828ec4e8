//! Marks data of tenants and searches for leaked marks.
//!
//! Answers to tenants pass through a [`tap`](crate::tap), and files and logs of hosts are searched when the
//! scene ends. No case can forget the check.

use aho_corasick::AhoCorasick;
use anyhow::Result;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::path::Path;

/// Kind of marked data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Secret {
    Token,
    /// Names of photos.
    Key,
    /// Contents of photos.
    Photo,
    /// Results of the network.
    Activation,
    Guest,
    Model,
}

/// Receiver of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Viewer<'a> {
    /// Tenant that may see only marks of this tenant.
    Tenant(&'a str),
    /// Reader of metrics. Metrics must not contain data of tenants.
    MetricsReader,
    /// Operator, for logs and admin output. These may contain names chosen by tenants, but no contents.
    Operator,
    /// State files of the host, including unchanged uploads.
    State,
}

#[derive(Debug, Clone)]
struct Mark {
    tenant: String,
    secret: Secret,
    bytes: Vec<u8>,
}

/// Marks and the automaton that finds them.
#[derive(Default)]
struct Marks {
    all: Vec<Mark>,
    search: Option<AhoCorasick>,
}

/// Marks and detected leaks.
#[derive(Default)]
pub(crate) struct Canaries {
    marks: RwLock<Marks>,
    /// Leaked bytes by kind and place.
    leaks: Mutex<BTreeMap<String, u64>>,
}

/// End of a stream that may be the beginning of a mark.
#[derive(Default)]
pub(crate) struct StreamTail(Vec<u8>);

impl Viewer<'_> {
    fn may_see(self, mark: &Mark) -> bool {
        match self {
            Viewer::Tenant(name) => mark.tenant == name,
            Viewer::MetricsReader => false,
            Viewer::Operator => mark.secret == Secret::Key,
            Viewer::State => matches!(mark.secret, Secret::Key | Secret::Guest | Secret::Model),
        }
    }
}

impl Canaries {
    /// Adds marks to search for.
    pub(crate) fn mark(
        &self,
        tenant: &str,
        secret: Secret,
        marks: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<()> {
        let mut known = self.marks.write();
        known.all.extend(marks.into_iter().map(|bytes| Mark {
            tenant: tenant.to_owned(),
            secret,
            bytes,
        }));
        known.search = Some(AhoCorasick::new(known.all.iter().map(|mark| &mark.bytes))?);
        Ok(())
    }

    /// Records marks in `bytes` that `viewer` must not see.
    pub(crate) fn inspect(&self, viewer: Viewer<'_>, place: &str, bytes: &[u8]) {
        self.inspect_new(viewer, place, bytes, 0);
    }

    /// Records only marks that end after the first `behind` bytes.
    fn inspect_new(&self, viewer: Viewer<'_>, place: &str, bytes: &[u8], behind: usize) {
        let marks = self.marks.read();
        for found in marks
            .search
            .iter()
            .flat_map(|search| search.find_overlapping_iter(bytes))
        {
            let Some(mark) = marks.all.get(found.pattern().as_usize()) else {
                continue;
            };
            if found.end() > behind && !viewer.may_see(mark) {
                let what = format!(
                    "{:?} of {} seen by {viewer:?} in {place}",
                    mark.secret, mark.tenant
                );
                *self.leaks.lock().entry(what).or_default() += found.len() as u64;
            }
        }
    }

    /// Like [`Canaries::inspect`], for the next part of a stream.
    pub(crate) fn inspect_piece(
        &self,
        viewer: Viewer<'_>,
        place: &str,
        stream: &mut StreamTail,
        piece: &[u8],
    ) {
        let longest = self.marks.read().all.iter().map(|mark| mark.bytes.len()).max();
        let before = stream.0.len();
        stream.0.extend_from_slice(piece);
        self.inspect_new(viewer, place, &stream.0, before);
        // Keep a possible beginning of a mark.
        let carried = longest.unwrap_or(0).saturating_sub(1).min(stream.0.len());
        stream.0.drain(..stream.0.len() - carried);
    }

    /// Inspects all files below a folder.
    pub(crate) fn inspect_files(&self, folder: &Path) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            // Ignore sockets and concurrently removed files.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.inspect_files(&entry.path()),
                Ok(kind) if kind.is_file() => self.inspect_file(&entry),
                _ => {}
            }
        }
    }

    fn inspect_file(&self, entry: &DirEntry) {
        if let Ok(bytes) = fs::read(entry.path()) {
            self.inspect(Viewer::State, &entry.path().display().to_string(), &bytes);
        }
    }

    /// Returns leaks since the last call.
    pub(crate) fn take_leaks(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.leaks.lock())
    }
}

/// Selects marks from a row: sequences that other rows do not contain by chance.
pub(crate) fn marks_of(row: &[f32]) -> impl Iterator<Item = Vec<u8>> {
    // Use four numbers including no more than one zero, because a ReLU outputs many zeros.
    let distinctive = row
        .chunks_exact(4)
        .filter(|four| four.iter().filter(|value| **value != 0.0).count() >= 3);
    distinctive
        .step_by(8)
        .map(|four| four.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// Returns the mark in a tenant's uploads and photos.
pub(crate) fn text_of(tenant: &str, secret: Secret) -> String {
    format!("canary: {secret:?} of {tenant}.")
}

/// Adds a tenant's mark to a JPEG as a comment.
pub(crate) fn marked_jpeg(photo: &[u8], tenant: &str) -> Vec<u8> {
    let text = text_of(tenant, Secret::Photo);
    let (start, rest) = photo.split_at(photo.len().min(2));
    let length = (text.len() as u16 + 2).to_be_bytes();
    [start, &[0xff, 0xfe], &length, text.as_bytes(), rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(viewer: Viewer<'_>, pieces: &[&[u8]]) -> u64 {
        let canaries = Canaries::default();
        let row = [0.5_f32, 1.5, 2.5, 3.5, 0.0, 0.0, 0.0, 0.0];
        canaries
            .mark("a", Secret::Token, [b"token of a".to_vec()])
            .unwrap();
        canaries.mark("a", Secret::Key, [b"of-a/".to_vec()]).unwrap();
        canaries.mark("b", Secret::Activation, marks_of(&row)).unwrap();
        let mut stream = StreamTail::default();
        for piece in pieces {
            canaries.inspect_piece(viewer, "here", &mut stream, piece);
        }
        canaries.take_leaks().values().sum()
    }

    #[test]
    fn a_mark_is_seen_wherever_it_is_cut() {
        for cut in 0..10 {
            let (first, second) = b"token of a".split_at(cut);
            assert_eq!(
                seen(Viewer::Tenant("b"), &[b"..", first, second, b".."]),
                10,
                "{cut}"
            );
            assert_eq!(seen(Viewer::Tenant("a"), &[first, second]), 0);
        }
        let row: Vec<u8> = [0.5_f32, 1.5, 2.5, 3.5]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        assert_eq!(seen(Viewer::Tenant("a"), &[&row[..3], &row[3..]]), 16);
        assert_eq!(seen(Viewer::Tenant("b"), &[&row]), 0);
    }

    #[test]
    fn viewers_see_only_permitted_marks() {
        for (viewer, bytes) in [
            (Viewer::MetricsReader, 15),
            (Viewer::Operator, 10),
            (Viewer::State, 10),
        ] {
            assert_eq!(seen(viewer, &[b"token of a, of-a/"]), bytes, "{viewer:?}");
        }
    }
}
