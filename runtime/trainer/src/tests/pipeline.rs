use crate::event::notices;
use crate::pipeline::{BadSamples, Feed, FeedPlan, Steering};
use crate::{Event, Events, OnBadSample, TrainerError};
use bytes::Bytes;
use frostline_client::{Deadlines, Fetcher, HostClient, Hosts, RowKind, Samples, Source, Trust, Weight};
use frostline_compute::Targets;
use frostline_fake_host::numbered::{self, WIDTH, answer_all, format, values};
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_images::DecodePool;
use frostline_tensor::{OpError, OpErrorCode, PixelSpec, Tensor};
use frostline_wire::{Encoding, ObjectInfo, RowFormat, Split, Terms};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn samples(count: usize) -> Arc<Samples> {
    Arc::new(numbered::samples(count).into_iter().zip((0..3).cycle()).collect())
}

pub(super) struct Setting {
    bad: Arc<BadSamples>,
    pub(super) events: Arc<Mutex<Vec<Event>>>,
    pub(super) feed: Feed,
    pub(super) hosts: Hosts,
}

pub(super) fn source(rows: RowKind) -> Source {
    let (split, shape) = match rows {
        RowKind::Objects(spec) => (Split::None, spec.sample_shape().to_vec()),
        _ => (Split::Cut("features".to_owned()), vec![WIDTH]),
    };
    Source {
        root: "data".to_owned(),
        split,
        encoding: Encoding::F32,
        guest: None,
        model: None,
        parameters: String::new(),
        terms: Terms::default(),
        view: None,
        rows,
        shape,
        tensors: Vec::new(),
        request_samples: 3,
    }
}

pub(super) fn plan(train: usize, epochs: u32) -> FeedPlan {
    FeedPlan {
        epochs,
        seed: 3,
        memory_bytes: 64 << 20,
        ..FeedPlan::new(samples(train), Arc::default(), 8)
    }
}

fn start(
    host: &FakeHost,
    plan: FeedPlan,
    source: Source,
    policy: OnBadSample,
) -> Result<Setting, TrainerError> {
    let deadlines = Deadlines {
        idle: Duration::from_millis(500),
        ..Deadlines::default()
    };
    let client = HostClient::with(&host.url, None, &Trust::default(), deadlines).unwrap();
    start_with(client.into(), plan, source, policy)
}

fn start_with(
    hosts: Hosts,
    plan: FeedPlan,
    source: Source,
    policy: OnBadSample,
) -> Result<Setting, TrainerError> {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let log = Arc::clone(&events);
    let told: Events = Arc::new(move |event| log.lock().unwrap().push(event));
    let hosts = hosts.for_job(notices(&told));
    let bad = Arc::new(BadSamples::new(policy, Arc::clone(&told)));
    let fetcher = Fetcher::new(8, DecodePool::start(2).unwrap());
    let steering = Arc::new(Steering::fixed(source));
    let feed = Feed::start(plan, fetcher, steering, hosts.clone(), Arc::clone(&bad))?;
    Ok(Setting {
        bad,
        events,
        feed,
        hosts,
    })
}

/// Collects all samples from the rows of `batches` batches, in order.
pub(super) async fn take(setting: &mut Setting, batches: usize) -> Result<Vec<(f32, i64)>, TrainerError> {
    let mut taken = Vec::new();
    for _ in 0..batches {
        let batch = setting.feed.next().await?;
        let Some(rows) = &batch.rows else { continue };
        let rows = rows.fetched().unwrap();
        let numbers = rows.as_f32().unwrap().chunks(WIDTH).map(|row| {
            assert_eq!(row, values(&format!("s{}", row[0])));
            row[0]
        });
        let Targets::Classes(classes) = &batch.targets else {
            panic!("{:?}", batch.targets)
        };
        taken.extend(numbers.zip(classes.iter().copied()));
        assert_eq!(rows.rows().unwrap(), classes.len());
    }
    Ok(taken)
}

