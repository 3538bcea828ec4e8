//! Rows that are corrupted in transit.

use super::fetching::{assert_complete, format, retry, source, start_with, take, values};
use crate::{ClientError, HostClient, Notice, RowKind};
use bytes::Bytes;
use frostline_fake_host::numbered::answer_all;
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_wire::ExtractionRequest;

/// Builds an answer for all rows, with a flipped bit in the first one.
fn altered(request: &ExtractionRequest) -> Reply {
    let rows = request.samples.iter();
    let answer = rows.fold(Answer::new(format()), |answer, sample| {
        answer.row(sample.position, values(&sample.sample.key))
    });
    let Reply::Whole(pieces) = answer.finished() else {
        panic!("the answer must be whole");
    };
    let mut bytes = pieces.concat();
    let first = values(&request.samples[0].sample.key);
    let first: Vec<u8> = first.iter().flat_map(|value| value.to_le_bytes()).collect();
    let place = bytes
        .windows(first.len())
        .position(|window| window == first)
        .unwrap();
    bytes[place + 9] ^= 4;
    Reply::Whole(vec![Bytes::from(bytes)])
}

#[tokio::test]
async fn a_changed_row_is_asked_for_again_and_no_other() {
    let host = FakeHost::start(|number, _, body| {
        let request = extraction(body);
        match number {
            0 => altered(&request),
            _ => {
                assert_eq!(request.samples.len(), 1);
                answer_all(&request)
            }
        }
    })
    .await;
    let client = HostClient::new(&host.url, None).unwrap();
    let setting = start_with(client.into(), source(RowKind::Values), retry());
    assert_complete(&take(&setting, 3).await.unwrap(), 3);
    assert_eq!(host.calls(), 2);
    let notices = setting.notices.lock().unwrap();
    let [Notice::Retry { lost: 1, reason, .. }] = notices.as_slice() else {
        panic!("{notices:?}");
    };
    assert!(reason.contains("1 of the rows from the host at"), "{reason}");
}

#[tokio::test]
async fn a_host_whose_rows_are_always_changed_is_named_with_the_sample() {
    let host = FakeHost::start(|_, _, body| altered(&extraction(body))).await;
    let client = HostClient::new(&host.url, None).unwrap();
    let setting = start_with(client.into(), source(RowKind::Values), retry());
    let error = take(&setting, 3).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { lost: 1, .. }), "{error}");
    let said = error.to_string();
    for words in [host.url.as_str(), "'s0'", "checksums do not match"] {
        assert!(said.contains(words), "{said}");
    }
}
