//! The settings that a running host replaces when it reloads its configuration.

use super::admins::AdminConfig;
use super::roots::DataRoots;
use super::stores::Stores;
use frostline_wire::Quota;
use parking_lot::RwLock;
use std::sync::Arc;

/// Settings that apply to requests that arrive after they were set.
#[derive(Debug, Clone)]
pub struct LiveSettings {
    /// Data roots that are granted to the configured tenant.
    pub data: DataRoots,
    /// Settings of the stores behind the data roots.
    pub stores: Stores,
    /// Quota values that replace the defaults for tenants without their own.
    pub quota: Quota,
    /// Remote admins.
    pub admins: Vec<AdminConfig>,
}

/// The current [`LiveSettings`]. Clones share them, so no part of the host can use an outdated copy.
#[derive(Debug, Clone)]
pub struct Live(Arc<RwLock<Arc<LiveSettings>>>);

impl Live {
    pub(super) fn new(settings: LiveSettings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// Returns the current settings.
    pub fn get(&self) -> Arc<LiveSettings> {
        Arc::clone(&self.0.read())
    }

    /// Grants the configured tenant all data roots except system folders.
    pub(super) fn grant_any_data(&self) {
        let mut settings = LiveSettings::clone(&self.get());
        settings.data = settings.data.or_any();
        *self.0.write() = Arc::new(settings);
    }

    /// Replaces the settings by those of `other`.
    pub(crate) fn replace(&self, other: &Self) {
        let settings = other.get();
        *self.0.write() = settings;
    }
}
