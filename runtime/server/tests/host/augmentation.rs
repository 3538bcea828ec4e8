//! Augmentation is deterministic across hosts and requests.

use crate::client::{Client, End, Rows, rows};
use crate::fixtures::upload_ref;
use crate::support::TestHost;
use frostline_images::{DecodeLimits, load_augmented};
use frostline_tensor::{
    Augmentation, ColorJitter, PixelSpec, RandAugment, RandomErasing, RandomResizedCrop, View,
};
use frostline_wire::{
    Encoding, ErrorClass, ExtractionRequest, Precision, ProfileRequest, RowFormat, UploadRef, Values,
};
use http::{Method, StatusCode};

const PHOTOS: u32 = 9;

fn view(number: u32) -> View {
    let augmentation = Augmentation {
        random_resized_crop: Some(RandomResizedCrop::default()),
        hflip: 0.5,
        rand_augment: Some(RandAugment::default()),
        color_jitter: Some(ColorJitter {
            brightness: 0.4,
            contrast: 0.4,
            saturation: 0.4,
            hue: 0.1,
        }),
        random_erasing: Some(RandomErasing::default()),
    };
    View {
        augmentation,
        seed: 11,
        number,
    }
}

fn pixels(test: &TestHost, (guest, model): (UploadRef, UploadRef), view: Option<View>) -> ExtractionRequest {
    let mut request = test.request("input", PHOTOS);
    (request.guest, request.model) = (Some(guest), Some(model));
    (request.encoding, request.view) = (Encoding::U8, view);
    request
}

async fn bytes(client: &Client, request: &ExtractionRequest) -> Rows {
    let format = match request.encoding {
        Encoding::U8 => RowFormat::Tensor(Values::U8, vec![3, 8, 8]),
        _ => RowFormat::Tensor(Values::F32, vec![3, 8, 8]),
    };
    let (rows, end) = rows(format, request, client.extract(request).await).await;
    assert_eq!((rows.len(), end), (request.samples.len(), End::Clean));
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn augmentation_is_deterministic_across_hosts_and_requests() {
    let one = TestHost::start().await;
    let other = TestHost::start().await;
    let photos = one.photos(PHOTOS);
    other.photos(PHOTOS);
    let request = pixels(&one, one.upload().await, Some(view(1)));
    let rows = bytes(&one.client, &request).await;
    for (index, photo) in photos.iter().enumerate() {
        let spec = PixelSpec::imagenet(8, 8);
        let limits = DecodeLimits::default();
        let key = format!("{index}.png");
        let at_home = load_augmented(photo, &spec, &limits, Some(&view(1)), &key).unwrap();
        assert_eq!(rows[&(index as u32 * 10)], Ok(at_home), "{key}");
    }
    assert_eq!(bytes(&one.client, &request).await, rows, "asked again");
    let elsewhere = pixels(&other, other.upload().await, Some(view(1)));
    assert_eq!(bytes(&other.client, &elsewhere).await, rows, "on another host");
    // Request the samples individually, in reverse order and with other positions.
    for (index, sample) in request.samples.iter().enumerate().rev() {
        let mut alone = sample.clone();
        alone.position = 7;
        let alone = ExtractionRequest {
            samples: vec![alone],
            ..request.clone()
        };
        assert_eq!(bytes(&one.client, &alone).await[&7], rows[&(index as u32 * 10)]);
    }
    let next = ExtractionRequest {
        view: Some(view(2)),
        ..request.clone()
    };
    let plain = ExtractionRequest {
        view: None,
        ..request.clone()
    };
    let next = bytes(&one.client, &next).await;
    let plain = bytes(&one.client, &plain).await;
    assert!(rows != next && rows != plain && next != plain);
    one.wait_until_idle().await;
}

/// The cut `active` contains the activations of exactly the pixels that the split `input` sends.
#[tokio::test(flavor = "multi_thread")]
async fn guests_load_augmented_pixels() {
    let test = TestHost::start().await;
    test.photos(PHOTOS);
    let pins = test.upload().await;
    let mut request = pixels(&test, pins, Some(view(3)));
    request.encoding = Encoding::F32;
    let input = bytes(&test.client, &request).await;
    request.split = "active".into();
    let active = bytes(&test.client, &request).await;
    for (position, pixels) in &input {
        let pixels = pixels.as_deref().unwrap();
        let active = active[position].as_deref().unwrap();
        for (pixel, active) in pixels.chunks(4).zip(active.chunks(4)) {
            let [pixel, active] = [pixel, active].map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
            assert_eq!(pixel.max(0.0), active);
        }
    }
    request.view = None;
    assert_ne!(bytes(&test.client, &request).await, active);
    test.wait_until_idle().await;
}

/// Invalid requests are refused before any work starts, with a hint.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_augmentation_is_refused() {
    let test = TestHost::start().await;
    test.photos(PHOTOS);
    let (guest, model) = test.upload().await;
    let good = pixels(&test, (guest.clone(), model.clone()), Some(view(1)));
    let refused = async |request: &ExtractionRequest, word: &str| {
        let (status, error) = test.client.extract_refused(request).await;
        assert_eq!(
            (status, error.class),
            (StatusCode::BAD_REQUEST, ErrorClass::Request)
        );
        assert!(error.message.contains(word), "{}", error.message);
    };
    let mut hostile = good.clone();
    let mut bad = view(1);
    bad.augmentation.rand_augment = Some(RandAugment {
        num_ops: u32::MAX,
        magnitude: 9,
    });
    hostile.view = Some(bad);
    refused(&hostile, "num_ops of rand_augment").await;
    let profile = ProfileRequest {
        root: test.root(),
        guest,
        model: model.clone(),
        parameters: String::new(),
        cuts: vec!["active".to_owned()],
        samples: good.samples.clone(),
        view: hostile.view,
        precision: Precision::Full,
        wait_seconds: None,
    };
    let body = serde_json::to_vec(&profile).unwrap();
    let (_, error) = test.client.refused(Method::POST, "/v1/profiles", body).await;
    assert!(error.message.contains("num_ops"), "{}", error.message);
    let none = ExtractionRequest {
        split: "none".into(),
        encoding: Encoding::F32,
        ..good.clone()
    };
    refused(&none, "omit it").await;
    test.wait_until_idle().await;
}

mod needs_guests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_guest_that_decodes_images_itself_cannot_augment() {
        let test = TestHost::start().await;
        test.photos(PHOTOS);
        let (_, model) = test.upload().await;
        let component = std::fs::read(frostline_needs::built_guest("own-pixels")).unwrap();
        let answer = test
            .client
            .send(Method::PUT, "/v1/guests/own", component.clone())
            .await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let guest = upload_ref("own", &component);
        let mut request = test.request("active", PHOTOS);
        (request.guest, request.model) = (Some(guest), Some(model));
        (request.encoding, request.view) = (Encoding::F32, Some(view(1)));
        let (status, error) = test.client.extract_refused(&request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(
            error.message.contains("does not support augmentation"),
            "{}",
            error.message
        );
    }
}
