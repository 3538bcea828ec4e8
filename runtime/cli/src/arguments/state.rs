//! Arguments of `frostline admin state`.

use clap::{Args, Subcommand, ValueEnum};
use frostline_server::RestoredTokens;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Back up a state while hosts are running, or update an earlier backup
    #[command(after_help = "Example:\n  frostline admin state backup s3://hosts/state /backup/frostline")]
    Backup {
        /// State of the hosts (directory or object store URL)
        state: String,
        /// Target of the backup. Must be empty, or contain an earlier backup of the same state
        to: String,
        #[command(flatten)]
        stores: HostStores,
    },
    /// Read a state or a backup completely and verify all checksums
    #[command(after_help = "Example:\n  frostline admin state verify /backup/frostline")]
    Verify {
        /// Directory or object store URL
        state: String,
        #[command(flatten)]
        stores: HostStores,
    },
    /// Replace a state by a backup. Running hosts reload the state within a minute
    ///
    /// The restored state uses the current tokens. Tokens that were revoked after the backup stay revoked.
    #[command(
        after_help = "Example:\n  frostline admin state restore /backup/frostline s3://hosts/state --yes"
    )]
    Restore {
        /// Location of the backup
        backup: String,
        /// State of the hosts
        state: String,
        /// Tokens that are valid after the restore, required if the current state cannot tell which tokens
        /// were revoked
        #[arg(long, value_name = "WHICH")]
        tokens: Option<Tokens>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        stores: HostStores,
    },
}

/// Access to buckets.
#[derive(Debug, Args)]
pub(crate) struct HostStores {
    /// Read credentials and endpoints of buckets from this host configuration ([store.BUCKET]) instead of the
    /// environment
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Tokens {
    /// The tokens of the backup, even if they were revoked later
    Keep,
    /// No tokens. Every tenant needs a new token
    Revoke,
}

impl From<Tokens> for RestoredTokens {
    fn from(tokens: Tokens) -> Self {
        match tokens {
            Tokens::Keep => Self::Keep,
            Tokens::Revoke => Self::Revoke,
        }
    }
}
