//! Validation of [`HostSettings`].

use super::admins::checked_admins;
use super::checked::{HostConfig, MetricsListen, StateLocation};
use super::error::ConfigError;
use super::limits::Limits;
use super::live::{Live, LiveSettings};
use super::memory::checked_budget;
use super::networks::Networks;
use super::roots::DataRoots;
use super::settings::{GuestSettings, HostSettings, LimitSettings};
use super::stores::Stores;
use frostline_engine::{Device, LanesPlace};
use frostline_images::DecodeLimits;
use frostline_sandbox::Compiler;
use frostline_state::LocalClock;
use frostline_wire::Quota;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Default number of concurrent extractions per lane. Available memory usually limits them first; beyond this
/// number, they would only wait for the same lane.
const RUNNING_PER_LANE: usize = 16;

impl HostConfig {
    /// Reads and validates the text of a configuration file.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the invalid key.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        HostSettings::from_toml(text)?.check()
    }
}

impl HostSettings {
    /// Validates every value and fills in the defaults.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the invalid key.
    pub fn check(self) -> Result<HostConfig, ConfigError> {
        let written = self.clone();
        let (listen, admin_listen, metrics_listen) = self.addresses()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let device = checked_device(&self.engine.device)?;
        let lanes = in_range("engine.lanes", self.engine.lanes, 0, 64)?;
        let lanes = nonzero_or(lanes, if device == Device::Cpu { cores } else { 1 });
        let threads = in_range("engine.threads_per_lane", self.engine.threads_per_lane, 0, 256)?;
        let decoders = in_range("engine.decode_threads", self.engine.decode_threads, 0, 256)?;
        let running = in_range("extractions.running", self.extractions.running, 0, 1024)?;
        let calls = in_range("extractions.calls", self.extractions.calls, 0, 64)?;
        let seconds = in_range("extractions.seconds", self.extractions.seconds, 1, 86_400)?;
        let memory_budget = checked_budget(self.memory_budget)?;
        let (limits, lowered_limits) = self.limits.check()?.lowered_to(memory_budget);
        let state = StateLocation::parse(&self.state)?;
        let local = local_folder(self.local, &state)?;
        let admin_token_file = self.admin_token_file.unwrap_or_else(|| local.join("admin-token"));
        Ok(HostConfig {
            name: checked_name(self.name)?,
            listen,
            token_file: self.token_file.unwrap_or_else(|| local.join("token")),
            state,
            tls: self.tls,
            proxies: Networks::parse(&self.proxy_protocol_from)?,
            admin_socket: self.admin_socket,
            admin_listen,
            metrics_listen,
            admin_token_file: admin_token_file.clone(),
            admin_client_ca: self.admin_client_ca,
            live: Live::new(LiveSettings {
                data: DataRoots::new(&self.data)?,
                stores: Stores::checked(self.store)?,
                quota: checked_quota(self.quota)?,
                admins: checked_admins(admin_token_file, self.admins, &local)?,
            }),
            local,
            hides_store_settings: true,
            device,
            compiler: Compiler::InProcess,
            lanes,
            device_memory_budget: checked_device_budget(self.engine.device_memory_budget, device)?,
            threads_per_lane: nonzero_or(threads, cores / lanes),
            lanes_place: LanesPlace::InProcess,
            decode_threads: nonzero_or(decoders, cores),
            running: nonzero_or(running, lanes.saturating_mul(RUNNING_PER_LANE)),
            queued: in_range("extractions.queued", self.extractions.queued, 0, 100_000)?,
            grant: in_range("extractions.grant", self.extractions.grant, 1, 4096)?,
            calls: nonzero_or(calls, lanes + 2),
            extraction_timeout: Duration::from_secs(seconds),
            drain: Duration::from_secs(in_range("drain", self.drain, 0, 86_400)?),
            memory_budget,
            lowered_limits,
            guests: self.guests.check()?,
            limits,
            clock: LocalClock::default(),
            written,
        })
    }

