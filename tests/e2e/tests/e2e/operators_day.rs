//! An operator's day: two hosts with TLS and shared state on a store serve two tenants that work throughout. Faults
//! must raise the alerts of the shipped rules, and nothing may be lost.

use crate::fault_proxy::{FaultProxy, StoreFault};
use crate::harness::{STUCK, Scratch, binary, frostline};
use crate::running_job::{RunningJob, end_all, rows};
use crate::s3::Moto;
use crate::state::until;
use frostline_e2e::{Finished, HostProcess, finish, repository};
use rcgen::generate_simple_self_signed;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// State of the hosts, in a bucket behind a proxy.
const STATE: &str = "s3://states/state";

/// Data of the tenant `beta`, in the bucket of [`Moto`] behind another proxy. The data of `acme` is in a folder.
const DATA: &str = "s3://photos/shop";

const TENANTS: [&str; 2] = ["acme", "beta"];

/// Factor by which the rules' `for` durations are shortened. Thresholds and windows of rates are as shipped.
const SPEEDUP: u64 = 12;

/// Time for which a fault without an expected alert lasts.
const UNNOTICED: Duration = Duration::from_secs(20);

/// Hosts, tenants, their jobs, and the monitoring.
struct Day {
    hosts: Vec<HostProcess>,
    jobs: Vec<RunningJob>,
    prometheus: Prometheus,
    state: FaultProxy,
    data: FaultProxy,
    _moto: Moto,
    scratch: Scratch,
    results: Vec<FaultResult>,
}

/// Result of an injected fault.
struct FaultResult {
    fault: &'static str,
    alerts: Vec<FiredAlert>,
    expected: &'static [&'static str],
}

/// Alert that fired after a fault.
#[derive(Debug, Clone)]
struct FiredAlert {
    name: String,
    severity: String,
    seconds: f64,
}

