//! Guests on a host: versions of the objects they read, and limits on their memory.

use crate::client::{Client, End, rows};
use crate::fixtures::upload_ref;
use crate::support::TestHost;
use frostline_wire::{ExtractionRequest, GuestLog, RowFormat, UploadRef, Values};
use http::{Method, StatusCode};

/// Uploads a guest built from source.
async fn push(client: &Client, name: &str, component: Vec<u8>) -> UploadRef {
    let path = format!("/v1/guests/{name}");
    let answer = client.send(Method::PUT, &path, component.clone()).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    upload_ref(name, &component)
}

mod needs_guests {
    use super::*;
    use crate::metrics::{metrics, value};
    use frostline_needs::built_guest;
    use frostline_wire::{ObjectPage, RequestedSample};

    fn component(name: &str) -> Vec<u8> {
        std::fs::read(built_guest(name)).unwrap()
    }

    /// Returns a request for the output of the network, computed by `guest`.
    async fn request(test: &TestHost, guest: &str, samples: u32) -> ExtractionRequest {
        let (_, model) = test.upload().await;
        let mut request = test.request("classes", samples);
        request.guest = Some(push(&test.client, guest, component(guest)).await);
        request.model = Some(model);
        request
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_guest_that_reads_objects_itself_gets_the_listed_version_only() {
        let test = TestHost::start().await;
        let picture = |shade: u8| [b"P6 8 8 255\n".as_slice(), &[shade; 192]].concat();
        test.write("0.ppm", &picture(10));
        test.write("1.ppm", &picture(20));
        let (status, listed): (_, ObjectPage) = test
            .client
            .get(&format!("/v1/objects?root={}", test.root()))
            .await;
        assert_eq!((status, listed.objects.len()), (StatusCode::OK, 2));
        let mut request = request(&test, "own-pixels", 0).await;
        request.samples = (0..)
            .zip(listed.objects)
            .map(|(position, object)| RequestedSample {
                position,
                sample: object.sample,
            })
            .collect();
        assert!(request.samples.iter().all(|sample| sample.sample.etag.is_some()));

        // The size differs, because the version of a file consists of its size and time.
        test.write("1.ppm", &[picture(30), vec![0]].concat());
        let answer = test.client.extract(&request).await;
        let (rows, end) = rows(RowFormat::Tensor(Values::F32, vec![4]), &request, answer).await;
        assert_eq!((end, rows.len()), (End::Clean, 2));
        assert!(rows[&0].is_ok(), "{:?}", rows[&0]);
        let error = rows[&1].as_ref().unwrap_err();
        assert!(
            error.message.contains("1.ppm") && error.message.contains("was replaced since it was listed"),
            "{error}"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_guest_that_runs_out_of_memory_gets_fewer_samples_per_call() {
        const SAMPLES: u32 = 100;
        let test = TestHost::with(|settings| {
            settings.guests.memory_bytes = 8 << 20;
            settings.extractions.grant = 64;
            settings.metrics_listen = Some("127.0.0.1:0".to_owned());
        })
        .await;
        // The guest does not read the objects.
        let mut request = request(&test, "memory-per-sample", SAMPLES).await;
        request.parameters = "1".to_owned();
        let answer = test.client.extract(&request).await;
        let (rows, end) = rows(RowFormat::Tensor(Values::F32, vec![4]), &request, answer).await;
        assert_eq!((end, rows.len()), (End::Clean, SAMPLES as usize));
        assert!(rows.values().all(Result::is_ok));
        let text = metrics(&crate::metrics::operator(&test)).await;
        // Without measurements, a grant has 16 samples, of which 7 fit.
        assert!(value(&text, "frostline_calls_halved_total") >= 2.0, "{text}");
        let (_, log): (_, GuestLog) = test.client.get("/v1/guests/memory-per-sample/log").await;
        assert!(
            log.lines
                .iter()
                .any(|line| line.text.contains("a call with 16 samples is repeated with 8")),
            "{log:?}"
        );

        request.parameters = "9".to_owned();
        let (_, error) = test.client.extract_refused(&request).await;
        assert!(
            error.message.contains("guest memory limit exceeded")
                && error
                    .message
                    .contains("guests.memory_bytes in the host's configuration"),
            "{}",
            error.message
        );
    }
}
