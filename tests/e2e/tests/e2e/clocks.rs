//! Three hosts with shared state on a store, one of which has a wrong clock.

use crate::harness::{STUCK, Scratch, binary, frostline};
use crate::operating::get;
use crate::running_job::{RunningJob, end_all, rows};
use crate::s3::{Moto, with_credentials};
use crate::state::until;
use frostline_e2e::{FakeClock, HostProcess, finish};
use frostline_objects::Store;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

const DAY: i64 = 24 * 3600;

/// Number of the host with a wrong clock.
const MOVED: usize = 2;

/// State of the hosts, in the bucket of [`Moto`].
const STATE: &str = "s3://photos/state";

/// Earlier days with usage and audit entries.
const EARLIER: [&str; 3] = ["2023-05-01", "2024-02-29", "2025-01-17"];

/// Tolerated difference of clocks in seconds.
const TOLERANCE: i64 = 60;

/// Hosts with shared state. The last one has a clock that the test moves.
struct Fleet {
    hosts: Vec<HostProcess>,
    clock: FakeClock,
    moto: Moto,
    scratch: Scratch,
}

impl Fleet {
    /// Starts `count` hosts with correct clocks.
    fn start(count: usize) -> Self {
        let scratch = Scratch::with_photos(8, 2);
        let mut fleet = Self {
            hosts: Vec::new(),
            clock: FakeClock::new(scratch.path("clock")).unwrap(),
            moto: Moto::start(&scratch),
            scratch,
        };
        for number in 0..count {
            let mut command = Command::new(binary());
            if number == MOVED {
                fleet.clock.apply(&mut command);
            }
            let host = fleet.host(number, command).unwrap();
            fleet.hosts.push(host);
        }
        fleet
    }

    /// Starts the host with this number, which writes its log to a file.
    fn host(&self, number: usize, mut command: Command) -> std::io::Result<HostProcess> {
        with_credentials(&mut command, &self.moto.url);
        command.stderr(File::create(self.log(number)).unwrap());
        let (photos, local) = (self.scratch.path("photos"), self.local(number));
        let flags = ["--state", STATE, "--local", local.to_str().unwrap()];
        HostProcess::start_as(command, self.scratch.folder(), photos.to_str().unwrap(), &flags)
    }

    fn local(&self, number: usize) -> PathBuf {
        self.scratch.path(&format!("host-{number}"))
    }

    fn log(&self, number: usize) -> PathBuf {
        self.scratch.path(&format!("log-{number}"))
    }

    /// Runs an admin command on a host and returns the printed JSON objects.
    fn admin(&self, number: usize, arguments: &[&str]) -> Vec<Value> {
        let socket = self.local(number).join("admin.sock");
        let mut command = frostline();
        command.args(["admin", "--json", "--socket"]).arg(socket);
        let run = finish(command.args(arguments)).unwrap();
        assert_eq!(run.code, Some(0), "{arguments:?}: {run:?}");
        run.objects().expect(&run.stdout)
    }

    /// Adds a tenant and returns the path of the token file. The token expires in an hour.
    fn add(&self, name: &str) -> PathBuf {
        let photos = self.scratch.path("photos");
        let photos = photos.to_str().unwrap();
        let added = self.admin(0, &["tenant", "add", name, "--data", photos, "--expires", "1h"]);
        let file = self.scratch.path(&format!("{name}-token"));
        fs::write(&file, added[0]["token"].as_str().unwrap()).unwrap();
        let accepted = |host: &HostProcess| self.guests(host, &file).code == Some(0);
        until("the tenant", || self.hosts.iter().all(accepted));
        file
    }

    fn guests(&self, host: &HostProcess, token: &Path) -> frostline_e2e::Finished {
        let mut command = frostline();
        command.args(["guest", "list", "--json", "--host", &host.url(), "--token-file"]);
        finish(command.arg(token)).unwrap()
    }

    /// Returns the command for a job on the hosts that extracts all photos in every epoch.
    fn train(&self, name: &str, hosts: &[HostProcess], token: &Path, epochs: &str) -> Command {
        let out = self.scratch.path(&format!("{name}.onnx"));
        let mut flags: Vec<String> = hosts
            .iter()
            .flat_map(|host| ["--host".to_owned(), host.url()])
            .collect();
        for (flag, value) in [
            ("--out", out.to_str().unwrap()),
            ("--token-file", token.to_str().unwrap()),
            ("--split", "features"),
            ("--epochs", epochs),
        ] {
            flags.extend([flag.to_owned(), value.to_owned()]);
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.scratch.train_command(&flags)
    }

    /// Returns how many seconds the clock of a host is ahead, according to its metrics.
    fn skew(&self, number: usize) -> Option<i64> {
        let metrics = get(self.hosts[number].address(), "/metrics");
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix("frostline_clock_skew_seconds "));
        line?.trim().parse().ok()
    }

