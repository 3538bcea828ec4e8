//! Networks that pass admission although rows need much memory.

use crate::case::CaseResult;
use crate::neighbor::{photos, upload_ref};
use crate::scene::Scene;
use anyhow::{Context, Result};
use frostline_client::ClientError;
use frostline_graph::build::{batched, initializer, integers, ints, model, node};
use frostline_graph::onnx::GraphProto;
use frostline_tensor::Tensor;
use frostline_trainer::Guest;
use frostline_wire::{Encoding, ExtractionRequest, RowFormat, RowValue, Split, Terms, Values};
use prost::Message;

/// Numbers per row: 280 MB.
const WIDE: i64 = 70_000_000;

/// Numbers per row if two rows are in memory at once: 704 MB.
const WIDER: i64 = 88_000_000;

/// Compares the results of a network with wide rows to those with narrow rows.
pub(super) async fn wide_row(scene: &Scene) -> Result<CaseResult> {
    let narrow = rows(scene, network(8, false)?).await?;
    let wide = rows(scene, network(WIDE, false)?).await?;
    let (narrow, wide) = match (narrow, wide) {
        (Ok(narrow), Ok(wide)) => (narrow, wide),
        (Err(error), _) | (_, Err(error)) => return Ok(CaseResult::refused(&error)),
    };
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs();
    let right = wide.iter().zip(&narrow).filter(|pair| close(*pair)).count();
    Ok(CaseResult::new("rows", format!("{right} correct")))
}

pub(super) async fn wider_row(scene: &Scene) -> Result<CaseResult> {
    match rows(scene, network(WIDER, true)?).await? {
        Ok(rows) => Ok(CaseResult::new("rows", format!("{rows:?}"))),
        Err(error) => Ok(CaseResult::refused(&error)),
    }
}

/// Returns the value at the cut for each of 6 photos.
async fn rows(scene: &Scene, network: Vec<u8>) -> Result<Result<Vec<f32>, ClientError>> {
    let client = scene.client()?;
    let guest = client.push_guest("prefix", Guest::stock().bytes).await?;
    let model = match client.push_model("wide", network.into()).await {
        Ok(model) => model,
        Err(error) => return Ok(Err(error)),
    };
    let request = ExtractionRequest {
        root: scene.root()?,
        split: Split::Cut("last".to_owned()),
        guest: Some(upload_ref("prefix", &guest.sha256)),
        model: Some(upload_ref("wide", &model.sha256)),
        parameters: String::new(),
        encoding: Encoding::F32,
        terms: Terms::default(),
        view: None,
        samples: photos(scene, 6),
        digests: false,
    };
    let mut answer = match client
        .extract(&request, RowFormat::Tensor(Values::F32, vec![1]), 64 << 20)
        .await
    {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(error)),
    };
    let mut values = vec![0.0; request.samples.len()];
    loop {
        let batches = match answer.next().await {
            Ok(Some(batches)) => batches,
            Ok(None) => return Ok(Ok(values)),
            Err(error) => return Ok(Err(error)),
        };
        for row in batches.iter().flat_map(|batch| batch.rows()) {
            let row = row?;
            let value = values.get_mut(row.position as usize).context("unexpected row")?;
            if let Ok(RowValue::F32(numbers)) = row.outcome {
                *value = numbers.first().copied().context("an empty row")?;
            }
        }
    }
}

/// Creates a network from pixels of 3 x 2 x 2 to a cut `last` with their sum. It computes the sum through a
/// row of `floats` numbers, or two such rows if `twice` is set.
fn network(floats: i64, twice: bool) -> Result<Vec<u8>> {
    let mut nodes = vec![
        node("Flatten", &["data"], &["flat"]),
        node("ReduceSum", &["flat", "one"], &["sum"]),
        node("Expand", &["sum", "wide"], &["row"]),
    ];
    let widest = if twice {
        nodes.push(node("Neg", &["sum"], &["less"]));
        nodes.push(node("Expand", &["less", "wide"], &["second"]));
        nodes.push(node("Sub", &["row", "second"], &["both"]));
        "both"
    } else {
        "row"
    };
    nodes.push(node("ReduceMax", &[widest], &["last"]).with([ints("axes", &[1])]));
    nodes.push(node("MatMul", &["last", "weights"], &["scores"]));
    let graph = GraphProto {
        name: "wide".into(),
        node: nodes,
        initializer: vec![
            integers("one", &[1]),
            integers("wide", &[1, floats]),
            initializer("weights", &Tensor::f32([1, 2], vec![1.0, -1.0])?),
        ],
        input: vec![batched("data", &[3, 2, 2])],
        output: vec![batched("scores", &[2])],
        ..GraphProto::default()
    };
    Ok(model(17, graph).encode_to_vec())
}
