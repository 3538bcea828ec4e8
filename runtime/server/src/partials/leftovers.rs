//! File names of interrupted uploads, and the selection of files to remove.

use std::collections::HashMap;
use std::time::Duration;

/// Limits for interrupted uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartialLimits {
    /// Number of uploads.
    pub(crate) number: usize,
    /// Total size in bytes.
    pub(crate) bytes: u64,
    /// Maximum age, measured from the last received byte.
    pub(crate) age: Duration,
}

/// A file in the folder for interrupted uploads.
#[derive(Debug, Clone)]
pub(super) struct Leftover {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) age: Duration,
    pub(super) held: bool,
}

/// Returns the names of the files to remove so that the rest is within `limits`.
///
/// Tenants with the most files lose their oldest files first, because otherwise a tenant could displace the
/// files of other tenants. Uploads in progress are never removed, but they count towards the limits.
pub(super) fn surplus(mut files: Vec<Leftover>, limits: &PartialLimits) -> Vec<String> {
    files.sort_by_key(|file| (!file.held, file.age));
    let mut younger: HashMap<String, usize> = HashMap::new();
    let mut ranked: Vec<(usize, Leftover)> = Vec::with_capacity(files.len());
    for file in files {
        let of_owner = younger.entry(owner(&file.name).to_owned()).or_default();
        ranked.push((*of_owner, file));
        *of_owner += 1;
    }
    ranked.sort_by_key(|(rank, file)| (!file.held, *rank, file.age));
    let mut number = 0_usize;
    let mut bytes = 0_u64;
    let mut gone = Vec::new();
    for (_, file) in ranked {
        let total = bytes.saturating_add(file.bytes);
        let fits = number < limits.number && total <= limits.bytes && file.age < limits.age;
        if file.held || fits {
            (number, bytes) = (number + 1, total);
        } else {
            gone.push(file.name);
        }
    }
    gone
}

pub(super) fn file_name(tenant: &str, sha256: &str) -> String {
    format!("{sha256}.{tenant}")
}

/// Returns the tenant in a file name.
pub(super) fn owner(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, tenant)| tenant)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    const LIMITS: PartialLimits = PartialLimits {
        number: 2,
        bytes: 100,
        age: Duration::from_secs(10 * 3600),
    };

    fn leftover(name: &str, bytes: u64, hours: u32) -> Leftover {
        Leftover {
            name: name.to_owned(),
            bytes,
            age: HOUR * hours,
            held: false,
        }
    }

    #[test]
    fn the_old_and_the_surplus_go_the_oldest_first() {
        let gone = |files: &[Leftover]| surplus(files.to_vec(), &LIMITS);
        assert_eq!(gone(&[leftover("old", 1, 11), leftover("new", 1, 1)]), ["old"]);
        assert_eq!(
            gone(&[leftover("a", 1, 3), leftover("b", 1, 1), leftover("c", 1, 2)]),
            ["a"]
        );
        assert_eq!(gone(&[leftover("a", 60, 2), leftover("b", 60, 1)]), ["a"]);
        let held = Leftover {
            held: true,
            ..leftover("held", 90, 12)
        };
        assert_eq!(gone(&[held, leftover("a", 60, 1), leftover("b", 10, 2)]), ["a"]);
    }

    #[test]
    fn nobodys_leftovers_push_out_those_of_others() {
        let files = [
            leftover("a.many", 1, 1),
            leftover("b.many", 1, 2),
            leftover("c.many", 1, 3),
            leftover("a.one", 1, 9),
        ];
        assert_eq!(surplus(files.to_vec(), &LIMITS), ["b.many", "c.many"]);
    }
}
