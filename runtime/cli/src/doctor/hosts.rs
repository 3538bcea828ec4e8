//! What hosts do for whoever has this token.

use super::finding::Finding;
use crate::host::Access;
use frostline_client::{ClientError, HostClient, Token};
use frostline_wire::ErrorClass;
use futures::future::join_all;
use std::time::Duration;
use tokio::time::timeout;

/// How long one answer may take; measuring the link takes less than a second.
const LONGEST: Duration = Duration::from_secs(30);

/// The token, then each host: whether it answers, takes the token, what the link to it moves and whether it reads `data`.
pub(super) async fn all(access: Access<'_>, data: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(file) = access.token_file {
        match Token::read(file) {
            Ok(_) => findings.push(Finding::works("token", format!("{} holds one", file.display()))),
            Err(error) => {
                let advice = "write the token there that whoever runs the host gave you, in one line";
                findings.push(Finding::fails("token", error.to_string(), advice));
                return findings;
            }
        }
    }
    let hosts = match timeout(LONGEST, access.hosts()).await {
        Ok(Ok(hosts)) => hosts,
        Ok(Err(error)) => {
            findings.push(Finding::fails(
                "host",
                format!("{error:#}"),
                "check the address, and --ca",
            ));
            return findings;
        }
        Err(_) => {
            findings.push(late(
                "host",
                "finding the hosts",
                "check what the name stands for",
            ));
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
                "check that it is a Frostline host, and not overloaded",
            )];
        }
    };
    let name = load.name.map(|name| format!(" ({name})")).unwrap_or_default();
    let found = format!(
        "{url}{name} answers and takes the token; {} extractions run and {} wait on {} lanes",
        load.running, load.queued, load.lanes
    );
    let mut findings = vec![Finding::works("host", found)];
    findings.push(match timeout(LONGEST, client.probe()).await {
        Ok(Ok(link)) => {
            let (rate, trip) = (link.bytes_per_second * 8e-6, link.round_trip.as_secs_f64() * 1e3);
            Finding::works(
                "link",
                format!("{url}: {rate:.0} Mbit/s, {trip:.1} ms there and back"),
            )
        }
        Ok(Err(error)) => Finding::fails(
            "link",
            error.to_string(),
            "what lies between you and the host cuts large answers off",
        ),
        Err(_) => late("link", url, "the link is too slow for any split"),
    });
    findings.push(match data {
        None => Finding::skipped("data", "no --data was given"),
        Some(root) => match timeout(LONGEST, client.first_objects(root, 1)).await {
            Ok(Ok(page)) => {
                let holds = if page.objects.is_empty() { "is empty" } else { "holds objects" };
                Finding::works("data", format!("{url} can list {root}, which {holds}"))
            }
            Ok(Err(error)) => {
                let advice = "ask whoever runs the host to grant you the root (frostline admin tenant set), and to check its credentials for the store";
                Finding::fails("data", error.to_string(), advice)
            }
            Err(_) => late("data", root, "the host waits for its store; whoever runs it sees more with doctor --config"),
        },
    });
    findings
}

fn late(check: &'static str, what: &str, advice: &str) -> Finding {
    let found = format!("{what}: nothing came in {} s", LONGEST.as_secs());
    Finding::fails(check, found, advice)
}

/// A host that answers nothing useful, or the token it does not take.
fn refused(error: &ClientError) -> Finding {
    let said = error.to_string();
    let advice = match error.class() {
        Some(ErrorClass::Unauthorized) => {
            return Finding::fails(
                "token",
                said,
                "ask whoever runs the host for a token that is good (frostline admin tenant rotate)",
            );
        }
        Some(ErrorClass::Stopping) => "it is being stopped: try again when it is back",
        Some(ErrorClass::Busy) => "it is busy, or too many bad tokens came from here: try again later",
        Some(_) => "whoever runs the host finds more in its log",
        None if said.contains("certificate") || said.contains("UnknownIssuer") => {
            return Finding::fails(
                "tls",
                said,
                "--ca FILE names the authority that the host's certificate is to be trusted by; its name must be that of the address",
            );
        }
        None => {
            "check that a host listens there, with http or https as it is written, and that nothing between you and it closes the port"
        }
    };
    Finding::fails("host", said, advice)
}
