//! Hosts that share a state in a folder or on a store.

use super::*;
use crate::config::{HostConfig, StateLocation};
use crate::refusal::Refusal;
use crate::{Host, StartError};
use frostline_batching::Charge;
use frostline_fake_store::S3;
use frostline_state::{ClockCheck, LocalClock, SharedState, UploadLimits};
use frostline_wire::{Activity, HostInfo, JobInfo, MemoryActivity, StageSeconds, TenantActivity};

const DAY: i64 = 86_400;

/// Shifts of a clock by minutes, days and years.
const SHIFTS: [i64; 8] = [-700 * DAY, -100 * DAY, -DAY, -300, 300, DAY, 100 * DAY, 500 * DAY];

struct TestFleet {
    fleet: Fleet,
    clock: Arc<Clock>,
    local: LocalClock,
}

impl TestFleet {
    async fn open(store: Arc<Store>, run: &str) -> Self {
        let local = LocalClock::default();
        let clock = Arc::new(Clock::new(local.clone(), Arc::clone(&store)));
        let limits = UploadLimits {
            names: 1000,
            versions: 8,
        };
        let opening = SharedState::<()>::open(Arc::clone(&store), limits, |_| Charge::default());
        let state = opening.await.unwrap();
        let cancellations = Cancellations::new(state.jobs);
        let fleet = Fleet::new(
            store,
            Arc::clone(&clock),
            run.to_owned(),
            cancellations,
            state.drains,
        );
        Self { fleet, clock, local }
    }

    async fn write(&self) {
        let record = record(&self.fleet.run, Vec::new());
        self.fleet.write(record).await.unwrap();
    }

    async fn list(&self) -> Vec<String> {
        self.fleet.list().await.unwrap();
        self.fleet.read(|_| true).await.unwrap();
        self.fleet.other_names(false).await
    }
}

fn folder() -> (tempfile::TempDir, Arc<Store>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    (folder, Arc::new(store))
}

fn record(name: &str, jobs: Vec<JobInfo>) -> HostRecord {
    let tenant = TenantActivity {
        name: "beta".to_owned(),
        running: 2,
        queued: 0,
        extractions: 0,
        samples: 0,
        answer_bytes: 0,
        cpu_seconds: 0.0,
        device_seconds: 0.0,
        memory_bytes: 7,
        lanes: 3,
        waited_seconds: 0.0,
    };
    let memory = MemoryActivity {
        budget: 100,
        held: 7,
        waiting: 0,
        kinds: BTreeMap::new(),
    };
    HostRecord {
        host: HostInfo {
            name: name.to_owned(),
            run: name.to_owned(),
            address: String::new(),
            version: String::new(),
            silent_seconds: 0,
            clock_skew_seconds: None,
            activity: Activity {
                stopping: false,
                places: 8,
                running: 2,
                queued: 0,
                lanes: 4,
                lane_queue: 0,
                memory_bytes: None,
                memory: Some(memory),
                device_memory: None,
                failing_roots: Vec::new(),
                tenants: vec![tenant],
            },
        },
        jobs,
    }
}

fn job(id: &str, active_at: u64) -> JobInfo {
    JobInfo {
        id: id.to_owned(),
        tenant: "acme".to_owned(),
        split: format!("split {active_at}"),
        model: None,
        started_at: active_at,
        active_at,
        queued: 1,
        running: 2,
        extractions: 3,
        images: 4,
        cancelled: false,
        hosts: Vec::new(),
        seconds: StageSeconds {
            lane: 1.5,
            ..StageSeconds::default()
        },
    }
}

#[tokio::test]
async fn a_clock_is_compared_with_the_store_and_other_hosts() {
    let s3 = S3::start().await;
    let one = TestFleet::open(s3.store(), "one").await;
    one.write().await;
    let two = TestFleet::open(s3.store(), "two").await;
    for shift in SHIFTS {
        two.local.shift(shift);
        assert!(
            matches!(two.clock.check(), ClockCheck::Differs(_)),
            "the store alone"
        );
        assert!(!two.clock.may_expire());
    }
    two.local.shift(0);
    assert_eq!(two.list().await, ["one"]);
    assert!(two.clock.may_expire());
    let now = two.clock.now();
    for shift in SHIFTS {
        two.local.shift(shift);
        assert!(matches!(two.clock.check(), ClockCheck::Outvoted(_)), "{shift}");
        // The store's clock only has seconds, and a loaded machine delays answers.
        for time in [two.clock.now(), two.clock.earliest(), two.clock.latest()] {
            assert!(time.abs_diff(now) < 60, "{shift}: {time}");
        }
        assert!(
            one.clock.may_expire(),
            "the clock of another host does not matter"
        );
    }
}

