//! Arguments of `frostline admin`.

use super::interface::InterfaceFlags;
use super::state::StateCommand;
use super::upload::{OwnUpload, UploadName, upload_name};
use chrono::NaiveDate;
use clap::{Args, Subcommand};
use frostline_wire::{QuotaKey, QuotaUnit, UnknownQuota};
use frostline_wire::{parse_seconds as seconds, parse_size as size};
use std::path::PathBuf;

/// Administer a host: tenants, tokens, quotas, guests and models
///
/// Connects to a host on this machine over a Unix socket. The permissions of the socket file control access.
/// With --host, connects to a remote host that accepts admins (`serve --admin-listen`).
#[derive(Debug, Args)]
pub(crate) struct AdminFlags {
    /// Path of the host's Unix socket
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "FROSTLINE_ADMIN_SOCKET",
        default_value = "frostline-state/admin.sock"
    )]
    pub(crate) socket: PathBuf,
    /// Connect to the host at this URL (such as https://store:7434) instead of the socket
    // Clap checks `requires` before it combines flags before and after the subcommand, so `client` checks
    // these flags.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) host: Option<String>,
    /// File with the admin token for --host
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate to present to a host that requires one (`serve --admin-client-ca`), as PEM file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Private key of --client-certificate, as PEM file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Manage tenants, their data roots and their tokens
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Show and change the quotas of a tenant
    #[command(subcommand)]
    Quota(Quota),
    /// Manage the guests of tenants
    #[command(subcommand)]
    Guest(GuestAdmin),
    /// Manage the models of tenants and the models shared by all tenants
    #[command(subcommand)]
    Model(ModelAdmin),
    /// Show and cancel the jobs of tenants
    #[command(subcommand)]
    Job(JobAdmin),
    /// Back up, verify and restore the state that hosts share
    #[command(subcommand)]
    State(StateCommand),
    /// Show the current activity on all hosts of the state, refreshed every second
    #[command(after_help = "Examples:\n  frostline admin top --once --json\n  frostline admin top --jobs")]
    Top {
        /// Show each job with the stages that need the most time, instead of each tenant
        #[arg(long)]
        jobs: bool,
        /// Print once and exit; the default if standard output is not a terminal and --json is not given
        #[arg(long)]
        once: bool,
    },
    /// Refuse new work and wait for running extractions to finish
    ///
    /// Does not stop the host process. The host accepts work again after a restart or `undrain`.
    #[command(
        after_help = "Examples:\n  frostline admin drain --yes && systemctl stop frostline\n  frostline admin drain store-2 --yes"
    )]
    Drain {
        /// Name of a host of the same state [default: the host that is asked]
        name: Option<String>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Accept work again after `drain`
    #[command(after_help = "Example:\n  frostline admin undrain store-2")]
    Undrain {
        /// Name of a host of the same state [default: the host that is asked]
        name: Option<String>,
    },
    /// Show the resource usage of tenants on all hosts that share the state
    Usage(UsageFlags),
    /// Show the audit log of all hosts that share the state
    #[command(after_help = "Example:\n  frostline admin audit --tenant acme --limit 20")]
    Audit {
        /// Show only entries about this tenant
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// Number of recent entries to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobAdmin {
    /// Show the time a job spends in each stage on all hosts, and which tenants use the resources
    #[command(after_help = "Example:\n  frostline admin job show 4bf92f35")]
    Show {
        /// Id or unique prefix of the job, see `top --jobs`
        id: String,
    },
    /// Cancel a job on all hosts of the state and refuse its further requests for at least a day
    #[command(after_help = "Example:\n  frostline admin job cancel 4bf92f35 --yes")]
    Cancel {
        /// Id or unique prefix of the job
        id: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  frostline admin usage\n  frostline admin usage --from 2026-11-01 --to 2026-11-30 --csv > november.csv"
)]
pub(crate) struct UsageFlags {
    /// Show only this tenant
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// First day in UTC [default: the first day of the month that contains --to]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) from: Option<NaiveDate>,
    /// Last day in UTC (inclusive) [default: the current day]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub(crate) to: Option<NaiveDate>,
    /// Print comma-separated values for each day and tenant instead of a table of totals
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// Show the quotas of a tenant
    #[command(after_help = "Example:\n  frostline admin quota show acme")]
    Show {
        /// Name of the tenant
        tenant: String,
    },
    /// Change the quotas of a tenant
    #[command(
        after_help = "Example:\n  frostline admin quota set acme running=4 stored_bytes=20GiB queued=default"
    )]
    Set {
        /// Name of the tenant
        tenant: String,
        /// Key and value. The value is a number (bytes may use KiB, MiB or GiB) or default
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = quota)]
        changes: Vec<(QuotaKey, Option<u64>)>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TenantName {
    /// Name of the tenant
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct OfTenant {
    /// Name of the tenant
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GuestName {
    /// Tenant and name of the guest
    #[arg(value_name = "TENANT/NAME")]
    pub(crate) guest: OwnUpload,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuestAdmin {
    /// List guests, optionally of a single tenant
    #[command(after_help = "Example:\n  frostline admin guest list acme")]
    List(OfTenant),
    /// Show all versions of a guest
    #[command(after_help = "Example:\n  frostline admin guest show acme/prefix")]
    Show(GuestName),
    /// Refuse to run a guest, including versions uploaded later
    #[command(after_help = "Example:\n  frostline admin guest disable acme/prefix")]
    Disable(GuestName),
    /// Allow a disabled guest to run again
    #[command(after_help = "Example:\n  frostline admin guest enable acme/prefix")]
    Enable(GuestName),
    /// Remove a guest including all versions
    #[command(after_help = "Example:\n  frostline admin guest remove acme/prefix --yes")]
    Remove {
        #[command(flatten)]
        guest: GuestName,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelAdmin {
    /// Upload a model for all tenants, or add a new version
    #[command(after_help = "Example:\n  frostline admin model push resnet18 resnet18.onnx")]
    Push {
        /// Model name: `[a-z0-9][a-z0-9._-]{0,62}`
        #[arg(value_parser = upload_name)]
        name: String,
        /// ONNX file that includes the weights
        file: PathBuf,
        #[command(flatten)]
        interface: InterfaceFlags,
    },
    /// List models, optionally of a single tenant, starting with shared models
    #[command(after_help = "Example:\n  frostline admin model list acme")]
    List(OfTenant),
    /// Remove a model including all versions
    #[command(after_help = "Example:\n  frostline admin model remove acme/resnet18 --yes")]
    Remove {
        /// Tenant and name of the model, or just the name for a shared model
        #[arg(value_name = "[TENANT/]NAME")]
        model: UploadName,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Add a tenant and print its token, which is shown only once
    #[command(
        after_help = "Example:\n  frostline admin tenant add acme --data s3://photos/acme --expires 30d"
    )]
    Add {
        /// Tenant name: `[a-z0-9][a-z0-9._-]{0,62}`
        name: String,
        /// Data root the tenant may read, including everything below (may be repeated)
        #[arg(long, value_name = "URL")]
        data: Vec<String>,
        /// Grant the data roots without checking that the host can read them
        #[arg(long)]
        unchecked: bool,
        /// Lifetime of the token, such as 12h (never: unlimited) [default: 90d]
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<u64>,
    },
    /// List the tenants
    #[command(after_help = "Example:\n  frostline admin tenant list")]
    List,
    /// Show a tenant and the tokens, without secrets
    #[command(after_help = "Example:\n  frostline admin tenant show acme")]
    Show(TenantName),
    /// Replace the data roots of a tenant
    #[command(
        after_help = "Example:\n  frostline admin tenant set acme --data s3://photos/acme --data s3://shared/coco"
    )]
    Set {
        /// Name of the tenant
        name: String,
        /// Data root the tenant may read, instead of all previous roots (may be repeated)
        #[arg(long, value_name = "URL", required = true)]
        data: Vec<String>,
        /// Grant the data roots without checking that the host can read them
        #[arg(long)]
        unchecked: bool,
    },
    /// Create a new token and let the other tokens expire after a grace period
    #[command(after_help = "Example:\n  frostline admin tenant rotate acme --others 24h")]
    Rotate {
        /// Name of the tenant
        name: String,
        /// Lifetime of the new token (never: unlimited) [default: the lifetime of the newest token]
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<u64>,
        /// Remaining lifetime of the other tokens, or 0s to revoke them immediately
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = seconds)]
        others: u64,
    },
    /// Revoke a token immediately
    #[command(after_help = "Example:\n  frostline admin tenant revoke acme 1f0c22aa")]
    Revoke {
        /// Name of the tenant
        name: String,
        /// Id of the token, as listed by `show`
        id: String,
    },
    /// Refuse the requests of a tenant, but keep its guests, models and tokens
    #[command(after_help = "Example:\n  frostline admin tenant disable acme")]
    Disable(TenantName),
    /// Accept the requests of a disabled tenant again
    #[command(after_help = "Example:\n  frostline admin tenant enable acme")]
    Enable(TenantName),
    /// Remove a tenant. It can be restored for a week, unless the host is configured otherwise, and is then deleted
    /// with its guests, models and tokens
    #[command(after_help = "Example:\n  frostline admin tenant remove acme --yes")]
    Remove {
        /// Name of the tenant
        name: String,
        /// Delete the tenant immediately, so that it cannot be restored
        #[arg(long)]
        erase: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Restore a removed tenant with its guests, models and tokens
    #[command(after_help = "Example:\n  frostline admin tenant restore acme")]
    Restore(TenantName),
}

/// Parses a quota such as `running=4`. The value `default` becomes `None`.
fn quota(text: &str) -> Result<(QuotaKey, Option<u64>), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("invalid quota {text:?}: expected KEY=VALUE, such as running=4"))?;
    let parsed = key.parse::<QuotaKey>();
    let key = parsed.map_err(|unknown| suggest_quota(key, &unknown))?;
    if value == "default" {
        return Ok((key, None));
    }
    let number = match key.unit() {
        QuotaUnit::Bytes => size(value).ok(),
        _ => value.parse().ok(),
    };
    let value = number.ok_or_else(|| {
        format!(
            "invalid quota {text:?}: the value must be a number (bytes may use KiB, MiB or GiB) or default"
        )
    })?;
    key.check(value).map_err(|range| range.to_string())?;
    Ok((key, Some(value)))
}

