//! Parts of a root's address.

use crate::ObjectError;
use frostline_tensor::{Cause, without_secrets};
use object_store::path::Path;
use url::Url;

/// Parses a root's address. In a bucket, keys are literal: `s3://photos/a%20b` is not `s3://photos/a b`, and a
/// `#` is part of the key. For folders and web servers, percent escapes are decoded as usual.
///
/// # Errors
/// Returns the error of the parser, or a message if a part of the address would be ignored.
pub fn parse_root(root: &str) -> Result<Url, String> {
    let decodes = ["file:", "http:", "https:"];
    let is_literal = !decodes.iter().any(|scheme| {
        root.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    let url = if is_literal {
        Url::parse(&root.replace('%', "%25").replace('#', "%23"))
    } else {
        Url::parse(root)
    };
    let url = url.map_err(|error| error.to_string())?;
    if url.fragment().is_some() {
        return Err("write '#' as %23 in this address".to_owned());
    }
    if url.scheme() == "file" && url.query().is_some() {
        return Err("write '?' as %3F in this address".to_owned());
    }
    Ok(url)
}

pub(super) fn refused(root: &str, reason: impl Into<Cause>) -> ObjectError {
    ObjectError::Root {
        root: without_secrets(root),
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
