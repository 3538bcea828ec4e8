//! Connections to a running host, or to an embedded host inside this process.

use crate::host_folder::HostFolder;
use anyhow::{Context, Result, bail};
use frostline_client::{Deadlines, HostClient, Hosts, Token, Trust};
use frostline_job::HostList;
use frostline_job::flags::missing;
use frostline_server::{Host, HostSettings, RunningHost};
use frostline_tensor::without_secrets;
use std::path::Path;
use std::time::Duration;

/// Drain timeout of an embedded host. The job has already ended, so the remaining work is not needed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of a model on an embedded host, which is also ONNX's limit for a file.
pub(crate) const EMBEDDED_MODEL_BYTES: u64 = 2 << 30;

/// Addresses of hosts and credentials.
#[derive(Clone, Copy)]
pub(crate) struct HostAccess<'a> {
    pub(crate) urls: &'a [String],
    pub(crate) token_file: Option<&'a Path>,
    /// Certificates to trust instead of the system's.
    pub(crate) ca: Option<&'a Path>,
    /// Folder above the data that the embedded host may read through links.
    pub(crate) follow_links: Option<&'a Path>,
    /// Maximum number of pixels of an image on the embedded host.
    pub(crate) image_pixels: Option<u64>,
}

impl<'a> HostAccess<'a> {
    /// Returns the access to running hosts, or to an embedded host with default settings.
    pub(crate) fn running(urls: &'a [String], token_file: Option<&'a Path>, ca: Option<&'a Path>) -> Self {
        Self {
            urls,
            token_file,
            ca,
            follow_links: None,
            image_pixels: None,
        }
    }

    /// Returns the access of a job.
    ///
    /// # Errors
    /// Returns an error that names the missing flag if only one of hosts and token file is set.
    pub(crate) fn from_flags(hosts: &'a HostList) -> Result<Self> {
        match (hosts.host.is_empty(), &hosts.token_file) {
            (false, None) => return Err(missing("--token-file <FILE>").into()),
            (true, Some(_)) => return Err(missing("--host <URL>").into()),
            _ => {}
        }
        Ok(Self {
            urls: &hosts.host,
            token_file: hosts.token_file.as_deref(),
            ca: hosts.ca.as_deref(),
            follow_links: hosts.follow_links.as_deref(),
            image_pixels: hosts.image_pixels,
        })
    }

    /// Reads the token and the trusted certificates.
    fn identity(&self) -> Result<(Option<Token>, Trust)> {
        let token = self.token_file.map(Token::read).transpose()?;
        Ok((token, self.ca.map_or(Ok(Trust::default()), Trust::read)?))
    }

    /// Connects to all hosts for a job.
    pub(crate) async fn hosts(&self) -> Result<Hosts> {
        let (token, trust) = self.identity()?;
        Ok(Hosts::connect(self.urls, token, &trust, Deadlines::default()).await?)
    }

    /// Creates a client for a single host.
    pub(crate) fn client(&self) -> Result<HostClient> {
        let [url] = self.urls else {
            bail!(
                "this command needs a single host, but {} are set",
                self.urls.len()
            );
        };
        let (token, trust) = self.identity()?;
        Ok(HostClient::with(url, token, &trust, Deadlines::default())?)
    }
}

/// Connection to one or more hosts, including the embedded host if it was started by this command.
pub(crate) struct HostConnection {
    hosts: Hosts,
    embedded: Option<Embedded>,
}

struct Embedded {
    host: RunningHost,
    _folder: HostFolder,
}

impl HostConnection {
    /// Connects to the hosts of `access`. Without hosts, starts an embedded host on a loopback port with read
    /// access to `data` and with engines on `device`.
    pub(crate) async fn open(access: HostAccess<'_>, data: &str, device: &str) -> Result<Self> {
        if access.urls.is_empty() {
            let root = embedded_root(data, access.follow_links)?;
            return Self::embed(vec![root], device, access.image_pixels).await;
        }
        Ok(Self {
            hosts: access.hosts().await?,
            embedded: None,
        })
    }