    /// Returns the number of the latest usage that a host wrote to the state.
    fn usage_number(&self, run: &str) -> u64 {
        let number = |key: &str| {
            let name = key.strip_prefix("usage/")?.split_once('/')?.1;
            let (name, number) = name.strip_suffix(".json")?.rsplit_once('-')?;
            name.starts_with(run).then(|| number.parse().unwrap())
        };
        let keys = State::open(&self.moto).keys("usage");
        keys.iter().filter_map(|key| number(key)).max().unwrap_or(0)
    }

    /// Moves the clock of one host, and returns once the host has noticed it and written usage and audit entries
    /// meanwhile.
    fn move_clock(&self, seconds: i64, run: &str, jobs: &[RunningJob]) {
        self.clock.shift(seconds).unwrap();
        let near = |skew: i64| (skew - seconds).abs() <= TOLERANCE;
        until("the skew", || self.skew(MOVED).is_some_and(near));
        // The day of the quota appears in the audit.
        self.admin(
            MOVED,
            &[
                "quota",
                "set",
                "acme",
                &format!("uploads={}", seconds.unsigned_abs()),
            ],
        );
        let usage = self.usage_number(run);
        let steps: Vec<usize> = jobs.iter().map(RunningJob::steps).collect();
        let started = Instant::now();
        let continues = || {
            jobs.iter()
                .zip(&steps)
                .all(|(job, before)| job.steps() > before + 1)
        };
        while self.usage_number(run) <= usage || !continues() {
            assert!(
                started.elapsed() < STUCK,
                "no usage was written, or a job does not continue"
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// The objects of the shared state.
struct State {
    store: Store,
    runtime: tokio::runtime::Runtime,
}

impl State {
    fn open(moto: &Moto) -> Self {
        let mut command = Command::new("unused");
        with_credentials(&mut command, &moto.url);
        let text = |text: &std::ffi::OsStr| text.to_str().unwrap().to_owned();
        let variables = command
            .get_envs()
            .map(|(name, value)| (text(name), text(value.unwrap())));
        Self {
            store: Store::open_with(STATE, variables).unwrap(),
            runtime: tokio::runtime::Runtime::new().unwrap(),
        }
    }

    /// Lists the keys in a folder.
    fn keys(&self, folder: &str) -> Vec<String> {
        let (mut keys, mut after) = (Vec::new(), Some(folder.to_owned()));
        while let Some(from) = after {
            let page = self.runtime.block_on(self.store.list(Some(&from), 1000)).unwrap();
            let listed = page.objects.into_iter().map(|object| object.sample.key);
            keys.extend(listed.filter(|key| key.starts_with(&format!("{folder}/"))));
            after = page.next;
        }
        keys
    }

    /// Copies all entries in a folder with days to earlier days.
    fn copy_to_earlier_days(&self, folder: &str) {
        let entries = loop {
            if let Some(entries) = self.read_all(folder) {
                break entries;
            }
        };
        for (key, bytes) in entries {
            let name = key.rsplit('/').next().unwrap();
            for day in EARLIER {
                let copy = format!("{folder}/{day}/{name}");
                self.runtime
                    .block_on(self.store.put(&copy, bytes.clone().into()))
                    .unwrap();
            }
        }
    }

    /// Reads all entries in a folder, or returns `None` if a host has replaced one of them in the meantime.
    fn read_all(&self, folder: &str) -> Option<Vec<(String, Vec<u8>)>> {
        let mut entries = Vec::new();
        for key in self.keys(folder) {
            match self.runtime.block_on(self.store.read(&key)) {
                Err(error) if error.is_not_found() => return None,
                bytes => entries.push((key, bytes.unwrap().to_vec())),
            }
        }
        Some(entries)
    }
}

/// Records that must not change because of a wrong clock.
struct Records {
    usage: Vec<Value>,
    audit: Vec<Value>,
    tenants: Vec<Value>,
    jobs: Vec<Value>,
}

impl Records {
    /// Reads the records from a host with a correct clock. Every host writes its pending ones first.
    fn read(fleet: &Fleet) -> Self {
        let usage = ["usage", "--from", "2023-01-01", "--to", "2030-12-31"];
        for number in 0..fleet.hosts.len() {
            fleet.admin(number, &usage);
            fleet.admin(number, &["audit"]);
        }
        Self {
            usage: fleet.admin(0, &usage),
            audit: fleet.admin(0, &["audit", "--limit", "100000"]),
            tenants: fleet.admin(0, &["tenant", "list"]),
            jobs: fleet.admin(0, &["top", "--jobs", "--once"]),
        }
    }

    fn days(&self) -> BTreeSet<&str> {
        self.usage
            .iter()
            .map(|row| row["day"].as_str().unwrap())
            .collect()
    }

    /// Checks that these records of a later time contain all those of an earlier one. Only `beta` worked meanwhile.
    fn assert_nothing_lost_since(&self, before: &Self) {
        for row in &before.usage {
            let same = |other: &&Value| other["day"] == row["day"] && other["tenant"] == row["tenant"];
            let now = self
                .usage
                .iter()
                .find(same)
                .unwrap_or_else(|| panic!("lost {row}"));
            if row["tenant"] == "acme" || EARLIER.iter().any(|day| row["day"] == *day) {
                assert_eq!(in_microseconds(now), in_microseconds(row));
            }
            assert!(now["images"].as_u64() >= row["images"].as_u64(), "{row} {now}");
        }
        // A test that runs at midnight has two days.
        let new_days: Vec<&str> = self.days().difference(&before.days()).copied().collect();
        assert!(new_days.len() <= 1, "{new_days:?}");
        for entry in &before.audit {
            let count = |entries: &[Value]| entries.iter().filter(|other| *other == entry).count();
            assert_eq!(count(&self.audit), count(&before.audit), "{entry}");
        }
        assert_eq!(self.tenants, before.tenants);
        for job in &before.jobs {
            let now = self.jobs.iter().find(|other| other["id"] == job["id"]);
            let now = now.unwrap_or_else(|| panic!("lost {job}"));
            if job["tenant"] == "acme" {
                assert_eq!(now, job);
            }
            assert_eq!(now["started_at"], job["started_at"]);
            assert!(now["images"].as_u64() >= job["images"].as_u64(), "{job} {now}");
        }
    }
}

/// Returns a row of the usage with whole microseconds. The rounding of sums depends on the order of the hosts.
fn in_microseconds(row: &Value) -> Value {
    let mut row = row.clone();
    for seconds in ["device_seconds", "guest_cpu_seconds"] {
        let microseconds = row[seconds].as_f64().unwrap() * 1e6;
        row[seconds] = (microseconds.round() as u64).into();
    }
    row
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs() as i64
}

mod needs_libfaketime {
    use super::*;

    #[test]
    fn a_host_with_a_wrong_clock_does_not_join_others() {
        let fleet = Fleet::start(2);
        let mut command = Command::new(binary());
        fleet.clock.shift(730 * DAY).unwrap();
        fleet.clock.apply(&mut command);
        assert!(fleet.host(MOVED, command).is_err());
        let log = fs::read_to_string(fleet.log(MOVED)).unwrap();
        assert!(log.contains("clock"), "{log}");
    }

    mod long {
        use super::*;

        #[test]
        fn a_clock_that_moves_loses_no_usage_audit_token_or_job() {
            let fleet = Fleet::start(3);
            let (acme, beta) = (fleet.add("acme"), fleet.add("beta"));
            let finished = finish(&mut fleet.train("finished", &fleet.hosts, &acme, "2")).unwrap();
            assert_eq!(finished.code, Some(0), "{finished:?}");
            fleet.admin(
                0,
                &["tenant", "rotate", "beta", "--others", "30m", "--expires", "2h"],
            );
            let jobs: Vec<RunningJob> = fleet
                .hosts
                .chunks(1)
                .enumerate()
                .map(|(number, host)| {
                    let name = format!("job-{number}");
                    let train = fleet.train(&name, host, &beta, "1000000");
                    RunningJob::start(train, fleet.scratch.path(&format!("{name}-log")))
                })
                .collect();
            until("steps of all jobs", || jobs.iter().all(|job| job.steps() > 2));
            Records::read(&fleet);
            let state = State::open(&fleet.moto);
            for folder in ["usage", "audit/admins", "audit/tenants"] {
                state.copy_to_earlier_days(folder);
            }
            let before = Records::read(&fleet);
            let started = now();
            let run = fleet.admin(MOVED, &["top", "--once"])[0]["run"]
                .as_str()
                .unwrap()
                .to_owned();
            for seconds in [600, 3 * DAY, 730 * DAY, -600, -3 * DAY, -730 * DAY, 0] {
                fleet.move_clock(seconds, &run, &jobs);
                let listed = fleet.guests(&fleet.hosts[MOVED], &beta);
                assert_eq!(listed.code, Some(0), "{seconds}: {listed:?}");
            }
            let ended = end_all(jobs);
            // A failure would be retried and reported.
            let failed: Vec<&Value> = ended.iter().filter(|event| event["event"] == "retry").collect();
            assert!(failed.is_empty(), "{failed:?}");
            let rows = rows(&ended);
            let after = Records::read(&fleet);
            after.assert_nothing_lost_since(&before);
            let of_beta = after.usage.iter().filter(|row| row["tenant"] == "beta");
            let of_beta = of_beta.filter(|row| !EARLIER.iter().any(|day| row["day"] == *day));
            let images: u64 = of_beta.map(|row| row["images"].as_u64().unwrap()).sum();
            assert!(images >= rows, "{images} of {rows}");
            println!("{rows} rows, {images} images");
            check_new_audit(&before, &after, started);
            let log = fs::read_to_string(fleet.log(MOVED)).unwrap();
            assert!(log.contains("the clock of this host differs"), "{log}");
        }
    }
}

/// Checks that the audit has the times of the other clocks.
fn check_new_audit(before: &Records, after: &Records, started: i64) {
    let new = after.audit.iter().filter(|entry| !before.audit.contains(entry));
    let quotas: Vec<&Value> = new.filter(|entry| entry["tenant"] == "acme").collect();
    assert_eq!(quotas.len(), 7, "{quotas:?}");
    for entry in quotas {
        let at = entry["at"].as_i64().unwrap();
        assert!((started - TOLERANCE..=now() + TOLERANCE).contains(&at), "{entry}");
    }
}
