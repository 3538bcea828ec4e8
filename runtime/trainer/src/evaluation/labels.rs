//! Optional labels table of a job.

use crate::{LossName, TrainerError, blocking};
use bytes::Bytes;
use frostline_client::{Hosts, LabelTable, Listing, Task};
use frostline_job::Unlisted;
use frostline_wire::ObjectInfo;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Returns the task that corresponds to `loss`.
pub(crate) fn task(loss: LossName) -> Task {
    match loss {
        LossName::CrossEntropy => Task::Classes,
        LossName::Bce => Task::Labels,
        LossName::Mse => Task::Numbers,
    }
}

/// Reads the labels table from `file`, or else from the data root if it contains one. `unlisted` decides
/// about images without a line in the table.
///
/// # Errors
/// Returns [`TrainerError::Labels`] if the table cannot be read, [`TrainerError::Dataset`] if it is invalid,
/// and [`TrainerError::Unlabeled`] if the task requires numbers and no table exists.
pub(crate) async fn table(
    (file, unlisted): (Option<&Path>, Unlisted),
    root: &str,
    listing: &Listing,
    hosts: &Hosts,
    task: Task,
) -> Result<Option<LabelTable>, TrainerError> {
    let (name, bytes) = match file {
        Some(file) => (file.display().to_string(), read(file.to_owned()).await?),
        None => match table_beside(listing) {
            Some(object) => (object.sample.key.clone(), fetch(root, object, hosts).await?),
            None if task == Task::Numbers => {
                return Err(TrainerError::Unlabeled {
                    root: root.to_owned(),
                });
            }
            None => return Ok(None),
        },
    };
    let table = blocking(move || {
        LabelTable::parse(&name, &bytes, task).map_err(|error| TrainerError::Dataset(error.into()))
    })
    .await?;
    Ok(Some(table.with_unlisted(unlisted)))
}

/// Returns the table in the data root, if there is one.
fn table_beside(listing: &Listing) -> Option<ObjectInfo> {
    let mut objects = listing.iter().map(|(_, object)| object);
    objects
        .find(|object| object.key == LabelTable::KEY)
        .map(ObjectInfo::from)
}

async fn read(file: PathBuf) -> Result<Bytes, TrainerError> {
    blocking(move || {
        read_limited(&file).map_err(|source| TrainerError::Labels {
            name: file.display().to_string(),
            source,
        })
    })
    .await
}

/// Reads a local file, truncated to one byte above the size limit. The parser rejects larger files.
fn read_limited(file: &Path) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    let most = LabelTable::MOST_BYTES + 1;
    File::open(file)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Fetches the table from the data root, in the listed version.
async fn fetch(root: &str, object: ObjectInfo, hosts: &Hosts) -> Result<Bytes, TrainerError> {
    if object.size > LabelTable::MOST_BYTES {
        let why = format!(
            "it has {} bytes, the limit is {}",
            object.size,
            LabelTable::MOST_BYTES
        );
        return Err(not_fetched(&object, why));
    }
    let wanted = std::slice::from_ref(&object);
    match hosts
        .first(|client| async move { client.read(root, wanted).await })
        .await?
        .pop()
    {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(error)) => Err(not_fetched(&object, error.message)),
        None => Err(not_fetched(&object, "no answer from the host".to_owned())),
    }
}

fn not_fetched(object: &ObjectInfo, why: String) -> TrainerError {
    TrainerError::Labels {
        name: object.sample.key.clone(),
        source: io::Error::other(why),
    }
}
