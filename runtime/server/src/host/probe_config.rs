//! Checks a configuration on this machine without starting a host.

use super::assembly::state_store;
use super::check_data;
use super::error::StartError;
use crate::config::{HostConfig, StateLocation};
use crate::tenants::CONFIGURED;
use crate::tls::Certificate;
use crate::token::{TokenHash, exposed_to_others};
use frostline_state::probe;
use frostline_tensor::SampleRef;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout per check. A working store answers within this time, even if requests have to be retried.
const LONGEST: Duration = Duration::from_secs(8);

/// Seconds per day.
const DAY: i64 = 86_400;

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// The requirement: `state`, `local`, `data`, `tls` or `token`.
    pub what: &'static str,
    /// A description of the requirement if it is met, or the error.
    pub outcome: Result<String, String>,
}

/// Checks that the certificate, folders and token files of this configuration can be used on this machine. No store
/// is contacted, and missing files and folders are not created.
///
/// # Errors
/// Returns the [`StartError`] with which a host would refuse to start.
pub async fn check_start(config: &HostConfig) -> Result<(), StartError> {
    if let Some(files) = config.tls.clone() {
        Arc::new(Certificate::read(files)?).acceptor(config.admin_client_ca.as_deref())?;
    }
    check_data(config).await?;
    if let StateLocation::Directory(path) = &config.state {
        check_writable(path)?;
    }
    check_writable(&config.local)?;
    for file in token_files(config) {
        if file.exists() {
            TokenHash::read_or_create(&file)?;
        }
    }
    Ok(())
}

/// Checks that files can be created in a directory, or in the one in which it would be created.
fn check_writable(directory: &Path) -> Result<(), StartError> {
    let path = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let present = path.ancestors().find(|path| path.exists()).unwrap_or(&path);
    let created = tempfile::tempfile_in(present);
    created.map(drop).map_err(StartError::directory(directory))
}

/// Returns the token files that this configuration uses.
fn token_files(config: &HostConfig) -> impl Iterator<Item = PathBuf> {
    let live = config.live.get();
    let admins = live.admins.iter().filter(|_| config.admin_listen.is_some());
    let admins: Vec<PathBuf> = admins.map(|admin| admin.token_file.clone()).collect();
    std::iter::once(config.token_file.clone()).chain(admins)
}

/// Checks the state, local directory, data roots, certificate and token files of this configuration. Missing files
/// and folders are not created, and the test object in the state is removed again.
pub async fn probe_config(config: &HostConfig) -> Vec<ProbeResult> {
    let mut all = vec![("state", in_time(state(config)).await)];
    all.push(("local", local(&config.local)));
    for root in config.live.get().data.iter() {
        all.push(("data", in_time(data(config, root.as_str())).await));
    }
    if let Some(files) = config.tls.clone() {
        let read = Certificate::read(files).map_err(|error| error.to_string());
        all.push(("tls", read.and_then(|certificate| until(&certificate))));
    }
    all.extend(token_files(config).map(|file| ("token", token(&file))));
    let all = all.into_iter();
    all.map(|(what, outcome)| ProbeResult { what, outcome }).collect()
}

/// Describes a file or folder that does not exist.
fn created_later(path: &Path) -> String {
    let path = path.display();
    format!("{path} does not exist yet and will be created at the first start")
}

async fn in_time(trying: impl Future<Output = Result<String, String>>) -> Result<String, String> {
    timeout(LONGEST, trying).await.map_err(|_| {
        let seconds = LONGEST.as_secs();
        format!("no answer within {seconds} s from the store or from the service that provides credentials")
    })?
}

async fn state(config: &HostConfig) -> Result<String, String> {
    let shown = match &config.state {
        StateLocation::Directory(path) if !path.exists() => {
            check_writable(path).map_err(|error| error.to_string())?;
            return Ok(created_later(path));
        }
        StateLocation::Directory(path) => path.display().to_string(),
        StateLocation::Store(url) => url.clone(),
    };
    let store = state_store(&config.state, &config.live.get().stores).map_err(|error| error.to_string())?;
    probe(&store).await.map_err(|error| error.to_string())?;
    Ok(format!("{shown} is writable and refuses to replace objects"))
}

async fn data(config: &HostConfig, root: &str) -> Result<String, String> {
    let store = config.live.get().stores.open(root, CONFIGURED);
    let store = store.map_err(|error| error.to_string())?;
    let page = store.list(None, 1).await.map_err(|error| error.to_string())?;
    let Some(object) = page.objects.first() else {
        return Ok(format!("{root} can be listed; it is empty"));
    };
    let key = &object.sample.key;
    let read = store.read_range(&SampleRef::new(key), 0..1).await;
    read.map_err(|error| error.to_string())?;
    Ok(format!("{root} can be listed and read ({key})"))
}

fn until(certificate: &Certificate) -> Result<String, String> {
    let Some(ends) = certificate.expires_at() else {
        return Ok("the certificate matches the private key".to_owned());
    };
    let days = (ends - i64::try_from(frostline_primitives::now()).unwrap_or(i64::MAX)) / DAY;
    match days {
        ..0 => Err(format!(
            "the certificate expired {} days ago; renew it, no restart is needed",
            -days
        )),
        _ => Ok(format!(
            "the certificate matches the private key and expires in {days} days"
        )),
    }
}

fn local(directory: &Path) -> Result<String, String> {
    check_writable(directory).map_err(|error| error.to_string())?;
    Ok(match directory.exists() {
        true => format!("{} is writable", directory.display()),
        false => created_later(directory),
    })
}

fn token(file: &Path) -> Result<String, String> {
    if !file.exists() {
        return Ok(created_later(file));
    }
    TokenHash::read_or_create(file).map_err(|error| error.to_string())?;
    if exposed_to_others(file) {
        return Err(format!(
            "other users can read {0}; run chmod o-rwx {0} and replace the token",
            file.display()
        ));
    }
    Ok(format!("{} contains a valid token", file.display()))
}
