/// Returns an address for messages, logs and files: without user, password, query and fragment, which may contain
/// credentials or signatures. The container of Azure's `abfss://container@account` is kept, because it identifies
/// the data. Paths are returned unchanged.
pub fn without_secrets(address: &str) -> String {
    let Some((prefix, scheme)) = prefix_and_scheme(address) else {
        return address.to_owned();
    };
    let rest = address.get(prefix.len()..).unwrap_or_default();
    let is_azure = scheme
        .get(..4)
        .is_some_and(|start| start.eq_ignore_ascii_case("abfs"));
    let (user, rest) = match user_end(rest) {
        Some(at) => rest.split_at(at),
        None => ("", rest),
    };
    let container = match user.split_once(':').map_or(user, |(name, _)| name) {
        name if is_azure && !name.is_empty() => format!("{name}@"),
        _ => String::new(),
    };
    let rest = rest.strip_prefix('@').unwrap_or(rest);
    // In a bucket, '#' is part of a key.
    let end = rest.find(|letter| letter == '?' || (is_web(scheme) && letter == '#'));
    let rest = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
    format!("{prefix}{container}{rest}")
}

/// Returns the start of an address with the slashes, and the scheme. Parsers of web addresses accept any number
/// of slashes and backslashes.
fn prefix_and_scheme(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once(':')?;
    let is_scheme = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let after = match rest.strip_prefix("//") {
        Some(after) if is_scheme && !scheme.is_empty() => after,
        _ if is_web(scheme) => rest.trim_start_matches(['/', '\\']),
        _ => return None,
    };
    Some((address.get(..address.len() - after.len())?, scheme))
}

fn is_web(scheme: &str) -> bool {
    let webs = ["http", "https"];
    webs.iter().any(|web| scheme.eq_ignore_ascii_case(web))
}

/// Returns the position of the `@` after user and password. A password can contain an unescaped separator, so that
/// its start looks like an invalid port.
fn user_end(rest: &str) -> Option<usize> {
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let authority = rest.get(..end).unwrap_or(rest);
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) || authority.starts_with('[');
    authority
        .rfind('@')
        .or_else(|| rest.rfind('@').filter(|_| !is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_from_addresses() {
        for (address, kept) in [
            ("https://me:word@store/a?sig=abc", "https://store/a"),
            ("https://me:wo@rd@store:8443#word", "https://store:8443"),
            ("dns+https://token@store:8443", "dns+https://store:8443"),
            ("HTTPS://me@store", "HTTPS://store"),
            ("s3://id:word@photos/a", "s3://photos/a"),
            ("s3://photos/a@b#c", "s3://photos/a@b#c"),
            ("/data/photos?1", "/data/photos?1"),
            ("{\"url\":\"https://a@b?c\"}", "{\"url\":\"https://a@b?c\"}"),
            (
                "abfss://photos@account.dfs.core.windows.net/a?sig=abc",
                "abfss://photos@account.dfs.core.windows.net/a",
            ),
            ("abfs://photos:word@account/a", "abfs://photos@account/a"),
            ("https://me:wo/rd@store/a@b", "https://b"),
            ("https://me:wo?rd@store/a", "https://store/a"),
            ("https://me:wo#rd@store/a", "https://store/a"),
            ("http://store:8080/a@b", "http://store:8080/a@b"),
            ("http://[::1]/a@b", "http://[::1]/a@b"),
            ("http:/me:word@store/a", "http:/store/a"),
            ("https:me:word@store", "https:store"),
            ("https:\\\\me:word@store\\a", "https:\\\\store\\a"),
            ("me:a@b", "me:a@b"),
        ] {
            assert_eq!(without_secrets(address), kept);
        }
    }
}
