//! `frostline guest logs`, which shows a guest's log from all hosts.

use crate::arguments::RemoteHosts;
use crate::output::{print_json, stdout};
use anyhow::Result;
use frostline_client::{ClientError, Hosts};
use frostline_job::{plain_line, utc};
use frostline_wire::{ErrorClass, GuestLine};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Polling interval with `--follow`.
const AGAIN: Duration = Duration::from_secs(1);

/// A log line and the host.
#[derive(Serialize)]
struct Logged {
    host: String,
    #[serde(flatten)]
    line: GuestLine,
}

/// Reads new log lines from all hosts.
struct Reader {
    hosts: Hosts,
    guest: String,
    /// Position after the last received line for each host.
    after: HashMap<String, u64>,
}

pub(crate) async fn run(
    guest: String,
    follow: bool,
    hosts: &RemoteHosts,
    json: bool,
    stop: &CancellationToken,
) -> Result<()> {
    let mut reader = Reader {
        hosts: hosts.access().hosts().await?.for_job(Arc::new(|_| ())),
        guest,
        after: HashMap::new(),
    };
    let mut failing = false;
    loop {
        let (lines, failed) = reader.read_new_lines().await;
        let several = reader.after.len() > 1;
        lines.iter().try_for_each(|line| show(line, several, json))?;
        let fails = failed.is_some();
        match failed {
            Some(error) if !follow || !may_pass(&error) => return Err(error.into()),
            Some(error) if !failing => tell!("{error}; retrying"),
            _ => {}
        }
        failing = fails;
        if !follow || tokio::time::timeout(AGAIN, stop.cancelled()).await.is_ok() {
            return Ok(());
        }
    }
}

impl Reader {
    /// Returns new lines in order of time, and the error if a host failed.
    async fn read_new_lines(&mut self) -> (Vec<Logged>, Option<ClientError>) {
        let mut lines = Vec::new();
        let mut failed = None;
        for answer in self
            .hosts
            .all(|client| {
                let url = client.url().to_owned();
                let guest = self.guest.as_str();
                let after = self.after.get(&url).copied().unwrap_or(0);
                async move { Ok((url, client.guest_log(guest, after).await?)) }
            })
            .await
        {
            match answer {
                Ok((host, log)) => {
                    if log.dropped {
                        tell!("full log of {host}: older lines were dropped");
                    }
                    self.after.insert(host.clone(), log.next);
                    let logged = log.lines.into_iter().map(|line| Logged {
                        host: host.clone(),
                        line,
                    });
                    lines.extend(logged);
                }
                Err(error) => failed = Some(error),
            }
        }
        lines.sort_by(|one: &Logged, other| one.line.at.total_cmp(&other.line.at));
        (lines, failed)
    }
}

/// Returns true for errors that may disappear with the next request.
fn may_pass(error: &ClientError) -> bool {
    let class = error.class();
    class.is_none_or(|class| matches!(class, ErrorClass::Busy | ErrorClass::Stopping | ErrorClass::Host))
}

fn show(logged: &Logged, several: bool, json: bool) -> io::Result<()> {
    if json {
        return print_json(logged);
    }
    let GuestLine { at, level, text, .. } = &logged.line;
    let host = if several {
        format!("{}  ", logged.host)
    } else {
        String::new()
    };
    let mut stdout = stdout();
    let line = format!("{}  {host}{level:<5}  {text}", utc(*at as u64));
    writeln!(stdout, "{}", plain_line(&line))?;
    stdout.flush()
}
