//! `frostline serve`, which runs a storage host in this process.

use crate::admin::ADMIN_SOCKET;
use crate::arguments::{COMPILE_GUEST, REQUIRE_WALLS, ServeFlags};
use crate::host::{EMBEDDED_MODEL_BYTES, data_url};
use crate::output::{print_json, print_result};
use crate::program::this_program;
use crate::systemd::ServiceManager;
use anyhow::{Context, Result, bail};
use frostline_server::{
    ChildLanes, Compiler, Host, HostConfig, HostSettings, LanesPlace, RunningHost, TlsFiles, check_start,
};
use frostline_tensor::one_line;
use rustix::fs::Mode;
use std::path::Path;
use std::{io, iter};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Protects the memory of this process from other processes of the same user, and files from other users.
/// Must be called before the first thread starts, and after `exec` in [`arenas`](crate::arenas), which would
/// reset the protection.
pub(crate) fn harden() -> io::Result<()> {
    frostline_walls::hide_process()?;
    // Files in any folder are only accessible by the owner.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    Ok(())
}

pub(crate) async fn run(flags: ServeFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    // SIGHUP ends a process without a handler, so install it before the host starts.
    let mut hangup = signal(SignalKind::hangup())?;
    let mut manager = ServiceManager::from_environment();
    let mut config = config(settings(&flags)?)?;
    if flags.embedded {
        config.trust_tenant();
    }
    if flags.check {
        check_start(&config).await?;
        return valid(&flags, json);
    }
    let admin_token_file = config.admin_token_file.clone();
    let drain = config.drain;
    let local = config.local.clone();
    // The start may have to wait for the store of the state.
    let host = tokio::select! {
        host = manager.extend_until(Host::start(config)) => host?,
        () = stop.cancelled() => return Ok(()),
    };
    announce(&host, &admin_token_file, json)?;
    manager.notify("READY=1");
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = hangup.recv(), if !flags.embedded => host.reload(settings(&flags).map_err(|error| one_line(error.as_ref()))).await,
            () = manager.watchdog_due() => manager.notify("WATCHDOG=1"),
        }
    }
    manager.notify("STOPPING=1");
    manager.extend_until(host.shutdown(drain)).await;
    if flags.embedded {
        std::fs::remove_dir_all(&local).with_context(|| format!("cannot remove {}", local.display()))?;
    }
    Ok(())
}

/// Validates the settings, and adds the programs for lanes and compilers.
fn config(settings: HostSettings) -> Result<HostConfig> {
    let isolation = settings.isolation;
    let require_walls = settings.require_walls;
    let lanes_in_child = settings.engine.lanes_in_child;
    if require_walls && !lanes_in_child {
        bail!(
            "require_walls needs lanes in child processes; remove engine.lanes_in_child = false or require_walls"
        );
    }
    let mut config = settings.check()?;
    let program = this_program()?;
    if lanes_in_child {
        config.lanes_place = LanesPlace::Child(ChildLanes {
            isolation,
            require_walls,
            ..ChildLanes::new(program.clone(), ["lanes"])
        });
    }
    let socket = config.admin_socket.take();
    config.admin_socket = Some(socket.unwrap_or_else(|| config.local.join(ADMIN_SOCKET)));
    config.compiler = Compiler::Child {
        program,
        arguments: iter::once(COMPILE_GUEST)
            .chain(require_walls.then_some(REQUIRE_WALLS))
            .map(Into::into)
            .collect(),
    };
    Ok(config)
}

/// Reports that a host can start with this configuration.
fn valid(flags: &ServeFlags, json: bool) -> Result<()> {
    let text = match &flags.config {
        Some(file) => format!("{} is valid", file.display()),
        None => "the settings are valid".to_owned(),
    };
    print_result(json, &serde_json::json!({"event": "valid"}), text)
}

/// Prints the addresses of the host.
fn announce(host: &RunningHost, admin_token_file: &Path, json: bool) -> io::Result<()> {
    let url = host.url();
    let admin_url = host.admin_url();
    let token_file = host.token_file();
    if json {
        return print_json(&serde_json::json!({
            "event": "listening",
            "url": url,
            "token_file": token_file,
            "admin_url": admin_url,
            "metrics_address": host.metrics_address(),
        }));
    }
    say!(
        "listening on {url}; the token is stored in {}",
        token_file.display()
    );
    if let Some(url) = admin_url {
        let file = admin_token_file.display();
        say!("listening for admins on {url}; the admin token is stored in {file}");
    }
    Ok(())
}

/// Reads the configuration file, and overrides settings by flags.
fn settings(flags: &ServeFlags) -> Result<HostSettings> {
    let flags = flags.clone();
    let mut settings = match &flags.config {
        None => HostSettings::default(),
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the configuration {}", file.display()))?;
            HostSettings::from_toml(&text).with_context(|| file.display().to_string())?
        }
    };
    if !flags.data.is_empty() {
        settings.data = flags.data;
    }
    settings.data = settings
        .data
        .iter()
        .map(|data| data_url(data))
        .collect::<Result<_>>()?;
    settings.listen = flags.listen.unwrap_or(settings.listen);
    settings.name = flags.name.or(settings.name);
    settings.state = flags.state.unwrap_or(settings.state);
    settings.local = flags.local.or(settings.local);
    if let (Some(certificate), Some(key)) = (flags.tls_certificate, flags.tls_key) {
        settings.tls = Some(TlsFiles { certificate, key });
    }
    settings.admin_socket = flags.admin_socket.or(settings.admin_socket);
    settings.admin_listen = flags.admin_listen.or(settings.admin_listen);
    settings.admin_token_file = flags.admin_token_file.or(settings.admin_token_file);
    settings.admin_client_ca = flags.admin_client_ca.or(settings.admin_client_ca);
    settings.metrics_listen = flags.metrics_listen.or(settings.metrics_listen);
    settings.token_file = flags.token_file.or(settings.token_file);
    settings.memory_budget = flags.memory_budget.or(settings.memory_budget);
    settings.limits.image_pixels = flags.image_pixels.unwrap_or(settings.limits.image_pixels);
    if flags.embedded {
        settings.limits.model_bytes = EMBEDDED_MODEL_BYTES;
    }
    settings.drain = flags.drain.unwrap_or(settings.drain);
    settings.engine.device = flags.device.unwrap_or(settings.engine.device);
    let device_memory = flags.device_memory_budget;
    settings.engine.device_memory_budget = device_memory.or(settings.engine.device_memory_budget);
    settings.engine.lanes = flags.lanes.unwrap_or(settings.engine.lanes);
    settings.isolation = flags.isolation.unwrap_or(settings.isolation);
    settings.require_walls |= flags.require_walls;
    Ok(settings)
}