/// Checks that all samples occur exactly once and with the right label.
pub(super) fn assert_complete(taken: &[(f32, i64)], count: usize) {
    let mut numbers: Vec<i64> = taken.iter().map(|(number, _)| *number as i64).collect();
    assert!(taken.iter().all(|(number, label)| *number as i64 % 3 == *label));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..count as i64).collect::<Vec<_>>());
}

#[tokio::test]
async fn rows_in_any_order_become_batches_in_order() {
    let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let mut first = start(&host, plan(20, 2), source(RowKind::Values), OnBadSample::Fail).unwrap();
    let epochs = [
        take(&mut first, 3).await.unwrap(),
        take(&mut first, 3).await.unwrap(),
    ];
    for epoch in &epochs {
        assert_complete(epoch, 20);
    }
    assert_ne!(epochs[0], epochs[1]);
    assert!(first.hosts.bytes_received() > 2 * 20 * WIDTH as u64 * 4);
    let mut again = start(&host, plan(20, 2), source(RowKind::Values), OnBadSample::Fail).unwrap();
    assert_eq!(take(&mut again, 3).await.unwrap(), epochs[0]);
}

/// Fails `s1` permanently and `s2` in the first two attempts.
fn with_bad_samples(
    asked: Arc<Mutex<HashMap<String, usize>>>,
) -> impl Fn(usize, &http::request::Parts, &[u8]) -> Reply {
    move |_, _, body| {
        let request = extraction(body);
        let mut answer = Answer::new(format());
        for sample in &request.samples {
            let times = {
                let mut asked = asked.lock().unwrap();
                let times = asked.entry(sample.sample.key.clone()).or_default();
                *times += 1;
                *times
            };
            let fail = |code, text: &str| OpError::new(code, format!("{}: {text}", sample.sample.key));
            answer = match (sample.sample.key.as_str(), times) {
                ("s1", _) => answer.failure(sample.position, fail(OpErrorCode::InvalidEncoding, "no JPEG")),
                ("s2", 1 | 2) => answer.failure(sample.position, fail(OpErrorCode::Timeout, "slow")),
                (key, _) => answer.row(sample.position, values(key)),
            };
        }
        answer.finished()
    }
}

#[tokio::test]
async fn a_bad_sample_is_skipped_reported_and_never_asked_again() {
    let asked: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let host = FakeHost::start(with_bad_samples(Arc::clone(&asked))).await;
    let mut setting = start(&host, plan(16, 3), source(RowKind::Values), OnBadSample::Skip).unwrap();
    for _ in 0..3 {
        let taken = take(&mut setting, 2).await.unwrap();
        assert_eq!(taken.len(), 15);
        assert!(taken.iter().all(|(number, _)| *number != 1.0));
    }
    let asked = asked.lock().unwrap().clone();
    assert_eq!((asked["s1"], asked["s2"]), (1, 5));
    assert_eq!(setting.bad.count(), 1);
    let events = setting.events.lock().unwrap();
    let reported: Vec<_> = events
        .iter()
        .filter(|event| matches!(event, Event::BadSample { .. }))
        .collect();
    assert_eq!(
        reported,
        [&Event::BadSample {
            key: "s1".to_owned(),
            message: "no JPEG".to_owned()
        }]
    );
}

#[tokio::test]
async fn a_bad_sample_fails_the_job_by_name() {
    let host = FakeHost::start(with_bad_samples(Arc::default())).await;
    let mut setting = start(&host, plan(3, 1), source(RowKind::Values), OnBadSample::Fail).unwrap();
    let error = take(&mut setting, 1).await.unwrap_err();
    assert!(
        matches!(&error, TrainerError::BadSample { key, .. } if key == "s1"),
        "{error}"
    );
}

#[tokio::test]
async fn the_feed_only_requests_the_batches_ahead() {
    let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let mut setting = start(&host, plan(80, 1), source(RowKind::Values), OnBadSample::Fail).unwrap();
    let batch = setting.feed.next().await.unwrap();
    // A batch in use, a batch ahead, and the next batch with a free slot. Each needs three requests.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!((6..=9).contains(&host.calls()), "{}", host.calls());
    drop(batch);
}

