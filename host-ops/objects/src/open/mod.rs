//! Opens stores by URL.

mod address;
mod azure;
mod folder;
mod google;
mod opened;
mod own;
mod profile;
mod s3;
mod settings;
mod web;

pub use address::parse_root;
pub(crate) use opened::{Listing, Opened};
pub use own::{KeysFile, OwnStore, Role};

use crate::ObjectError;
use crate::dates::AnswerDates;
use crate::kind::{Credentials, Kind};
use address::{prefix, refused};
use object_store::memory::InMemory;
use settings::Variables;
use std::sync::Arc;

/// URL schemes that can be opened.
const SCHEMES: [&str; 10] = [
    "file", "memory", "s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https",
];

/// Checks that URLs of this scheme can be opened.
///
/// # Errors
/// Returns a message with the supported schemes.
pub fn check_scheme(scheme: &str) -> Result<(), String> {
    if SCHEMES.contains(&scheme) {
        return Ok(());
    }
    Err(format!(
        "'{scheme}://' is not supported; use a path, file://, s3://, gs://, az:// or https://"
    ))
}

/// Opens a path or a URL (see [`crate::Store::open`]). Settings come from `variables`. An S3 store can
/// override them with `own`.
pub(crate) fn open(root: &str, variables: &Variables, own: Option<&OwnStore>) -> Result<Opened, ObjectError> {
    if !root.contains("://") {
        let folder = std::path::absolute(root).map_err(|error| refused(root, error))?;
        return folder::open(root, folder);
    }
    let url = parse_root(root).map_err(|error| refused(root, error))?;
    check_scheme(url.scheme()).map_err(|why| refused(root, why))?;
    match url.scheme() {
        "file" => {
            let folder = url.to_file_path();
            folder::open(
                root,
                folder.map_err(|()| refused(root, "the path is not absolute"))?,
            )
        }
        "memory" => Ok(Opened {
            store: Arc::new(InMemory::new()),
            listing: Listing::Whole,
            prefix: prefix(root, &url)?,
            kind: Kind::Memory,
            credentials: Credentials::Given,
            dates: AnswerDates::default(),
        }),
        "s3" | "s3a" => s3::open(root, &url, variables, own),
        "gs" => google::open(root, &url, variables),
        "az" | "abfs" | "abfss" => azure::open(root, &url, variables),
        _ => web::open(root, &url, variables),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn with(root: &str, variables: &[(&str, &str)]) -> Result<Opened, ObjectError> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        open(root, &variables.collect(), None)
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for root in [
            "s3://id:geheim@photos/x",
            "s3://photos/x?X-Amz-Signature=geheim",
            "gs://geheim@photos/x",
            "az://photos/x?sig=geheim",
            "abfs://photos:geheim@account.dfs.core.windows.net/x",
            "https://id:geheim@web.example/x",
            "https://web.example/x?token=geheim",
            "ftp://id:geheim@host/x?geheim",
        ] {
            let error = with(root, &[]).map(drop).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn the_folder_that_is_named_is_opened() {
        let account = [
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
        ];
        let prefix = |root: &str| with(root, &account).map(|opened| opened.prefix.to_string());
        for store in ["s3://photos", "gs://photos", "az://photos", "memory://photos"] {
            for folder in ["a%20b", "a b", "a#b/c", "50%", "100%25", "%C3%BC", "ü"] {
                assert_eq!(prefix(&format!("{store}/{folder}/")).unwrap(), folder, "{store}");
            }
            prefix(&format!("{store}//a")).unwrap_err();
        }
        assert_eq!(prefix("https://web.example/a%20b").unwrap(), "a b");
        for ignored in ["https://web.example/a#b", "file:///a#b", "file:///a?b"] {
            let error = prefix(ignored).unwrap_err().to_string();
            assert!(error.contains("write '"), "{error}");
        }
    }

    #[test]
    fn plain_http_stays_on_this_machine_unless_allowed() {
        let stores = [
            ("s3://photos", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"),
            ("gs://photos", "GOOGLE_BASE_URL", "GOOGLE_ALLOW_HTTP"),
            ("az://photos", "AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP"),
        ];
        let needed = [
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("GOOGLE_SKIP_SIGNATURE", "true"),
            ("AZURE_SKIP_SIGNATURE", "true"),
        ];
        for (root, endpoint, permission) in stores {
            let opens = |settings: &[(&str, &str)]| with(root, &[&needed, settings].concat());
            let far = (endpoint, "http://store.example:9000");
            let error = opens(&[far]).map(drop).unwrap_err();
            assert!(
                matches!(&error, ObjectError::Root { reason, .. } if reason.to_string().contains(permission)),
                "{error}"
            );
            opens(&[far, (permission, "true")]).unwrap();
            opens(&[(endpoint, "https://store.example")]).unwrap();
            for near in ["127.0.0.1", "localhost", "[::1]"] {
                opens(&[(endpoint, &format!("http://{near}:9000/account"))]).unwrap();
            }
        }
    }
}
