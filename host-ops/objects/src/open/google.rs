//! `gs://bucket/prefix`: Google Cloud Storage.

use super::address::{bucket, prefix, refused};
use super::opened::Opened;
use super::settings::{Variables, client, is_on, known, plain_http, retry};
use crate::ObjectError;
use crate::dates::AnswerDates;
use crate::kind::{Credentials, Kind};
use crate::names::Connector;
use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};
use std::path::Path;
use std::sync::Arc;
use url::Url;

/// File of `gcloud auth application-default login`, relative to the home folder.
const LOGIN: &str = ".config/gcloud/application_default_credentials.json";

const UNUSABLE: &str = "invalid credentials; check that GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT names a \
                        JSON key file that this process can read, and the other GOOGLE_* settings";

/// Settings that provide credentials.
const CREDENTIALS: [GoogleConfigKey; 4] = [
    GoogleConfigKey::ServiceAccount,
    GoogleConfigKey::ServiceAccountKey,
    GoogleConfigKey::ApplicationCredentials,
    GoogleConfigKey::BearerToken,
];

/// Opens Google's store with credentials from the usual variables (`GOOGLE_APPLICATION_CREDENTIALS`,
/// `GOOGLE_SERVICE_ACCOUNT`, ..), otherwise from gcloud's login, otherwise from the machine's service
/// account.
pub(super) fn open(root: &str, url: &Url, variables: &Variables) -> Result<Opened, ObjectError> {
    let name = bucket(
        root,
        url,
        "gs://bucket/prefix",
        "the file named by GOOGLE_APPLICATION_CREDENTIALS",
    )?;
    let base = variables.get("GOOGLE_BASE_URL").map(String::as_str);
    let plain = plain_http(root, "GOOGLE_BASE_URL", base, variables, "GOOGLE_ALLOW_HTTP")?;
    let dates = AnswerDates::default();
    let builder = GoogleCloudStorageBuilder::new()
        .with_http_connector(Connector { dates: dates.clone() })
        .with_client_options(client().with_allow_http(plain))
        .with_retry(retry());
    let settings = known::<GoogleConfigKey>(variables, "GOOGLE_").into_iter();
    let builder = settings.fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let mut builder = builder.with_bucket_name(name);
    let skipped = builder.get_config_value(&GoogleConfigKey::SkipSignature);
    let unsigned = skipped.is_some_and(|value| is_on(&value));
    let credentials = Credentials::from_flags(unsigned, has_credentials(&builder, variables));
    if unsigned {
        // `object_store` signs writes regardless, and would request the account of the machine.
        let bearer = String::new();
        builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(GcpCredential { bearer })));
    }
    // Builder errors could expose parts of the key.
    let store = builder.build().map_err(|_| refused(root, UNUSABLE))?;
    Ok(Opened::paged(
        store,
        prefix(root, url)?,
        Kind::Google,
        credentials,
        dates,
    ))
}

fn has_credentials(builder: &GoogleCloudStorageBuilder, variables: &Variables) -> bool {
    let login = variables
        .get("HOME")
        .is_some_and(|home| Path::new(home).join(LOGIN).exists());
    login
        || CREDENTIALS
            .iter()
            .any(|key| builder.get_config_value(key).is_some())
}