#[tokio::test]
async fn memory_for_two_batches_is_needed_and_enough() {
    let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let needed = source(RowKind::Values).batch_bytes(Weight {
        samples: 8,
        objects: 160,
    });
    let tight = FeedPlan {
        memory_bytes: 2 * needed - 1,
        ..plan(40, 1)
    };
    let refused = start(&host, tight, source(RowKind::Values), OnBadSample::Fail);
    assert!(matches!(refused, Err(TrainerError::Memory { batch: 8, .. })));
    let enough = FeedPlan {
        memory_bytes: 2 * needed + 8192,
        ahead: 4,
        ..plan(40, 1)
    };
    let mut setting = start(&host, enough, source(RowKind::Values), OnBadSample::Fail).unwrap();
    // Two batches with three requests each. A third batch would already be requested by now.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(host.calls() <= 6, "{}", host.calls());
    assert_complete(&take(&mut setting, 5).await.unwrap(), 40);
}

/// An uncompressed 8-bit RGB PNG with a single color.
pub(super) fn png(color: [u8; 3], side: u32) -> Bytes {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer
        .write_image_data(&color.repeat((side * side) as usize))
        .unwrap();
    writer.finish().unwrap();
    bytes.into()
}

#[tokio::test]
async fn raw_objects_are_decoded_here_and_broken_ones_are_bad() {
    let spec = PixelSpec {
        resize: 2,
        crop_height: 1,
        crop_width: 1,
        mean: [0.0; 3],
        std: [1.0; 3],
        ..PixelSpec::imagenet(1, 1)
    };
    let host = FakeHost::start(|_, _, body| {
        let request = extraction(body);
        assert_eq!(request.split, Split::None);
        let objects = request
            .samples
            .iter()
            .fold(Answer::new(RowFormat::Object), |answer, sample| {
                let object = match sample.sample.key.as_str() {
                    "s1" => Bytes::from_static(b"no image"),
                    _ => png([51, 102, 255], 4),
                };
                answer.object(sample.position, object)
            });
        objects.finished()
    })
    .await;
    let big: Samples = samples(3)
        .iter()
        .map(|(sample, label)| (ObjectInfo { size: 200, ..sample }, label))
        .collect();
    let plan = FeedPlan {
        epochs: 1,
        memory_bytes: 64 << 20,
        ..FeedPlan::new(Arc::new(big), Arc::default(), 8)
    };
    let mut setting = start(&host, plan, source(RowKind::Objects(spec)), OnBadSample::Skip).unwrap();
    let batch = setting.feed.next().await.unwrap();
    let expected = Tensor::f32([2, 3, 1, 1], vec![0.2, 0.4, 1.0, 0.2, 0.4, 1.0]).unwrap();
    assert_eq!(batch.rows.as_ref().unwrap().fetched(), Some(&expected));
    assert_eq!(setting.bad.count(), 1);
}

mod long {
    use super::*;

    #[tokio::test]
    async fn a_batch_larger_than_the_memory_limit_is_fetched_alone() {
        let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
        let light = Weight {
            samples: 0,
            objects: 0,
        };
        // Smaller than a batch, although the plan does not know.
        let plan = FeedPlan {
            memory_bytes: 128 << 10,
            largest_batches: [light; 2],
            batch: 5000,
            ..plan(10_000, 1)
        };
        let source = Source {
            request_samples: 2500,
            ..source(RowKind::Values)
        };
        let whole = Weight {
            samples: 5000,
            objects: 0,
        };
        assert!(source.batch_bytes(whole) > plan.memory_bytes);
        let mut setting = start(&host, plan, source, OnBadSample::Fail).unwrap();
        assert_complete(&take(&mut setting, 2).await.unwrap(), 10_000);
    }
}
