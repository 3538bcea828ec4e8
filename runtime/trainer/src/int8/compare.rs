//! Calibrates the frozen layers and compares int8 with f32 on this machine.

use super::{Int8Record, LEAST_SIMILARITY};
use crate::TrainerError;
use frostline_compute::ComputeError;
use frostline_engine::{EngineError, Interrupt, Session, SessionOptions};
use frostline_graph::{Cut, Model};
use frostline_profile::{candidates, timed};
use frostline_quantization::{
    Calibration, Scheme, WeightBits, cosine, layers_between, quantize, with_cuts_as_outputs,
};
use frostline_tensor::Tensor;

/// Rows per execution, enough to keep two cores busy.
const ROWS: usize = 8;

/// Maximum number of rounds that return the least precise layers to f32. After more rounds, few layers would
/// remain in int8.
const ROUNDS: usize = 4;

/// Frozen layers with images for calibration and comparison.
pub(super) struct Comparison {
    pub(super) model: Model,
    pub(super) freeze: String,
    /// Calibration images as network input, `[images, 3, height, width]`.
    pub(super) calibration: Tensor,
    /// Held-out images as network input, used to measure the error.
    pub(super) held_out: Tensor,
    pub(super) weights: WeightBits,
    pub(super) options: SessionOptions,
}

/// Layers between two cuts with the largest added error.
struct LeastPrecise {
    /// Module name of the later cut.
    ends_at: String,
    /// Names of layer outputs.
    layers: Vec<String>,
}

impl Comparison {
    /// Calibrates, and returns layers to f32 until activations are similar enough.
    ///
    /// # Errors
    /// Returns [`TrainerError::Quantization`] if the layers cannot be quantized, and [`ComputeError::Engine`]
    /// if the engine fails.
    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<Int8Record, TrainerError> {
        let mut calibration = Calibration::new(&self.model, &self.freeze)?;
        self.run_batches(calibration.model(), &self.calibration, interrupt)?
            .iter()
            .for_each(|outputs| calibration.add(outputs));
        let ranges = calibration.ranges();
        let (exact, exact_seconds) = self.time(&self.model, interrupt)?;
        let mut scheme = Scheme::new(self.weights);
        let mut worst = None;
        let mut rounds = ROUNDS;
        loop {
            let quantized = quantize(&self.model, &self.freeze, &ranges, &scheme)?;
            let (rows, seconds) = self.time(&quantized.model, interrupt)?;
            let cosine = cosine(&exact, &rows);
            if cosine < LEAST_SIMILARITY
                && rounds > 0
                && let Some(least_precise) = self.least_precise(&quantized.model, &scheme, interrupt)?
            {
                worst.get_or_insert(least_precise.ends_at);
                // Stop before all layers are in f32, because the result would be exact but not faster.
                if least_precise.layers.len() < quantized.quantized_layers {
                    scheme.in_f32.extend(least_precise.layers);
                    rounds -= 1;
                    continue;
                }
            }
            return Ok(Int8Record {
                cosine,
                speedup: exact_seconds / seconds,
                quantized_layers: quantized.quantized_layers,
                layers: quantized.layers,
                used: false,
                ranges,
                scheme,
                worst,
            });
        }
    }

    /// Returns the layers to move back to f32 next, or `None` if only f32 layers remain.
    fn least_precise(
        &self,
        quantized: &Model,
        scheme: &Scheme,
        interrupt: &Interrupt,
    ) -> Result<Option<LeastPrecise>, TrainerError> {
        let network = self.model.network()?;
        let of_quantized = quantized.network()?;
        let mut cuts = candidates(&self.model, &network, &self.freeze)?;
        cuts.retain(|cut| of_quantized.cut(&cut.name).is_ok());
        let similarities = self.similarities(quantized, &cuts, interrupt)?;
        let mut before = 1.0;
        let mut segments = Vec::new();
        for (index, (cut, similarity)) in cuts.iter().zip(similarities).enumerate() {
            let from = index.checked_sub(1).and_then(|index| cuts.get(index));
            segments.push((before - similarity, from, cut));
            before = similarity;
        }
        segments.sort_by(|(left, ..), (right, ..)| right.total_cmp(left));
        for (_, from, cut) in segments {
            let mut layers = layers_between(&self.model, from.map(|cut| cut.name.as_str()), &cut.name)?;
            layers.retain(|layer| !scheme.in_f32.contains(layer));
            if !layers.is_empty() {
                let ends_at = network.title(cut).to_owned();
                return Ok(Some(LeastPrecise { ends_at, layers }));
            }
        }
        Ok(None)
    }

