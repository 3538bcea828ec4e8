//! A tenant that does what everybody does: it extracts activations of its photos, again and again, and looks at what it gets.

use crate::Scene;
use crate::canary::{Secret, marks_of, text_of};
use crate::scene::backbone;
use anyhow::{Context, Result, ensure};
use frostline_client::{ClientError, HostClient};
use frostline_graph::Model;
use frostline_trainer::Guest;
use frostline_wire::{
    Encoding, ExtractionRequest, Layout, Pin, RequestedSample, RowFormat, RowValue, SampleRef, Split, Terms,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What its guest and its model are called, which nobody else may know.
pub(crate) const NAME: &str = "neighbors";

/// What it calls what it sends for the first time.
const NEWCOMER: &str = "newcomer";

/// The cut it asks for.
const CUT: &str = "features";

/// Photos of one extraction.
const PHOTOS: u32 = 16;

/// How long the neighbor asks a host that is too busy for it.
const PATIENCE: Duration = Duration::from_secs(300);

/// See the module.
pub struct Neighbor {
    client: HostClient,
    request: ExtractionRequest,
    format: RowFormat,
    expected: BTreeMap<u32, Vec<f32>>,
}

impl Neighbor {
    /// Uploads the stock guest and the bundled backbone, and extracts once while nobody else is there.
    ///
    /// # Errors
    /// When the host does not serve it.
    pub async fn start(scene: &Scene) -> Result<Self> {
        let scene = &scene.neighbor();
        let client = scene.client()?;
        let mut model = Model::from_bytes(backbone()?)?;
        model.set_metadata("note", &text_of(scene.name(), Secret::Model));
        let network = model.network()?;
        let model = client.push_model(NAME, model.to_bytes()?.into()).await?;
        let guest = noted(&Guest::stock().bytes, &text_of(scene.name(), Secret::Guest));
        let guest = client.push_guest(NAME, guest.into()).await?;
        let request = ExtractionRequest {
            root: scene.root()?,
            split: Split::Cut(CUT.to_owned()),
            guest: Some(pin(NAME, &guest.sha256)),
            model: Some(pin(NAME, &model.sha256)),
            parameters: String::new(),
            encoding: Encoding::F32,
            terms: Terms {
                // Rows are the same bit for bit whatever goes on beside them.
                fixed_batch: Some(PHOTOS as usize),
                ..Terms::default()
            },
            view: None,
            samples: photos(scene, PHOTOS),
        };
        let format = RowFormat::F32(network.cut(CUT)?.shape.dims().to_vec());
        let mut neighbor = Self {
            client,
            request,
            format,
            expected: BTreeMap::new(),
        };
        neighbor.expected = neighbor.extract(&neighbor.request).await?;
        for row in neighbor.expected.values() {
            scene.mark(Secret::Activation, marks_of(row))?;
        }
        ensure!(
            neighbor.expected.len() == neighbor.request.samples.len(),
            "the neighbor's own photos are broken"
        );
        Ok(neighbor)
    }

    /// Has whoever acts in the scene receive what is the neighbor's: what it looks like to the suite when a host leaks.
    ///
    /// # Errors
    /// When the host does not serve the neighbor.
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

    /// Extracts until `stop`, at least once from beginning to end, and gives the images it got each second.
    ///
    /// # Errors
    /// When an extraction fails, or gives something else than it did at the beginning.
    pub async fn work(&self, stop: watch::Receiver<bool>) -> Result<f64> {
        let (started, mut images) = (Instant::now(), 0);
        loop {
            let last = *stop.borrow();
            images += self.check().await?;
            if last {
                return Ok(images as f64 / started.elapsed().as_secs_f64());
            }
        }
    }

    /// Images each second over some time.
    ///
    /// # Errors
    /// As for [`Neighbor::work`].
    pub async fn rate(&self, time: Duration) -> Result<f64> {
        let (started, mut images) = (Instant::now(), 0);
        while started.elapsed() < time {
            images += self.check().await?;
        }
        Ok(images as f64 / started.elapsed().as_secs_f64())
    }

    /// The longest that an extraction of one photo takes within some time.
    ///
    /// # Errors
    /// As for [`Neighbor::work`].
    pub async fn longest(&self, time: Duration) -> Result<Duration> {
        let request = ExtractionRequest {
            samples: self.request.samples.iter().take(1).cloned().collect(),
            ..self.request.clone()
        };
        let (started, mut longest) = (Instant::now(), Duration::ZERO);
        while started.elapsed() < time {
            let asked = Instant::now();
            let rows = self.extract(&request).await?;
            ensure!(rows.len() == 1, "the neighbor got no activations");
            longest = longest.max(asked.elapsed());
        }
        Ok(longest)
    }

    /// From sending a guest and a model that nobody has seen, one `number` each, to the first activations that they give.
    ///
    /// # Errors
    /// When the host does not serve them.
    pub async fn newcomer(&self, number: usize) -> Result<Duration> {
        let guest = distinct(&Guest::stock().bytes, number);
        let mut model = Model::from_bytes(backbone()?)?;
        model.set_metadata("newcomer", &number.to_string());
        let model = model.to_bytes()?;
        let started = Instant::now();
        let guest = self.client.push_guest(NEWCOMER, guest.into()).await?;
        let model = self.client.push_model(NEWCOMER, model.into()).await?;
        let request = ExtractionRequest {
            guest: Some(pin(NEWCOMER, &guest.sha256)),
            model: Some(pin(NEWCOMER, &model.sha256)),
            samples: self.request.samples.iter().take(1).cloned().collect(),
            ..self.request.clone()
        };
        let rows = self.extract(&request).await?;
        ensure!(rows.len() == 1, "the newcomer got no activations");
        Ok(started.elapsed())
    }

    /// [`Neighbor::check`], again where the host has no room.
    pub(crate) async fn check_patiently(&self) -> Result<usize> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.check().await {
                Err(error) if Instant::now() < until && is_busy(&error) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                checked => return checked,
            }
        }
    }

    async fn check(&self) -> Result<usize> {
        let rows = self.extract(&self.request).await?;
        for (position, expected) in &self.expected {
            let row = rows
                .get(position)
                .with_context(|| format!("no row for photo {position}"))?;
            ensure!(row == expected, "photo {position} has other activations");
        }
        Ok(rows.len())
    }

    async fn extract(&self, request: &ExtractionRequest) -> Result<BTreeMap<u32, Vec<f32>>> {
        let mut answer = self
            .client
            .extract(request, self.format.clone(), 64 << 20)
            .await?;
        let mut rows = BTreeMap::new();
        while let Some(batches) = answer.next().await? {
            for row in batches.iter().flat_map(|batch| batch.rows()) {
                let row = row?;
                match row.outcome {
                    Ok(RowValue::F32(values)) => rows.insert(row.position, values.to_vec()),
                    other => anyhow::bail!("photo {}: {other:?}", row.position),
                };
            }
        }
        Ok(rows)
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<ClientError>()
        .is_some_and(ClientError::is_busy)
}

/// The same guest with a custom section that tells it from all of other numbers.
pub fn distinct(guest: &[u8], number: usize) -> Vec<u8> {
    noted(guest, &format!("{number:08}"))
}

/// The same guest with a custom section that holds a text of less than a hundred bytes.
fn noted(guest: &[u8], text: &str) -> Vec<u8> {
    // Section 0, and its bytes: a name of one letter, and the text.
    let head = [0, text.len() as u8 + 2, 1, b'n'];
    [guest, &head, text.as_bytes()].concat()
}

pub(crate) fn pin(name: &str, sha256: &str) -> Pin {
    Pin {
        name: name.to_owned(),
        sha256: sha256.to_owned(),
    }
}

/// The first photos there are.
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
