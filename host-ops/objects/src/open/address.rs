//! What the address of a root says.

use crate::ObjectError;
use frostline_tensor::Cause;
use object_store::path::Path;
use url::Url;

/// `root` as messages may show it: without a user, password or query, where people put credentials.
pub(crate) fn shown(root: &str) -> String {
    let Some((scheme, rest)) = root.split_once("://") else {
        return root.to_owned();
    };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?.."));
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = match host.rsplit_once('@') {
        // The part before the '@' is Hadoop's way to write the container.
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

/// The bucket or container of `scheme://name/prefix`, which has no room for credentials.
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
    name.ok_or_else(|| refused(root, format!("it names no bucket; write {form}")))
}
