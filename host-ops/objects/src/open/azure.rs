//! `az://container/prefix`, and Hadoop's `abfss://container@account.dfs.core.windows.net/prefix`: Azure's blob storage.

use super::address::{bucket, prefix, refused};
use super::opened::Opened;
use super::settings::{Variables, client, is_on, known, plain_http, retry};
use crate::ObjectError;
use crate::dates::AnswerDates;
use crate::kind::{Credentials, Kind};
use crate::names::Connector;
use frostline_tensor::without_secrets;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use url::{Host, Url};

const UNUSABLE: &str = "invalid credentials; check that AZURE_STORAGE_ACCOUNT_KEY is the account's key as the portal shows \
                        it (base64) or AZURE_STORAGE_SAS_TOKEN a complete token, and the other AZURE_* settings";

/// Settings that provide credentials.
const CREDENTIALS: [AzureConfigKey; 5] = [
    AzureConfigKey::AccessKey,
    AzureConfigKey::SasKey,
    AzureConfigKey::Token,
    AzureConfigKey::ClientSecret,
    AzureConfigKey::FederatedTokenFile,
];

/// Opens Azure's store with account and credentials from the usual variables (`AZURE_STORAGE_ACCOUNT_NAME`,
/// `AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, ..), otherwise from the machine's managed
/// identity.
pub(super) fn open(root: &str, url: &Url, variables: &Variables) -> Result<Opened, ObjectError> {
    let endpoint = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]
        .into_iter()
        .find_map(|name| variables.get(name));
    let plain = plain_http(
        root,
        "AZURE_STORAGE_ENDPOINT",
        endpoint.map(String::as_str),
        variables,
        "AZURE_ALLOW_HTTP",
    )?;
    if let Some(endpoint) = endpoint {
        check_endpoint(root, endpoint, variables.get("AZURE_STORAGE_ACCOUNT_NAME"))?;
    }
    let dates = AnswerDates::default();
    let builder = MicrosoftAzureBuilder::new()
        .with_http_connector(Connector { dates: dates.clone() })
        .with_client_options(client().with_allow_http(plain))
        .with_retry(retry());
    let settings = known::<AzureConfigKey>(variables, "AZURE_").into_iter();
    let builder = settings.fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let builder = with_container(root, url, builder)?;
    let credentials = credentials(&builder);
    // Builder errors could expose parts of the key.
    let store = builder.build().map_err(|_| refused(root, UNUSABLE))?;
    let prefix = prefix(root, url)?;
    Ok(Opened::paged(store, prefix, Kind::Azure, credentials, dates))
}

/// Sets the container, and the account if the address contains it.
fn with_container(
    root: &str,
    url: &Url,
    builder: MicrosoftAzureBuilder,
) -> Result<MicrosoftAzureBuilder, ObjectError> {
    let hadoop = url.scheme() != "az" && !url.username().is_empty();
    if hadoop && url.password().is_none() && url.query().is_none() {
        return Ok(builder.with_url(url.as_str()));
    }
    let container = bucket(
        root,
        url,
        "az://container/prefix or abfss://container@account.dfs.core.windows.net/prefix",
        "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
    )?;
    if builder.get_config_value(&AzureConfigKey::AccountName).is_none()
        && builder
            .get_config_value(&AzureConfigKey::UseEmulator)
            .is_none_or(|value| !is_on(&value))
    {
        return Err(refused(
            root,
            "the account name is missing; set AZURE_STORAGE_ACCOUNT_NAME in the environment of this process",
        ));
    }
    Ok(builder.with_container_name(container))
}

/// Refuses an endpoint on `localhost` or an IP address if its path is empty. Such a server, for example an
/// emulator, expects the account in the path and would read the container as the account.
fn check_endpoint(root: &str, endpoint: &str, account: Option<&String>) -> Result<(), ObjectError> {
    let Ok(url) = Url::parse(endpoint) else {
        return Ok(());
    };
    let several = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
        None => false,
    };
    if !several || url.path() != "/" {
        return Ok(());
    }
    let address = without_secrets(url.as_str());
    let address = address.trim_end_matches('/');
    let account = account.map_or("account", String::as_str);
    let reason =
        format!("AZURE_STORAGE_ENDPOINT does not include the account; set it to {address}/{account}");
    Err(refused(root, reason))
}

fn credentials(builder: &MicrosoftAzureBuilder) -> Credentials {
    let given = is_set(builder, &AzureConfigKey::UseEmulator)
        || is_set(builder, &AzureConfigKey::UseAzureCli)
        || CREDENTIALS
            .iter()
            .any(|key| builder.get_config_value(key).is_some());
    Credentials::from_flags(is_set(builder, &AzureConfigKey::SkipSignature), given)
}

fn is_set(builder: &MicrosoftAzureBuilder, key: &AzureConfigKey) -> bool {
    let value = builder.get_config_value(key);
    value.is_some_and(|value| is_on(&value))
}

#[cfg(test)]
mod tests {
    use crate::ObjectError;
    use crate::kind::Credentials;
    use crate::open::tests::with;

    #[test]
    fn the_account_comes_from_the_address_or_the_environment() {
        let error = with("az://photos/x", &[]).map(drop).unwrap_err();
        assert!(
            matches!(&error, ObjectError::Root { reason, .. } if reason.to_string().contains("AZURE_STORAGE_ACCOUNT_NAME")),
            "{error}"
        );
        let account = ("AZURE_STORAGE_ACCOUNT_NAME", "account");
        let opened = with("az://photos/x", &[account]).unwrap();
        assert_eq!(opened.credentials, Credentials::Missing);
        let key = ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5");
        for root in ["az://photos/x", "abfs://photos/x"] {
            let opened = with(root, &[account, key]).unwrap();
            assert!(
                opened.credentials == Credentials::Given && opened.prefix.as_ref() == "x",
                "{root}"
            );
        }
        let hadoop = "abfss://photos@account.dfs.core.windows.net/a/b";
        assert_eq!(with(hadoop, &[key]).unwrap().prefix.as_ref(), "a/b");
    }

    #[test]
    fn an_endpoint_without_its_account_and_a_key_that_is_none_are_told() {
        let account = ("AZURE_STORAGE_ACCOUNT_NAME", "devstore");
        let key = ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5");
        let refused =
            |settings: &[(&str, &str)]| with("az://photos", settings).map(drop).unwrap_err().to_string();
        for near in [
            "http://127.0.0.1:10000",
            "http://localhost:10000/",
            "http://me:geheim@127.0.0.1:10000",
        ] {
            let error = refused(&[account, key, ("AZURE_STORAGE_ENDPOINT", near)]);
            assert!(
                error.contains(":10000/devstore") && !error.contains("geheim"),
                "{error}"
            );
        }
        let whole = ("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000/devstore");
        with("az://photos", &[account, key, whole]).unwrap();
        let error = refused(&[account, ("AZURE_STORAGE_ACCOUNT_KEY", "geheim!")]);
        assert!(
            error.contains("AZURE_STORAGE_ACCOUNT_KEY") && !error.contains("geheim"),
            "{error}"
        );
    }
}
