//! Jobs without a profile from the hosts, and jobs with refused uploads.

use super::computing_host::Storage;
use super::hosts::run_with;
use super::whole_job::{Ran, heavy, job, photos};
use crate::replan::{AwaitedProfile, Watch};
use crate::{
    Event, Events, FetchLimits, Job, Modules, OnBadSample, Policy, ProfileState, TrainerError, plan,
};
use bytes::Bytes;
use frostline_client::{Deadlines, HostClient, Hosts, Notice, Trust};
use frostline_fake_host::{FakeHost, Reply};
use frostline_plan::{
    CostModel, Iteration, LayersLocation, Planner, Slowdown, Survey, TrainerProfile, UsableSplit, Workload,
};
use frostline_primitives::Backoff;
use frostline_wire::{
    CutProfile, Encoded, Encoding, ErrorClass, Linear, Link, Load, Platform, Precision, Profile,
    ProfileRequest, Split, UploadRef,
};
use http::Method;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

fn load(queued: u64) -> Reply {
    Reply::json(&Load {
        queued,
        running: 0,
        lanes: 1,
        samples_per_second: 0.0,
        ..Load::default()
    })
}

fn hosts(of: &[&FakeHost]) -> Hosts {
    hosts_within(of, Deadlines::default())
}

fn hosts_within(of: &[&FakeHost], deadlines: Deadlines) -> Hosts {
    let client = |host: &&FakeHost| HostClient::with(&host.url, None, &Trust::default(), deadlines).unwrap();
    Hosts::new(of.iter().map(client).collect()).unwrap()
}

/// Starts a host that answers like `storage` except for profiles.
pub(super) async fn start(storage: Storage, profile: impl Fn() -> Reply + Send + Sync + 'static) -> FakeHost {
    FakeHost::start(move |_, parts, body| match parts.uri.path() {
        "/v1/profiles" => profile(),
        "/v1/load" => load(0),
        _ => storage.answer(parts, body),
    })
    .await
}

fn probed() -> Storage {
    Storage {
        probed: true,
        ..photos()
    }
}

/// The first reported split and the reason.
fn first(ran: &Ran) -> (Split, String) {
    let split = |event: &Event| match event {
        Event::Split { split, reason, .. } => Some((split.clone(), reason.clone())),
        _ => None,
    };
    ran.events.iter().find_map(split).unwrap()
}

fn profile_events(events: &[Event]) -> Vec<ProfileState> {
    let state = |event: &Event| match event {
        Event::Profile { state, .. } => Some(*state),
        _ => None,
    };
    events.iter().filter_map(state).collect()
}

