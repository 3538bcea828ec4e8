//! Seconds until each of eight faults of a data root's store is in `/metrics`, in the log, in `/readyz` and told by `doctor`.

use super::http;
use super::store::{Bucket, Fault};
use crate::report::Report;
use crate::run::{binary, text};
use anyhow::{Context, Result, bail};
use frostline_e2e::{HostProcess, finish};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const ROOT: &str = "s3://photos/set";

/// How often a host is asked.
const LOOK: Duration = Duration::from_millis(50);

/// When a fault is given up.
const LONGEST: Duration = Duration::from_secs(120);

/// Notes `fault_<name>_seconds`, the latest of the four, and `fault_visible_seconds_max`, that of all.
pub(super) fn run(report: &mut Report) -> Result<()> {
    let places = ["metrics", "log", "readiness", "doctor"];
    println!(
        "\n{:<10} {:>10} {:>10} {:>10} {:>10}",
        "fault", places[0], places[1], places[2], places[3]
    );
    let mut worst = 0.0_f64;
    for (fault, name) in Fault::ALL {
        let seconds = seconds_of(fault).with_context(|| format!("fault {name}"))?;
        let row: Vec<String> = seconds
            .iter()
            .map(|seconds| format!("{seconds:>8.2} s"))
            .collect();
        println!("{name:<10} {}", row.join(" "));
        let latest = seconds.into_iter().fold(0.0, f64::max);
        report.set(&format!("fault_{name}_seconds"), latest);
        worst = worst.max(latest);
    }
    report.set("fault_visible_seconds_max", worst);
    Ok(())
}

/// A host on the bucket, and where to look.
struct Watched {
    _host: HostProcess,
    metrics: SocketAddr,
    log: PathBuf,
}

impl Watched {
    fn start(folder: &Path, config: &Path) -> Result<Self> {
        let metrics = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = folder.join("log");
        let mut command = Command::new(binary()?);
        command.stderr(File::create(&log)?);
        let listen = metrics.to_string();
        let flags = ["--config", text(config)?, "--metrics-listen", &listen];
        Ok(Self {
            _host: HostProcess::start_as(command, folder, ROOT, &flags)?,
            metrics,
            log,
        })
    }

    fn get(&self, path: &str) -> Result<String> {
        // No token is asked for there.
        Ok(String::from_utf8(http::get(self.metrics, "", path)?)?)
    }

    /// Whether metrics, the log and readiness say that the root fails.
    fn says(&self) -> Result<[bool; 3]> {
        let metrics = self.get("/metrics")?;
        let down = format!("frostline_root_up{{root=\"{ROOT}\"}} 0");
        let counted = format!("frostline_root_errors_total{{root=\"{ROOT}\"");
        let log = fs::read_to_string(&self.log)?;
        Ok([
            metrics.contains(&down) && metrics.contains(&counted),
            log.lines()
                .any(|line| line.contains("data root fails") && line.contains(ROOT)),
            self.get("/readyz")?.contains(&format!("{ROOT} fails")),
        ])
    }

    fn wait_until_up(&self) -> Result<()> {
        let up = format!("frostline_root_up{{root=\"{ROOT}\"}} 1");
        let since = Instant::now();
        while !self.get("/metrics")?.contains(&up) {
            if since.elapsed() > LONGEST {
                bail!("the root never answers");
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Seconds until each place says it.
fn seconds_of(fault: Fault) -> Result<[f64; 4]> {
    let (bucket, folder) = (Bucket::start()?, tempfile::tempdir()?);
    let (config, keys) = (folder.path().join("host.toml"), folder.path().join("keys"));
    fs::write(
        &keys,
        "[default]\naws_access_key_id = id\naws_secret_access_key = key\n",
    )?;
    let state = folder.path().join("state");
    fs::write(
        &config,
        format!(
            "state = {:?}\ndata = [{ROOT:?}]\n[store.photos]\nendpoint = \"http://{}\"\nkeys = {:?}\n",
            text(&state)?,
            bucket.address,
            text(&keys)?
        ),
    )?;
    let host = Watched::start(folder.path(), &config)?;
    host.wait_until_up()?;
    let mut doctor = Command::new(binary()?);
    doctor.args(["doctor", "--config", text(&config)?]);
    bucket.fail(fault)?;
    let since = Instant::now();
    let doctor = thread::spawn(move || -> Result<f64> {
        let told = finish(&mut doctor)?;
        let seconds = since.elapsed().as_secs_f64();
        let fails = |line: &str| line.starts_with("FAILS") && line.contains("data");
        if !told.stdout.lines().any(fails) {
            bail!("doctor does not say it: {told:?}");
        }
        Ok(seconds)
    });
    let mut seconds: [Option<f64>; 3] = [None; 3];
    while seconds.iter().any(Option::is_none) {
        let now = since.elapsed();
        if now > LONGEST {
            bail!("it is not said within {} s: {seconds:?}", LONGEST.as_secs());
        }
        for (seconds, said) in seconds.iter_mut().zip(host.says()?) {
            if said {
                seconds.get_or_insert(now.as_secs_f64());
            }
        }
        thread::sleep(LOOK);
    }
    let doctor = doctor.join().map_err(|_| anyhow::anyhow!("doctor panicked"))??;
    let [metrics, log, readiness] = seconds.map(Option::unwrap_or_default);
    Ok([metrics, log, readiness, doctor])
}
