/// Removes passwords and query strings from a URL, because queries can contain signatures. The container of
/// Azure's `abfss://container@account` is kept, because it identifies the data.
pub fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = match host.rsplit_once('@') {
        Some((container, account)) if ["abfs", "abfss"].contains(&scheme) => {
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
    fn secrets_are_removed_from_urls() {
        for (url, kept) in [
            ("https://me:word@store/a?sig=abc", "https://store/a"),
            ("s3://photos/a@b", "s3://photos/a@b"),
            ("/data/photos?1", "/data/photos?1"),
            (
                "abfss://photos@account.dfs.core.windows.net/a?sig=abc",
                "abfss://photos@account.dfs.core.windows.net/a",
            ),
            ("abfs://photos:word@account/a", "abfs://photos@account/a"),
        ] {
            assert_eq!(without_secrets(url), kept);
        }
    }
}