impl Day {
    fn start() -> Self {
        let scratch = Scratch::with_photos(8, 2);
        let certified = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(scratch.path("ca.pem"), certified.cert.pem()).unwrap();
        fs::write(scratch.path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
        let moto = Moto::start(&scratch);
        let bucket = format!("{}/states", moto.url);
        let created = finish(Command::new("curl").args(["--silent", "--request", "PUT", &bucket]));
        assert_eq!(created.unwrap().code, Some(0));
        let address = moto.url.strip_prefix("http://").unwrap().parse().unwrap();
        let [state, data] = [FaultProxy::start(address), FaultProxy::start(address)];
        configure(&scratch, &state, &data);
        let any = "127.0.0.1:0";
        let hosts: Vec<HostProcess> = (0..2).map(|number| host(&scratch, number, [any, any])).collect();
        let metrics: Vec<SocketAddr> = hosts.iter().filter_map(HostProcess::metrics_address).collect();
        Self {
            prometheus: Prometheus::start(&scratch, &metrics),
            hosts,
            jobs: Vec::new(),
            state,
            data,
            _moto: moto,
            scratch,
            results: Vec::new(),
        }
    }

    /// Adds the tenants, each with an unused token in addition to the one of its job, and starts the jobs.
    fn start_work(&mut self) {
        for tenant in TENANTS {
            let added = self.admin(0, &["tenant", "add", tenant, "--data", &self.root(tenant)]);
            self.write_token(&format!("{tenant}-unused-token"), &added[0]);
            let rotated = self.admin(0, &["tenant", "rotate", tenant, "--others", "30d"]);
            self.write_token(&format!("{tenant}-token"), &rotated[0]);
            let token = format!("{tenant}-token");
            until("the tenant", || {
                (0..2).all(|host| self.guests(host, &token).code == Some(0))
            });
            let train = self.train(tenant);
            self.jobs.push(RunningJob::start(
                train,
                self.scratch.path(&format!("{tenant}-log")),
            ));
        }
        until("steps of all jobs", || {
            self.jobs.iter().all(|job| job.steps() > 2)
        });
    }

    fn write_token(&self, name: &str, printed: &Value) {
        fs::write(self.scratch.path(name), printed["token"].as_str().unwrap()).unwrap();
    }

    /// Returns the data root of a tenant.
    fn root(&self, tenant: &str) -> String {
        match tenant {
            "beta" => DATA.to_owned(),
            _ => self.scratch.path("photos").to_str().unwrap().to_owned(),
        }
    }

    fn train(&self, tenant: &str) -> Command {
        let path = |name: &str| self.scratch.path(name).to_str().unwrap().to_owned();
        let token = path(&format!("{tenant}-token"));
        let (data, out, ca) = (self.root(tenant), path(&format!("{tenant}.onnx")), path("ca.pem"));
        let (one, two) = (self.hosts[0].url(), self.hosts[1].url());
        let hosts = [
            "--host",
            &one,
            "--host",
            &two,
            "--token-file",
            &token,
            "--ca",
            &ca,
        ];
        let job = [
            "--data", &data, "--out", &out, "--split", "features", "--epochs", "1000000",
        ];
        self.scratch.train_command(&[&hosts[..], &job].concat())
    }

    /// Runs an admin command on a host.
    fn try_admin(&self, number: usize, arguments: &[&str]) -> Finished {
        let socket = local(&self.scratch, number).join("admin.sock");
        let mut command = frostline();
        command.args(["admin", "--json", "--socket"]).arg(socket);
        finish(command.args(arguments)).unwrap()
    }

    /// Runs an admin command on a host and returns the printed JSON objects.
    fn admin(&self, number: usize, arguments: &[&str]) -> Vec<Value> {
        let run = self.try_admin(number, arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {run:?}");
        run.objects().expect(&run.stdout)
    }

    fn guests(&self, number: usize, token: &str) -> Finished {
        let mut command = frostline();
        command.args(["guest", "list", "--json", "--host", &self.hosts[number].url()]);
        command.arg("--token-file").arg(self.scratch.path(token));
        finish(command.arg("--ca").arg(self.scratch.path("ca.pem"))).unwrap()
    }

    fn restart(&mut self, number: usize) {
        let before = &self.hosts[number];
        let addresses =
            [before.address(), before.metrics_address().unwrap()].map(|address| address.to_string());
        self.hosts[number] = host(&self.scratch, number, addresses.each_ref().map(String::as_str));
    }

    /// Injects a fault, waits for the alerts `expected`, ends the fault, and waits until these alerts end and the jobs
    /// continue.
    fn experience(
        &mut self,
        fault: &'static str,
        expected: &'static [&'static str],
        inject: impl FnOnce(&mut Self),
        end: impl FnOnce(&mut Self),
    ) {
        let mut watch = AlertWatch::new(&self.prometheus);
        inject(self);
        let fired = |watch: &AlertWatch| match expected {
            [] => watch.started.elapsed() > UNNOTICED,
            _ => expected.iter().all(|name| watch.fired.contains_key(*name)),
        };
        watch.until(&self.prometheus, fault, fired);
        end(self);
        let steps: Vec<usize> = self.jobs.iter().map(RunningJob::steps).collect();
        // The number of invalid tokens within 10 minutes stays above the threshold.
        let lasting = ["FrostlineInvalidTokens"];
        watch.until(&self.prometheus, fault, |watch| {
            let ended = |name: &&&str| lasting.contains(*name) || !watch.firing.contains(**name);
            let mut pairs = self.jobs.iter().zip(&steps);
            expected.iter().filter(|name| !ended(name)).count() == 0
                && pairs.all(|(job, before)| job.steps() > before + 2)
        });
        let alerts: Vec<FiredAlert> = watch.fired.into_values().collect();
        self.results.push(FaultResult {
            fault,
            alerts,
            expected,
        });
    }

    /// Prints the results, and fails if a critical alert fired that is not a consequence of its fault.
    fn report(&self, durations: &BTreeMap<String, u64>) {
        println!("fault | alert | severity | seconds | with the shipped `for`");
        let mut wrong = Vec::new();
        for FaultResult {
            fault,
            alerts,
            expected,
        } in &self.results
        {
            if alerts.is_empty() {
                println!("{fault} | none | | |");
            }
            for alert in alerts {
                let FiredAlert {
                    name,
                    severity,
                    seconds,
                } = alert;
                let shipped = durations.get(name).copied().unwrap_or_default();
                let without = seconds - (shipped / SPEEDUP) as f64;
                println!(
                    "{fault} | {name} | {severity} | {seconds:.0} | {:.0}",
                    without + shipped as f64
                );
                let is_consequence =
                    expected.contains(&name.as_str()) || name.starts_with("FrostlineErrorBudgetBurns");
                if severity == "critical" && !is_consequence {
                    wrong.push(format!("{fault}: {name}"));
                }
            }
        }
        assert!(wrong.is_empty(), "unexpected critical alerts: {wrong:?}");
    }
}

/// Writes the configuration of the hosts, with the proxies of the stores.
fn configure(scratch: &Scratch, state: &FaultProxy, data: &FaultProxy) {
    let keys = scratch.path("keys");
    fs::write(
        &keys,
        "[default]\naws_access_key_id = test\naws_secret_access_key = a-secret-key\n",
    )
    .unwrap();
    let store = |bucket: &str, proxy: &FaultProxy| {
        format!(
            "[store.{bucket}]\nendpoint = {:?}\nkeys = {keys:?}\n",
            proxy.url()
        )
    };
    fs::write(
        scratch.path("host.toml"),
        store("states", state) + &store("photos", data),
    )
    .unwrap();
}

/// Starts the host with this number, which listens on the addresses for tenants and for metrics.
fn host(scratch: &Scratch, number: usize, [listen, metrics]: [&str; 2]) -> HostProcess {
    let mut command = Command::new(binary());
    let log = scratch.path(&format!("log-{number}"));
    command.stderr(File::options().create(true).append(true).open(log).unwrap());
    let path = |name: &str| scratch.path(name).to_str().unwrap().to_owned();
    let (certificate, key, photos) = (path("ca.pem"), path("key.pem"), path("photos"));
    let config = path("host.toml");
    let (name, local) = (format!("store-{number}"), local(scratch, number));
    let flags = [
        ["--config", &config],
        ["--name", &name],
        ["--state", STATE],
        ["--local", local.to_str().unwrap()],
        ["--listen", listen],
        ["--metrics-listen", metrics],
        ["--tls-certificate", &certificate],
        ["--tls-key", &key],
    ];
    HostProcess::start_as(command, scratch.folder(), &photos, &flags.concat()).unwrap()
}

fn local(scratch: &Scratch, number: usize) -> PathBuf {
    scratch.path(&format!("host-{number}"))
}

/// Prometheus server with the packaged configuration.
struct Prometheus {
    child: Child,
    url: String,
    /// Shipped `for` durations of the alerts in seconds.
    durations: BTreeMap<String, u64>,
}

impl Prometheus {
    fn start(scratch: &Scratch, hosts: &[SocketAddr]) -> Self {
        let shipped = repository().join("runtime/deploy");
        let rules = fs::read_to_string(shipped.join("helm/frostline/files/rules.yaml")).unwrap();
        let (rules, durations) = shorten(&rules);
        fs::write(scratch.path("rules.yaml"), rules).unwrap();
        let config = fs::read_to_string(shipped.join("deb/prometheus.yml")).unwrap();
        let placeholder = r#"["store-1:7435", "store-2:7435"]"#;
        assert!(config.contains(placeholder), "{config}");
        let targets: Vec<String> = hosts.iter().map(SocketAddr::to_string).collect();
        let config = config.replace(placeholder, &json!(targets).to_string());
        let often = "global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 1s}";
        let file = scratch.path("prometheus.yml");
        fs::write(&file, format!("{often}\n{config}")).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", scratch.path("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(scratch.path("prometheus.log")).unwrap())
            .spawn()
            .unwrap();
        let url = format!("http://{address}");
        let prometheus = Self {
            child,
            url,
            durations,
        };
        until("both hosts in Prometheus", || {
            let up = prometheus.get("query?query=up");
            let results = up["data"]["result"].as_array().cloned().unwrap_or_default();
            results.iter().filter(|result| result["value"][1] == "1").count() == hosts.len()
        });
        prometheus
    }

