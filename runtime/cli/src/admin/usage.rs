//! `frostline admin usage`, which shows the resource usage of tenants as a table, CSV or JSON.

use crate::arguments::UsageFlags;
use crate::output::{bytes, print_each, print_table, stdout};
use anyhow::{Result, bail};
use chrono::{DateTime, Datelike, Utc};
use frostline_client::AdminClient;
use frostline_wire::{DayUsage, Usage};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::SystemTime;

pub(super) async fn run(client: &AdminClient, flags: UsageFlags, json: bool) -> Result<()> {
    let today = DateTime::<Utc>::from(SystemTime::now()).date_naive();
    let to = flags.to.unwrap_or(today);
    let from = flags.from.unwrap_or_else(|| to.with_day(1).unwrap_or(to));
    if from > to {
        bail!("--from {from} is after --to {to}");
    }
    let from = from.to_string();
    let to = to.to_string();
    let mut query = vec![("from", from.as_str()), ("to", to.as_str())];
    query.extend(flags.tenant.as_deref().map(|tenant| ("tenant", tenant)));
    let days: Vec<DayUsage> = client.get("/v1/usage", &query).await?;
    if json {
        return Ok(print_each(&days)?);
    }
    if flags.csv {
        return csv(&days);
    }
    table(&days)
}

/// Prints totals over all days for each tenant.
fn table(days: &[DayUsage]) -> Result<()> {
    let mut tenants: BTreeMap<&str, Usage> = BTreeMap::new();
    for day in days {
        *tenants.entry(&day.tenant).or_default() += day.usage;
    }
    let rows = tenants.into_iter().map(|(tenant, usage)| {
        [
            tenant.to_owned(),
            format!("{:.1} s", usage.device_seconds),
            format!("{:.1} s", usage.guest_cpu_seconds),
            bytes(usage.read_bytes),
            bytes(usage.sent_bytes),
            usage.images.to_string(),
            usage.extractions.to_string(),
            usage.failed_extractions.to_string(),
            usage.probes.to_string(),
            usage.listings.to_string(),
            bytes(usage.stored_bytes),
        ]
    });
    let columns =
        "TENANT|DEVICE>|GUEST CPU>|READ>|SENT>|IMAGES>|EXTRACTIONS>|FAILED>|PROBES>|LISTINGS>|STORED x DAYS>";
    print_table(columns, rows)
}

/// Prints a line for each day and tenant. Tenant names do not contain commas.
fn csv(days: &[DayUsage]) -> Result<()> {
    let mut stdout = stdout();
    writeln!(
        stdout,
        "day,tenant,device_seconds,guest_cpu_seconds,read_bytes,sent_bytes,images,extractions,failed_extractions,probes,listings,stored_bytes"
    )?;
    for DayUsage { day, tenant, usage } in days {
        let Usage {
            device_seconds,
            guest_cpu_seconds,
            read_bytes,
            sent_bytes,
            images,
            extractions,
            failed_extractions,
            probes,
            listings,
            stored_bytes,
        } = usage;
        writeln!(
            stdout,
            "{day},{tenant},{device_seconds:.3},{guest_cpu_seconds:.3},{read_bytes},{sent_bytes},{images},{extractions},\
             {failed_extractions},{probes},{listings},{stored_bytes}"
        )?;
    }
    Ok(())
}
