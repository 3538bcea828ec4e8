//! A tenant that does what everybody does: it extracts activations of its photos, again and again, and looks at what it gets.

use crate::Scene;
use crate::scene::{NEIGHBOUR, backbone};
use anyhow::{Context, Result, ensure};
use frostline_graph::Model;
use frostline_trainer::{Guest, HostClient};
use frostline_wire::{Encoding, ExtractionRequest, Pin, RequestedSample, RowFormat, RowValue, Split};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What its guest and its model are called, which nobody else may know.
pub(crate) const NAME: &str = "neighbours";

/// The cut it asks for.
const CUT: &str = "features";

/// Photos of one extraction.
const PHOTOS: u32 = 16;

/// How far a value may be from what it was when the neighbour was alone, as a share of the largest: other batches may round otherwise.
const TOLERANCE: f32 = 1e-4;

/// See the module.
pub struct Neighbour {
    client: HostClient,
    request: ExtractionRequest,
    format: RowFormat,
    expected: BTreeMap<u32, Vec<f32>>,
}

impl Neighbour {
    /// Uploads the stock guest and the bundled backbone, and extracts once while nobody else is there.
    ///
    /// # Errors
    /// When the host does not serve it.
    pub async fn start(scene: &Scene) -> Result<Self> {
        let client = scene.client(NEIGHBOUR)?;
        let model = backbone()?;
        let network = Model::from_bytes(model.clone())?.network()?;
        let guest = client.push_guest(NAME, Guest::stock().bytes).await?;
        let model = client.push_model(NAME, model).await?;
        let photos = scene.photos.iter().take(PHOTOS as usize);
        let request = ExtractionRequest {
            root: scene.root()?,
            split: Split::Cut(CUT.to_owned()),
            guest: Some(pin(NAME, &guest.sha256)),
            model: Some(pin(NAME, &model.sha256)),
            parameters: String::new(),
            encoding: Encoding::F32,
            samples: (0..)
                .zip(photos)
                .map(|(position, key)| sample(position, key))
                .collect(),
        };
        let format = RowFormat::F32(network.cut(CUT)?.shape.dims().to_vec());
        let mut neighbour = Self {
            client,
            request,
            format,
            expected: BTreeMap::new(),
        };
        neighbour.expected = neighbour.extract().await?;
        ensure!(
            neighbour.expected.len() == neighbour.request.samples.len(),
            "the neighbour's own photos are broken"
        );
        Ok(neighbour)
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
    /// As for [`Neighbour::work`].
    pub async fn rate(&self, time: Duration) -> Result<f64> {
        let (started, mut images) = (Instant::now(), 0);
        while started.elapsed() < time {
            images += self.check().await?;
        }
        Ok(images as f64 / started.elapsed().as_secs_f64())
    }

    async fn check(&self) -> Result<usize> {
        let rows = self.extract().await?;
        for (position, expected) in &self.expected {
            let row = rows
                .get(position)
                .with_context(|| format!("no row for photo {position}"))?;
            let largest = expected
                .iter()
                .fold(0.0_f32, |largest, value| largest.max(value.abs()));
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= TOLERANCE * largest;
            ensure!(
                row.len() == expected.len() && row.iter().zip(expected).all(close),
                "photo {position} has other activations"
            );
        }
        Ok(rows.len())
    }

    async fn extract(&self) -> Result<BTreeMap<u32, Vec<f32>>> {
        let mut answer = self
            .client
            .extract(&self.request, self.format.clone(), 64 << 20)
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

pub(crate) fn pin(name: &str, sha256: &str) -> Pin {
    Pin {
        name: name.to_owned(),
        sha256: sha256.to_owned(),
    }
}

pub(crate) fn sample(position: u32, key: &str) -> RequestedSample {
    RequestedSample {
        position,
        key: key.to_owned(),
        etag: None,
    }
}