#[tokio::test]
async fn hosts_on_a_folder_compare_their_clocks() {
    let (_folder, store) = folder();
    let one = TestFleet::open(Arc::clone(&store), "one").await;
    let two = TestFleet::open(store, "two").await;
    one.write().await;
    assert_eq!(two.list().await, ["one"]);
    assert_eq!(two.clock.check(), ClockCheck::Alone, "the record may be old");
    for shift in SHIFTS {
        one.local.shift(shift);
        one.write().await;
        assert_eq!(two.list().await, ["one"]);
        let skew = two.clock.check().skew().unwrap();
        assert!((skew + shift).abs() < 60, "{skew}");
        assert!(!two.clock.may_expire() && !two.clock.is_confirmed());
    }
    one.fleet.leave().await;
    assert!(two.list().await.is_empty());
    assert_eq!(two.clock.check(), ClockCheck::Alone);
}

#[tokio::test]
async fn a_host_with_an_outvoted_clock_does_not_start() {
    let s3 = S3::start().await;
    let folder = tempfile::tempdir().unwrap();
    let other = TestFleet::open(s3.store(), "other").await;
    let mut config = HostConfig::from_toml(&format!(
        "listen = '127.0.0.1:0'\nstate = 's3://b/state'\nlocal = '{}'\n[store.b]\nendpoint = '{}'\nunsigned = true",
        folder.path().join("local").display(),
        s3.endpoint()
    ))
    .unwrap();
    assert!(matches!(config.state, StateLocation::Store(_)));
    config.clock.shift(500 * DAY);
    config.memory_budget = 4 << 30;
    other.write().await;
    let refused = Host::start(config).await.map(drop).unwrap_err();
    assert!(
        matches!(&refused, StartError::Clock { ahead } if (ahead + 500 * DAY).abs() < 60),
        "{refused}"
    );
}

#[tokio::test]
async fn cancellations_are_kept_until_a_second_clock_confirms_the_time() {
    let (_folder, store) = folder();
    let one = TestFleet::open(Arc::clone(&store), "one").await;
    let jobs = &one.fleet.cancellations;
    jobs.cancel("acme", "4bf9", one.clock.now()).await.unwrap();
    for shift in SHIFTS {
        one.local.shift(shift);
        jobs.expire(&one.clock).await.unwrap();
        assert!(matches!(
            jobs.check("acme", "4bf9"),
            Err(Refusal::Cancelled { .. })
        ));
        assert!(jobs.check("other", "4bf9").is_ok());
    }
    // Another host whose clock also shows the next day.
    let two = TestFleet::open(store, "two").await;
    assert!(one.list().await.is_empty());
    for (shift, kept) in [(0, true), (DAY + 600, false)] {
        one.local.shift(shift);
        two.local.shift(shift);
        two.write().await;
        one.list().await;
        assert!(one.clock.is_confirmed());
        jobs.expire(&one.clock).await.unwrap();
        assert_eq!(jobs.check("acme", "4bf9").is_err(), kept);
    }
}

#[tokio::test]
async fn orders_to_hosts_that_no_longer_run_are_removed() {
    let (_folder, store) = folder();
    let one = TestFleet::open(Arc::clone(&store), "one").await;
    let two = TestFleet::open(store, "two").await;
    two.write().await;
    for (name, run) in [("a", "one"), ("b", "two"), ("c", "gone")] {
        let runs = BTreeSet::from([run.to_owned()]);
        one.fleet.order(name, runs, true).await.unwrap();
    }
    one.fleet.clean().await.unwrap();
    let names: Vec<String> = one
        .fleet
        .drains
        .list("")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn jobs_and_holders_of_all_hosts_are_added() {
    let (_folder, store) = folder();
    let one = TestFleet::open(store, "one").await;
    let cancellations = &one.fleet.cancellations;
    cancellations.cancel("acme", "4b", 5).await.unwrap();
    cancellations.cancel("acme", "before", 5).await.unwrap();
    let records = [
        record("one", vec![job("4a", 20), job("4b", 10)]),
        record("two", vec![job("4a", 30)]),
        record("three", Vec::new()),
    ];
    let jobs = merged(&records, cancellations);
    let ids: Vec<(&str, bool)> = jobs.iter().map(|job| (job.id.as_str(), job.cancelled)).collect();
    assert_eq!(ids, [("4a", false), ("4b", true), ("before", true)]);
    assert!(matches!(find(jobs.clone(), "4"), Err(Refusal::Request { .. })));
    assert!(matches!(find(jobs.clone(), "5"), Err(Refusal::NotFound { .. })));
    let job = find(jobs, "4a").unwrap();
    assert_eq!(
        (job.started_at, job.active_at, job.split.as_str()),
        (20, 30, "split 30")
    );
    assert_eq!(
        (job.queued, job.running, job.extractions, job.images),
        (2, 4, 6, 8)
    );
    assert_eq!((job.seconds.lane, job.hosts.len()), (3.0, 2));
    let detail = detail(job, &records);
    assert_eq!((detail.lanes, detail.places, detail.memory_budget), (8, 16, 200));
    for (holders, held) in [
        (&detail.lane_holders, 6),
        (&detail.memory_holders, 14),
        (&detail.place_holders, 4),
    ] {
        assert_eq!(*holders, [("beta".to_owned(), held)]);
    }
}