    /// Parses the addresses for tenants, remote admins and metrics.
    fn addresses(&self) -> Result<(SocketAddr, Option<SocketAddr>, Option<MetricsListen>), ConfigError> {
        let optional = |key, text: &Option<String>| {
            let text = text.as_deref();
            text.map(|text| checked_address(key, text)).transpose()
        };
        let listen = checked_address("listen", &self.listen)?;
        if self.tls.is_none() && !listen.ip().is_loopback() && !self.plain_http_beyond_loopback {
            return Err(ConfigError::PlainHttp { listen });
        }
        let admin_listen = optional("admin_listen", &self.admin_listen)?;
        if let (None, Some(listen)) = (&self.tls, admin_listen) {
            return Err(ConfigError::PlainAdmin { listen });
        }
        let metrics_listen = self.metrics_listen.as_deref().map(checked_metrics).transpose()?;
        let metrics = metrics_listen.map(|listen| listen.address);
        check_distinct("admin_listen", admin_listen, [Some(listen), None])?;
        check_distinct("metrics_listen", metrics, [Some(listen), admin_listen])?;
        Ok((listen, admin_listen, metrics_listen))
    }
}

/// Returns the folder for files of this host, by default that of the state.
fn local_folder(local: Option<PathBuf>, state: &StateLocation) -> Result<PathBuf, ConfigError> {
    match (local, state) {
        (Some(local), _) => Ok(local),
        (None, StateLocation::Directory(directory)) => Ok(directory.clone()),
        (None, StateLocation::Store(_)) => Err(ConfigError::NoLocal),
    }
}

impl GuestSettings {
    fn check(self) -> Result<Self, ConfigError> {
        const GIB: u64 = 1 << 30;
        Ok(Self {
            memory_bytes: in_range("guests.memory_bytes", self.memory_bytes, 1 << 20, 4 * GIB)?,
            table_elements: in_range("guests.table_elements", self.table_elements, 1, 10_000_000)?,
            handles: in_range("guests.handles", self.handles, 16, 1_000_000)?,
            slice_seconds: in_range("guests.slice_seconds", self.slice_seconds, 1, 86_400)?,
            compile_bytes: in_range("guests.compile_bytes", self.compile_bytes, GIB / 2, 1024 * GIB)?,
            compile_seconds: in_range("guests.compile_seconds", self.compile_seconds, 1, 86_400)?,
        })
    }
}

impl LimitSettings {
    fn check(self) -> Result<Limits, ConfigError> {
        const GIB: u64 = 1 << 30;
        let model_bytes = in_range("limits.model_bytes", self.model_bytes, 1, 64 * GIB)?;
        let guest_bytes = in_range("limits.guest_bytes", self.guest_bytes, 1, GIB)?;
        let largest = model_bytes.max(guest_bytes);
        let partial_seconds = in_range("limits.partial_seconds", self.partial_seconds, 0, 366 * 86_400)?;
        let most_pixels = DecodeLimits::LARGEST_MAX_PIXELS;
        let image_pixels = in_range("limits.image_pixels", self.image_pixels, 1, most_pixels)?;
        let removed_days = in_range("limits.removed_tenant_days", self.removed_tenant_days, 0, 3660)?;
        Ok(Limits {
            guest_bytes,
            model_bytes,
            upload_bytes: in_range("limits.upload_bytes", self.upload_bytes, largest, 1024 * GIB)?,
            partials: in_range("limits.partials", self.partials, 0, 10_000)?,
            partial_bytes: in_range("limits.partial_bytes", self.partial_bytes, 0, 1024 * GIB)?,
            partial_age: Duration::from_secs(partial_seconds),
            samples: in_range("limits.samples", self.samples, 1, 1 << 20)?,
            decode: DecodeLimits::new(Some(image_pixels)),
            removed_tenant: Duration::from_secs(86_400 * removed_days),
            versions: in_range("limits.versions", self.versions, 1, 1000)?,
            names: in_range("limits.names", self.names, 1, 100_000)?,
            connections: in_range("limits.connections", self.connections, 4, 100_000)?,
            prepared_bytes: in_range("limits.prepared_bytes", self.prepared_bytes, 0, 1024 * GIB)?,
            ..Limits::default()
        })
    }
}