    /// Returns the cosine similarity to f32 at each of `cuts`, for the first held-out batch.
    fn similarities(
        &self,
        quantized: &Model,
        cuts: &[Cut],
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>, TrainerError> {
        let rows = self.first_batch()?;
        let exact = self.run_batches(&with_cuts_as_outputs(&self.model, cuts)?, &rows, interrupt)?;
        let quantized = self.run_batches(&with_cuts_as_outputs(quantized, cuts)?, &rows, interrupt)?;
        let pairs = exact.iter().flatten().zip(quantized.iter().flatten());
        Ok(pairs
            .map(|((_, exact), (_, quantized))| cosine(exact, quantized))
            .collect())
    }

    /// Computes activations at the freeze cut for the held-out images, and measures the time per batch.
    fn time(&self, model: &Model, interrupt: &Interrupt) -> Result<(Tensor, f64), TrainerError> {
        let part = model.slice(None, Some(&self.freeze))?;
        let rows = self.run_batches(&part, &self.held_out, interrupt)?;
        let rows: Vec<Tensor> = rows.into_iter().flatten().map(|(_, rows)| rows).collect();
        let mut session = self.open(&part, interrupt)?;
        let input = part.input_name()?;
        let batch = self.first_batch()?;
        let (_, seconds) = timed(|| session.run_until(&[(input, &batch)], interrupt).map_err(engine))?;
        Ok((Tensor::concat_rows(&rows)?, seconds))
    }

    fn first_batch(&self) -> Result<Tensor, TrainerError> {
        Ok(self.held_out.slice_rows(0, self.held_out.rows()?.min(ROWS))?)
    }

    /// Runs `model` on `rows` in batches and returns the outputs of each batch.
    fn run_batches(
        &self,
        model: &Model,
        rows: &Tensor,
        interrupt: &Interrupt,
    ) -> Result<Vec<Vec<(String, Tensor)>>, TrainerError> {
        let mut session = self.open(model, interrupt)?;
        let input = model.input_name()?;
        let count = rows.rows()?;
        let starts = (0..count).step_by(ROWS);
        starts
            .map(|start| {
                let batch = rows.slice_rows(start, count.min(start + ROWS))?;
                Ok(session.run_until(&[(input, &batch)], interrupt).map_err(engine)?)
            })
            .collect()
    }

    fn open(&self, model: &Model, interrupt: &Interrupt) -> Result<Session, TrainerError> {
        let session = Session::open_until(&model.to_bytes()?, &self.options, interrupt);
        Ok(session.map_err(engine)?)
    }
}

fn engine(source: EngineError) -> ComputeError {
    ComputeError::engine("calibrating int8")(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;
    use frostline_graph::build::{batched, initializer, int, ints, model, node};
    use frostline_graph::onnx::GraphProto;

    const CHANNELS: usize = 4;

    fn noise(seed: u32, count: usize) -> Vec<f32> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(next).collect()
    }

    fn comparison(model: Model) -> Comparison {
        let rows = |seed| Tensor::f32([4, 3, 8, 8], noise(seed, 4 * 3 * 64)).unwrap();
        Comparison {
            model,
            freeze: "features".to_owned(),
            calibration: rows(1),
            held_out: rows(2),
            // Eight-bit weights saturate on some processors.
            weights: WeightBits::Seven,
            options: SessionOptions::default(),
        }
    }

    /// Builds three convolutions. One channel between the first two is scaled by `factor`, which does not
    /// change the output.
    fn with_large_channel(factor: f32) -> Model {
        let mut weights =
            [(1, 3), (2, CHANNELS), (3, CHANNELS)].map(|(seed, inputs)| noise(seed, CHANNELS * inputs * 9));
        weights[0]
            .iter_mut()
            .take(27)
            .for_each(|weight| *weight *= factor);
        let reads_large = |index: usize| (index / 9).is_multiple_of(CHANNELS);
        let second = weights[1]
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| reads_large(*index));
        second.for_each(|(_, weight)| *weight /= factor);
        let initializer = (1..).zip(weights).map(|(number, weight)| {
            let dims = [CHANNELS, weight.len() / CHANNELS / 9, 3, 3];
            initializer(&format!("w{number}"), &Tensor::f32(dims, weight).unwrap())
        });
        let convolution = |from: &str, weight: &str, to: &str| {
            node("Conv", &[from, weight], &[to]).with([ints("pads", &[1; 4])])
        };
        let graph = GraphProto {
            initializer: initializer.collect(),
            node: vec![
                convolution("image", "w1", "c1"),
                node("Relu", &["c1"], &["r1"]),
                convolution("r1", "w2", "c2"),
                node("Relu", &["c2"], &["r2"]),
                convolution("r2", "w3", "c3"),
                node("GlobalAveragePool", &["c3"], &["pooled"]),
                node("Flatten", &["pooled"], &["features"]).with([int("axis", 1)]),
            ],
            input: vec![batched("image", &[3, 8, 8])],
            output: vec![batched("features", &[CHANNELS])],
            ..GraphProto::default()
        };
        Model::from_proto(model(17, graph)).unwrap()
    }

    #[test]
    fn imprecise_layers_go_back_to_f32() {
        let plain = comparison(network()).run(&Interrupt::new()).unwrap();
        assert_eq!((plain.quantized_layers, plain.layers, plain.worst), (2, 2, None));
        assert!(
            plain.cosine >= LEAST_SIMILARITY && plain.cosine < 1.0,
            "{}",
            plain.cosine
        );
        let large = comparison(with_large_channel(1e4))
            .run(&Interrupt::new())
            .unwrap();
        assert!(
            large.cosine >= LEAST_SIMILARITY && large.cosine < 1.0,
            "{}",
            large.cosine
        );
        assert_eq!(
            (large.quantized_layers, large.layers),
            (1, 3),
            "{:?}",
            large.scheme
        );
        assert!(large.worst.is_some());
    }

    #[test]
    fn the_last_int8_layers_are_not_returned_to_f32() {
        let two = with_large_channel(1e4).slice(None, Some("r2")).unwrap();
        let mut imprecise = comparison(two);
        imprecise.freeze = "r2".to_owned();
        let record = imprecise.run(&Interrupt::new()).unwrap();
        assert!(record.cosine < LEAST_SIMILARITY, "{}", record.cosine);
        assert!(
            record.quantized_layers > 0 && record.worst.is_some(),
            "{record:?}"
        );
    }
}
