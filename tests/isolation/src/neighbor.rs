//! Well-behaved tenant that repeatedly extracts activations and checks the results.

use crate::Scene;
use crate::canary::{Secret, marks_of, text_of};
use crate::scene::backbone;
use anyhow::{Context, Result, ensure};
use frostline_client::{ClientError, HostClient};
use frostline_graph::Model;
use frostline_trainer::{Guest, cut_tensors};
use frostline_wire::{
    Encoding, ExtractionRequest, Layout, RequestedSample, RowFormat, SampleRef, Split, StageSeconds, Terms,
    UploadRef, Values,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Name of the guest and the model, which other tenants must not learn.
pub(crate) const NAME: &str = "neighbors";

/// Name of new uploads.
const NEWCOMER: &str = "newcomer";

/// Tensors of the requested cut.
const CUT: &str = "stage3.0,features";

/// Photos per extraction.
const PHOTOS: u32 = 16;

/// Time to retry at a busy host.
const BUSY_TIMEOUT: Duration = Duration::from_secs(300);

/// Connection and expected results of the neighbor.
pub struct Neighbor {
    client: HostClient,
    request: ExtractionRequest,
    format: RowFormat,
    expected: BTreeMap<u32, Vec<f32>>,
}

impl Neighbor {
    /// Uploads the stock guest and the bundled backbone, and extracts once while the host is idle.
    ///
    /// # Errors
    /// Returns an error if the host does not serve the neighbor.
    pub async fn start(scene: &Scene) -> Result<Self> {
        let scene = &scene.neighbor();
        let client = scene.client()?;
        let mut model = Model::from_bytes(backbone()?)?;
        model.set_metadata("note", &text_of(scene.name(), Secret::Model));
        let (model, cut) = model.with_cut(CUT)?;
        let network = model.network()?;
        let model = client.push_model(NAME, model.to_bytes()?.into()).await?;
        let guest = with_note(&Guest::stock().bytes, &text_of(scene.name(), Secret::Guest));
        let guest = client.push_guest(NAME, guest.into()).await?;
        let request = ExtractionRequest {
            root: scene.root()?,
            split: Split::Cut(cut.clone()),
            guest: Some(upload_ref(NAME, &guest.sha256)),
            model: Some(upload_ref(NAME, &model.sha256)),
            parameters: String::new(),
            encoding: Encoding::F32,
            terms: Terms {
                // Activations are bit-identical with a fixed batch, even if other tenants are active.
                fixed_batch: Some(PHOTOS as usize),
                ..Terms::default()
            },
            view: None,
            digests: false,
            samples: photos(scene, PHOTOS),
        };
        let joint = network.cut(&cut)?;
        let format = Values::F32.rows_of(joint.shape.dims().to_vec(), &cut_tensors(joint));
        let mut neighbor = Self {
            client,
            request,
            format,
            expected: BTreeMap::new(),
        };
        neighbor.expected = neighbor.extract(&neighbor.request).await?.0;
        for row in neighbor.expected.values() {
            scene.mark(Secret::Activation, marks_of(row))?;
        }
        ensure!(
            neighbor.expected.len() == neighbor.request.samples.len(),
            "expected activations of all photos of the neighbor"
        );
        Ok(neighbor)
    }

    /// Sends data of the neighbor to the acting tenant, which the suite must detect as a leak.
    ///
    /// # Errors
    /// Returns an error if the host does not serve the neighbor.
    pub async fn leak(&self, scene: &Scene) -> Result<()> {
        let client = scene.neighbor().client_at(scene.address()?)?;
        let photos = client.objects(&self.request.root, Layout::Objects).await?;
        client.read(&self.request.root, &photos).await?;
        let mut answer = client
            .extract(&self.request, self.format.clone(), 64 << 20)
            .await?;
        while answer.next().await?.is_some() {}
        Ok(())
    }

    /// Extracts until `stop` is set, but at least once completely. Returns the rate in images per second.
    ///
    /// # Errors
    /// Returns an error if an extraction fails or the activations differ from the first ones.
    pub async fn work(&self, stop: watch::Receiver<bool>) -> Result<f64> {
        let (started, mut images) = (Instant::now(), 0);
        loop {
            let last = *stop.borrow();
            images += self.check().await?.0;
            if last {
                return Ok(images as f64 / started.elapsed().as_secs_f64());
            }
        }
    }

    /// Extracts until `stop` is set, and retries requests that the host refuses or interrupts. Returns the
    /// number of retries.
    ///
    /// # Errors
    /// Returns an error if the activations differ from the first ones, or if no request succeeds for minutes.
    pub async fn work_with_retries(&self, stop: watch::Receiver<bool>) -> Result<usize> {
        let mut retries = 0;
        let mut until = Instant::now() + BUSY_TIMEOUT;
        loop {
            let last = *stop.borrow();
            match self.check().await {
                Ok(_) => until = Instant::now() + BUSY_TIMEOUT,
                Err(error) if Instant::now() < until && error.is::<ClientError>() => {
                    retries += 1;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if last {
                return Ok(retries);
            }
        }
    }

    /// Measures the rate in images per second.
    ///
    /// # Errors
    /// Returns the same errors as [`Neighbor::work`].
    pub async fn rate(&self, time: Duration) -> Result<f64> {
        let (started, mut images) = (Instant::now(), 0);
        while started.elapsed() < time {
            images += self.check().await?.0;
        }
        Ok(images as f64 / started.elapsed().as_secs_f64())
    }

    /// Extracts one photo repeatedly for `time` and returns the longest duration.
    ///
    /// # Errors
    /// Returns an error if an extraction fails.
    pub async fn longest_extraction(&self, time: Duration) -> Result<Duration> {
        let request = ExtractionRequest {
            samples: self.request.samples.iter().take(1).cloned().collect(),
            ..self.request.clone()
        };
        let (started, mut longest) = (Instant::now(), Duration::ZERO);
        while started.elapsed() < time {
            let asked = Instant::now();
            let (rows, _) = self.extract(&request).await?;
            ensure!(rows.len() == 1, "the neighbor received no activations");
            longest = longest.max(asked.elapsed());
        }
        Ok(longest)
    }

    /// Measures the time from uploading a new guest and model to the first activations. Uploads differ for
    /// each `number`.
    ///
    /// # Errors
    /// Returns an error if the host does not serve them.
    pub async fn time_to_first_activations(&self, number: usize) -> Result<Duration> {
        let guest = distinct(&Guest::stock().bytes, number);
        let mut model = Model::from_bytes(backbone()?)?;
        model.set_metadata("newcomer", &number.to_string());
        let model = model.to_bytes()?;
        let started = Instant::now();
        let guest = self.client.push_guest(NEWCOMER, guest.into()).await?;
        let model = self.client.push_model(NEWCOMER, model.into()).await?;
        let request = ExtractionRequest {
            guest: Some(upload_ref(NEWCOMER, &guest.sha256)),
            model: Some(upload_ref(NEWCOMER, &model.sha256)),
            samples: self.request.samples.iter().take(1).cloned().collect(),
            ..self.request.clone()
        };
        let (rows, _) = self.extract(&request).await?;
        ensure!(rows.len() == 1, "the newcomer received no activations");
        Ok(started.elapsed())
    }

    /// Like [`Neighbor::check`], but retries while the host is busy. The seconds are those of the
    /// last attempt. Passes each refusal and its duration to `refused`.
    pub(crate) async fn check_with_retries(
        &self,
        mut refused: impl FnMut(&anyhow::Error, Duration),
    ) -> Result<(usize, StageSeconds)> {
        let until = Instant::now() + BUSY_TIMEOUT;
        loop {
            let asked = Instant::now();
            match self.check().await {
                Err(error) if Instant::now() < until && is_busy(&error) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    refused(&error, asked.elapsed());
                }
                checked => return checked,
            }
        }
    }

    /// Extracts and checks all photos. Returns their number and the seconds of the host in
    /// each stage, summed over the photos.
    async fn check(&self) -> Result<(usize, StageSeconds)> {
        let (rows, stages) = self.extract(&self.request).await?;
        for (position, expected) in &self.expected {
            let row = rows
                .get(position)
                .with_context(|| format!("no row for photo {position}"))?;
            ensure!(row == expected, "the activations of photo {position} differ");
        }
        Ok((rows.len(), stages))
    }

    async fn extract(&self, request: &ExtractionRequest) -> Result<(BTreeMap<u32, Vec<f32>>, StageSeconds)> {
        let mut answer = self
            .client
            .extract(request, self.format.clone(), 64 << 20)
            .await?;
        let elements = self.format.width()?.context("the cut has no fixed shape")?;
        let mut rows = BTreeMap::new();
        while let Some(batches) = answer.next().await? {
            for row in batches.iter().flat_map(|batch| batch.rows()) {
                let row = row?;
                let mut values = vec![0.0; elements];
                match row.outcome {
                    Ok(value) if value.read_into(&mut values) => rows.insert(row.position, values),
                    other => anyhow::bail!("photo {}: {other:?}", row.position),
                };
            }
        }
        Ok((rows, answer.stages()))
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ClientError>()
        .is_some_and(ClientError::is_busy)
}

/// Adds a custom section with `number` to a guest.
pub fn distinct(guest: &[u8], number: usize) -> Vec<u8> {
    with_note(guest, &format!("{number:08}"))
}

/// Adds a custom section to a guest. The text must be shorter than 100 bytes.
fn with_note(guest: &[u8], text: &str) -> Vec<u8> {
    // Section ID 0, the size, a one-letter name, and the text.
    let head = [0, text.len() as u8 + 2, 1, b'n'];
    [guest, &head, text.as_bytes()].concat()
}

pub(crate) fn upload_ref(name: &str, sha256: &str) -> UploadRef {
    UploadRef {
        name: name.to_owned(),
        sha256: sha256.to_owned(),
    }
}

/// Returns the first `count` photos.
pub(crate) fn photos(scene: &Scene, count: u32) -> Vec<RequestedSample> {
    let positions = 0..count;
    positions
        .zip(scene.photos())
        .map(|(position, key)| sample(position, key))
        .collect()
}

pub(crate) fn sample(position: u32, key: &str) -> RequestedSample {
    RequestedSample {
        position,
        sample: SampleRef::new(key),
    }
}