fn in_range<T: PartialOrd + std::fmt::Display>(
    key: &'static str,
    value: T,
    low: T,
    high: T,
) -> Result<T, ConfigError> {
    if value >= low && value <= high {
        return Ok(value);
    }
    Err(ConfigError::Value {
        key,
        value: value.to_string(),
        rule: format!("expected {low} to {high}"),
    })
}

fn checked_quota(quota: Quota) -> Result<Quota, ConfigError> {
    for (key, value) in &quota {
        key.check(*value)?;
    }
    Ok(quota)
}

/// Returns the system's host name.
pub(crate) fn system_name() -> String {
    let system = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let system = system.trim();
    if system.is_empty() { "host" } else { system }.to_owned()
}

/// Returns the name as written, or the system's host name. A configured name may contain the characters of
/// DNS names and underscores.
fn checked_name(written: Option<String>) -> Result<String, ConfigError> {
    let Some(name) = written else {
        return Ok(system_name());
    };
    if (1..=253).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    {
        return Ok(name);
    }
    Err(ConfigError::Value {
        key: "name",
        value: format!("{name:?}"),
        rule: "expected 1 to 253 letters, digits, '.', '-' and '_'".to_owned(),
    })
}

fn checked_address(key: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| ConfigError::Value {
        key,
        value: format!("{text:?}"),
        rule: "expected an address and a port, such as 127.0.0.1:7433".to_owned(),
    })
}

/// Refuses an address whose port another listener of the host uses. Port 0 selects a free port.
fn check_distinct(
    key: &'static str,
    address: Option<SocketAddr>,
    others: [Option<SocketAddr>; 2],
) -> Result<(), ConfigError> {
    let Some(address) = address.filter(|address| address.port() != 0) else {
        return Ok(());
    };
    let Some(other) = others.into_iter().flatten().find(|other| {
        let shares =
            address.ip() == other.ip() || address.ip().is_unspecified() || other.ip().is_unspecified();
        address.port() == other.port() && shares
    }) else {
        return Ok(());
    };
    Err(ConfigError::Value {
        key,
        value: format!("\"{address}\""),
        rule: format!("the host already listens on {other}; use another port"),
    })
}

/// Parses an address such as `127.0.0.1:7435` or `http://127.0.0.1:7435`.
fn checked_metrics(text: &str) -> Result<MetricsListen, ConfigError> {
    let plain = text.strip_prefix("http://");
    let address = plain.map_or(text, |address| address.trim_end_matches('/'));
    Ok(MetricsListen {
        address: checked_address("metrics_listen", address)?,
        plain: plain.is_some(),
    })
}

fn checked_device(text: &str) -> Result<Device, ConfigError> {
    Device::from_str(text).map_err(|_| ConfigError::Value {
        key: "engine.device",
        value: format!("{text:?}"),
        rule: "expected cpu or cuda:<number>".to_owned(),
    })
}

/// Validates the GPU memory budget. The minimum is 1 GiB, enough for CUDA and a small network.
fn checked_device_budget(written: Option<u64>, device: Device) -> Result<Option<u64>, ConfigError> {
    const KEY: &str = "engine.device_memory_budget";
    const LEAST: u64 = 1 << 30;
    match (written, device) {
        (Some(bytes), Device::Cpu) => Err(ConfigError::Value {
            key: KEY,
            value: bytes.to_string(),
            rule: "engine.device is cpu, whose memory is memory_budget; remove the key, or set engine.device to a GPU"
                .to_owned(),
        }),
        (written, _) => written
            .map(|bytes| in_range(KEY, bytes, LEAST, u64::MAX / 4))
            .transpose(),
    }
}

