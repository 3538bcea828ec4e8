//! Runs the hostile guests of `frostline-behaviors` on a real host with a small network.

use crate::case::{Action, AttackKind, Case, CaseResult, Expected};
use crate::neighbor::{photos, upload_ref};
use crate::scene::Scene;
use anyhow::Result;
use bytes::Bytes;
use frostline_behaviors::{BEHAVIORS, Behavior, Ending, Source};
use frostline_client::{ClientError, HostClient};
use frostline_graph::build::{batched, initializer, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;
use frostline_wire::{DescriptionRequest, Encoding, ExtractionRequest, RowFormat, Split, Terms, Values};
use prost::Message;

/// Name of all uploads. Each guest is a new version.
const NAME: &str = "guest";

/// Values per sample at the cut. The guests know this number.
const WIDTH: usize = 4;

/// Returns cases with generated guests.
pub(crate) fn made() -> Vec<Case> {
    let made = |behavior: &&Behavior| matches!(behavior.guest, Source::Generated(_));
    BEHAVIORS.iter().filter(made).map(case).collect()
}

/// Returns cases with guests that `cargo xtask guests` compiles.
pub(crate) fn compiled() -> Vec<Case> {
    let compiled = |behavior: &&Behavior| matches!(behavior.guest, Source::Compiled);
    BEHAVIORS.iter().filter(compiled).map(case).collect()
}

fn case(behavior: &'static Behavior) -> Case {
    let expected = match behavior.expected {
        Ending::Refused(words) => Expected::new("400", &[words]),
        Ending::NotDescribed(words)
        | Ending::Limit(words)
        | Ending::Trapped(words)
        | Ending::BadAnswer(words)
        | Ending::Failed(words) => Expected::new("422", &[words]),
        Ending::Served => Expected::new("200", &[]),
    };
    Case {
        name: behavior.name.to_owned(),
        description: behavior.description.to_owned(),
        class: AttackKind::Guest,
        expected,
        act: Action::Guest(behavior),
    }
}

fn bytes(behavior: &Behavior) -> Result<Vec<u8>> {
    match behavior.guest {
        Source::Generated(make) => Ok(make()),
        Source::Compiled => Ok(std::fs::read(frostline_needs::built_guest(behavior.name))?),
    }
}

/// Uploads the guest, calls `describe`, and extracts two photos. The result is the first refusal of the host.
pub(crate) async fn run(scene: &Scene, behavior: &Behavior) -> Result<CaseResult> {
    let client = scene.client()?;
    let bytes = bytes(behavior)?;
    match attempt(scene, &client, bytes.into()).await? {
        Ok(rows) => Ok(CaseResult::new(200, format!("{rows} rows"))),
        Err(error) => Ok(CaseResult::refused(&error)),
    }
}

async fn attempt(scene: &Scene, client: &HostClient, bytes: Bytes) -> Result<Result<usize, ClientError>> {
    let model = match client.push_model("small", small_network()?).await {
        Ok(model) => upload_ref("small", &model.sha256),
        Err(error) => return Ok(Err(error)),
    };
    let guest = match client.push_guest(NAME, bytes).await {
        Ok(guest) => upload_ref(NAME, &guest.sha256),
        Err(error) => return Ok(Err(error)),
    };
    let describe = DescriptionRequest {
        guest: guest.clone(),
        model: model.clone(),
        parameters: String::new(),
    };
    if let Err(error) = client.describe(&describe).await {
        return Ok(Err(error));
    }
    let request = ExtractionRequest {
        root: scene.root()?,
        split: Split::Cut("last".to_owned()),
        guest: Some(guest),
        model: Some(model),
        parameters: String::new(),
        encoding: Encoding::F32,
        terms: Terms::default(),
        view: None,
        samples: photos(scene, 2),
        digests: false,
    };
    Ok(count(client, &request, RowFormat::Tensor(Values::F32, vec![WIDTH])).await)
}

/// Counts the rows of an extraction.
pub(crate) async fn count(
    client: &HostClient,
    request: &ExtractionRequest,
    format: RowFormat,
) -> Result<usize, ClientError> {
    let mut answer = client.extract(request, format, 64 << 20).await?;
    let mut rows = 0;
    while let Some(batches) = answer.next().await? {
        rows += batches.iter().map(|batch| batch.len()).sum::<usize>();
    }
    Ok(rows)
}

/// Creates a network from pixels of 3 x 2 x 2 to a cut `last` of four numbers.
fn small_network() -> Result<Bytes> {
    let weights = |rows: usize, columns: usize| {
        let values: Vec<f32> = (0..rows * columns)
            .map(|index| index as f32 / 8.0 - 1.0)
            .collect();
        Tensor::f32([rows, columns], values)
    };
    let graph = GraphProto {
        name: "small".into(),
        node: vec![
            node("Flatten", &["data"], &["flat"]),
            node("MatMul", &["flat", "w1"], &["hidden"]),
            node("Relu", &["hidden"], &["last"]),
            node("MatMul", &["last", "w2"], &["scores"]),
        ],
        initializer: vec![
            initializer("w1", &weights(12, WIDTH)?),
            initializer("w2", &weights(WIDTH, 2)?),
        ],
        input: vec![batched("data", &[3, 2, 2])],
        output: vec![batched("scores", &[2])],
        ..GraphProto::default()
    };
    Ok(model(17, graph).encode_to_vec().into())
}
