//! `frostline cache`, which lists and clears the feature cache of this machine.

use crate::arguments::CacheCommand;
use crate::hints::{Hinted, NextStep};
use crate::output::{bytes, print_json, print_result};
use crate::runs::age;
use anyhow::{Result, anyhow};
use frostline_features::{Cache, StoreInfo};
use serde_json::{Value, json};

pub(crate) fn run(command: &CacheCommand, json: bool) -> Result<()> {
    let place = match command {
        CacheCommand::List { place } | CacheCommand::Clear { place, .. } => place,
    };
    let folder = place
        .folder()
        .ok_or_else(|| anyhow!("cannot find the cache folder, because XDG_CACHE_HOME and HOME are not set"))
        .map_err(|error| Hinted::wrap(error, vec![NextStep::set("feature_folder", Value::Null)]))?;
    let cache = Cache::new(folder, u64::MAX);
    match command {
        CacheCommand::List { .. } => list(&cache, json),
        CacheCommand::Clear { names, .. } => clear(&cache, names, json),
    }
}

fn list(cache: &Cache, json: bool) -> Result<()> {
    for kept in cache.list() {
        if json {
            print_json(&kept)?;
        } else {
            say!("{}", line(&kept));
        }
    }
    Ok(())
}

fn line(kept: &StoreInfo) -> String {
    let what = kept.subject.as_ref().map_or_else(
        || "unknown network and data".to_owned(),
        |subject| format!("{} up to {} on {}", subject.model, subject.freeze, subject.data),
    );
    let when = match kept.used {
        true => "in use".to_owned(),
        false => format!("last used {} ago", age(kept.unused_seconds)),
    };
    format!(
        "{}  {:>9} rows  {:>9}  {what}, {when}",
        kept.name,
        kept.rows,
        bytes(kept.bytes)
    )
}

fn clear(cache: &Cache, names: &[String], json: bool) -> Result<()> {
    let there = cache.list();
    if let Some(name) = names
        .iter()
        .find(|name| !there.iter().any(|kept| kept.name == **name))
    {
        anyhow::bail!("unknown cache entry {name}; see `frostline cache list`");
    }
    let (removed, freed) = cache.clear(names)?;
    let text = format!("removed {removed}, {} free again", bytes(freed));
    print_result(json, &json!({"removed": removed, "bytes": freed}), text)
}
