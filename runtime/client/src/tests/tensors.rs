//! Rows with several tensors.

use super::fetching::{WIDTH, assert_complete, retry, samples, source, start_with, take, values};
use crate::{ClientError, HostClient, RowKind, Source};
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_tensor::DType;
use frostline_wire::{Encoding, ExtractionRequest, RowFormat, TensorInfo, Values};

fn tensor(name: &str, dtype: DType, values: usize) -> TensorInfo {
    TensorInfo {
        name: name.to_owned(),
        dtype,
        shape: vec![values],
    }
}

fn tensors() -> Vec<TensorInfo> {
    vec![tensor("x", DType::F32, 3), tensor("twice", DType::I64, WIDTH - 3)]
}

/// Returns a source of rows with two tensors.
fn divided_source(encoding: Encoding) -> Source {
    Source {
        encoding,
        tensors: tensors(),
        ..source(RowKind::Values)
    }
}

fn divided(values: Values, tensors: &[TensorInfo]) -> RowFormat {
    let format = values.rows_of(vec![WIDTH], tensors);
    assert!(format.is_divided());
    format
}

/// Answers all samples in `format`.
fn answer(request: &ExtractionRequest, format: RowFormat) -> Reply {
    let rows = request.samples.iter();
    let answer = rows.fold(Answer::new(format), |answer, sample| {
        answer.row(sample.position, values(&sample.sample.key))
    });
    answer.finished()
}

#[tokio::test]
async fn separate_tensors_are_joined_into_rows() {
    for encoding in [Encoding::F32, Encoding::F16] {
        let host = FakeHost::start(move |_, _, body| {
            answer(&extraction(body), divided(encoding.values, &tensors()))
        })
        .await;
        let client = HostClient::new(&host.url, None).unwrap();
        let setting = start_with(client.into(), divided_source(encoding), retry());
        assert_complete(&take(&setting, 20).await.unwrap(), 20);
    }
}

#[tokio::test]
async fn other_tensors_than_the_requested_ones_are_refused() {
    let [x, twice] = tensors().try_into().unwrap();
    let mut renamed = twice.clone();
    renamed.name = "thrice".to_owned();
    let others = [
        vec![twice.clone(), x.clone()],
        vec![x.clone(), renamed],
        vec![x.clone(), tensor("twice", DType::F32, 1)],
        vec![x.clone(), tensor("twice", DType::U8, 1)],
        vec![tensor("x", DType::F32, 2), tensor("twice", DType::I64, 2)],
        vec![
            tensor("x", DType::F32, 2),
            tensor("y", DType::F32, 1),
            twice.clone(),
        ],
    ];
    for other in others {
        let sent = other.clone();
        let host =
            FakeHost::start(move |_, _, body| answer(&extraction(body), divided(Values::F16, &sent))).await;
        let client = HostClient::new(&host.url, None).unwrap();
        let setting = start_with(client.into(), divided_source(Encoding::F16), retry());
        let fetch = setting
            .fetcher
            .fetch(&setting.hosts, setting.source.clone(), samples(2).into());
        let error = fetch.await.map(|_| ()).unwrap_err();
        let is_invalid =
            matches!(&error, ClientError::Protocol { .. }) || error.to_string().contains("column");
        assert!(is_invalid, "{other:?}: {error}");
    }
}
