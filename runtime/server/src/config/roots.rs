//! Data roots with access checks on normalized URLs.

use super::error::ConfigError;
use frostline_objects::{check_scheme, parse_root};
use frostline_tensor::without_secrets;
use std::path::{Path, PathBuf};
use url::Url;

/// Forbidden system folders. Subfolders are forbidden too.
const FORBIDDEN_FOLDERS: [&str; 4] = ["boot", "etc", "proc", "sys"];

/// Forbidden system folders with subfolders that can be data roots.
const FORBIDDEN_TOP_FOLDERS: [&str; 6] = ["dev", "home", "root", "run", "usr", "var"];

/// Data roots that are granted to a tenant. A grant includes everything below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataRoots {
    listed: Vec<Root>,
    /// True if all other allowed roots are granted as well.
    any: bool,
}

/// Object store URL in normalized form: no dot segments, no empty segments, and no unnecessary
/// percent-encoding. The path in a bucket is literal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Root {
    /// Scheme, host and port.
    store: String,
    /// Decoded path segments.
    path: Vec<String>,
    url: String,
}

impl DataRoots {
    /// Normalizes URLs and directories. A relative directory is resolved against the current directory.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Root`] if a root is invalid or not allowed.
    pub(crate) fn new(roots: &[String]) -> Result<Self, ConfigError> {
        let listed = roots.iter().map(|root| {
            Root::normalized(root).map_err(|detail| ConfigError::Root {
                root: without_secrets(root),
                detail,
            })
        });
        let listed = listed.collect::<Result<_, ConfigError>>()?;
        Ok(Self { listed, any: false })
    }

    /// Creates an empty list.
    pub(crate) fn none() -> Self {
        Self {
            listed: Vec::new(),
            any: false,
        }
    }

    /// Also grants every other root except system folders.
    pub(super) fn or_any(self) -> Self {
        Self { any: true, ..self }
    }

    /// Returns the listed roots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.listed.iter()
    }

    /// Returns the local folders in the list.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let local = self.listed.iter().filter(|root| root.store == "file://");
        local.map(|root| Path::new("/").join(root.path.iter().collect::<PathBuf>()))
    }

    /// Returns the data root that contains `root`. If several do, returns the widest. If all roots are granted,
    /// returns `root` itself.
    pub(crate) fn find_grant<'a>(&'a self, root: &'a Root) -> Option<&'a Root> {
        let widest = self
            .listed
            .iter()
            .filter(|own| own.store == root.store && root.path.starts_with(&own.path))
            .min_by_key(|own| own.path.len());
        widest.or_else(|| (self.any && root.check().is_ok()).then_some(root))
    }
}

impl Root {
    /// Normalizes a URL or a path, and checks that it is allowed.
    fn normalized(root: &str) -> Result<Self, String> {
        let text = if root.contains("://") {
            root.to_owned()
        } else {
            let path = std::path::absolute(root).map_err(|error| error.to_string())?;
            path.to_str().ok_or("invalid UTF-8")?.to_owned()
        };
        let root = Self::parse(&text)?;
        root.check()?;
        Ok(root)
    }

    /// Normalizes a URL or an absolute path.
    ///
    /// # Errors
    ///
    /// Returns a message for the user if `text` is neither, or has credentials, a query or an encoded
    /// separator.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file = Url::from_file_path(text).ok().filter(|_| text.starts_with('/'));
        // A file URL still contains the dot segments of the path, and parsing resolves them.
        let url = parse_root(file.as_ref().map_or(text, Url::as_str))
            .map_err(|error| format!("expected a URL or an absolute path ({error})"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("credentials are not allowed here; set them in the host's environment".to_owned());
        }
        if url.query().is_some() {
            return Err("a query is not allowed".to_owned());
        }
        let host = url
            .host_str()
            .filter(|host| *host != "localhost" || url.scheme() != "file")
            .unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let store = format!("{}://{host}{port}", url.scheme());
        if url.cannot_be_a_base() {
            return Err("the URL does not name an object store".to_owned());
        }
        let is_literal = !matches!(url.scheme(), "file" | "http" | "https");
        let mut segments: Vec<&str> = url.path_segments().into_iter().flatten().collect();
        if is_literal && segments.last() == Some(&"") {
            segments.pop();
        }
        if is_literal && segments.contains(&"") {
            return Err("the path has an empty segment".to_owned());
        }
        segments.retain(|segment| !segment.is_empty());
        let path = segments
            .into_iter()
            .map(decoded)
            .collect::<Result<Vec<String>, String>>()?;
        let url = match path.as_slice() {
            [] if is_literal => store.clone(),
            path if is_literal => format!("{store}/{}", path.join("/")),
            path => to_url(&store, path)?,
        };
        Ok(Self { store, path, url })
    }

