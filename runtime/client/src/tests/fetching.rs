use crate::hosts::RecheckWaits;
use crate::retry::RetryPolicy;
use crate::{
    ClientError, Deadlines, Fetched, Fetcher, HostClient, Hosts, Notice, Notices, RowKind, Source, Trust,
};
use bytes::Bytes;
pub(crate) use frostline_fake_host::numbered::{WIDTH, answer_all, format, samples, values};
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_images::DecodePool;
use frostline_tensor::{OpError, OpErrorCode};
use frostline_wire::{Encoding, ErrorClass, Split, Terms};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct Setting {
    pub(crate) notices: Arc<Mutex<Vec<Notice>>>,
    pub(crate) hosts: Hosts,
    pub(crate) fetcher: Fetcher,
    pub(crate) source: Arc<Source>,
}

pub(crate) fn source(rows: RowKind) -> Source {
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

fn start(host: &FakeHost) -> Setting {
    let deadlines = Deadlines {
        idle: Duration::from_millis(500),
        ..Deadlines::default()
    };
    let client = HostClient::with(&host.url, None, &Trust::default(), deadlines).unwrap();
    start_with(client.into(), source(RowKind::Values), retry())
}

/// Gives up after three attempts with short waits.
pub(crate) fn retry() -> RetryPolicy {
    RetryPolicy {
        attempts: 3,
        first_wait: Duration::from_millis(1),
        ..RetryPolicy::default()
    }
}

/// Creates a listener that records all notices.
pub(crate) fn log() -> (Arc<Mutex<Vec<Notice>>>, Notices) {
    let notices: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let log = Arc::clone(&notices);
    (notices, Arc::new(move |notice| log.lock().unwrap().push(notice)))
}

pub(crate) fn start_with(hosts: Hosts, source: Source, retry: RetryPolicy) -> Setting {
    let (notices, told) = log();
    let waits = RecheckWaits {
        first: Duration::from_millis(20),
        longest: Duration::from_millis(200),
    };
    Setting {
        notices,
        hosts: hosts.for_job_with(told, waits),
        fetcher: Fetcher::with(8, retry, DecodePool::start(2).unwrap()),
        source: source.into(),
    }
}

/// Fetches `s0`, `s1`, ... in batches of eight while keeping two batches in flight. Returns the numbers in
/// order of arrival.
pub(crate) async fn take(setting: &Setting, count: usize) -> Result<Vec<usize>, ClientError> {
    let Setting {
        hosts,
        fetcher,
        source,
        ..
    } = setting;
    let all = samples(count);
    let batches = all
        .chunks(8)
        .map(|batch| fetcher.fetch(hosts, Arc::clone(source), batch.into()));
    let fetched: Vec<Fetched> = stream::iter(batches).buffered(2).try_collect().await?;
    let rows = fetched
        .iter()
        .flat_map(|batch| batch.rows.as_f32().unwrap().chunks(WIDTH));
    let number = |row: &[f32]| {
        assert_eq!(row, values(&format!("s{}", row[0])));
        row[0] as usize
    };
    Ok(rows.map(number).collect())
}

/// Checks that `taken` contains all samples in order.
pub(crate) fn assert_complete(taken: &[usize], count: usize) {
    assert_eq!(taken, (0..count).collect::<Vec<_>>());
}

#[tokio::test]
async fn rows_in_any_order_become_a_batch_in_order() {
    let host = FakeHost::start(|_, _, body| answer_all(&extraction(body))).await;
    let setting = start(&host);
    assert_complete(&take(&setting, 20).await.unwrap(), 20);
    assert!(setting.hosts.bytes_received() > 20 * WIDTH as u64 * 4);
}

#[tokio::test]
async fn only_lost_positions_are_asked_again() {
    let asked: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let log = Arc::clone(&asked);
    let host = FakeHost::start(move |number, _, body| {
        let request = extraction(body);
        for sample in &request.samples {
            *log.lock().unwrap().entry(sample.sample.key.clone()).or_default() += 1;
        }
        let first = &request.samples[0];
        let one = || {
            Answer::new(format())
                .row(first.position, values(&first.sample.key))
                .unfinished()
        };
        match number {
            0 => Reply::Cut(one()),
            1 => Reply::Whole(one()),
            2 => Reply::Stuck(one()),
            3 => Reply::Refused(429, ErrorClass::Busy, Some(0)),
            4 => {
                let mut corrupt = one();
                corrupt.push(Bytes::from_static(b"these are no Arrow bytes"));
                Reply::Whole(corrupt)
            }
            _ => answer_all(&request),
        }
    })
    .await;
    let setting = start(&host);
    assert_complete(&take(&setting, 15).await.unwrap(), 15);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 15);
    // The refusal delivered no rows. The other four failed answers each delivered a row that must not be
    // requested again.
    let once = asked.values().filter(|times| **times == 1).count();
    assert!(once >= 4, "{asked:?}");
    let retries = setting
        .notices
        .lock()
        .unwrap()
        .iter()
        .filter(|e| matches!(e, Notice::Retry { .. }))
        .count();
    assert_eq!(retries, 5);
}

