use bytes::Bytes;
use frostline_engine::{Session, SessionOptions};
use frostline_fake_host::{Answer, FakeHost, Reply, extraction};
use frostline_graph::Model;
use frostline_images::{DecodeLimits, load_augmented, normalize};
use frostline_profile::cut_tensors;
use frostline_tensor::{Data, OpError, PixelSpec, Tensor};
use frostline_wire::{
    Activation, Description, DescriptionRequest, ExtractionRequest, GuestInfo, ModelInfo, ObjectInfo,
    ObjectPage, Pixels, RowFormat, SampleRef, ServedCut, Split, Values, object_digest,
};
use http::Method;
use http::request::Parts;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// State and settings of a test host.
#[derive(Default)]
pub(super) struct Storage {
    pub(super) objects: BTreeMap<String, Bytes>,
    pub(super) uploads: Mutex<BTreeMap<String, Bytes>>,
    /// Cuts served by the guest. If empty, the guest serves all cuts faithfully.
    pub(super) serves: Vec<ServedCut>,
    /// True if the guest makes its own input.
    pub(super) own_pixels: bool,
    /// True if the link can be probed.
    pub(super) probed: bool,
    /// Version of all objects. Objects without a version cannot be compared.
    pub(super) etag: Option<String>,
    /// Time of the last change of all objects, as for files.
    pub(super) changed: Option<u64>,
    /// Keys of hashed objects, in order.
    pub(super) hashed: Mutex<Vec<String>>,
    /// Key of an object that was replaced after the listing.
    pub(super) replaced: Mutex<Option<String>>,
    /// Splits and keys of extracted samples, in order.
    pub(super) extracted: Mutex<Vec<(Split, String)>>,
}

impl Storage {
    /// Starts a host that decodes and computes like a real one. It sends samples in separate messages and in
    /// reverse order.
    pub(super) async fn start(self) -> (FakeHost, Arc<Self>) {
        let storage = Arc::new(self);
        let script = Arc::clone(&storage);
        (
            FakeHost::start(move |_, parts, body| script.answer(parts, body)).await,
            storage,
        )
    }

    /// Returns the keys extracted since the last call. Omits the pixels that a job at a cut requests to compare
    /// its activations.
    pub(super) fn extracted(&self) -> Vec<String> {
        let mut extracted = std::mem::take(&mut *self.extracted.lock().unwrap());
        if extracted.iter().any(|(split, _)| matches!(split, Split::Cut(_))) {
            extracted.retain(|(split, _)| *split != Split::Input);
        }
        extracted.into_iter().map(|(_, key)| key).collect()
    }

    /// Names of all uploads.
    pub(super) fn uploaded(&self) -> Vec<String> {
        self.uploads.lock().unwrap().keys().cloned().collect()
    }

    pub(super) fn answer(&self, parts: &Parts, body: &[u8]) -> Reply {
        match (parts.method.clone(), parts.uri.path()) {
            (Method::GET, "/v1/objects") => self.listing(),
            (Method::POST, "/v1/descriptions") => self.describe(serde_json::from_slice(body).unwrap()),
            (Method::POST, "/v1/extractions") => self.extract(&extraction(body)),
            (Method::GET, "/v1/probe") if self.probed => {
                let bytes = parts.uri.query().unwrap().strip_prefix("bytes=").unwrap();
                Reply::Whole(vec![Bytes::from(vec![0; bytes.parse().unwrap()])])
            }
            (Method::PUT, path) => {
                self.uploads
                    .lock()
                    .unwrap()
                    .insert(path.to_owned(), Bytes::copy_from_slice(body));
                Reply::json(&())
            }
            (_, path) => self.upload(path),
        }
    }

    fn listing(&self) -> Reply {
        let objects = self.objects.iter().map(|(key, bytes)| ObjectInfo {
            sample: SampleRef {
                key: key.clone(),
                etag: self.etag.clone(),
            },
            size: bytes.len() as u64,
            label: None,
            changed: self.changed,
        });
        Reply::json(&ObjectPage {
            objects: objects.collect(),
            next: None,
            ..ObjectPage::default()
        })
    }

    fn upload(&self, path: &str) -> Reply {
        let uploads = self.uploads.lock().unwrap();
        let Some(bytes) = uploads.get(path) else {
            return Reply::Refused(404, frostline_wire::ErrorClass::NotFound, None);
        };
        let sha256 = hex::encode(Sha256::digest(bytes));
        let size = bytes.len() as u64;
        let name = path.rsplit('/').next().unwrap().to_owned();
        if path.contains("/guests/") {
            return Reply::json(&GuestInfo {
                name,
                sha256,
                bytes: size,
                uploaded_at: 0,
                disabled: false,
            });
        }
        let input = String::new();
        let input_shape = Vec::new();
        let cuts = Vec::new();
        Reply::json(&ModelInfo {
            name,
            sha256,
            bytes: size,
            uploaded_at: 0,
            input,
            input_shape,
            joined_inputs: Vec::new(),
            cuts,
            shared: false,
        })
    }

