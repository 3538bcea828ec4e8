//! Which data a tenant may read: its roots, and requests held against them on normalized URLs.

use super::error::ConfigError;
use frostline_objects::check_scheme;
use std::path::{Path, PathBuf};
use url::Url;

/// Folders of the system's own, with all that is in them.
const SYSTEM: [&str; 4] = ["boot", "etc", "proc", "sys"];

/// Folders of the system's own in which data may lie further down.
const SYSTEM_ROOTS: [&str; 6] = ["dev", "home", "root", "run", "usr", "var"];

/// Data roots a tenant may read, each with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataRoots(Vec<Root>);

/// An object store URL in one spelling: no dot segments, no empty ones, nothing encoded that need not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Root {
    /// Scheme, and host with port.
    store: String,
    /// Path segments, decoded.
    path: Vec<String>,
    url: String,
}

impl DataRoots {
    /// These: URLs, or directories, relative ones from the current directory.
    ///
    /// # Errors
    /// [`ConfigError::Root`] for one that cannot be normalized.
    pub(crate) fn new(roots: &[String]) -> Result<Self, ConfigError> {
        let normalize = |root: &String| {
            let refuse = |detail: String| ConfigError::Root {
                root: root.clone(),
                detail,
            };
            let text = if root.contains("://") {
                root.clone()
            } else {
                let path = std::path::absolute(root).map_err(|error| refuse(error.to_string()))?;
                path.to_str()
                    .map(str::to_owned)
                    .ok_or_else(|| refuse("invalid UTF-8".to_owned()))?
            };
            let root = Root::parse(&text).map_err(refuse)?;
            root.check().map_err(refuse)?;
            Ok(root)
        };
        roots.iter().map(normalize).collect::<Result<_, _>>().map(Self)
    }

    /// None.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.0.iter()
    }

    /// The folders of this machine among them.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let local = self.0.iter().filter(|root| root.store == "file://");
        local.map(|root| Path::new("/").join(root.path.iter().collect::<PathBuf>()))
    }

    /// The one that `root` is or lies below; of several the widest.
    pub(crate) fn find_grant(&self, root: &Root) -> Option<&Root> {
        let around = |own: &&Root| own.store == root.store && root.path.starts_with(&own.path);
        self.0.iter().filter(around).min_by_key(|own| own.path.len())
    }
}

impl Root {
    /// Normalizes a URL or an absolute path.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file = Url::from_file_path(text).ok().filter(|_| text.starts_with('/'));
        // A path's URL still has its dot segments; parsing resolves them.
        let url = Url::parse(file.as_ref().map_or(text, Url::as_str))
            .map_err(|error| format!("expected a URL or an absolute path ({error})"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("credentials are not allowed here; set them in the host's environment".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("a query or fragment is not allowed".to_owned());
        }
        let host = url
            .host_str()
            .filter(|host| *host != "localhost" || url.scheme() != "file")
            .unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let store = format!("{}://{host}{port}", url.scheme());
        if url.cannot_be_a_base() {
            return Err("the URL has no path in a store".to_owned());
        }
        let segments = url
            .path_segments()
            .into_iter()
            .flatten()
            .filter(|segment| !segment.is_empty());
        let path = segments.map(decoded).collect::<Result<Vec<String>, String>>()?;
        let url = to_url(&store, &path)?;
        Ok(Self { store, path, url })
    }

    /// Whether data may lie there: in a store that can be opened, and in no folder of the system's own.
    fn check(&self) -> Result<(), String> {
        let scheme = self.store.split("://").next().unwrap_or_default();
        check_scheme(scheme)?;
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let of_system = match path.as_slice() {
            [] => true,
            [top] => SYSTEM.contains(top) || SYSTEM_ROOTS.contains(top),
            [top, ..] => SYSTEM.contains(top),
        };
        if scheme == "file" && of_system {
            return Err("it is a folder of the system's own; name the folder that holds the data".to_owned());
        }
        Ok(())
    }

    /// The folder that it is below `granted`; `None` where it is the same.
    pub(crate) fn relative_to(&self, granted: &Self) -> Option<String> {
        let rest = self.path.strip_prefix(granted.path.as_slice())?;
        (!rest.is_empty()).then(|| rest.join("/"))
    }

    /// The one spelling of it.
    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }
}

