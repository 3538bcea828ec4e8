//! Connection to a host's admin interface, and explanations of connection errors.

use crate::arguments::AdminFlags;
use crate::hints::{Hinted, NextStep};
use anyhow::{Result, anyhow, bail};
use frostline_client::{AdminClient, ClientError, Token, Trust};
use frostline_job::flags::missing;
use frostline_wire::ErrorBody;
use serde_json::Value;

/// Connects to the local socket, or over TLS to a remote host.
pub(super) fn client(flags: &AdminFlags) -> Result<AdminClient> {
    let certificate = &flags.client_certificate;
    let key = &flags.client_key;
    let (Some(url), Some(token_file)) = (&flags.host, &flags.token_file) else {
        if flags.host.is_some() {
            return Err(missing("--token-file <FILE>").into());
        }
        let files = [&flags.token_file, &flags.ca, certificate, key];
        if files.into_iter().any(Option::is_some) {
            return Err(missing("--host <URL>").into());
        }
        return Ok(AdminClient::local(&flags.socket)?);
    };
    if !url.starts_with("https://") {
        bail!("the admin token is only sent over TLS; use an address such as https://store:7434");
    }
    let trust = flags.ca.as_deref().map_or(Ok(Trust::default()), Trust::read)?;
    let trust = match (certificate, key) {
        (Some(certificate), Some(key)) => trust.with_certificate(certificate, key)?,
        (Some(_), None) => return Err(missing("--client-key <FILE>").into()),
        (None, Some(_)) => return Err(missing("--client-certificate <FILE>").into()),
        (None, None) => trust,
    };
    Ok(AdminClient::remote(url, Token::read(token_file)?, &trust)?)
}

/// Rewrites an error for the admin of a single host.
pub(super) fn explained(error: anyhow::Error, remote: bool) -> anyhow::Error {
    match error.downcast::<ClientError>() {
        Ok(error) if remote && may_require_certificate(&error) => {
            let certificate = [("client_certificate", Value::Null), ("client_key", Value::Null)];
            let error = anyhow::Error::from(error).context("the host may require a client certificate");
            Hinted::wrap(error, vec![NextStep::set_all(certificate)])
        }
        Ok(ClientError::Unreachable { host, reason }) if remote => anyhow!(
            "no host accepts admins at {host}; compare the address with the host's setting `admin_listen`, and check \
             the certificates of both sides: {reason}"
        ),
        Ok(ClientError::Unreachable { host, reason }) => {
            let error = anyhow!(
                "no host answers at {host}; the socket of a host is admin.sock in its local directory unless configured \
                 otherwise: {reason}"
            );
            Hinted::wrap(error, vec![NextStep::set("socket", Value::Null)])
        }
        Ok(ClientError::Refused { class, message, .. }) => ErrorBody { class, message }.into(),
        Ok(ClientError::Silent { seconds, .. }) => anyhow!("the host did not answer for {seconds} s"),
        Ok(ClientError::Interrupted { reason, .. }) => {
            anyhow!("the host's response was interrupted: {reason}")
        }
        Ok(ClientError::Protocol { reason, .. }) => {
            anyhow!(
                "cannot read the host's response; compare the versions of this command and the host: {reason}"
            )
        }
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

/// Returns true for the errors of a host that requires a client certificate. The first request fails or is
/// interrupted, depending on when the alert arrives.
fn may_require_certificate(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { reason, .. } => reason.contains("CertificateRequired"),
        ClientError::Interrupted { .. } => true,
        _ => false,
    }
}
