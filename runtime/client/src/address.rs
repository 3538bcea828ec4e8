//! DNS addresses that resolve to multiple hosts.

/// Converts a `dns` address into the `http` or `https` URL of any one of the hosts, or returns `None` for
/// other schemes.
pub(crate) fn any_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "dns" | "dns+https" => "https",
        "dns+http" => "http",
        _ => return None,
    };
    Some(format!("{scheme}://{rest}"))
}
