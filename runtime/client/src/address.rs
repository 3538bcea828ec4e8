//! Addresses that stand for several hosts.

/// The address by which any of the hosts of a name is reached; `None` for one that is no name of several.
pub(crate) fn any_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "dns" | "dns+https" => "https",
        "dns+http" => "http",
        _ => return None,
    };
    Some(format!("{scheme}://{rest}"))
}
