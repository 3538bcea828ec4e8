//! Attempts to exceed the memory budget. Each succeeded on earlier hosts, which counted items and sizes
//! instead of keeping one ledger.

mod bodies;
mod bounds;
mod models;
mod objects;
mod streams;
mod unread;
mod watch;

use crate::case::{Action, AttackKind, Case, Expected};
use crate::scene::Scene;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) use watch::unreserved;
pub use watch::{MemoryPeak, Watch};

/// Memory budget in bytes for these cases. It is slightly larger than the largest row that must be served.
pub const BUDGET: u64 = 656 << 20;

/// Time within which the host must release the memory of a disconnected tenant. A running engine batch is
/// finished.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Size of [`LARGE`] objects in bytes.
const LARGE_BYTES: u64 = 20 << 20;

/// Invalid images. The second name has an image extension.
const LARGE: [&str; 2] = ["large.bin", "large.png"];

/// Object with a few bytes.
const SMALL: &str = "small.bin";

/// Number of requests for the same object in an extraction.
const REPETITIONS: usize = 128;

/// Returns all cases except [`row_cases`] and [`unread_cases`]. They need [`Scene::start_within`] the [`BUDGET`].
pub fn memory_cases() -> Vec<Case> {
    vec![
        case(
            "read-budget",
            "lists shards of 256 MiB with 512 MiB of reads per day",
            Expected::new("403", &["read_bytes_per_day"]),
            Action::Memory(|scene| Box::pin(bounds::reads(scene))),
        ),
        case(
            "probe-budget",
            "requests 512 MiB of probes with 32 MiB of the day's budget left",
            Expected::new("403", &["bytes_per_day"]),
            Action::Memory(|scene| Box::pin(bounds::probes(scene))),
        ),
        case(
            "long-texts",
            "sends 32 refused requests with a split of 15 MB",
            Expected::new("400", &["split", "1024"]),
            Action::Memory(|scene| Box::pin(bounds::long_texts(scene))),
        ),
        case(
            "long-names",
            "lists a folder with 8,000 long names on 64 connections that close",
            Expected::new("listed", &["8000 names"]),
            Action::Memory(|scene| Box::pin(bounds::long_names(scene))),
        ),
        case(
            "endless-listing",
            "lists a granted web server whose answer never ends",
            Expected::new("refused", &[]),
            Action::Memory(|scene| Box::pin(bounds::endless_listing(scene))),
        ),
        case(
            "hidden-frame",
            "decodes 16 images that hide a frame header of 20,000 pixels per side",
            Expected::new("rows", &["16 errors"]),
            Action::Memory(|scene| Box::pin(objects::hidden_frames(scene))),
        ),
        case(
            "bodies",
            "sends incomplete bodies on many connections and disconnects",
            Expected::new("left", &[]),
            Action::Memory(|scene| Box::pin(bodies::run(scene))),
        ),
        case(
            "streams",
            "sends incomplete bodies on 128 streams and disconnects",
            Expected::new("left", &[]),
            Action::Memory(|scene| Box::pin(streams::run(scene))),
        ),
        case(
            "large-objects",
            "requests an object of 20 MiB 128 times without reading",
            Expected::new("left", &[]),
            Action::Memory(|scene| Box::pin(objects::unread(scene))),
        ),
        case(
            "shared-root",
            "requests large objects of a root shared with the neighbor, without reading the answers",
            Expected::new("row", &["small"]),
            Action::Memory(|scene| Box::pin(objects::shared_root(scene))),
        ),
        case(
            "subfolders",
            "lists 24 subfolders with a shard of 256 MiB each",
            Expected::new("listed", &["24 samples"]),
            Action::Memory(|scene| Box::pin(objects::subfolders(scene))),
        ),
        case(
            "undecoded-objects",
            "decodes an invalid image of 20 MiB 128 times",
            Expected::new("rows", &["128 errors"]),
            Action::Memory(|scene| Box::pin(objects::undecoded(scene))),
        ),
        // The last one, because the tenant cannot upload for the next minute.
        case(
            "state-log",
            "uploads versions of a model with 200 KB of names in turn",
            Expected::new("429", &["snapshot", "retry"]),
            Action::Memory(|scene| Box::pin(bounds::changes(scene))),
        ),
    ]
}

/// Returns cases of answers that are never read. Each needs a separate scene, because memory that an earlier
/// case has released hides the growth.
pub fn unread_cases() -> Vec<Case> {
    vec![
        case(
            "unread-metrics",
            "requests /metrics on 14,080 streams without a token and without reading",
            Expected::new("reserved", &[]),
            Action::Memory(|scene| Box::pin(unread::metrics(scene))),
        ),
        case(
            "unread-refusals",
            "requests an unknown address of 15 kB on 14,080 streams without a token and without reading",
            Expected::new("reserved", &[]),
            Action::Memory(|scene| Box::pin(unread::addresses(scene))),
        ),
        case(
            "unread-descriptions",
            "requests the description of a network on 1,792 streams without reading",
            Expected::new("reserved", &[]),
            Action::Memory(|scene| Box::pin(unread::descriptions(scene))),
        ),
        case(
            "unread-audit",
            "requests 100,000 audit entries eight times without reading",
            Expected::new("reserved", &[]),
            Action::Memory(|scene| Box::pin(unread::audit(scene))),
        ),
    ]
}

/// Returns cases with networks whose rows exceed most or all of the lanes' memory.
pub fn row_cases() -> Vec<Case> {
    vec![
        case(
            "wide-row",
            "runs a network of 342 bytes with rows of 280 MB on 6 samples",
            Expected::new("rows", &["6 correct"]),
            Action::Memory(|scene| Box::pin(models::wide_row(scene))),
        ),
        case(
            "wider-row",
            "runs a network with a row larger than the memory budget",
            Expected::new("422", &["a single row needs", "has only", "memory_budget"]),
            Action::Memory(|scene| Box::pin(models::wider_row(scene))),
        ),
    ]
}

fn case(name: &str, does: &str, expected: Expected, act: Action) -> Case {
    Case {
        name: name.to_owned(),
        description: does.to_owned(),
        class: AttackKind::Memory,
        expected,
        act,
    }
}

/// Writes the objects of the cases below the data root.
pub(crate) fn write(root: &Path) -> Result<()> {
    for name in LARGE {
        File::create(root.join(name))?.set_len(LARGE_BYTES)?;
    }
    objects::write_shards(root)
}

/// Writes the objects of the root that all tenants share.
pub(crate) fn write_shared(root: &Path) -> Result<()> {
    std::fs::create_dir_all(root)?;
    std::fs::write(root.join(SMALL), "small")?;
    let [large, _] = LARGE;
    Ok(File::create(root.join(large))?.set_len(LARGE_BYTES)?)
}

/// Waits until the host holds no memory for the tenant.
pub(crate) async fn wait_until_released(scene: &Scene) -> Result<()> {
    let until = Instant::now() + RELEASE_TIMEOUT;
    loop {
        let top = scene.activity()?;
        let held = watch::held_by(&top, scene.name())?;
        if held == 0 && !scene.has_work()? {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "the host still holds {held} bytes for a disconnected tenant"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn repeated(key: &str, times: usize) -> Result<Vec<frostline_wire::RequestedSample>> {
    let times = u32::try_from(times).context("too many")?;
    Ok((0..times)
        .map(|position| crate::neighbor::sample(position, key))
        .collect())
}
