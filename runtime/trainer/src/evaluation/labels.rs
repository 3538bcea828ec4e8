//! Optional labels table of a job.

use crate::{LossName, TrainerError, blocking};
use frostline_client::{Hosts, LabelTable, Listing, Task};
use frostline_job::Unlisted;
use std::io;
use std::path::Path;

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
        Some(file) => {
            let name = file.display().to_string();
            let file = file.to_owned();
            let bytes = blocking(move || {
                LabelTable::read_file(&file).map_err(|source| unreadable(&file.display().to_string(), source))
            });
            (name, bytes.await?)
        }
        None => match hosts.labels_table(root, listing).await? {
            Some(read) => {
                let name = LabelTable::KEY.to_owned();
                let bytes = read.map_err(|why| unreadable(&name, io::Error::other(why)))?;
                (name, bytes)
            }
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

fn unreadable(name: &str, source: io::Error) -> TrainerError {
    TrainerError::Labels {
        name: name.to_owned(),
        source,
    }
}