    fn model(&self, name: &str) -> Model {
        let bytes = self.uploads.lock().unwrap()[&format!("/v1/models/{name}")].clone();
        Model::from_bytes(bytes).unwrap()
    }

    fn describe(&self, request: DescriptionRequest) -> Reply {
        let cuts = self.model(&request.model.name).network().unwrap().cuts;
        let faithful = cuts.into_iter().map(|cut| ServedCut {
            name: cut.name,
            activation: Activation::Faithful,
        });
        Reply::json(&Description {
            name: "test guest".to_owned(),
            version: "1".to_owned(),
            pixels: match self.own_pixels {
                true => Pixels::Own,
                false => Pixels::Spec(serde_json::from_str(&request.parameters).unwrap()),
            },
            media_types: Vec::new(),
            max_samples: None,
            cuts: if self.serves.is_empty() {
                faithful.collect()
            } else {
                self.serves.clone()
            },
        })
    }

    fn hash(&self, request: &ExtractionRequest) -> Reply {
        let mut answer = Answer::new(RowFormat::Object);
        for sample in &request.samples {
            let key = &sample.sample.key;
            self.hashed.lock().unwrap().push(key.clone());
            let digest = object_digest(&self.objects[key]).to_le_bytes();
            answer = answer.object(sample.position, Bytes::copy_from_slice(&digest));
        }
        answer.finished()
    }

    fn extract(&self, request: &ExtractionRequest) -> Reply {
        if request.digests {
            return self.hash(request);
        }
        let spec: Option<PixelSpec> = serde_json::from_str(&request.parameters).ok();
        let shape = || spec.unwrap().sample_shape().to_vec();
        let mut stage = None;
        let format = match (&request.split, request.encoding) {
            (Split::None, _) => RowFormat::Object,
            (Split::Input, encoding) => encoding.values.rows(shape()),
            (Split::Cut(cut), encoding) => {
                let model = self.model(&request.model.as_ref().unwrap().name);
                let network = model.network().unwrap();
                let part = model.slice(None, Some(cut)).unwrap().to_bytes().unwrap();
                let session = Session::open(&part, &SessionOptions::default()).unwrap();
                stage = Some((session, network.input.name.clone()));
                let cut = network.cut(cut).unwrap();
                let tensors = cut_tensors(cut);
                encoding.values.rows_of(cut.shape.dims().to_vec(), &tensors)
            }
        };
        let mut answer = Answer::compressed(format.clone(), request.encoding.compression);
        for sample in request.samples.iter().rev() {
            let key = &sample.sample.key;
            self.extracted
                .lock()
                .unwrap()
                .push((request.split.clone(), key.clone()));
            if self.replaced.lock().unwrap().as_ref() == Some(key) {
                answer = answer.failure(sample.position, OpError::invalid("the object was replaced"));
                continue;
            }
            let bytes = self.objects[key].clone();
            let crop =
                |spec| load_augmented(&bytes, spec, &DecodeLimits::default(), request.view.as_ref(), key);
            answer = match (&format, spec) {
                (RowFormat::Object, _) => answer.object(sample.position, bytes.clone()),
                (_, Some(spec)) => match crop(&spec) {
                    Ok(crop) => answer.tensor(sample.position, finish(crop, &spec, &format, stage.as_mut())),
                    Err(error) => answer.failure(sample.position, OpError::from(error)),
                },
                (_, None) => panic!("a split with pixels but without parameters"),
            };
        }
        answer.finished()
    }
}

/// Converts a loaded crop to the requested row: the crop itself, network input, or an activation.
fn finish(
    crop: Vec<u8>,
    spec: &PixelSpec,
    format: &RowFormat,
    stage: Option<&mut (Session, String)>,
) -> Tensor {
    let [channels, height, width] = spec.sample_shape();
    let pixels = Tensor::new([1, channels, height, width], Data::U8(crop)).unwrap();
    if matches!(format, RowFormat::Tensor(Values::U8, _)) {
        return pixels;
    }
    let input = normalize(&pixels, spec).unwrap();
    match stage {
        None => input,
        Some((session, name)) => session.run(&[(name.as_str(), &input)]).unwrap().remove(0).1,
    }
}
