//! The way to a host's admin interface, and what is said where it leads nowhere.

use crate::arguments::Admin;
use anyhow::{Result, anyhow, bail};
use frostline_client::{AdminClient, ClientError, Token, Trust};
use frostline_wire::ErrorBody;

/// Over the host's socket, or from afar over TLS.
pub(super) fn client(flags: &Admin) -> Result<AdminClient> {
    let (Some(url), Some(token_file)) = (&flags.host, &flags.token_file) else {
        return Ok(AdminClient::local(&flags.socket)?);
    };
    if !url.starts_with("https://") {
        bail!("an admin's token is sent over TLS alone; write the host like https://store:7434");
    }
    let trust = flags.ca.as_deref().map_or(Ok(Trust::System), Trust::read)?;
    Ok(AdminClient::remote(url, Token::read(token_file)?, &trust)?)
}

/// An error in the words of somebody who looks after one host.
pub(super) fn explained(error: anyhow::Error, remote: bool) -> anyhow::Error {
    match error.downcast::<ClientError>() {
        Ok(ClientError::Unreachable { host, reason }) if remote => anyhow!(
            "no host answers admins at {host}; does it serve with --admin-listen, and does --ca name its authority?: {reason}"
        ),
        Ok(ClientError::Unreachable { host, reason }) => anyhow!(
            "no host answers at {host}; name its socket by --socket, which is admin.sock in the host's local directory unless it is \
             configured: {reason}"
        ),
        Ok(ClientError::Refused { class, message, .. }) => ErrorBody { class, message }.into(),
        Ok(ClientError::Silent { seconds, .. }) => anyhow!("the host did not answer for {seconds} s"),
        Ok(ClientError::Interrupted { reason, .. }) => {
            anyhow!("the host's response was interrupted: {reason}")
        }
        Ok(ClientError::Protocol { reason, .. }) => {
            anyhow!("the host's answer cannot be read; is it of another version?: {reason}")
        }
        Ok(error) => error.into(),
        Err(error) => error,
    }
}
