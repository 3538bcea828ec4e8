//! Parts of a root's address.

use crate::ObjectError;
use frostline_tensor::Cause;
use object_store::path::Path;
use url::Url;

/// Returns `root` for messages: without user, password and query, which may contain credentials.
pub(crate) fn shown(root: &str) -> String {
    let Some((scheme, rest)) = root.split_once("://") else {
        return root.to_owned();
    };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?.."));
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = match host.rsplit_once('@') {
        // In Hadoop's notation the container is before the '@'.
        Some((container, _)) if scheme.starts_with("abfs") && !container.contains(':') => host.to_owned(),
        Some((_, host)) => format!("..@{host}"),
        None => host.to_owned(),
    };
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    format!("{scheme}://{host}{path}{query}")
}

pub(super) fn refused(root: &str, reason: impl Into<Cause>) -> ObjectError {
    ObjectError::Root {
        root: shown(root),
        reason: reason.into(),
    }
}

pub(super) fn prefix(root: &str, url: &Url) -> Result<Path, ObjectError> {
    Path::from_url_path(url.path()).map_err(|error| refused(root, error.to_string()))
}

/// Returns the bucket or container of `scheme://name/prefix`. Refuses addresses with credentials.
pub(super) fn bucket<'a>(
    root: &str,
    url: &'a Url,
    form: &str,
    credentials: &str,
) -> Result<&'a str, ObjectError> {
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(refused(
            root,
            format!("write {form}; credentials belong in {credentials}"),
        ));
    }
    let name = url.host_str().filter(|name| !name.is_empty());
    name.ok_or_else(|| refused(root, format!("the bucket name is missing; write {form}")))
}
