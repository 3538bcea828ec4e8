//! `s3://bucket/prefix`: Amazon S3 and compatible stores.

use super::address::{bucket, prefix, refused};
use super::opened::Opened;
use super::own::{AssumedRole, FileKeys, OwnStore};
use super::profile::{self, Profile};
use super::settings::{Variables, client, is_on, known, plain_http, retry};
use crate::ObjectError;
use crate::dates::AnswerDates;
use crate::kind::{Credentials, Kind};
use crate::names::Connector;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::HttpConnector;
use object_store::{Certificate, ClientOptions};
use std::sync::Arc;
use url::Url;

/// Settings that provide credentials without the machine's role.
const CREDENTIALS: [AmazonS3ConfigKey; 4] = [
    AmazonS3ConfigKey::AccessKeyId,
    AmazonS3ConfigKey::WebIdentityTokenFile,
    AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
    AmazonS3ConfigKey::ContainerCredentialsFullUri,
];

/// Opens S3 with credentials, region and endpoint from the usual variables (`AWS_ACCESS_KEY_ID`,
/// `AWS_ENDPOINT_URL`, `AWS_REGION`, ..), then from the profile, and with the machine's role if neither has
/// credentials.
pub(super) fn open(
    root: &str,
    url: &Url,
    variables: &Variables,
    own: Option<&OwnStore>,
) -> Result<Opened, ObjectError> {
    let name = bucket(
        root,
        url,
        "s3://bucket/prefix",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )?;
    let name = own.and_then(|own| own.bucket.as_deref()).unwrap_or(name);
    let client = trusting(root, client(), variables)?;
    let dates = AnswerDates::default();
    let builder = AmazonS3Builder::new()
        .with_http_connector(Connector { dates: dates.clone() })
        .with_client_options(client.clone())
        .with_retry(retry());
    let settings = known::<AmazonS3ConfigKey>(variables, "AWS_").into_iter();
    let builder = settings.fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let keys = own.and_then(|own| own.keys.as_ref());
    let builder = match keys {
        Some(_) => builder,
        None => with_profile(root, builder, variables)?,
    };
    let builder = builder.with_bucket_name(name);
    let credentials = match own {
        Some(own) if keys.is_some() || own.role.is_some() => Credentials::Own,
        _ => Credentials::from_flags(is_unsigned(&builder), has_any(&builder, &CREDENTIALS)),
    };
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
    let builder = match own {
        Some(own) => with_own(root, builder, own, client, variables)?,
        None => builder,
    };
    let store = builder
        .build()
        .map_err(|error| refused(root, error.to_string()))?;
    let prefix = prefix(root, url)?;
    Ok(Opened::paged(store, prefix, Kind::S3, credentials, dates))
}

/// Adds the authorities in the file named by `AWS_CA_BUNDLE` to those that `client` trusts.
fn trusting(root: &str, client: ClientOptions, variables: &Variables) -> Result<ClientOptions, ObjectError> {
    let Some(file) = variables.get("AWS_CA_BUNDLE").filter(|file| !file.is_empty()) else {
        return Ok(client);
    };
    let authorities = read_authorities(file).map_err(|why| {
        refused(
            root,
            format!("cannot use the certificates in {file} (AWS_CA_BUNDLE): {why}"),
        )
    })?;
    Ok(authorities
        .into_iter()
        .fold(client, ClientOptions::with_root_certificate))
}

fn read_authorities(file: &str) -> Result<Vec<Certificate>, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string())?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(|_| "it is not PEM")?;
    if authorities.is_empty() {
        return Err("no certificate found".to_owned());
    }
    Ok(authorities)
}

/// Signs requests with the store's own keys or an assumed role.
fn with_own(
    root: &str,
    builder: AmazonS3Builder,
    own: &OwnStore,
    client: ClientOptions,
    variables: &Variables,
) -> Result<AmazonS3Builder, ObjectError> {
    let builder = match &own.keys {
        Some(file) => builder.with_credentials(Arc::new(FileKeys::open(root, file)?)),
        None => builder,
    };
    let Some(role) = &own.role else {
        return Ok(builder);
    };
    let plain = plain_http(root, "sts", role.sts.as_deref(), variables, "AWS_ALLOW_HTTP")?;
    let client = match variables.get("AWS_PROXY_URL") {
        Some(proxy) => client.with_proxy_url(proxy),
        None => client,
    };
    let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
    let client = Connector::default().connect(&client.with_allow_http(plain));
    let client = client.map_err(|error| refused(root, error.to_string()))?;
    let base = builder.clone().build();
    let base = base.map_err(|error| refused(root, error.to_string()))?;
    let assumed = AssumedRole {
        role: role.clone(),
        region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        client,
        base: Arc::clone(base.credentials()),
        session: Default::default(),
    };
    Ok(builder.with_credentials(Arc::new(assumed)))
}

/// Fills in settings that the environment does not contain from the profile, like Amazon's tools.
fn with_profile(
    root: &str,
    builder: AmazonS3Builder,
    variables: &Variables,
) -> Result<AmazonS3Builder, ObjectError> {
    let given = is_unsigned(&builder) || has_any(&builder, &CREDENTIALS);
    let profile = match profile::read(variables, !given) {
        // The profile was not requested, and the keys are known.
        Err(_) if given && !variables.contains_key("AWS_PROFILE") => Profile::default(),
        read => read.map_err(|error| refused(root, error))?,
    };
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
    if let Some(region) = profile.region.filter(|_| !has_any(&builder, &regions)) {
        builder = builder.with_region(region);
    }
    let endpoints = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
    if let Some(endpoint) = profile.endpoint.filter(|_| !has_any(&builder, &endpoints)) {
        builder = builder.with_endpoint(endpoint);
    }
    Ok(builder)
}

fn is_unsigned(builder: &AmazonS3Builder) -> bool {
    let skipped = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature);
    skipped.is_some_and(|value| is_on(&value))
}

fn has_any(builder: &AmazonS3Builder, settings: &[AmazonS3ConfigKey]) -> bool {
    settings.iter().any(|key| builder.get_config_value(key).is_some())
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
        // An unreadable home folder matters only if keys are needed from it.
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
