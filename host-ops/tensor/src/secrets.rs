/// Returns an address for messages, logs and files: without user, password, query and fragment, which may contain
/// credentials or signatures. The container of Azure's `abfss://container@account` is kept, because it identifies
/// the data. Paths are returned unchanged.
pub fn without_secrets(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    let is_scheme = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    if !is_scheme || scheme.is_empty() {
        return address.to_owned();
    }
    // In a bucket, '#' is part of a key.
    let is_web = ["http", "https"]
        .iter()
        .any(|web| scheme.eq_ignore_ascii_case(web));
    let end = rest.find(|letter| letter == '?' || (is_web && letter == '#'));
    let rest = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_azure = scheme
        .get(..4)
        .is_some_and(|start| start.eq_ignore_ascii_case("abfs"));
    let host = match host.rsplit_once('@') {
        Some((container, account)) if is_azure => {
            let container = container.split_once(':').map_or(container, |(name, _)| name);
            format!("{container}@{account}")
        }
        Some((_, host)) => host.to_owned(),
        None => host.to_owned(),
    };
    format!("{scheme}://{host}{path}")
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
        ] {
            assert_eq!(without_secrets(address), kept);
        }
    }
}
