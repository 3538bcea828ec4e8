//! Hosts that write audit entries to the same state.

use super::*;
use crate::clock::LocalClock;
use frostline_batching::{Budget, Kind, Memory};
use std::net::Ipv4Addr;
use std::path::Path;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn audit(folder: &Path, run: &str) -> Audit {
    let store = Arc::new(Store::open(folder.to_str().unwrap()).unwrap());
    let clock = Clock::new(LocalClock::default(), Arc::clone(&store));
    Audit::new(store, run.to_owned(), format!("host-{run}"), Arc::new(clock))
}

/// Reads entries in 1 MiB of memory.
async fn last(audit: &Audit, tenant: Option<&str>, limit: usize) -> Result<Vec<AuditEntry>, AuditError> {
    let memory = Memory::new(Budget {
        bytes: 1 << 20,
        ..Budget::default()
    });
    let mut reserved = memory.try_reserve("", Kind::Request, 0).unwrap();
    let entries = audit.last(tenant, limit, &mut reserved).await?;
    let texts: usize = entries.iter().map(|entry| entry.detail.len()).sum();
    assert!(reserved.bytes() >= texts as u64);
    Ok(entries)
}

async fn whats(audit: &Audit, tenant: Option<&str>, limit: usize) -> Vec<String> {
    let entries = last(audit, tenant, limit).await.unwrap();
    entries.into_iter().map(|entry| entry.what).collect()
}

#[tokio::test]
async fn every_host_of_a_state_shows_what_was_done_at_any() {
    let folder = tempfile::tempdir().unwrap();
    let one = audit(folder.path(), "one");
    let two = audit(folder.path(), "two");
    one.admin("admin uid 0", "tenant added", "acme", "").await;
    two.tenant("acme", HERE, "guest uploaded", "prefix");
    two.tenant("other", HERE, "guest uploaded", "x".repeat(2 * DETAIL));
    two.write().await.unwrap();
    assert_eq!(
        whats(&one, Some("acme"), 10).await,
        ["tenant added", "guest uploaded"]
    );
    assert_eq!(whats(&one, None, 2).await, ["guest uploaded", "guest uploaded"]);
    let last = last(&one, Some("other"), 1).await.unwrap();
    assert_eq!(
        (last[0].detail.len(), last[0].host.as_str()),
        (DETAIL, "host-two")
    );
}

#[tokio::test]
async fn what_an_admin_did_is_there_although_its_host_is_killed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let killed = audit(folder.path(), "one");
    killed.admin("admin uid 0", "tenant removed", "acme", "").await;
    killed.tenant("acme", HERE, "guest removed", "prefix");
    drop(killed);
    assert_eq!(
        whats(&audit(folder.path(), "two"), None, 10).await,
        ["tenant removed"]
    );
}

#[tokio::test]
async fn what_could_not_be_written_is_written_once_when_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let audit = audit(folder.path(), "one");
    // Put a file in place of the folder.
    std::fs::write(folder.path().join("audit"), "").unwrap();
    for _ in 0..2 * ledger::WAITING {
        audit
            .admins
            .note(audit.entry("admin uid 0", "drained", "", String::new()));
    }
    assert!(audit.write().await.is_err());
    audit.admin("admin uid 0", "late", "", "").await;
    std::fs::remove_file(folder.path().join("audit")).unwrap();
    let entries = last(&audit, None, 10 * ledger::WAITING).await.unwrap();
    let count = |what: &str| entries.iter().filter(|entry| entry.what == what).count();
    assert_eq!((count("drained"), count("late")), (ledger::WAITING, 1));
    let left_out = entries.iter().find(|entry| entry.what == LEFT_OUT).unwrap();
    let expected = format!("{},", ledger::WAITING);
    assert!(left_out.detail.starts_with(&expected), "{}", left_out.detail);
}

#[tokio::test]
async fn old_days_are_found_after_a_quiet_week_and_the_newest_kept() {
    let folder = tempfile::tempdir().unwrap();
    let audit = audit(folder.path(), "one");
    let day = 24 * 3600;
    for days in [500, 100, 10] {
        let mut entry = audit.entry("admin uid 0", &format!("{days} days ago"), "", String::new());
        entry.at -= days * day;
        audit.admins.note(entry);
        audit.write().await.unwrap();
    }
    assert_eq!(whats(&audit, None, 1).await, ["10 days ago"]);
    let all = ["500 days ago", "100 days ago", "10 days ago"];
    assert_eq!(whats(&audit, None, 9).await, all);
    // Days without entries do not count.
    ADMINS.sweep(&audit.store).await.unwrap();
    assert_eq!(whats(&audit, None, 9).await, all);
    let two = DailyFolder {
        kept_days: 2,
        ..ADMINS
    };
    two.sweep(&audit.store).await.unwrap();
    assert_eq!(whats(&audit, None, 9).await, all[1..]);
}

#[tokio::test]
async fn a_backup_copies_missing_entries() {
    let here = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir().unwrap();
    let from = audit(here.path(), "one");
    let to = audit(there.path(), "copy");
    for what in ["tenant added", "tenant removed"] {
        from.admin("admin uid 0", what, "acme", "").await;
        copy(&from.store, &to.store).await.unwrap();
    }
    assert_eq!(whats(&to, None, 10).await, ["tenant added", "tenant removed"]);
}

#[tokio::test]
async fn entries_beyond_the_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let audit = audit(folder.path(), "one");
    for _ in 0..2 {
        for _ in 0..ledger::WAITING {
            let entry = audit.entry("admin uid 0", "tenant added", "acme", "x".repeat(DETAIL));
            audit.admins.note(entry);
        }
        audit.write().await.unwrap();
    }
    let refused = last(&audit, None, 10 * ledger::WAITING).await;
    assert!(matches!(refused, Err(AuditError::Memory(_))), "{refused:?}");
}
