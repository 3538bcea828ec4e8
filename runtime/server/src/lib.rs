//! The storage host: HTTP, guests, models, admission, extractions, metrics.
//!
//! [`HostSettings`] is a configuration as written, [`HostConfig`] one that was checked, [`Host::start`] makes a
//! [`RunningHost`] of it. The interface is written down in `docs/http.md`. One request path is worth reading first:
//! `extraction::Extraction`.
//!
//! Nothing a client sends panics, everything that grows is bounded ([`Limits`]), and what fails after an answer has begun
//! aborts its body instead of ending it.

mod accounting;
mod audit;
mod caller;
mod config;
mod extraction;
mod guest_logs;
mod host;
mod http;
mod jobs;
mod library;
mod machine;
mod metrics;
mod profiles;
mod refusal;
mod roots;
mod sampler;
mod scheduling;
mod service;
mod stages;
mod state;
mod tenants;
mod tls;
mod token;
mod unique;

pub use config::{
    ConfigError, DataRoots, EngineSettings, ExtractionSettings, HostConfig, HostSettings, LimitSettings,
    Limits, MetricsListen, StateLocation, StoreSettings, Stores, TlsFiles,
};
pub use frostline_engine::{ChildLanes, ConfinedLane, Isolation, LanesPlace, enter_lane};
pub use frostline_sandbox::Compiler;
pub use host::{
    Host, ProbeResult, RunningHost, StartError, back_up_state, probe_config, restore_state, verify_state,
};
pub use metrics::sample_metrics;
pub use state::{LostVersion, RestoreReport, RestoredTokens, StateError, StateReport};
pub use tls::TlsError;
pub use token::TokenError;