    /// Starts an embedded host with read access to `data`.
    pub(crate) async fn embed(data: Vec<String>, device: &str, image_pixels: Option<u64>) -> Result<Self> {
        let folder =
            HostFolder::create().context("cannot create a temporary folder for the embedded host")?;
        let state = folder.state();
        let mut settings = HostSettings {
            listen: "127.0.0.1:0".to_owned(),
            state: data_url(&state.display().to_string())?,
            data,
            ..HostSettings::default()
        };
        device.clone_into(&mut settings.engine.device);
        settings.limits.image_pixels = image_pixels.unwrap_or(settings.limits.image_pixels);
        settings.limits.model_bytes = EMBEDDED_MODEL_BYTES;
        let token_file = state.join("token");
        let mut config = settings.check()?;
        // Error messages may contain details, because the user also operates this host.
        config.hides_store_settings = false;
        let host = Host::start(config)
            .await
            .context("cannot start the embedded host")?;
        let client = HostClient::embedded(&host.url(), Token::read(&token_file)?)?;
        Ok(Self {
            hosts: client.into(),
            embedded: Some(Embedded {
                host,
                _folder: folder,
            }),
        })
    }

    /// Returns true if the host was started inside this process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Returns all hosts for a job.
    pub(crate) fn hosts(&self) -> Hosts {
        self.hosts.clone()
    }

    /// Returns the client for a command that uses a single host.
    pub(crate) fn client(&self) -> Result<HostClient> {
        match self.hosts.clients().as_slice() {
            [client] => Ok(client.clone()),
            _ => bail!("this command needs a single host, but several are set"),
        }
    }

    /// Stops the embedded host, if any, and removes its state.
    pub(crate) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.host.shutdown(DRAIN_TIMEOUT).await;
        }
    }
}

/// Returns the data root for an embedded host: `data`, or `follow_links` if links lead to a folder above.
/// Hosts do not follow links that lead outside of the data root.
pub(crate) fn embedded_root(data: &str, follow_links: Option<&Path>) -> Result<String> {
    let Some(above) = follow_links else {
        return Ok(data.to_owned());
    };
    let real = above
        .canonicalize()
        .with_context(|| format!("cannot use --follow-links {}", above.display()))?;
    let granted = Path::new(data)
        .ancestors()
        .find(|folder| folder.canonicalize().is_ok_and(|folder| folder == real));
    granted.and_then(Path::to_str).map(str::to_owned).with_context(|| {
        format!(
            "--follow-links {} is not a folder above --data {data}; use a folder that contains the data and the link targets",
            above.display()
        )
    })
}

/// Returns the address of data for a host. Paths become absolute, because the host may use another working
/// directory.
///
/// # Errors
/// Returns an error if the address is a misspelled URL with a password, or if the path is not UTF-8.
pub(crate) fn data_url(data: &str) -> Result<String> {
    if data.contains("://") {
        return Ok(data.to_owned());
    }
    let shown = without_secrets(data);
    if shown != data {
        bail!(
            "the address '{shown}' is misspelled; use the form https://host/folder, without a user or password"
        );
    }
    let absolute = std::path::absolute(data).with_context(|| format!("cannot use the data path {data:?}"))?;
    absolute
        .into_os_string()
        .into_string()
        .ok()
        .with_context(|| format!("the data path {data:?} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::embedded_root;
    use std::path::Path;

    #[test]
    fn links_are_followed_into_a_folder_above_the_data_alone() {
        let folder = tempfile::tempdir().unwrap();
        let repo = folder.path().join("repo");
        for name in ["repo/photos/train", "repo/cache", "cache"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let data = repo.join("photos");
        let data = data.to_str().unwrap();
        let given = |above: &Path| embedded_root(data, Some(above));
        assert_eq!(embedded_root(data, None).unwrap(), data);
        assert_eq!(given(&repo.join("cache/..")).unwrap(), repo.to_str().unwrap());
        for other in [
            repo.join("photos/train"),
            repo.join("cache"),
            folder.path().join("cache"),
        ] {
            let error = given(&other).unwrap_err().to_string();
            assert!(
                error.contains(&format!("is not a folder above --data {data}")),
                "{error}"
            );
        }
        assert!(given(&repo.join("none")).is_err());
        assert!(embedded_root("s3://photos", Some(folder.path())).is_err());
    }
}