    /// Returns an answer of the API, or null if the server does not answer.
    fn get(&self, path: &str) -> Value {
        let url = format!("{}/api/v1/{path}", self.url);
        let answer = finish(Command::new("curl").args(["--silent", "--max-time", "10", &url])).unwrap();
        serde_json::from_str(&answer.stdout).unwrap_or_default()
    }

    /// Returns the firing alerts with their severities. Repeats the request while a busy machine delays the answer.
    fn firing(&self) -> BTreeMap<String, String> {
        let started = Instant::now();
        let answer = loop {
            let answer = self.get("alerts");
            if answer["data"]["alerts"].is_array() {
                break answer;
            }
            assert!(started.elapsed() < STUCK, "no answer of Prometheus");
        };
        let alerts = answer["data"]["alerts"].as_array().into_iter().flatten();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let label = |alert: &Value, name: &str| alert["labels"][name].as_str().unwrap().to_owned();
        firing
            .map(|alert| (label(alert, "alertname"), label(alert, "severity")))
            .collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Divides the `for` durations of rules by [`SPEEDUP`], and returns the previous ones in seconds by alert.
fn shorten(rules: &str) -> (String, BTreeMap<String, u64>) {
    let (mut text, mut durations, mut alert) = (String::new(), BTreeMap::new(), "");
    for line in rules.lines() {
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            alert = name;
        }
        if let Some((indent, duration)) = line
            .split_once("for: ")
            .filter(|(indent, _)| indent.trim().is_empty())
        {
            let (number, unit) = duration.split_at(duration.len() - 1);
            let unit = match unit {
                "m" => 60,
                "h" => 3600,
                _ => panic!("unknown unit in {line}"),
            };
            let seconds = number.parse::<u64>().unwrap() * unit;
            durations.insert(alert.to_owned(), seconds);
            text += &format!("{indent}for: {}s\n", seconds / SPEEDUP);
        } else {
            text += &format!("{line}\n");
        }
    }
    (text, durations)
}

/// Alerts since a fault was injected.
struct AlertWatch {
    started: Instant,
    /// Alerts that were firing before the fault.
    before: BTreeSet<String>,
    /// Alerts that started to fire since.
    fired: BTreeMap<String, FiredAlert>,
    /// Alerts that are firing now.
    firing: BTreeSet<String>,
}

impl AlertWatch {
    fn new(prometheus: &Prometheus) -> Self {
        let before: BTreeSet<String> = prometheus.firing().into_keys().collect();
        Self {
            started: Instant::now(),
            firing: before.clone(),
            before,
            fired: BTreeMap::new(),
        }
    }

