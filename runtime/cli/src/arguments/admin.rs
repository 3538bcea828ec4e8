//! Commands of whoever runs a host.

use super::state::State;
use super::upload::{OwnUpload, Upload, upload_name};
use chrono::NaiveDate;
use clap::{Args, Subcommand};
use frostline_wire::{QuotaKey, QuotaUnit, UnknownQuota};
use frostline_wire::{parse_seconds as seconds, parse_size as size};
use std::path::PathBuf;

/// Administer a host: tenants, tokens, quotas, guests and models
///
/// Speaks to a host on this machine over its socket, whose file's permissions decide who may, or with --host to one that listens for
/// admins from afar (`serve --admin-listen`).
#[derive(Debug, Args)]
pub(crate) struct Admin {
    /// The host's socket
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "FROSTLINE_ADMIN_SOCKET",
        default_value = "frostline-state/admin.sock"
    )]
    pub(crate) socket: PathBuf,
    /// Where a host listens for admins, in place of a socket: https://store:7434
    #[arg(long, global = true, value_name = "URL", requires = "token_file")]
    pub(crate) host: Option<String>,
    /// File with the admin's token for --host
    #[arg(long, global = true, value_name = "FILE", requires = "host")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificates, in PEM, that the host is to be trusted by; by default those the system trusts
    #[arg(long, global = true, value_name = "FILE", requires = "host")]
    pub(crate) ca: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Who may use the host, what they may read, and their tokens
    #[command(subcommand)]
    Tenant(Tenant),
    /// What a tenant may use
    #[command(subcommand)]
    Quota(Quota),
    /// The guests of tenants
    #[command(subcommand)]
    Guest(GuestAdmin),
    /// The models of tenants, and those that all of them may use
    #[command(subcommand)]
    Model(ModelAdmin),
    /// The jobs of tenants
    #[command(subcommand)]
    Job(JobAdmin),
    /// Back up, verify and restore the state that hosts share
    #[command(subcommand)]
    State(State),
    /// Show who uses the host now, refreshing every second
    #[command(after_help = "Examples:\n  frostline admin top --once --json\n  frostline admin top --jobs")]
    Top {
        /// A line for each job, and where its time goes, in place of each tenant
        #[arg(long)]
        jobs: bool,
        /// Print once and exit; the default if standard output is not a terminal and --json is not given
        #[arg(long)]
        once: bool,
    },
    /// Take no new work; what runs goes on to its end, and the host then waits to be stopped
    #[command(after_help = "Example:\n  frostline admin drain --yes && systemctl stop frostline")]
    Drain {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Show what tenants used, over all hosts that share the state
    Usage(Usage),
    /// Show who did what when, over all hosts that share the state
    #[command(after_help = "Example:\n  frostline admin audit --tenant acme --limit 20")]
    Audit {
        /// Only what concerns this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// The most recent entries
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobAdmin {
    /// Show where the time of a job goes at this host, and who holds what it waits for
    #[command(after_help = "Example:\n  frostline admin job show 4bf92f35")]
    Show {
        /// Its id, or the beginning of it, as `top --jobs` lists it
        id: String,
    },
    /// End a job at this host, and refuse what it asks for from now on
    #[command(after_help = "Example:\n  frostline admin job cancel 4bf92f35 --yes")]
    Cancel {
        /// Its id, or the beginning of it
        id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  frostline admin usage\n  frostline admin usage --from 2026-11-01 --to 2026-11-30 --csv > november.csv"
)]
pub(crate) struct Usage {
    /// Only of this tenant
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// The first day, in UTC; by default the first of this month
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) from: Option<NaiveDate>,
    /// The last day, included; by default today
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) to: Option<NaiveDate>,
    /// Print comma-separated values, a line for each day and tenant, in place of a table of sums
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// Show what a tenant may use
    #[command(after_help = "Example:\n  frostline admin quota show acme")]
    Show {
        /// Its name
        tenant: String,
    },
    /// Change what a tenant may use
    #[command(
        after_help = "Example:\n  frostline admin quota set acme running=4 stored_bytes=20GiB queued=default"
    )]
    Set {
        /// Its name
        tenant: String,
        /// A key and its value: a number, of bytes also with KiB, MiB or GiB; or default
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = quota)]
        changes: Vec<(QuotaKey, Option<u64>)>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuestAdmin {
    /// List the guests of one tenant, or of all
    #[command(after_help = "Example:\n  frostline admin guest list acme")]
    List {
        /// The tenant's name
        tenant: Option<String>,
    },
    /// Show one with all its versions
    #[command(after_help = "Example:\n  frostline admin guest show acme/prefix")]
    Show {
        /// Whose and which
        #[arg(value_name = "TENANT/NAME")]
        guest: OwnUpload,
    },
    /// Refuse to run one, whatever is uploaded under its name
    #[command(after_help = "Example:\n  frostline admin guest disable acme/prefix")]
    Disable {
        /// Whose and which
        #[arg(value_name = "TENANT/NAME")]
        guest: OwnUpload,
    },
    /// Run a disabled one again
    #[command(after_help = "Example:\n  frostline admin guest enable acme/prefix")]
    Enable {
        /// Whose and which
        #[arg(value_name = "TENANT/NAME")]
        guest: OwnUpload,
    },
    /// Remove one with all its versions
    #[command(after_help = "Example:\n  frostline admin guest remove acme/prefix --yes")]
    Remove {
        /// Whose and which
        #[arg(value_name = "TENANT/NAME")]
        guest: OwnUpload,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelAdmin {
    /// Offer a model to all tenants, or a new version of one
    #[command(after_help = "Example:\n  frostline admin model publish resnet18 resnet18.onnx")]
    Publish {
        /// Its name: [a-z0-9][a-z0-9._-]{0,62}
        #[arg(value_parser = upload_name)]
        name: String,
        /// The ONNX file, with its weights inside
        file: PathBuf,
    },
    /// List the models of one tenant, or all, those for all tenants first
    #[command(after_help = "Example:\n  frostline admin model list acme")]
    List {
        /// The tenant's name
        tenant: Option<String>,
    },
    /// Remove one with all its versions
    #[command(after_help = "Example:\n  frostline admin model remove acme/resnet18 --yes")]
    Remove {
        /// Whose and which; a name alone is a model for all tenants
        #[arg(value_name = "[TENANT/]NAME")]
        model: Upload,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tenant {
    /// Add a tenant and print its token, which is not shown again
    #[command(
        after_help = "Example:\n  frostline admin tenant add acme --data s3://photos/acme --expires 90d"
    )]
    Add {
        /// Its name: [a-z0-9][a-z0-9._-]{0,62}
        name: String,
        /// A data root it may read, with everything below it; may be repeated
        #[arg(long, value_name = "URL")]
        data: Vec<String>,
        /// Grant roots that do not answer now
        #[arg(long)]
        unchecked: bool,
        /// How long its token lives, such as 90d or 12h; by default it does not end
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        expires: Option<u64>,
    },
    /// List the tenants
    #[command(after_help = "Example:\n  frostline admin tenant list")]
    List,
    /// Show one tenant and its tokens, without their secrets
    #[command(after_help = "Example:\n  frostline admin tenant show acme")]
    Show {
        /// Its name
        name: String,
    },
    /// Change what a tenant may read
    #[command(
        after_help = "Example:\n  frostline admin tenant set acme --data s3://photos/acme --data s3://shared/coco"
    )]
    Set {
        /// Its name
        name: String,
        /// A data root it may read, in place of all before; may be repeated
        #[arg(long, value_name = "URL", required = true)]
        data: Vec<String>,
        /// Grant roots that do not answer now
        #[arg(long)]
        unchecked: bool,
    },
    /// Make another token; the others live on for a while
    #[command(after_help = "Example:\n  frostline admin tenant rotate acme --others 24h")]
    Rotate {
        /// Its name
        name: String,
        /// How long the new token lives, or never for one that does not end; by default as long as the newest one was given
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<u64>,
        /// How long the other tokens live on; 0s ends them now
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = seconds)]
        others: u64,
    },
    /// End one token at once
    #[command(after_help = "Example:\n  frostline admin tenant revoke acme 1f0c22aa")]
    Revoke {
        /// The tenant's name
        name: String,
        /// The token's id, as `show` lists it
        id: String,
    },
    /// Refuse a tenant's requests, keeping all it has
    #[command(after_help = "Example:\n  frostline admin tenant disable acme")]
    Disable {
        /// Its name
        name: String,
    },
    /// Serve a disabled tenant again
    #[command(after_help = "Example:\n  frostline admin tenant enable acme")]
    Enable {
        /// Its name
        name: String,
    },
    /// Remove a tenant with its guests, models and tokens
    #[command(after_help = "Example:\n  frostline admin tenant remove acme --yes")]
    Remove {
        /// Its name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// A key of a quota and its value.
fn quota(text: &str) -> Result<(QuotaKey, Option<u64>), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is no KEY=VALUE, such as running=4"))?;
    let unknown = |unknown: UnknownQuota| {
        let known: Vec<String> = QuotaKey::all().map(|key| key.to_string()).collect();
        match frostline_graph::similar(key, known.iter().map(String::as_str)).first() {
            Some(meant) => format!("did you mean {meant}? {unknown}"),
            None => unknown.to_string(),
        }
    };
    let key: QuotaKey = key.parse().map_err(unknown)?;
    if value == "default" {
        return Ok((key, None));
    }
    let wrong = || format!("{text:?}: the value is a number, of bytes also with KiB, MiB or GiB, or default");
    let number = match key.unit() {
        QuotaUnit::Bytes => size(value).ok(),
        _ => value.parse().ok(),
    };
    let value = number.ok_or_else(wrong)?;
    key.check(value).map_err(|range| range.to_string())?;
    Ok((key, Some(value)))
}

/// A day.
fn day(text: &str) -> Result<NaiveDate, String> {
    let parsed = NaiveDate::parse_from_str(text, "%Y-%m-%d");
    parsed.map_err(|_| format!("{text:?} is no day; write it like 2026-11-26"))
}

/// The same, or never.
fn lifetime(text: &str) -> Result<u64, String> {
    match text {
        "never" => Ok(u64::MAX),
        time => seconds(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_numbers_bytes_may_have_a_unit() {
        assert_eq!(quota("running=4"), Ok((QuotaKey::Running, Some(4))));
        assert_eq!(
            quota("stored-bytes=2GiB"),
            Ok((QuotaKey::StoredBytes, Some(2 << 30)))
        );
        assert_eq!(quota("log_bytes=default"), Ok((QuotaKey::LogBytes, None)));
        for bad in [
            "running",
            "running=",
            "running=4GiB",
            "walk=1",
            "stored_bytes=1TB",
            "queued=-1",
            "weight=0",
            "weight=101",
            "stored_bytes=99999999999GiB",
        ] {
            assert!(quota(bad).is_err(), "{bad}");
        }
    }
}