/// A job with an open split and a link on which layers are worth sending.
fn open_job(out: &TempDir) -> Job {
    let mut job = job("auto", out.path());
    job.spec.link_bytes_per_second = Some(1e9);
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_host_profile_starts_at_the_split_with_the_fewest_bytes() {
    let silent: fn() -> Reply = || Reply::Stuck(Vec::new());
    let busy: fn() -> Reply = || Reply::Refused(429, ErrorClass::Busy, Some(600));
    let failing: fn() -> Reply = || Reply::Refused(500, ErrorClass::Host, None);
    let unheard_of: fn() -> Reply = || Reply::Refused(400, ErrorClass::Request, None);
    // Short, because one of the hosts never answers. An answer that comes too late is as good as none here.
    let deadlines = Deadlines {
        profile: Duration::from_millis(50),
        ..Deadlines::default()
    };
    for profile in [silent, busy, failing, unheard_of] {
        let host = start(probed(), profile).await;
        let out = TempDir::new().unwrap();
        let ran = run_with(hosts_within(&[&host], deadlines), open_job(&out), |_| {}).await;
        let (split, why) = first(&ran);
        assert!(ran.outcome.is_ok(), "{:?}", ran.outcome);
        assert_eq!(ran.losses().len(), 9);
        // The stored photos are smaller than all cuts before `features`.
        assert_eq!(split, Split::from("features"), "{why}");
        assert!(
            why.contains("fewest bytes") && why.contains("no profile from the hosts"),
            "{why}"
        );
        assert_eq!(profile_events(&ran.events), [ProfileState::Missing]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn planning_fails_without_a_host_profile() {
    let host = start(probed(), || Reply::Refused(500, ErrorClass::Host, None)).await;
    let out = TempDir::new().unwrap();
    let planned = plan(open_job(&out), hosts(&[&host]), Arc::new(|_| ())).await;
    let error = planned.unwrap_err();
    assert!(matches!(error, TrainerError::Unplannable { .. }), "{error}");
    assert!(error.to_string().contains("as scripted"), "{error}");
}

/// Profile of a host with a single cut, at which a sample takes 45 ms.
fn profile() -> Profile {
    let encoded = Encoded {
        bytes_per_sample: 4e3,
        encode_seconds_per_sample: 0.0,
        decode_seconds_per_sample: 0.0,
    };
    let cut = CutProfile {
        name: "freeze".to_owned(),
        compute: Linear {
            fixed: 0.0,
            per_sample: 0.04,
        },
        busy_seconds_per_sample: 0.04,
        bytes_per_sample: 4000,
        encoded: BTreeMap::from([(Encoding::F32.to_string(), encoded)]),
        memory: Linear::default(),
    };
    Profile {
        platform: Platform {
            machine: "test".to_owned(),
            device: "cpu".to_owned(),
            library: "none".to_owned(),
            lanes: 1,
            threads_per_lane: 1,
            decode_threads: 1,
            rows: 16,
        },
        read_seconds_per_sample: 0.0,
        reads_at_once: 8,
        read_busy_seconds_per_sample: 0.0,
        decode_seconds_per_sample: 0.005,
        input: BTreeMap::from([(
            Encoding::U8.to_string(),
            Encoded {
                bytes_per_sample: 150e3,
                ..encoded
            },
        )]),
        cuts: vec![cut],
        measured_in_seconds: 0.0,
        measured_at: 0,
        disturbed: false,
    }
}

/// A planner for a link of 2000 Mbit/s. It assumes that the host is like the trainer, which is 100 times as
/// fast as [`profile`].
fn guessing_planner() -> Planner {
    let Profile {
        platform,
        decode_seconds_per_sample,
        input,
        mut cuts,
        ..
    } = profile();
    for cut in &mut cuts {
        cut.busy_seconds_per_sample /= 100.0;
        cut.compute.per_sample /= 100.0;
    }
    let trainer = TrainerProfile {
        platform,
        decode_seconds_per_sample,
        normalize_seconds_per_sample: 0.0,
        input,
        cuts,
        step_seconds: 0.5,
        batch: 100,
        measured_in_seconds: 0.0,
        measured_at: 0,
    };
    let bytes_per_second = 2.5e8;
    Planner {
        survey: Survey {
            host: trainer.as_host(),
            trainer,
            object_bytes: 110e3,
            hosts: 1,
            neighbors: 0,
            slowdown: Slowdown::default(),
        },
        splits: vec![UsableSplit {
            split: Split::from("freeze"),
            encodings: vec![Encoding::F32],
            bytes_per_sample: 4000,
        }],
        workload: Workload {
            batch: 100,
            iterations: 200,
            epoch_iterations: 200,
            epoch_samples: 20_000.0,
            link_bytes_per_second: bytes_per_second,
            shared_cores: false,
            request_share: 0.3,
            reuse: None,
            cost: CostModel::default(),
        },
        link: Link {
            bytes_per_second,
            round_trip: Duration::ZERO,
            connections: 1,
            connection_bytes_per_second: bytes_per_second,
        },
        policy: Policy::Auto,
        flow_limits: FetchLimits {
            request_samples: 32,
            window: 16,
            ahead: 3,
        },
        grant: None,
        layers: LayersLocation::default(),
        modules: Modules::default(),
    }
}

/// A profile for other cuts. It shows that the host was measured.
pub(super) fn some_profile() -> Reply {
    Reply::json(&profile())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_of_several_without_a_profile_changes_little() {
    let well = start(probed(), some_profile).await;
    let refusing = start(probed(), || Reply::Refused(422, ErrorClass::Guest, None)).await;
    let out = TempDir::new().unwrap();
    let ran = run_with(hosts(&[&well, &refusing]), open_job(&out), |_| {}).await;
    assert!(ran.outcome.is_ok(), "{:?}", ran.outcome);
    let down = |event: &Event| matches!(event, Event::Notice(Notice::Host { .. }));
    assert!(!ran.events.iter().any(down), "{:?}", ran.events);
    assert_eq!(profile_events(&ran.events), [ProfileState::Missing]);
    assert!(!first(&ran).1.contains("fewest bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_cannot_measure_itself_trains_all_the_same() {
    let mut storage = probed();
    let keys: Vec<String> = storage.objects.keys().cloned().collect();
    let train: Vec<&String> = keys.iter().filter(|key| key.starts_with("train/")).collect();
    // Break all samples that the trainer would measure.
    for index in 0..8 {
        let key = train[index * train.len() / 8].clone();
        storage.objects.insert(key, Bytes::from_static(b"no image"));
    }
    let host = start(storage, some_profile).await;
    let out = TempDir::new().unwrap();
    let mut job = open_job(&out);
    job.spec.on_bad_sample = OnBadSample::Skip;
    let ran = run_with(hosts(&[&host]), job, |_| {}).await;
    ran.outcome.as_ref().unwrap();
    assert_eq!(ran.skipped(), 8);
    let (_, why) = first(&ran);
    assert!(why.contains("cannot measure this machine"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_layers_run_on_the_trainer_if_the_split_is_open() {
    type Refusing = fn(&Method, &str) -> bool;
    let upload: Refusing = |method, path| *method == Method::PUT && path.contains("/models/");
    let description: Refusing = |_, path| path == "/v1/descriptions";
    let profile: Refusing = |_, path| path == "/v1/profiles";
    for refuses in [upload, description, profile] {
        let storage = probed();
        let host = FakeHost::start(move |_, parts, body| match parts.uri.path() {
            path if refuses(&parts.method, path) => Reply::Refused(422, ErrorClass::Guest, None),
            "/v1/load" => load(0),
            "/v1/profiles" => some_profile(),
            _ => storage.answer(parts, body),
        })
        .await;
        let out = TempDir::new().unwrap();
        let ran = run_with(hosts(&[&host]), open_job(&out), |_| {}).await;
        assert_eq!(ran.outcome.as_ref().unwrap().split, Split::None);
        let (split, why) = first(&ran);
        assert_eq!(split, Split::None);
        assert!(
            why.contains("the frozen layers run on this machine") && why.contains("as scripted"),
            "{why}"
        );
        // A fixed split is refused.
        let mut wanted = open_job(&out);
        wanted.spec.split = Policy::Fixed(Split::from("features"));
        let ran = run_with(hosts(&[&host]), wanted, |_| {}).await;
        let needs_no_profile = refuses(&Method::POST, "/v1/profiles");
        assert_eq!(ran.outcome.is_ok(), needs_no_profile, "{:?}", ran.outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_continues_if_hosts_refuse_even_the_first_layers() {
    let mut storage = probed();
    for photo in storage.objects.values_mut() {
        // Make objects larger than pixels, so that `input` is best on a slow link.
        *photo = [photo.as_ref(), &[0; 2000]].concat().into();
    }
    let host = FakeHost::start(move |_, parts, body| match parts.uri.path() {
        path if parts.method == Method::PUT && path.contains("/models/") => {
            Reply::Refused(422, ErrorClass::Guest, None)
        }
        _ => storage.answer(parts, body),
    })
    .await;
    let out = TempDir::new().unwrap();
    let mut job = job("auto", out.path());
    job.model = heavy();
    job.spec.link_bytes_per_second = Some(1e3);
    let ran = run_with(hosts(&[&host]), job, |_| {}).await;
    assert!(ran.outcome.is_ok(), "{:?}", ran.outcome);
    let (split, why) = first(&ran);
    assert_eq!(split, Split::None);
    assert!(why.contains("the frozen layers run on this machine"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stock_guest_needs_no_description_request() {
    let storage = probed();
    let host = FakeHost::start(move |_, parts, body| match parts.uri.path() {
        "/v1/descriptions" => Reply::Refused(500, ErrorClass::Host, None),
        _ => storage.answer(parts, body),
    })
    .await;
    let out = TempDir::new().unwrap();
    let ran = run_with(hosts(&[&host]), job("features", out.path()), |_| {}).await;
    assert!(ran.outcome.is_ok(), "{:?}", ran.outcome);
}

fn request() -> ProfileRequest {
    let pin = UploadRef {
        name: "a".to_owned(),
        sha256: "b".to_owned(),
    };
    ProfileRequest {
        root: "data".to_owned(),
        guest: pin.clone(),
        model: pin,
        parameters: String::new(),
        cuts: vec!["freeze".to_owned()],
        samples: Vec::new(),
        view: None,
        precision: Precision::Full,
        wait_seconds: None,
    }
}

/// Requests a profile with short pauses.
fn awaited(host: &FakeHost) -> AwaitedProfile {
    let pauses = Backoff::seeded(Duration::from_millis(1), Duration::from_millis(5), 1);
    let told: Events = Arc::new(|_| ());
    let hosts = HostClient::new(&host.url, None).unwrap().into();
    AwaitedProfile::ask(pauses, &hosts, request(), &told)
}

#[tokio::test]
async fn a_missing_profile_is_requested_again_on_idle_hosts_and_changes_the_plan() {
    let loads = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&loads);
    let asks = Arc::clone(&asked);
    let host = FakeHost::start(move |_, parts, _| match parts.uri.path() {
        // The first two polls find a queue, later polls do not.
        "/v1/load" => load(u64::from(seen.fetch_add(1, Ordering::SeqCst) < 2)),
        _ => {
            assert!(
                seen.load(Ordering::SeqCst) > 2,
                "requested a profile while others waited"
            );
            match asks.fetch_add(1, Ordering::SeqCst) {
                0 => Reply::Refused(500, ErrorClass::Host, None),
                _ => some_profile(),
            }
        }
    })
    .await;
    let planner = guessing_planner();
    let start = planner.candidate(&Split::from("freeze")).unwrap();
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let log = Arc::clone(&events);
    let told: Events = Arc::new(move |event| log.lock().unwrap().push(event));
    let mut watch = Watch::new(planner, start, &told);
    (watch.awaited, watch.guessed) = (Some(awaited(&host)), true);
    assert!(watch.planner().is_none(), "an assumption is not a plan");
    // This iteration shows nothing about the host, but the profile arrives eventually.
    let freeze = Split::from("freeze");
    let mut step = 0;
    while profile_events(&events.lock().unwrap()).is_empty() {
        let nothing = Iteration {
            waited: 0.0,
            computed: 1.0,
            samples: 100,
            bytes: 0,
            on_host: None,
        };
        let _ = watch.observe(&nothing, 200);
        tokio::task::yield_now().await;
        step += 1;
    }
    assert!(step > 0 && asked.load(Ordering::SeqCst) == 2);
    assert_eq!(profile_events(&events.lock().unwrap()), [ProfileState::Measured]);
    let measured = watch.planner().unwrap();
    let believed = measured.candidate(&freeze).unwrap().stages.host_seconds;
    assert!(
        (believed - 4.5).abs() < 1e-9,
        "not the profile's value: {believed}"
    );
}