/// A path segment without percent signs; one that would be more than a segment is refused.
fn decoded(segment: &str) -> Result<String, String> {
    let bytes = percent_encoding::percent_decode_str(segment);
    let text = bytes
        .decode_utf8()
        .map_err(|_| "the path is not UTF-8".to_owned())?;
    let hidden = text == "." || text == ".." || text.contains(['/', '\\', '\0']);
    if hidden {
        Err(format!(
            "the path has an encoded separator or dots in {segment:?}"
        ))
    } else {
        Ok(text.into_owned())
    }
}

fn to_url(store: &str, path: &[String]) -> Result<String, String> {
    let mut url = Url::parse(&format!("{store}/")).map_err(|error| error.to_string())?;
    url.path_segments_mut()
        .map_err(|()| "the URL has no path".to_owned())?
        .clear()
        .extend(path);
    Ok(url.into())
}

impl std::fmt::Display for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> DataRoots {
        DataRoots::new(&["/srv/photos".to_owned(), "s3://bucket/sets/a".to_owned()]).unwrap()
    }

    fn allows(text: &str) -> bool {
        Root::parse(text).is_ok_and(|root| roots().find_grant(&root).is_some())
    }

    #[test]
    fn a_root_and_what_lies_below_it_is_allowed_in_any_spelling() {
        for root in [
            "/srv/photos",
            "/srv/photos/",
            "file:///srv/photos",
            "file://localhost/srv/photos/train",
            "FILE:///srv//photos/./train",
            "/srv/photos/with space",
            "s3://bucket/sets/a",
            "s3://bucket/sets/x/../a/b",
        ] {
            assert!(allows(root), "{root}");
        }
    }

    #[test]
    fn what_lies_beside_or_above_is_not() {
        for root in [
            "/srv/photos2",
            "/srv",
            "/",
            "/srv/photos/../secret",
            "file:///srv/photos/%2e%2e/secret",
            "file:///srv/photos/..%2fsecret",
            "file:///srv/photos/%2e%2e%2fsecret",
            "s3://bucket/sets",
            "s3://bucket/sets/ab",
            "s3://other/sets/a",
            "s3://user:pw@bucket/sets/a",
            "s3://bucket/sets/a?x=1",
            "srv/photos",
            "memory:///srv/photos",
            "",
        ] {
            assert!(!allows(root), "{root}");
        }
    }

    #[test]
    fn what_no_store_serves_and_what_is_the_systems_is_refused() {
        for root in [
            "s4://x",
            "ftp://host/x",
            "/",
            "/etc",
            "/etc/ssl",
            "/srv/../proc/self",
            "/var",
            "file:///root",
        ] {
            let refused = DataRoots::new(&[root.to_owned()]).unwrap_err().to_string();
            let says = ["not supported", "the system's own"];
            assert!(says.iter().any(|says| refused.contains(says)), "{refused}");
        }
        let data = [
            "/var/lib/photos",
            "/root/photos",
            "s3a://x",
            "abfss://c@a.dfs.core.windows.net/x",
        ];
        let refused = |root: &&str| DataRoots::new(&[(*root).to_owned()]).is_err();
        assert_eq!(
            data.iter().filter(|root| refused(root)).collect::<Vec<_>>(),
            [&data[3]]
        );
    }

    #[test]
    fn a_whole_bucket_can_be_a_root() {
        let roots = DataRoots::new(&["s3://bucket".to_owned()]).unwrap();
        for root in ["s3://bucket", "s3://bucket/", "s3://bucket/sets"] {
            assert!(roots.find_grant(&Root::parse(root).unwrap()).is_some(), "{root}");
        }
        assert!(roots.find_grant(&Root::parse("s3://bucket2").unwrap()).is_none());
        assert!(Root::parse("mailto:someone").is_err());
    }

    #[test]
    fn one_place_has_one_spelling() {
        let spelling = |text: &str| Root::parse(text).unwrap().as_str().to_owned();
        assert_eq!(spelling("/srv/photos/"), "file:///srv/photos");
        assert_eq!(spelling("/srv/photos/a/../"), "file:///srv/photos");
        assert_eq!(spelling("file://localhost/srv//photos"), "file:///srv/photos");
        assert_eq!(spelling("/a b/%41"), spelling("file:///a%20b/%2541"));
    }
}
