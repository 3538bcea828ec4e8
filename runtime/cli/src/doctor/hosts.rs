//! Checks on hosts with the given token.

use super::finding::Finding;
use crate::hints::NextStep;
use crate::host::HostAccess;
use frostline_client::{ClientError, HostClient, Token};
use frostline_tensor::one_line;
use frostline_wire::ErrorClass;
use futures::future::join_all;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// Deadline for a response. Measuring the link needs less than a second.
const LONGEST: Duration = Duration::from_secs(30);

/// Checks the token file, and then for each host the connection, the token, the link and access to `data`.
pub(super) async fn all(access: HostAccess<'_>, data: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(file) = access.token_file {
        match Token::read(file) {
            Ok(_) => findings.push(Finding::works(
                "token",
                format!("{} contains a token", file.display()),
            )),
            Err(error) => {
                let advice = "write the token from the host's admin to this file, on a single line";
                findings.push(Finding::fails("token", error.to_string(), advice));
                return findings;
            }
        }
    }
    let hosts = match timeout(LONGEST, access.hosts()).await {
        Ok(Ok(hosts)) => hosts,
        Ok(Err(error)) => {
            let found = one_line(error.as_ref());
            findings.push(Finding::fails(
                "host",
                found,
                "check the address and the certificates",
            ));
            return findings;
        }
        Err(_) => {
            findings.push(late("host", "finding the hosts", "check the DNS name"));
            return findings;
        }
    };
    let clients = hosts.clients();
    let each = join_all(clients.iter().map(|client| host(client, data)));
    findings.extend(each.await.into_iter().flatten());
    findings
}

async fn host(client: &HostClient, data: Option<&str>) -> Vec<Finding> {
    let url = client.url();
    let load = match timeout(LONGEST, client.load()).await {
        Ok(Ok(load)) => load,
        Ok(Err(error)) => return vec![refused(&error)],
        Err(_) => {
            return vec![late(
                "host",
                url,
                "check that it is a Frostline host and not overloaded",
            )];
        }
    };
    let name = load.name.map(|name| format!(" ({name})")).unwrap_or_default();
    let expiry = load
        .token_seconds
        .map(|seconds| format!(" for {} days", seconds / 86_400));
    let expiry = expiry.unwrap_or_default();
    let found = format!(
        "{url}{name} answers and accepts the token{expiry}; {} extractions are running and {} are waiting for {} lanes",
        load.running, load.queued, load.lanes
    );
    let mut findings = vec![Finding::works("host", found)];
    findings.push(match timeout(LONGEST, client.probe()).await {
        Ok(Ok(link)) => {
            let rate = link.bytes_per_second * 8e-6;
            let trip = link.round_trip.as_secs_f64() * 1e3;
            Finding::works(
                "link",
                format!("{url}: {rate:.0} Mbit/s, {trip:.1} ms round trip"),
            )
        }
        Ok(Err(error)) => Finding::fails(
            "link",
            error.to_string(),
            "check the network path to the host, which interrupts large responses",
        ),
        Err(_) => late("link", url, "the link is too slow for any split"),
    });
    findings.push(match data {
        None => Finding::skipped("data", "--data is not set"),
        Some(root) => match timeout(LONGEST, client.first_objects(root, 1)).await {
            Ok(Ok(page)) => {
                let holds = if page.objects.is_empty() { "is empty" } else { "holds objects" };
                Finding::works("data", format!("{url} can list {root}, which {holds}"))
            }
            Ok(Err(error)) => {
                let advice = "ask the host's admin to grant you the root (frostline admin tenant set) and to check the host's credentials for the store";
                Finding::fails("data", error.to_string(), advice)
            }
            Err(_) => late("data", root, "the host is waiting for the store; ask the host's admin to run doctor --config"),
        },
    });
    findings
}

fn late(check: &'static str, what: &str, advice: &str) -> Finding {
    let found = format!("{what}: no response within {} s", LONGEST.as_secs());
    Finding::fails(check, found, advice)
}

/// Describes a host that returned an error or rejected the token.
fn refused(error: &ClientError) -> Finding {
    let said = error.to_string();
    let advice = match error.class() {
        Some(ErrorClass::Unauthorized) => {
            return Finding::fails(
                "token",
                said,
                "ask the host's admin for a valid token (frostline admin tenant rotate)",
            );
        }
        Some(ErrorClass::Stopping) => "the host is shutting down; try again later",
        Some(ErrorClass::Busy) => {
            "the host is busy or has received too many invalid tokens from this machine; try again later"
        }
        Some(_) => "ask the host's admin to check its log",
        None if said.contains("certificate") || said.contains("UnknownIssuer") => {
            return Finding::fails(
                "tls",
                said,
                "connect to a name for which the certificate is valid",
            )
            .or(&NextStep::set("ca", Value::Null));
        }
        None => {
            "check that a host is listening at this address, that http or https is correct, and that no firewall blocks the port"
        }
    };
    Finding::fails("host", said, advice)
}