    /// Polls the alerts until `holds`.
    fn until(&mut self, prometheus: &Prometheus, fault: &str, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        loop {
            let firing = prometheus.firing();
            self.firing = firing.keys().cloned().collect();
            // An alert that ended may fire again.
            self.before.retain(|name| self.firing.contains(name));
            for (name, severity) in firing {
                if !self.before.contains(&name) {
                    let seconds = self.started.elapsed().as_secs_f64();
                    let alert = FiredAlert {
                        name,
                        severity,
                        seconds,
                    };
                    self.fired.entry(alert.name.clone()).or_insert(alert);
                }
            }
            if holds(self) {
                return;
            }
            assert!(
                began.elapsed() < STUCK,
                "{fault}: fired {:?}, firing {:?}",
                self.fired,
                self.firing
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

mod needs_prometheus {
    use super::*;

    mod needs_curl {
        use super::*;

        mod long {
            use super::*;

            #[test]
            fn an_operators_day_with_faults_loses_nothing() {
                let mut day = Day::start();
                day.start_work();
                let fail = |day: &mut Day| day.state.set(StoreFault::Fails);
                let heal = |day: &mut Day| day.state.set(StoreFault::None);
                day.experience("the state fails", &["FrostlineStateStale"], fail, heal);
                let expected = &["FrostlineStateStale", "FrostlineRevocationPending"];
                day.experience(
                    "the state hangs, and a token is revoked",
                    expected,
                    revoke_without_state,
                    heal,
                );
                let lose = |day: &mut Day| day.data.set(StoreFault::Unreachable);
                let find = |day: &mut Day| day.data.set(StoreFault::None);
                day.experience(
                    "a data root is unreachable",
                    &["FrostlineDataRootFails"],
                    lose,
                    find,
                );
                let mut unaccounted = 0;
                let kill = |day: &mut Day| unaccounted = kill(day);
                day.experience("a host is killed", &["FrostlineHostDown"], kill, |day| {
                    day.restart(1)
                });
                // The record of the killed process exists for ten minutes.
                let drain = |day: &mut Day| drop(day.admin(0, &["drain", "store-1", "--yes"]));
                let undrain = |day: &mut Day| drop(day.admin(0, &["undrain", "store-1"]));
                day.experience("a host is drained", &[], drain, undrain);
                let expected = &["FrostlineInvalidTokens"];
                day.experience("invalid tokens", expected, send_invalid_tokens, |_| ());
                check_nothing_lost(&mut day, unaccounted);
                day.report(&day.prometheus.durations);
            }
        }
    }
}

/// Revokes a token while the state hangs. The host that is asked refuses the token immediately.
fn revoke_without_state(day: &mut Day) {
    let shown = day.admin(0, &["tenant", "show", "acme"]);
    let id = shown[0]["tokens"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(day.guests(0, "acme-unused-token").code, Some(0));
    day.state.set(StoreFault::Hangs);
    let revoked = day.try_admin(0, &["tenant", "revoke", "acme", &id]);
    assert!(revoked.stdout.contains("pending"), "{revoked:?}");
    assert_eq!(day.guests(0, "acme-unused-token").code, Some(1));
}

/// Kills a host right after it wrote usage. Returns the number of rows that may be missing in the usage.
fn kill(day: &mut Day) -> u64 {
    // Training and validation photos of three classes. Epochs in progress are not in the number of received rows.
    let epoch = 3 * (8 + 2);
    day.admin(1, &["usage"]);
    let received = |day: &Day| day.jobs.iter().map(RunningJob::rows).sum::<u64>();
    let before = received(day);
    day.hosts[1].kill().unwrap();
    received(day) - before + 2 * epoch * day.jobs.len() as u64
}

fn send_invalid_tokens(day: &mut Day) {
    let url = format!("{}/v1/guests?number=[1-150]", day.hosts[0].url());
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--header",
        "Authorization: Bearer invalid",
        "--cacert",
    ]);
    let refused = finish(curl.arg(day.scratch.path("ca.pem")).arg(url)).unwrap();
    assert!(refused.stdout.contains("token"), "{refused:?}");
}

/// Checks the rows of the jobs, the usage and the audit.
fn check_nothing_lost(day: &mut Day, unaccounted: u64) {
    let ended = end_all(std::mem::take(&mut day.jobs));
    for number in 0..2 {
        day.admin(number, &["usage"]);
    }
    let usage = day.admin(0, &["usage", "--from", "2023-01-01"]);
    let images: u64 = usage.iter().filter_map(|row| row["images"].as_u64()).sum();
    let received = rows(&ended);
    println!("{received} rows received, {images} in the usage, {unaccounted} may be missing");
    assert!(images + unaccounted >= received);
    day.admin(1, &["audit"]);
    let audit = day.admin(0, &["audit", "--limit", "100000"]);
    for (what, tenant, count) in [
        ("tenant added", "acme", 1),
        ("tenant added", "beta", 1),
        ("token made", "acme", 1),
        ("token made", "beta", 1),
        ("token revoked", "acme", 1),
        ("host drained", "", 1),
        ("host undrained", "", 1),
    ] {
        let same = |entry: &&Value| entry["what"] == what && entry["tenant"] == tenant;
        assert_eq!(
            audit.iter().filter(same).count(),
            count,
            "{what} {tenant}: {audit:?}"
        );
    }
    // A job uploads its model to both hosts if the second one has not yet read the change.
    for tenant in TENANTS {
        let upload = |entry: &&Value| entry["what"] == "model uploaded" && entry["tenant"] == tenant;
        let count = audit.iter().filter(upload).count();
        assert!((1..=2).contains(&count), "{tenant}: {audit:?}");
    }
    // The revocation reached the state.
    assert_eq!(day.guests(1, "acme-unused-token").code, Some(1));
}
