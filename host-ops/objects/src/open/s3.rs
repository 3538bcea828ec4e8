//! `s3://bucket/prefix`: Amazon's S3 and whatever speaks its protocol.

use super::address::{bucket, prefix, refused};
use super::opened::Opened;
use super::profile::{self, Profile};
use super::settings::{Variables, client, is_on, known, plain_http, retry};
use crate::ObjectError;
use crate::kind::{Credentials, Kind};
use crate::names::Connector;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use url::Url;

/// The settings that give credentials without the machine's own role.
const CREDENTIALS: [AmazonS3ConfigKey; 4] = [
    AmazonS3ConfigKey::AccessKeyId,
    AmazonS3ConfigKey::WebIdentityTokenFile,
    AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    AmazonS3ConfigKey::ContainerCredentialsFullUri,
];

/// S3 with credentials, region and endpoint from the usual variables (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `AWS_REGION`, ..),
/// what they leave open from the profile, and the machine's role where there are none.
pub(super) fn open(root: &str, url: &Url, variables: &Variables) -> Result<Opened, ObjectError> {
    let name = bucket(
        root,
        url,
        "s3://bucket/prefix",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )?;
    let builder = AmazonS3Builder::new()
        .with_http_connector(Connector)
        .with_client_options(client())
        .with_retry(retry());
    let settings = known::<AmazonS3ConfigKey>(variables, "AWS_").into_iter();
    let builder = settings.fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let builder = with_profile(root, builder, variables)?.with_bucket_name(name);
    let credentials = Credentials::from_flags(is_unsigned(&builder), has_credentials(&builder));
    let endpoint = builder
        .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
        .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    let plain = plain_http(
        root,
        "AWS_ENDPOINT_URL",
        endpoint.as_deref(),
        variables,
        "AWS_ALLOW_HTTP",
    )?;
    let builder = if plain {
        builder.with_allow_http(true)
    } else {
        builder
    };
    let store = builder
        .build()
        .map_err(|error| refused(root, error.to_string()))?;
    Ok(Opened::paged(store, prefix(root, url)?, Kind::S3, credentials))
}

/// Fills in from the profile what the environment does not say, as Amazon's own tools do.
fn with_profile(
    root: &str,
    builder: AmazonS3Builder,
    variables: &Variables,
) -> Result<AmazonS3Builder, ObjectError> {
    let given = is_unsigned(&builder) || has_credentials(&builder);
    let profile = match profile::read(variables, !given) {
        // Nobody asked for it, and the keys are there.
        Err(_) if given && !variables.contains_key("AWS_PROFILE") => Profile::default(),
        read => read.map_err(|error| refused(root, error))?,
    };
    let open = |builder: &AmazonS3Builder, key| builder.get_config_value(key).is_none();
    let mut builder = builder;
    if let (false, Some(keys)) = (given, profile.keys) {
        builder = builder
            .with_access_key_id(keys.id)
            .with_secret_access_key(keys.secret);
        if let Some(token) = keys.token {
            builder = builder.with_token(token);
        }
    }
    let regions = [AmazonS3ConfigKey::Region, AmazonS3ConfigKey::DefaultRegion];
    if let Some(region) = profile
        .region
        .filter(|_| regions.iter().all(|key| open(&builder, key)))
    {
        builder = builder.with_region(region);
    }
    let endpoints = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
    if let Some(endpoint) = profile
        .endpoint
        .filter(|_| endpoints.iter().all(|key| open(&builder, key)))
    {
        builder = builder.with_endpoint(endpoint);
    }
    Ok(builder)
}

fn is_unsigned(builder: &AmazonS3Builder) -> bool {
    let skipped = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature);
    skipped.is_some_and(|value| is_on(&value))
}

fn has_credentials(builder: &AmazonS3Builder) -> bool {
    CREDENTIALS
        .iter()
        .any(|source| builder.get_config_value(source).is_some())
}

#[cfg(test)]
mod tests {
    use crate::ObjectError;
    use crate::kind::Credentials;
    use crate::open::tests::with;

    #[test]
    fn what_gives_credentials_is_known() {
        let credentials = |settings| with("s3://photos", settings).unwrap().credentials;
        assert_eq!(credentials(&[]), Credentials::Missing);
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key")];
        assert_eq!(credentials(&keys), Credentials::Given);
        let unsigned = [("AWS_SKIP_SIGNATURE", "true")];
        assert_eq!(credentials(&unsigned), Credentials::Unsigned);
    }

    #[test]
    fn a_profile_fills_in_what_the_environment_leaves_open() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        std::fs::write(
            &file,
            "[lab]\naws_access_key_id = id\naws_secret_access_key = geheim\nendpoint_url = http://store.example\n",
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let lab = [("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_PROFILE", "lab")];
        let error = with("s3://photos", &lab).map(drop).unwrap_err();
        assert!(
            matches!(&error, ObjectError::Root { reason, .. } if reason.to_string().contains("plain http")),
            "{error}"
        );
        let https = ("AWS_ENDPOINT_URL", "https://store.example");
        let opened = with("s3://photos", &[lab[0], lab[1], https]).unwrap();
        assert_eq!(opened.credentials, Credentials::Given);
        // A home that cannot be read matters only to those who need it.
        let folder = folder.path().to_str().unwrap();
        let unreadable = ("AWS_SHARED_CREDENTIALS_FILE", folder);
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "key")];
        assert!(with("s3://photos", &[unreadable]).is_err());
        let opened = with("s3://photos", &[unreadable, keys[0], keys[1]]).unwrap();
        assert_eq!(opened.credentials, Credentials::Given);
        let missing = [lab[0], ("AWS_PROFILE", "nobody")];
        let error = with("s3://photos", &missing).map(drop).unwrap_err().to_string();
        assert!(error.contains("nobody") && !error.contains("geheim"), "{error}");
    }
}