#[tokio::test]
async fn what_the_host_caused_is_asked_again_however_often_and_makes_no_sample_bad() {
    let host = FakeHost::start(|number, _, body| {
        let request = extraction(body);
        if number >= 8 {
            return answer_all(&request);
        }
        fail_all(
            body,
            &OpError::from_host(OpErrorCode::TooLarge, "no memory for a batch"),
        )
    })
    .await;
    let setting = start(&host);
    assert_complete(&take(&setting, 2).await.unwrap(), 2);
    assert_eq!(
        host.calls(),
        10,
        "failures of the host do not count for a sample, and the first success is that of a single one"
    );
}

#[tokio::test]
async fn an_outage_of_a_store_costs_one_error_for_each_attempt() {
    let requested: Arc<Mutex<Vec<usize>>> = Arc::default();
    let log = Arc::clone(&requested);
    let host = FakeHost::start(move |number, _, body| {
        let request = extraction(body);
        log.lock().unwrap().push(request.samples.len());
        if number >= 6 {
            return answer_all(&request);
        }
        fail_all(
            body,
            &OpError::from_host(OpErrorCode::Timeout, "the store did not answer"),
        )
    })
    .await;
    let setting = start(&host);
    assert_complete(&take(&setting, 3).await.unwrap(), 3);
    assert_eq!(*requested.lock().unwrap(), [3, 1, 1, 1, 1, 1, 1, 2]);
}

#[tokio::test]
async fn a_host_that_never_has_room_is_not_waited_for_for_ever() {
    let host = FakeHost::start(|_, _, body| {
        let request = extraction(body);
        let lacking = OpError::from_host(OpErrorCode::Timeout, "all lanes are busy");
        let rows = request
            .samples
            .iter()
            .fold(Answer::new(format()), |rows, sample| {
                rows.failure(sample.position, lacking.clone())
            });
        rows.finished()
    })
    .await;
    let policy = RetryPolicy {
        max_busy_wait: Duration::from_millis(20),
        ..retry()
    };
    let client = HostClient::new(&host.url, None).unwrap();
    let setting = start_with(client.into(), source(RowKind::Values), policy);
    let error = take(&setting, 2).await.unwrap_err();
    assert!(matches!(error, ClientError::RowsUnavailable { .. }), "{error}");
    assert!(error.to_string().contains("all lanes are busy"), "{error}");
}

/// Answers that all samples of a request failed with `error`.
fn fail_all(body: &[u8], error: &OpError) -> Reply {
    let failed = |rows: Answer, position| rows.failure(position, error.clone());
    let positions = extraction(body).samples.into_iter().map(|sample| sample.position);
    positions.fold(Answer::new(format()), failed).finished()
}

/// Answers every sample of a request with a refusal by the store.
fn refused_by_store(body: &[u8]) -> Reply {
    let expired = OpError::from_host(OpErrorCode::Security, "the store refuses access (ExpiredToken)");
    fail_all(body, &expired)
}

#[tokio::test]
async fn a_host_that_is_not_let_at_the_data_for_a_while_costs_nothing() {
    let host = FakeHost::start(|number, _, body| match number {
        0..5 => refused_by_store(body),
        _ => answer_all(&extraction(body)),
    })
    .await;
    assert_complete(&take(&start(&host), 2).await.unwrap(), 2);
    assert!(host.calls() > 5);
}

#[tokio::test]
async fn a_host_that_is_not_let_at_the_data_for_good_ends_the_fetch_and_makes_no_sample_bad() {
    let host = FakeHost::start(|_, _, body| refused_by_store(body)).await;
    let policy = RetryPolicy {
        max_busy_wait: Duration::from_millis(20),
        ..retry()
    };
    let client = HostClient::new(&host.url, None).unwrap();
    let setting = start_with(client.into(), source(RowKind::Values), policy);
    let error = take(&setting, 2).await.unwrap_err();
    assert!(matches!(error, ClientError::DataAccessDenied { .. }), "{error}");
    assert!(error.to_string().contains("ExpiredToken"), "{error}");
}

#[tokio::test]
async fn samples_that_never_come_end_the_fetch_with_their_names() {
    let host = FakeHost::start(|_, _, _| Reply::Cut(Vec::new())).await;
    let setting = start(&host);
    let error = take(&setting, 2).await.unwrap_err();
    let ClientError::Lost {
        lost: 2, attempts: 3, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(error.to_string().contains(&host.url), "{error}");
    assert_eq!(host.calls(), 3);
}

#[tokio::test]
async fn a_refusal_that_cannot_change_ends_the_fetch_at_once() {
    let host = FakeHost::start(|_, _, _| Reply::Refused(422, ErrorClass::Guest, None)).await;
    let setting = start(&host);
    let error = take(&setting, 2).await.unwrap_err();
    assert!(error.to_string().contains("as scripted"), "{error}");
    assert_eq!(host.calls(), 1);
}