    /// Checks that the store type is supported and that the root is not a system folder.
    fn check(&self) -> Result<(), String> {
        let scheme = self.store.split("://").next().unwrap_or_default();
        check_scheme(scheme)?;
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let of_system = match path.as_slice() {
            [] => true,
            [top] => FORBIDDEN_FOLDERS.contains(top) || FORBIDDEN_TOP_FOLDERS.contains(top),
            [top, ..] => FORBIDDEN_FOLDERS.contains(top),
        };
        if scheme == "file" && of_system {
            return Err("system folders are not allowed; name the folder that contains the data".to_owned());
        }
        Ok(())
    }

    /// Returns the path relative to `granted`, or `None` if both are equal or this root is outside of
    /// `granted`.
    pub(crate) fn relative_to(&self, granted: &Self) -> Option<String> {
        let rest = self.path.strip_prefix(granted.path.as_slice())?;
        (!rest.is_empty()).then(|| rest.join("/"))
    }

    /// Returns true for a prefix in a bucket, which exists if an object has it.
    pub(crate) fn is_prefix(&self) -> bool {
        let in_bucket = !["file:", "http:", "https:"]
            .iter()
            .any(|scheme| self.store.starts_with(scheme));
        in_bucket && !self.path.is_empty()
    }

    /// Returns the normalized URL.
    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }
}

/// Decodes a path segment. Fails if the decoded text would be more than a single segment.
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
        .map_err(|()| "the URL does not name an object store".to_owned())?
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
    fn paths_next_to_or_above_a_root_are_refused() {
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
    fn unsupported_schemes_and_system_folders_are_refused() {
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
            let says = ["not supported", "system folders"];
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
    fn any_root_except_system_folders_can_be_granted() {
        let any = roots().or_any();
        let granted = |text: &str| {
            let root = Root::parse(text).ok()?;
            any.find_grant(&root).map(|root| root.as_str().to_owned())
        };
        assert_eq!(granted("/srv/photos/a").unwrap(), "file:///srv/photos");
        assert_eq!(granted("/srv/other/a").unwrap(), "file:///srv/other/a");
        assert_eq!(granted("s3://other/a").unwrap(), "s3://other/a");
        for root in ["/", "/etc/ssl", "/proc/self", "/home", "ftp://host/a"] {
            assert_eq!(granted(root), None, "{root}");
        }
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
    fn equivalent_roots_have_the_same_url() {
        let spelling = |text: &str| Root::parse(text).unwrap().as_str().to_owned();
        assert_eq!(spelling("/srv/photos/"), "file:///srv/photos");
        assert_eq!(spelling("/srv/photos/a/../"), "file:///srv/photos");
        assert_eq!(spelling("file://localhost/srv//photos"), "file:///srv/photos");
        assert_eq!(spelling("/a b/%41"), spelling("file:///a%20b/%2541"));
        for literal in ["s3://bucket", "s3://bucket/a b/c#d", "s3://bucket/a%20b"] {
            assert_eq!(spelling(literal), literal);
            assert_eq!(spelling(&format!("{literal}/")), literal);
        }
        assert!(Root::parse("s3://bucket//a").is_err());
    }
}
