//! Connection to a host's admin interface, and explanations of connection errors.

use crate::arguments::Admin;
use anyhow::{Result, anyhow, bail};
use frostline_client::{AdminClient, ClientError, Token, Trust};
use frostline_wire::ErrorBody;

/// Connects to the local socket, or over TLS to a remote host.
pub(super) fn client(flags: &Admin) -> Result<AdminClient> {
    let (Some(url), Some(token_file)) = (&flags.host, &flags.token_file) else {
        return Ok(AdminClient::local(&flags.socket)?);
    };
    if !url.starts_with("https://") {
        bail!("the admin token is only sent over TLS; use an address such as https://store:7434");
    }
    let mut trust = flags.ca.as_deref().map_or(Ok(Trust::default()), Trust::read)?;
    if let (Some(certificate), Some(key)) = (&flags.client_certificate, &flags.client_key) {
        trust = trust.with_certificate(certificate, key)?;
    }
    Ok(AdminClient::remote(url, Token::read(token_file)?, &trust)?)
}

/// Rewrites an error for the admin of a single host.
pub(super) fn explained(error: anyhow::Error, remote: bool) -> anyhow::Error {
    match error.downcast::<ClientError>() {
        Ok(ClientError::Unreachable { host, reason }) if remote => anyhow!(
            "no host accepts admins at {host}; check the host's --admin-listen setting, the certificates in --ca, and \
             whether the host requires --client-certificate: {reason}"
        ),
        Ok(ClientError::Unreachable { host, reason }) => anyhow!(
            "no host answers at {host}; set --socket to the host's socket, which is admin.sock in its local directory unless \
             configured otherwise: {reason}"
        ),
        Ok(ClientError::Refused { class, message, .. }) => ErrorBody { class, message }.into(),
        Ok(ClientError::Silent { seconds, .. }) => anyhow!("the host did not answer for {seconds} s"),
        // A host that requires a certificate of the client closes the connection after the client's first request.
        Ok(ClientError::Interrupted { reason, .. }) if remote => {
            anyhow!(
                "the host's response was interrupted; if the host has an --admin-client-ca, set --client-certificate and --client-key \
                 to a certificate of this authority: {reason}"
            )
        }
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
