//! Commands on the state that hosts share.

use clap::{Args, Subcommand, ValueEnum};
use frostline_server::RestoredTokens;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum State {
    /// Copy a state while its hosts run, or add what is new to an earlier copy
    #[command(after_help = "Example:\n  frostline admin state backup s3://hosts/state /backup/frostline")]
    Backup {
        /// The hosts' state: a directory or an object store's URL
        state: String,
        /// Where the copy goes: an empty place, or an earlier backup of the same state
        to: String,
        #[command(flatten)]
        stores: HostStores,
    },
    /// Read all of a state or a backup and check every byte
    #[command(after_help = "Example:\n  frostline admin state verify /backup/frostline")]
    Verify {
        /// A directory or an object store's URL
        state: String,
        #[command(flatten)]
        stores: HostStores,
    },
    /// Make a state what a backup holds; running hosts reload it within a minute
    ///
    /// Tokens are those that the state has now, so that what was revoked since the backup stays revoked.
    #[command(
        after_help = "Example:\n  frostline admin state restore /backup/frostline s3://hosts/state --yes"
    )]
    Restore {
        /// The backup
        backup: String,
        /// The hosts' state
        state: String,
        /// Which tokens let in, where the state cannot be asked which were revoked: those of the backup, or none
        #[arg(long, value_name = "WHICH")]
        tokens: Option<Tokens>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        stores: HostStores,
    },
}

/// How buckets are reached.
#[derive(Debug, Args)]
pub(crate) struct HostStores {
    /// A host's configuration, for credentials and endpoints of buckets in its [store.BUCKET]; without it the environment has them
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Tokens {
    /// Those of the backup, also if they were revoked since
    Keep,
    /// None: every tenant needs a new one
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