/// Describes the error of an unknown quota, with the most similar name if there is one.
fn suggest_quota(key: &str, unknown: &UnknownQuota) -> String {
    let known: Vec<String> = QuotaKey::all().map(|key| key.to_string()).collect();
    match frostline_graph::similar(key, known.iter().map(String::as_str)).first() {
        Some(meant) => format!("did you mean {meant}? {unknown}"),
        None => unknown.to_string(),
    }
}

fn day(text: &str) -> Result<NaiveDate, String> {
    let parsed = NaiveDate::parse_from_str(text, "%Y-%m-%d");
    parsed.map_err(|_| format!("invalid day {text:?}: expected a date such as 2026-11-26"))
}

/// Parses a lifetime in seconds; `never` is [`u64::MAX`].
fn lifetime(text: &str) -> Result<u64, String> {
    match text {
        "never" => Ok(u64::MAX),
        time => match seconds(time)? {
            0 => Err("a token must be valid for a second or more".to_owned()),
            lifetime => Ok(lifetime),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_for_a_second_or_more() {
        assert_eq!((lifetime("1s"), lifetime("never")), (Ok(1), Ok(u64::MAX)));
        assert!(lifetime("0s").unwrap_err().contains("a second or more"));
    }

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
            "running=0",
            "weight=101",
            "stored_bytes=99999999999GiB",
        ] {
            assert!(quota(bad).is_err(), "{bad}");
        }
    }
}
