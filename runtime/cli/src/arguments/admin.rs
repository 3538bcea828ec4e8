//! Commands of whoever runs a host.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Look after a host: its tenants and their tokens
///
/// Speaks to a host on this machine over its socket, whose file's permissions decide who may.
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
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Who may use the host, what they may read, and their tokens
    #[command(subcommand)]
    Tenant(Tenant),
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
    },
    /// Make another token; the others live on for a while
    #[command(after_help = "Example:\n  frostline admin tenant rotate acme --others 24h")]
    Rotate {
        /// Its name
        name: String,
        /// How long the new token lives; by default it does not end
        #[arg(long, value_name = "TIME", value_parser = seconds)]
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

/// A number and a unit: s, m, h or d.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time; write a number and s, m, h or d, such as 90d");
    let at = text
        .find(|letter: char| !letter.is_ascii_digit())
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(seconds("90d"), Ok(90 * 86_400));
        assert_eq!(seconds("0s"), Ok(0));
        assert_eq!((seconds("5m"), seconds("2h")), (Ok(300), Ok(7200)));
        for bad in ["", "d", "90", "1w", "-1s", "1.5h", "99999999999999999999d"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
