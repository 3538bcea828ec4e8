//! Host runs that write their usage to the same folder.

use super::books::{Period, Usages};
use super::stored::{FOLDER, StoredUsage, copy, read};
use crate::daily::DailyFolder;
use crate::day::Day;
use frostline_objects::Store;
use frostline_wire::Usage;
use std::path::Path;

fn local(folder: &Path) -> Store {
    Store::open(folder.to_str().unwrap()).unwrap()
}

/// Returns the only period of a host run on `day`.
fn on(day: Day) -> Period {
    Period { number: 0, day }
}

fn images(tenant: &str, images: u64) -> Usages {
    let usage = Usage {
        images,
        ..Usage::default()
    };
    Usages::from([(tenant.to_owned(), usage)])
}

fn files(folder: &Path) -> usize {
    let days = std::fs::read_dir(folder.join("usage")).unwrap();
    days.map(|day| std::fs::read_dir(day.unwrap().path()).unwrap().count())
        .sum()
}

#[tokio::test]
async fn runs_add_up_and_each_counts_once_with_what_it_wrote_last() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(folder.path());
    let day = Day::at(1_795_651_200);
    let mut one = StoredUsage::new("one".into());
    let mut two = StoredUsage::new("two".into());
    for sum in [1, 5, 7] {
        one.write(&store, on(day), images("acme", sum)).await.unwrap();
    }
    two.write(&store, on(day), images("acme", 10)).await.unwrap();
    two.write(&store, on(day), images("bolt", 2)).await.unwrap();
    assert_eq!(files(folder.path()), 2, "one object per run and day");
    let days = read(&store, day, day, None).await.unwrap();
    assert_eq!(
        days[&day]["acme"].images, 7,
        "only the newest object should count"
    );
    assert_eq!(days[&day]["bolt"].images, 2);
    let others = one.others(&store, on(day)).await.unwrap();
    assert_eq!((others.len(), others["bolt"].images), (1, 2));
}

#[tokio::test]
async fn a_run_that_died_while_it_wrote_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(folder.path());
    let day = Day::at(0);
    let mut run = StoredUsage::new("run".into());
    run.write(&store, on(day), images("acme", 3)).await.unwrap();
    // The next object was created, but the previous one was not removed yet.
    let next = r#"{"tenants":{"acme":{"images":4,"of_a_later_version":1}},"later":true}"#;
    let key = format!("usage/{day}/run.0-00000002.json");
    store.put_new(&key, next.into()).await.unwrap();
    let days = read(&store, day, day, None).await.unwrap();
    assert_eq!(days[&day]["acme"].images, 4);
}

#[tokio::test]
async fn days_are_selected_and_the_newest_with_records_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(folder.path());
    let today = Day::at(1_795_651_200);
    let mut run = StoredUsage::new("run".into());
    for age in (0..5).rev() {
        run.write(&store, on(today.before(age)), images("acme", age))
            .await
            .unwrap();
    }
    // Keys that sort before and after the folder must be ignored.
    for key in ["snapshots/1", "zzz"] {
        store.put_new(key, "{}".into()).await.unwrap();
    }
    let days = read(&store, today.before(3), today.before(1), None)
        .await
        .unwrap();
    let ages: Vec<u64> = days.values().map(|tenants| tenants["acme"].images).collect();
    assert_eq!(ages, [3, 2, 1]);
    let few = DailyFolder {
        kept_days: 2,
        ..FOLDER
    };
    few.sweep(&store).await.unwrap();
    let days = read(&store, today.before(400), today, None).await.unwrap();
    assert_eq!(days.len(), 2);
    assert!(store.read("snapshots/1").await.is_ok() && store.read("zzz").await.is_ok());
}

#[tokio::test]
async fn a_copy_has_what_each_run_wrote_last() {
    let folder = tempfile::tempdir().unwrap();
    let backup = tempfile::tempdir().unwrap();
    let store = local(folder.path());
    let to = local(backup.path());
    let day = Day::at(0);
    let mut run = StoredUsage::new("run".into());
    for sum in [3, 4] {
        run.write(&store, on(day), images("acme", sum)).await.unwrap();
        copy(&store, &to).await.unwrap();
    }
    assert_eq!(files(backup.path()), 1);
    assert_eq!(read(&to, day, day, None).await.unwrap()[&day]["acme"].images, 4);
    // Copying back must not replace newer usage.
    run.write(&store, on(day), images("acme", 9)).await.unwrap();
    copy(&to, &store).await.unwrap();
    assert_eq!(
        read(&store, day, day, None).await.unwrap()[&day]["acme"].images,
        9
    );
}
