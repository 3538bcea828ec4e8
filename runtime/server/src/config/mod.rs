//! Configuration of a host: [`HostSettings`] as written and [`HostConfig`] after validation.

mod admins;
mod check;
mod checked;
mod error;
mod limits;
mod live;
mod memory;
mod networks;
mod roots;
mod settings;
mod stores;
mod units;

pub use admins::AdminConfig;
pub(crate) use check::system_name;
pub use checked::{HostConfig, MetricsListen, StateLocation};
pub use error::ConfigError;
pub use limits::Limits;
pub(crate) use limits::upload_units;
pub use live::{Live, LiveSettings};
pub(crate) use memory::stranger_bytes;

pub use roots::DataRoots;
pub(crate) use roots::Root;
pub use settings::{
    AdminRole, AdminSettings, EngineSettings, ExtractionSettings, GuestSettings, HostSettings, LimitSettings,
    StoreSettings, TlsFiles,
};
pub use stores::Stores;
pub(crate) use stores::open_store;
