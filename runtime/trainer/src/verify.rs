//! Compares activations with those that ONNX Runtime computes without optimizations. Optimizations change the
//! result of some networks: version 1.31 replaces a pad with zeros before a max pool by the padding of the
//! pool, which ignores padded values.

use crate::TrainerError;
use crate::setup::available_memory;
use frostline_compute::{ComputeError, Dedicated, Forward, session_options};
use frostline_engine::{Device, EngineError, Interrupt, SessionOptions};
use frostline_graph::Model;
use frostline_graph::onnx::data_type;
use frostline_graph::tensors::in_single_precision;
use frostline_tensor::{Precision, Tensor};
use std::path::Path;

/// Number of images to compare. The known faults change the activations of all images.
pub const COMPARED_IMAGES: usize = 2;

/// Maximum difference relative to the largest activation. The order of summation changes activations by up to
/// 1e-4.
const TOLERANCE: f64 = 1e-3;

/// Maximum difference relative to the largest activation for layers with 8 to 11 significant bits.
const REDUCED_TOLERANCE: f64 = 5e-2;

/// Memory that a comparison needs, relative to the weights: for the file, the session, and the packed weights
/// of the kernels.
const COPIES: u64 = 3;

/// Activations at a cut, with the layers and the images to compute them again.
#[derive(Debug, Clone)]
pub struct CutActivations {
    /// The layers from the network input to the cut.
    pub layers: Model,
    /// The cut.
    pub cut: String,
    /// Keys of the images.
    pub keys: Vec<String>,
    /// The images as network input, `[images, ..]`.
    pub input: Tensor,
    /// The activations of the images, `[images, ..]`. `None` compares activations that this machine computes
    /// with optimizations.
    pub activations: Option<Tensor>,
    /// True if the job can change its split, so that this machine may compute activations later. In this case,
    /// the comparison includes activations that this machine computes with optimizations.
    pub split_may_change: bool,
    /// Precision of the activations. If it is not full, the activations of this machine are compared as well,
    /// because the tolerance for them is smaller.
    pub precision: Precision,
    /// Number of threads; 0 uses all cores.
    pub threads: usize,
}

impl CutActivations {
    /// Compares the activations with those that ONNX Runtime computes without optimizations on this machine's
    /// CPU. Returns a warning if ONNX Runtime cannot open the layers without optimizations, or if the memory does
    /// not suffice.
    ///
    /// # Errors
    /// Returns [`TrainerError::OptimizedWrongly`] if the activations differ, and other errors if the engine
    /// fails.
    pub async fn check(self) -> Result<Option<String>, TrainerError> {
        if let Some(warning) = self.exceeds(available_memory(Path::new("/"))) {
            return Ok(Some(warning));
        }
        let checked = Dedicated::open(move |interrupt| self.compare(interrupt)).await?;
        checked.run(|warning| Ok(warning.take())).await
    }

    fn compare(&self, interrupt: &Interrupt) -> Result<Option<String>, TrainerError> {
        let expected = match self.compute(false, interrupt) {
            Err(
                ComputeError::Bfloat16 { source, .. }
                | ComputeError::Engine {
                    source: source @ EngineError::Model { .. },
                    ..
                },
            ) => {
                return Ok(Some(self.not_compared(&source.to_string())));
            }
            computed => computed?,
        };
        let received = self.activations.as_ref();
        let mut off = received.map_or(0.0, |activations| difference(&expected, activations));
        let is_right = off <= self.tolerance(self.precision);
        let mut on_this_machine = false;
        if received.is_none() || !is_right || self.split_may_change || !self.precision.is_full() {
            let here = difference(&expected, &self.compute(true, interrupt)?);
            on_this_machine = here > self.tolerance(Precision::Full);
            off = off.max(here);
        }
        if is_right && !on_this_machine {
            return Ok(None);
        }
        let keys: Vec<String> = self.keys.iter().map(|key| format!("'{key}'")).collect();
        Err(TrainerError::OptimizedWrongly {
            keys: keys.join(", "),
            cut: self.cut.clone(),
            difference: off,
            on_this_machine,
        })
    }

    fn compute(&self, optimizations: bool, interrupt: &Interrupt) -> Result<Tensor, ComputeError> {
        let options = SessionOptions {
            optimizations,
            arena: false,
            ..session_options(Device::Cpu, self.threads)
        };
        let doing = "comparing activations with ONNX Runtime without optimizations";
        let images = self.input.rows()?;
        let mut forward = Forward::open(&self.layers, images, &options, interrupt, doing)?;
        Ok(in_single_precision(forward.run(&self.input)?))
    }

    /// Returns a warning if the layers do not fit in `available` bytes of memory.
    fn exceeds(&self, available: Option<u64>) -> Option<String> {
        let weights = self.layers.graph().initializer.iter();
        let bytes: u64 = weights.map(|weight| weight.raw_data.len() as u64).sum();
        let available = available.filter(|available| *available < bytes.saturating_mul(COPIES))?;
        Some(self.not_compared(&format!(
            "the layers have {bytes} bytes, but only {available} bytes of memory are available"
        )))
    }

    fn not_compared(&self, reason: &str) -> String {
        let cut = &self.cut;
        format!(
            "the activations at '{cut}' are not compared with ONNX Runtime's without optimizations: {reason}"
        )
    }

    /// Returns the tolerance for activations that were computed with `precision`.
    fn tolerance(&self, precision: Precision) -> f64 {
        let graph = self.layers.graph();
        let has_half = graph
            .initializer
            .iter()
            .any(|weight| [data_type::FLOAT16, data_type::BFLOAT16].contains(&weight.data_type));
        let has_integers = graph.node.iter().any(|node| node.op_type.contains("Quantize"));
        match precision.is_full() && !has_half && !has_integers {
            true => TOLERANCE,
            false => REDUCED_TOLERANCE,
        }
    }
}

