//! `frostline admin quota`, which shows and changes the quotas of a tenant.

use crate::arguments::Quota;
use crate::output::{bytes, print_list};
use anyhow::Result;
use frostline_client::AdminClient;
use frostline_wire::{QuotaChange, QuotaInfo, QuotaUnit, UNLIMITED};

pub(super) async fn run(client: &AdminClient, command: Quota, json: bool) -> Result<()> {
    let quota: Vec<QuotaInfo> = match command {
        Quota::Show { tenant } => client.get(&path(&tenant), &[]).await?,
        Quota::Set { tenant, changes } => {
            let changes = QuotaChange::from_iter(changes);
            client.patch(&path(&tenant), &changes).await?
        }
    };
    print_list(&quota, json, "QUOTA|USED>|VALUE>|DEFAULT>|", |info| {
        let unit = info.key.unit();
        let used = info.used.map(|value| match unit {
            QuotaUnit::Bytes => bytes(value),
            _ => shown(unit, value),
        });
        let set = if info.own {
            "set for the tenant"
        } else {
            "the host's default"
        };
        [
            info.key.to_string(),
            used.unwrap_or_default(),
            shown(unit, info.value),
            shown(unit, info.default),
            set.to_owned(),
        ]
    })
}

fn path(tenant: &str) -> String {
    format!("/v1/tenants/{tenant}/quota")
}

fn shown(unit: QuotaUnit, value: u64) -> String {
    match unit {
        _ if value == UNLIMITED => "unlimited".to_owned(),
        QuotaUnit::Number => value.to_string(),
        QuotaUnit::Seconds => format!("{value} s"),
        QuotaUnit::Bytes => in_powers_of_two(value),
    }
}

/// Formats bytes for `quota set`, using the largest unit that divides the number.
fn in_powers_of_two(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    units
        .iter()
        .find(|(power, _)| bytes > 0 && bytes.trailing_zeros() >= *power)
        .map_or_else(
            || bytes.to_string(),
            |(power, unit)| format!("{}{unit}", bytes >> power),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_they_are_written() {
        let shown = [0, 1000, 64 << 10, 3 << 20, 16 << 30].map(in_powers_of_two);
        assert_eq!(shown, ["0", "1000", "64KiB", "3MiB", "16GiB"]);
    }
}
