//! Listings that never end, whose clients disconnect.

use crate::case::{Action, AttackKind, Case, CaseResult, Expected};
use crate::exchange;
use crate::scene::Scene;
use anyhow::Result;
use futures::future::try_join_all;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Depth of the folder. Each level has two links to the next, so a walk visits 2^36 folders, and none has a file.
const DEPTH: usize = 36;

/// Listings at a time, as many as a tenant can run.
const AT_ONCE: usize = 8;

/// Number of times that the listings are started and abandoned.
const ROUNDS: usize = 4;

/// Time until the clients disconnect.
const STAYS: Duration = Duration::from_secs(1);

/// Time within which the host must end the walks.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn all() -> Vec<Case> {
    vec![Case {
        name: "endless-walks".to_owned(),
        description: "lists a folder of links that is never read to the end, and disconnects".to_owned(),
        class: AttackKind::Request,
        expected: Expected::new("left", &[]),
        act: Action::Memory(|scene| Box::pin(run(scene))),
    }]
}

async fn run(scene: &Scene) -> Result<CaseResult> {
    let folder = Path::new(&scene.root()?).join("walks");
    write(&folder)?;
    let root = format!("{}/walks/0", scene.root()?);
    for _ in 0..ROUNDS {
        try_join_all((0..AT_ONCE).map(|_| abandon(scene, &root))).await?;
    }
    let until = Instant::now() + TIMEOUT;
    let mut busy = scene.running_threads()?;
    while busy >= AT_ONCE * ROUNDS / 2 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
        busy = scene.running_threads()?;
    }
    fs::remove_dir_all(&folder)?;
    Ok(match Instant::now() < until {
        true => CaseResult::new("left", ""),
        false => CaseResult::new("at work", format!("{busy} threads run for disconnected clients")),
    })
}

/// Writes a folder in which each level has two links to the next.
fn write(folder: &Path) -> Result<()> {
    for level in 0..DEPTH {
        let path = folder.join(level.to_string());
        fs::create_dir_all(&path)?;
        for link in ["a", "b"] {
            symlink(format!("../{}", level + 1), path.join(link))?;
        }
    }
    Ok(fs::create_dir(folder.join(DEPTH.to_string()))?)
}

/// Lists `root` and disconnects.
async fn abandon(scene: &Scene, root: &str) -> Result<()> {
    let mut stream = TcpStream::connect(scene.address()?).await?;
    stream.write_all(&exchange::listing(scene, root)?.bytes).await?;
    tokio::time::sleep(STAYS).await;
    Ok(())
}