/// Returns the largest difference relative to the largest expected value. The result is infinite if the number
/// of values differs, if there are no values in f32, or if a value is infinite or NaN in only one of the tensors.
fn difference(expected: &Tensor, actual: &Tensor) -> f64 {
    let [expected, actual] = [expected, actual].map(|tensor| tensor.as_f32().unwrap_or_default());
    if expected.len() != actual.len() || expected.is_empty() {
        return f64::INFINITY;
    }
    let mut off: f64 = 0.0;
    let mut largest: f64 = 0.0;
    for (expected, actual) in expected.iter().zip(actual) {
        if expected.is_finite() && actual.is_finite() {
            off = f64::from((expected - actual).abs()).max(off);
            largest = f64::from(expected.abs()).max(largest);
        } else if expected != actual && !(expected.is_nan() && actual.is_nan()) {
            return f64::INFINITY;
        }
    }
    // Activations that are all 0 are equal up to rounding.
    off / f64::max(largest, 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{network, wrong_when_optimized};

    fn pixels(images: usize) -> Tensor {
        let values = (0..images * 3 * 8 * 8).map(|index| (index % 17) as f32 / 17.0 - 0.5);
        Tensor::f32([images, 3, 8, 8], values.collect()).unwrap()
    }

    fn activations(layers: Model, activations: Option<Tensor>) -> CutActivations {
        CutActivations {
            layers: layers.slice(None, Some("features")).unwrap(),
            cut: "features".to_owned(),
            keys: vec!["a.png".to_owned(), "b.png".to_owned()],
            input: pixels(2),
            activations,
            split_may_change: false,
            precision: Precision::Full,
            threads: 1,
        }
    }

    #[test]
    fn differences_are_relative_to_the_largest_value() {
        let tensor = |values: &[f32]| Tensor::f32([1, values.len()], values.to_vec()).unwrap();
        let expected = tensor(&[-4.0, 1.0, 0.0]);
        for (actual, off) in [
            (&[-4.0, 1.0, 0.0][..], 0.0),
            (&[-4.0, 1.0, 0.5], 0.125),
            (&[-3.0, 1.0, 0.0], 0.25),
            (&[-4.0, f32::NAN, 0.0], f64::INFINITY),
            (&[-4.0, f32::INFINITY, 0.0], f64::INFINITY),
            (&[-4.0, 1.0], f64::INFINITY),
        ] {
            assert_eq!(difference(&expected, &tensor(actual)), off, "{actual:?}");
        }
        let without_numbers = tensor(&[f32::NAN, f32::INFINITY, 1.0]);
        assert_eq!(difference(&without_numbers, &without_numbers), 0.0);
        assert_eq!(difference(&tensor(&[0.0]), &tensor(&[0.0])), 0.0);
        let integers = Tensor::i64([1, 1], vec![0]).unwrap();
        assert_eq!(difference(&integers, &integers), f64::INFINITY);
    }

    #[test]
    fn layers_that_exceed_the_memory_are_not_compared() {
        let layers = activations(network(), None);
        let warning = layers.exceeds(Some(1000)).unwrap();
        assert!(
            warning.contains("'features' are not compared") && warning.contains("1000 bytes"),
            "{warning}"
        );
        assert_eq!(layers.exceeds(Some(1 << 20)), None);
        assert_eq!(layers.exceeds(None), None);
    }

    #[tokio::test]
    async fn activations_within_the_tolerance_are_accepted() {
        let right = activations(network(), None);
        let computed = right.compute(true, &Interrupt::new()).unwrap();
        assert_eq!(right.clone().check().await.unwrap(), None);
        let values = computed.as_f32().unwrap();
        let largest = values
            .iter()
            .copied()
            .fold(0.0, |most: f32, value| most.max(value.abs()));
        for (off, precision, accepted) in [
            (0.0005, Precision::Full, true),
            (0.002, Precision::Full, false),
            (0.002, Precision::Tf32, true),
            (0.02, Precision::F16, true),
            (0.1, Precision::F16, false),
        ] {
            let mut changed = values.to_vec();
            changed[3] += off * largest;
            let changed = Tensor::f32(computed.shape().clone(), changed).unwrap();
            let mut compared = activations(network(), Some(changed));
            compared.precision = precision;
            let outcome = compared.check().await;
            assert_eq!(outcome.is_ok(), accepted, "{off} {precision:?}");
            if let Err(error) = outcome {
                let message = error.to_string();
                let said = ["'a.png', 'b.png'", "'features'", "this machine's CPU"];
                assert!(said.iter().all(|part| message.contains(part)), "{message}");
            }
        }
    }

    #[tokio::test]
    async fn layers_that_optimizations_change_are_refused() {
        let wrong = activations(wrong_when_optimized(), None);
        let computed = wrong.compute(true, &Interrupt::new()).unwrap();
        for received in [None, Some(computed)] {
            let error = activations(wrong_when_optimized(), received)
                .check()
                .await
                .unwrap_err();
            let message = error.to_string();
            let said = [
                "'a.png', 'b.png'",
                "'features'",
                "ONNX Runtime's optimizations change",
            ];
            assert!(said.iter().all(|part| message.contains(part)), "{message}");
        }
        let exact = wrong.compute(false, &Interrupt::new()).unwrap();
        let mut right = activations(wrong_when_optimized(), Some(exact));
        assert_eq!(right.clone().check().await.unwrap(), None);
        right.split_may_change = true;
        assert!(right.check().await.is_err());
    }
}
