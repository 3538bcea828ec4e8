//! The host a command talks to: a running one, or one started inside this process.

use anyhow::{Context, Result, bail};
use frostline_client::{Deadlines, HostClient, Hosts, Token, Trust};
use frostline_job::HostList;
use frostline_job::flags::missing;
use frostline_server::{Host, HostSettings, RunningHost};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// How long an embedded host may take to end: whatever still runs belongs to a job that is over.
const FAREWELL: Duration = Duration::from_secs(2);

/// Which hosts a command talks to, and how they and it know each other.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) urls: &'a [String],
    pub(crate) token_file: Option<&'a Path>,
    /// Certificates to trust in place of the system's.
    pub(crate) ca: Option<&'a Path>,
    /// The folder above the data that a host inside this process may follow links into.
    pub(crate) follow_links: Option<&'a Path>,
}

impl<'a> Access<'a> {
    /// The hosts of a job.
    ///
    /// # Errors
    /// What flag is missing.
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
        })
    }

    /// Who asks, and whom they trust.
    fn identity(&self) -> Result<(Option<Token>, Trust)> {
        let token = self.token_file.map(Token::read).transpose()?;
        Ok((token, self.ca.map_or(Ok(Trust::System), Trust::read)?))
    }

    /// All of them, for a job.
    pub(crate) async fn hosts(&self) -> Result<Hosts> {
        let (token, trust) = self.identity()?;
        Ok(Hosts::connect(self.urls, token, &trust, Deadlines::default()).await?)
    }

    /// A client of the only host there is.
    pub(crate) fn client(&self) -> Result<HostClient> {
        let [url] = self.urls else {
            bail!("one host is needed, and {} are given", self.urls.len());
        };
        let (token, trust) = self.identity()?;
        Ok(HostClient::with(url, token, &trust, Deadlines::default())?)
    }
}

/// A connection to one or more hosts, and the host itself where it was started for this command.
pub(crate) struct Connection {
    hosts: Hosts,
    /// The only one of them, or any where they have one name.
    one: Option<HostClient>,
    embedded: Option<Embedded>,
}

struct Embedded {
    host: RunningHost,
    _state: TempDir,
}

impl Connection {
    /// Connects to the hosts of `access`; where there are none, starts one on a loopback port that may read `data` and computes on
    /// `device`.
    pub(crate) async fn open(access: Access<'_>, data: &str, device: &str) -> Result<Self> {
        if access.urls.is_empty() {
            return Self::embed(granted(data, access.follow_links)?, device).await;
        }
        // Read once: a token file may be a pipe.
        let (token, trust) = access.identity()?;
        let one = match access.urls {
            [url] => HostClient::with(url, token.clone(), &trust, Deadlines::default()).ok(),
            _ => None,
        };
        Ok(Self {
            hosts: Hosts::connect(access.urls, token, &trust, Deadlines::default()).await?,
            one,
            embedded: None,
        })
    }

    async fn embed(data: String, device: &str) -> Result<Self> {
        let state = tempfile::Builder::new()
            .prefix("frostline-")
            // Its token lies in it.
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .context("cannot create a temporary folder for the embedded host")?;
        let mut settings = HostSettings {
            listen: "127.0.0.1:0".to_owned(),
            state: data_url(&state.path().display().to_string())?,
            data: vec![data],
            ..HostSettings::default()
        };
        device.clone_into(&mut settings.engine.device);
        let token_file = state.path().join("token");
        let mut config = settings.check()?;
        // Who runs the command runs the host.
        config.stores.lent = false;
        let host = Host::start(config)
            .await
            .context("cannot start the embedded host")?;
        let client = HostClient::embedded(&host.url(), Token::read(&token_file)?)?;
        Ok(Self {
            one: Some(client.clone()),
            hosts: client.into(),
            embedded: Some(Embedded { host, _state: state }),
        })
    }

    /// Whether the host was started inside this process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// All hosts, as one job uses them.
    pub(crate) fn hosts(&self) -> Hosts {
        self.hosts.clone()
    }

    /// The host of a command that talks to one.
    pub(crate) fn client(&self) -> Result<&HostClient> {
        self.one
            .as_ref()
            .context("one host is needed, and several are given")
    }

    /// Ends the embedded host, if there is one, and removes its state.
    pub(crate) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.host.shutdown(FAREWELL).await;
        }
    }
}

/// What a host inside this process may read: `data`, or the folder above it that its links may lead into. A host follows no link out of
/// what it was granted.
pub(crate) fn granted(data: &str, follow_links: Option<&Path>) -> Result<String> {
    let Some(above) = follow_links else {
        return Ok(data.to_owned());
    };
    let real = above
        .canonicalize()
        .with_context(|| format!("cannot use --follow-links {}", above.display()))?;
    let is_meant = |folder: &&Path| folder.canonicalize().is_ok_and(|folder| folder == real);
    let granted = Path::new(data).ancestors().find(is_meant);
    granted.and_then(Path::to_str).map(str::to_owned).with_context(|| {
        format!(
            "--follow-links {} is not a folder above --data {data}; name one that holds the data and what its links lead to",
            above.display()
        )
    })
}

/// `--data` as a host is to open it: paths become absolute, since a host may run in another folder.
pub(crate) fn data_url(data: &str) -> Result<String> {
    if data.contains("://") {
        return Ok(data.to_owned());
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
    use super::granted;
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
        let given = |above: &Path| granted(data, Some(above));
        assert_eq!(granted(data, None).unwrap(), data);
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
        assert!(granted("s3://photos", Some(folder.path())).is_err());
    }
}
