//! Uploads of guests and layers, named by content.

use crate::{Event, Events, Guest, Job, TrainerError, blocking};
use bytes::Bytes;
use frostline_client::{Hosts, UploadKind, Uploaded, content_name};
use frostline_graph::{GraphError, Model};
use frostline_plan::LayersLocation;
use frostline_wire::{Description, DescriptionRequest, UploadRef};
use sha2::{Digest, Sha256};

/// Content to upload: a guest or the first layers of a network.
#[derive(Clone)]
pub(crate) struct Upload {
    what: UploadKind,
    pub(crate) name: String,
    pub(crate) sha256: String,
    pub(crate) bytes: Bytes,
    /// A network on all hosts that starts with these layers.
    whole: Option<WholeNetwork>,
}

/// A complete network on the hosts.
#[derive(Clone)]
struct WholeNetwork {
    pin: UploadRef,
    bytes: Bytes,
}

impl Upload {
    pub(crate) async fn guest(guest: &Guest) -> Result<Self, TrainerError> {
        let guest = guest.clone();
        blocking(move || Ok(Self::new(UploadKind::Guest, &guest.name, guest.bytes))).await
    }

    /// Returns the layers of `model` up to the cut `end`, with the cuts before it. `name` is the name of the network.
    ///
    /// # Errors
    /// Returns [`TrainerError::LayersTooLarge`] if the layers exceed the size of an ONNX file, and
    /// [`TrainerError::Graph`] if the model cannot be divided at `end`.
    pub(crate) async fn layers(name: &str, model: Model, end: &str) -> Result<Self, TrainerError> {
        let name = name.to_owned();
        let end = end.to_owned();
        blocking(move || Ok(Self::new(UploadKind::Model, &name, one_file(&model, end)?))).await
    }

    fn new(what: UploadKind, name: &str, bytes: Bytes) -> Self {
        let sha256 = hex::encode(Sha256::digest(&bytes));
        Self {
            what,
            name: content_name(name, &sha256),
            sha256,
            bytes,
            whole: None,
        }
    }

    /// Skips the upload if all hosts have the whole network, for example because an admin published it to all
    /// tenants. This requires the stock guest: other guests could read the layers after the cut.
    pub(crate) async fn or_whole_network(self, job: &Job, hosts: &Hosts) -> Self {
        if !job.guest.is_stock() {
            return self;
        }
        let whole = job.model.clone();
        // A network too large for a single file is not on any host.
        let whole = blocking(move || {
            let bytes = whole.to_bytes()?;
            Ok((hex::encode(Sha256::digest(&bytes)), bytes))
        });
        let Ok((sha256, bytes)) = whole.await else {
            return self;
        };
        let name = hosts.name_of(&sha256).await;
        let whole = name.map(|name| WholeNetwork {
            pin: UploadRef { name, sha256 },
            bytes: bytes.into(),
        });
        Self { whole, ..self }
    }

    /// Returns true if all hosts have this content.
    pub(crate) async fn is_on(&self, hosts: &Hosts) -> Result<bool, TrainerError> {
        if self.whole.is_some() {
            return Ok(true);
        }
        let there = hosts.each(|client| async move { client.model(&self.name).await });
        Ok(there
            .await?
            .iter()
            .all(|info| info.as_ref().is_some_and(|info| info.sha256 == self.sha256)))
    }

    /// Uploads the content to hosts that do not have it, and emits an event.
    pub(crate) async fn send(
        &self,
        hosts: &Hosts,
        events: &Events,
    ) -> Result<(UploadRef, LayersLocation), TrainerError> {
        let (pin, uploaded) = match &self.whole {
            Some(WholeNetwork { pin, bytes }) => {
                let whole = hosts.keep(pin, bytes.clone()).await?;
                let bytes = self.bytes.len() as u64;
                (pin.clone(), Uploaded { bytes, ..whole })
            }
            None => {
                let uploaded = hosts.push(self.what, &self.name, self.bytes.clone()).await?;
                let name = self.name.clone();
                let sha256 = uploaded.sha256.clone();
                (UploadRef { name, sha256 }, uploaded)
            }
        };
        events(Event::Upload {
            what: self.what,
            name: pin.name.clone(),
            bytes: uploaded.bytes,
            skipped: uploaded.skipped,
            seconds: uploaded.seconds,
            resumed_at: uploaded.resumed_at,
        });
        let layers = match uploaded.skipped {
            true => LayersLocation::OnHosts,
            false => LayersLocation::Sent {
                bytes: uploaded.bytes,
                seconds: uploaded.seconds,
            },
        };
        Ok((pin, layers))
    }
}

/// References to a guest and its layers on the hosts.
#[derive(Debug, Clone)]
pub(crate) struct OnHosts {
    pub(crate) guest: UploadRef,
    pub(crate) model: UploadRef,
}

impl OnHosts {
    /// Uploads a guest and its layers to the hosts. Returns references to both, and whether the layers had to
    /// be sent.
    pub(crate) async fn send(
        guest: &Upload,
        layers: &Upload,
        hosts: &Hosts,
        events: &Events,
    ) -> Result<(Self, LayersLocation), TrainerError> {
        let (guest, _) = guest.send(hosts, events).await?;
        let (model, layers) = layers.send(hosts, events).await?;
        Ok((Self { guest, model }, layers))
    }

    /// Requests the guest's description for these layers.
    pub(crate) async fn describe(
        &self,
        parameters: &str,
        hosts: &Hosts,
    ) -> Result<Description, TrainerError> {
        let request = DescriptionRequest {
            guest: self.guest.clone(),
            model: self.model.clone(),
            parameters: parameters.to_owned(),
        };
        Ok(hosts.describe(&request).await?)
    }
}

/// Writes the layers of `model` up to `end` as a single ONNX file.
fn one_file(model: &Model, end: String) -> Result<Bytes, TrainerError> {
    match model.layers_with_splits(&end)?.to_bytes() {
        Ok(bytes) => Ok(bytes.into()),
        Err(GraphError::TooLarge { bytes, limit }) => Err(TrainerError::LayersTooLarge { end, bytes, limit }),
        Err(error) => Err(error.into()),
    }
}
