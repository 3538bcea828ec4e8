//! The storage host: HTTP, guests, models, admission, extractions and metrics.
//!
//! [`HostSettings`] is a configuration as written, and [`HostConfig`] is a validated one, from which
//! [`Host::start`] creates a [`RunningHost`]. `docs/http.md` documents the HTTP interface. To learn how a
//! request is processed, start with `extraction::Extraction`.
//!
//! No client input causes a panic, and everything that grows has a bound ([`Limits`]). A failure after the
//! start of an answer aborts the body, so clients never mistake it for a complete answer.

mod accounting;
mod caller;
mod config;
mod extraction;
mod fleet;
mod guest_logs;
mod host;
mod http;
mod jobs;
mod library;
mod machine;
mod metrics;
mod partials;
mod profiles;
mod refusal;
mod roots;
mod sampler;
mod scheduling;
mod service;
mod stages;
mod tenants;
mod tls;
mod token;

pub use config::{
    AdminConfig, AdminRole, AdminSettings, ConfigError, DataRoots, EngineSettings, ExtractionSettings,
    GuestSettings, HostConfig, HostSettings, LimitSettings, Limits, Live, LiveSettings, MetricsListen,
    StateLocation, StoreSettings, Stores, TlsFiles,
};
pub use frostline_engine::{ChildLanes, ConfinedLane, Isolation, LanesPlace, enter_lane};
pub use frostline_sandbox::Compiler;
pub use frostline_state::{LocalClock, LostVersion, RestoreReport, RestoredTokens, StateError, StateReport};
pub use host::{
    Host, ProbeResult, RunningHost, StartError, back_up_state, check_start, probe_config, restore_state,
    verify_state,
};
pub use http::{Access, Content, JsonType, ROUTES, RequestHead, Route, openapi};
pub use metrics::sample_metrics;
pub use tls::TlsError;
pub use token::TokenError;