/// Returns `value`, or the fallback but at least 1 if `value` is 0.
fn nonzero_or(value: usize, fallback: usize) -> usize {
    if value == 0 { fallback.max(1) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::QuotaKey;
    use std::path::PathBuf;

    #[test]
    fn defaults_pass_and_keep_what_is_written() {
        let config =
            HostConfig::from_toml("data = [\"/srv/photos\"]\ndrain = 5\n[extractions]\ngrant = 7\n").unwrap();
        assert!(config.listen.ip().is_loopback());
        assert_eq!((config.grant, config.drain), (7, Duration::from_secs(5)));
        assert_eq!(config.token_file, PathBuf::from("frostline-state/token"));
    }

    #[test]
    fn the_pixels_of_an_image_are_limited_by_the_setting_and_by_memory() {
        let limits = |text: &str| {
            let settings = HostSettings::from_toml(text).unwrap();
            settings.limits.check().map(|limits| limits.decode)
        };
        assert_eq!(limits("").unwrap(), DecodeLimits::default());
        let phone = 12_000 * 9_000;
        assert!(DecodeLimits::default().max_pixels > phone);
        let large = limits("[limits]\nimage_pixels = 1000000000").unwrap();
        assert_eq!(
            (large.max_pixels, large.max_bytes),
            (1_000_000_000, 8_000_000_000)
        );
        let text = limits("[limits]\nimage_pixels = 0").unwrap_err().to_string();
        assert!(text.contains("limits.image_pixels"), "{text}");
        // The memory budget limits decoding as before.
        let budget = 4 << 30;
        let (lowered, _) = Limits {
            decode: large,
            ..Limits::default()
        }
        .lowered_to(budget);
        assert_eq!(lowered.decode.max_bytes, budget / 6);
    }

    #[test]
    fn a_device_memory_budget_requires_a_gpu() {
        let budget = |engine: &str| HostConfig::from_toml(&format!("[engine]\n{engine}"));
        let gpu = |bytes: u64| budget(&format!("device = \"cuda:0\"\ndevice_memory_budget = {bytes}"));
        assert_eq!(gpu(8 << 30).unwrap().device_memory_budget, Some(8 << 30));
        assert_eq!(budget("device = \"cuda:0\"").unwrap().device_memory_budget, None);
        let refused = gpu(1 << 20).unwrap_err().to_string();
        assert!(
            refused.contains("engine.device_memory_budget") && refused.contains("1073741824"),
            "{refused}"
        );
        let refused = budget("device_memory_budget = 4294967296")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("remove the key"), "{refused}");
    }

    #[test]
    fn listeners_have_separate_ports() {
        let config = |text: &str| HostConfig::from_toml(text).map_err(|error| error.to_string());
        let tls = "[tls]\ncertificate = \"c\"\nkey = \"k\"";
        for same in [
            "metrics_listen = \"127.0.0.1:7433\"".to_owned(),
            "metrics_listen = \"http://0.0.0.0:7433\"".to_owned(),
            format!("admin_listen = \"[::]:7433\"\n{tls}"),
            format!("admin_listen = \"127.0.0.1:9\"\nmetrics_listen = \"127.0.0.1:9\"\n{tls}"),
        ] {
            let refused = config(&same).unwrap_err();
            assert!(
                refused.contains("_listen") && refused.contains("use another port"),
                "{refused}"
            );
        }
        for apart in [
            "metrics_listen = \"127.0.0.1:7435\"",
            "metrics_listen = \"127.0.0.2:7433\"",
        ] {
            config(apart).unwrap();
        }
        config("listen = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"").unwrap();
    }

    #[test]
    fn local_defaults_to_a_state_directory() {
        let local = |text: &str| HostConfig::from_toml(text).unwrap().local;
        assert_eq!(local("state = \"/srv/state\""), PathBuf::from("/srv/state"));
        assert_eq!(
            local("state = \"file:///srv/state\""),
            PathBuf::from("/srv/state")
        );
        let refused = HostConfig::from_toml("state = \"s3://bucket/state\"").unwrap_err();
        assert!(refused.to_string().contains("set local"), "{refused}");
        let both = "state = \"/srv/state\"\nlocal = \"/var/cache/frostline\"";
        assert_eq!(local(both), PathBuf::from("/var/cache/frostline"));
        let config = HostConfig::from_toml(both).unwrap();
        assert_eq!(config.token_file, PathBuf::from("/var/cache/frostline/token"));
        assert!(HostConfig::from_toml("state = \"file://elsewhere/srv\"").is_err());
    }

    #[test]
    fn amounts_may_have_the_units_that_flags_take() {
        let config = HostConfig::from_toml(
            "memory_budget = \"4GiB\"\ndrain = \"2m\"\n[extractions]\nseconds = \"60s\"\n[limits]\nmodel_bytes = \"2MiB\"\n\
             guest_bytes = 7\n[quota]\nstored_bytes = \"1GiB\"\nwall_seconds = \"5m\"\nrunning = 3\n",
        )
        .unwrap();
        assert_eq!(
            (
                config.memory_budget,
                config.drain.as_secs(),
                config.extraction_timeout.as_secs()
            ),
            (4 << 30, 120, 60)
        );
        assert_eq!(
            (config.limits.model_bytes, config.limits.guest_bytes),
            (2 << 20, 7)
        );
        let quota = [QuotaKey::StoredBytes, QuotaKey::WallSeconds, QuotaKey::Running]
            .map(|key| config.live.get().quota[&key]);
        assert_eq!(quota, [1 << 30, 300, 3]);
        for wrong in [
            "drain = \"60w\"",
            "memory_budget = -1",
            "memory_budget = \"4GB\"",
            "[quota]\nrunning = \"3s\"",
        ] {
            let refused = HostConfig::from_toml(wrong).unwrap_err().to_string();
            assert!(refused.contains("invalid"), "{refused}");
        }
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused_by_name() {
        let refused = |text: &str| HostConfig::from_toml(text).unwrap_err().to_string();
        assert!(refused("listne = \"127.0.0.1:1\"").contains("listne"));
        assert!(refused("[extractions]\ngrant = 0").contains("extractions.grant"));
        assert!(refused("listen = \"here\"").contains("listen"));
        assert!(refused("name = \"a b\"").contains("invalid name \"a b\""));
        assert!(refused("[engine]\ndevice = \"tpu\"").contains("engine.device"));
        assert!(refused("data = [\"s3://b?x=1\"]").contains("s3://b"));
        assert!(refused("[limits]\nupload_bytes = 1").contains("limits.upload_bytes"));
        assert!(refused("[guests]\nmemory_bytes = \"5GiB\"").contains("guests.memory_bytes"));
        assert!(refused("[quota]\nweight = 101").contains("invalid weight 101: expected 1 to 100"));
        assert!(refused("drain = 100000").contains("drain"));
    }

    #[test]
    fn plain_http_beyond_loopback_requires_the_setting() {
        let open = "listen = \"0.0.0.0:7433\"\n";
        assert!(matches!(
            HostConfig::from_toml(open),
            Err(ConfigError::PlainHttp { .. })
        ));
        assert!(HostConfig::from_toml(&format!("{open}plain_http_beyond_loopback = true")).is_ok());
        let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
        assert!(HostConfig::from_toml(&format!("{open}{tls}")).is_ok());
        assert!(HostConfig::from_toml("[tls]\ncertificate = \"cert.pem\"\n").is_err());
    }

    #[test]
    fn metrics_are_shown_over_plain_http_only_where_that_is_written() {
        let listen = |text: &str| HostConfig::from_toml(&format!("metrics_listen = \"{text}\""));
        let listen = |text: &str| listen(text).map(|config| config.metrics_listen);
        let at = |plain| MetricsListen {
            address: "0.0.0.0:7435".parse().unwrap(),
            plain,
        };
        assert_eq!(listen("0.0.0.0:7435").unwrap(), Some(at(false)));
        assert_eq!(listen("http://0.0.0.0:7435").unwrap(), Some(at(true)));
        assert_eq!(listen("http://0.0.0.0:7435/").unwrap(), Some(at(true)));
        for wrong in [
            "https://0.0.0.0:7435",
            "http://",
            "7435",
            "http://0.0.0.0:7435/metrics",
        ] {
            let refused = listen(wrong).unwrap_err().to_string();
            assert!(refused.contains("metrics_listen"), "{refused}");
        }
    }

    #[test]
    fn remote_admins_require_tls_even_on_loopback() {
        let admin = "admin_listen = \"127.0.0.1:0\"\n";
        assert!(matches!(
            HostConfig::from_toml(admin),
            Err(ConfigError::PlainAdmin { .. })
        ));
        let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
        let config = HostConfig::from_toml(&format!("{admin}{tls}")).unwrap();
        assert_eq!(
            config.admin_token_file,
            PathBuf::from("frostline-state/admin-token")
        );
    }
}
