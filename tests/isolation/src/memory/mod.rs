//! Attempts to exceed the memory budget: each succeeded on an earlier host that counted items and sizes instead of keeping one ledger.

mod bodies;
mod models;
mod objects;
mod streams;
mod watch;

use crate::case::{Act, Case, Class, Expected};
use crate::scene::Scene;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

pub use watch::{MemoryPeak, Watch};

/// What the host of these cases may hold, in bytes: little more than the largest row of a case that is served takes.
pub const BUDGET: u64 = 656 << 20;

/// How long the host may take to release the memory of a disconnected tenant: a running engine batch is finished.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of [`LARGE`].
const LARGE_BYTES: u64 = 20 << 20;

/// An object that is no image, by a name that says so, and by one that does not.
const LARGE: [&str; 2] = ["large.bin", "large.png"];

/// Times that an object is named in one request.
const NAMED: usize = 128;

/// All except [`row_cases`]; each needs [`Scene::start_within`] of the [`BUDGET`].
pub fn memory_cases() -> Vec<Case> {
    vec![
        case(
            "hidden-frame",
            "has 16 images decoded that hide a frame header of 20,000 pixels a side",
            Expected::new("rows", &["16 errors"]),
            Act::Memory(|scene| Box::pin(objects::hidden_frames(scene))),
        ),
        case(
            "bodies",
            "sends bodies a byte short of their length on many connections, and leaves",
            Expected::new("left", &[]),
            Act::Memory(|scene| Box::pin(bodies::run(scene))),
        ),
        case(
            "streams",
            "sends bodies a byte short of their length on 128 streams of few connections, and leaves",
            Expected::new("left", &[]),
            Act::Memory(|scene| Box::pin(streams::run(scene))),
        ),
        case(
            "large-objects",
            "asks for one object of 20 MiB 128 times, and reads nothing",
            Expected::new("left", &[]),
            Act::Memory(|scene| Box::pin(objects::unread(scene))),
        ),
        case(
            "subfolders",
            "has 32 subfolders listed at once, each with a shard of 256 MiB",
            Expected::new("listed", &["32 samples"]),
            Act::Memory(|scene| Box::pin(objects::subfolders(scene))),
        ),
        case(
            "undecoded-objects",
            "has one object of 20 MiB that is no image decoded 128 times",
            Expected::new("rows", &["128 errors"]),
            Act::Memory(|scene| Box::pin(objects::undecoded(scene))),
        ),
    ]
}

/// Networks whose rows take much of what the lanes may have, or more.
pub fn row_cases() -> Vec<Case> {
    vec![
        case(
            "wide-row",
            "runs a network of 342 bytes whose rows take 400 MB, on 6 samples",
            Expected::new("rows", &["6 as they should be"]),
            Act::Memory(|scene| Box::pin(models::wide_row(scene))),
        ),
        case(
            "wider-row",
            "runs a network whose single row takes more than the host has",
            Expected::new("422", &["a single row needs", "at most", "memory_budget"]),
            Act::Memory(|scene| Box::pin(models::wider_row(scene))),
        ),
    ]
}

fn case(name: &str, does: &str, expected: Expected, act: Act) -> Case {
    Case {
        name: name.to_owned(),
        does: does.to_owned(),
        class: Class::Memory,
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

/// Waits until the host holds no memory for the tenant.
pub(crate) async fn wait_until_released(scene: &Scene) -> Result<()> {
    let until = Instant::now() + RELEASE_TIMEOUT;
    loop {
        let top = scene.admin(&["top", "--once"])?;
        let held = watch::held_by(&top, scene.name())?;
        if held == 0 && !scene.at_work()? {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "the host still holds {held} bytes for a disconnected tenant"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The keys `key`, so many times.
fn repeated(key: &str, times: usize) -> Result<Vec<frostline_wire::RequestedSample>> {
    let times = u32::try_from(times).context("too many")?;
    Ok((0..times)
        .map(|position| crate::neighbor::sample(position, key))
        .collect())
}
