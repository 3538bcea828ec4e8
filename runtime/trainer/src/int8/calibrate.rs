//! Calibration and trial on this machine.

use super::{EXACT_ENOUGH, Int8Record};
use crate::TrainerError;
use frostline_engine::{EngineError, Interrupt, Session, SessionOptions};
use frostline_graph::{Cut, Model, Network};
use frostline_profile::{candidates, timed};
use frostline_quantisation::{
    Calibration, Quantised, Recipe, WeightBits, cosine, layers_between, observed, quantise,
};
use frostline_tensor::Tensor;

/// Rows of a run: enough to keep two cores busy.
const ROWS: usize = 8;

/// Times that the layers which cost most precision go back to f32: beyond, little of a network is left in int8.
const ROUNDS: usize = 4;

/// The frozen layers and what they are tried on.
pub(super) struct Trial {
    pub(super) model: Model,
    pub(super) freeze: String,
    /// Network input of calibration images.
    pub(super) seen: Tensor,
    /// That of others, which the error is measured on.
    pub(super) unseen: Tensor,
    pub(super) weights: WeightBits,
    pub(super) options: SessionOptions,
}

/// Rows of a network, and how fast it makes them.
struct Ran {
    rows: Tensor,
    seconds: f64,
}

impl Trial {
    /// Calibrates, and takes layers back to f32 until rows agree.
    ///
    /// # Errors
    /// [`TrainerError::Quantisation`], [`TrainerError::Engine`].
    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<Int8Record, TrainerError> {
        let mut calibration = Calibration::new(&self.model, &self.freeze)?;
        self.each(calibration.model(), &self.seen, interrupt)?
            .iter()
            .for_each(|outputs| calibration.add(outputs));
        let ranges = calibration.ranges();
        let exact = self.time(&self.model, interrupt)?;
        let (mut recipe, mut worst) = (Recipe::new(self.weights), None);
        for round in 0.. {
            let Quantised { model, layers, of } = quantise(&self.model, &self.freeze, &ranges, &recipe)?;
            let rounded = self.time(&model, interrupt)?;
            let cosine = cosine(&exact.rows, &rounded.rows);
            let costly = match cosine < EXACT_ENOUGH && round < ROUNDS {
                true => self.costly(&model, &recipe, interrupt)?,
                false => None,
            };
            let Some((name, in_f32)) = costly else {
                return Ok(Int8Record {
                    cosine,
                    speedup: exact.seconds / rounded.seconds,
                    layers: (layers, of),
                    used: false,
                    ranges,
                    recipe,
                    worst,
                });
            };
            worst.get_or_insert(name);
            recipe.in_f32.extend(in_f32);
        }
        Err(TrainerError::Ended { part: "calibration" })
    }

    /// The layers between two cuts that cost most of the agreement, by what they make, and the name of the later cut.
    fn costly(
        &self,
        rounded: &Model,
        recipe: &Recipe,
        interrupt: &Interrupt,
    ) -> Result<Option<(String, Vec<String>)>, TrainerError> {
        let network = self.model.network()?;
        let both = rounded.network()?;
        let mut cuts = candidates(&self.model, &network, &self.freeze)?;
        cuts.retain(|cut| both.cut(&cut.name).is_ok());
        let agreement = self.agreement(rounded, &cuts, interrupt)?;
        let mut before = 1.0;
        let mut costs = Vec::new();
        for (index, (cut, cosine)) in cuts.iter().zip(agreement).enumerate() {
            let from = index.checked_sub(1).and_then(|index| cuts.get(index));
            costs.push((before - cosine, from, cut));
            before = cosine;
        }
        costs.sort_by(|(left, ..), (right, ..)| right.total_cmp(left));
        for (_, from, cut) in costs {
            let mut layers = layers_between(&self.model, from.map(|cut| cut.name.as_str()), &cut.name)?;
            layers.retain(|layer| !recipe.in_f32.contains(layer));
            if !layers.is_empty() {
                return Ok(Some((title(&network, cut), layers)));
            }
        }
        Ok(None)
    }

    /// How the values at `cuts` agree.
    fn agreement(
        &self,
        rounded: &Model,
        cuts: &[Cut],
        interrupt: &Interrupt,
    ) -> Result<Vec<f64>, TrainerError> {
        let rows = self.unseen.slice_rows(0, self.unseen.rows()?.min(ROWS))?;
        let run = |model: &Model| -> Result<Vec<(String, Tensor)>, TrainerError> {
            Ok(self.each(&observed(model, cuts)?, &rows, interrupt)?.remove(0))
        };
        let (exact, rounded) = (run(&self.model)?, run(rounded)?);
        let pairs = exact.iter().zip(&rounded);
        Ok(pairs
            .map(|((_, exact), (_, rounded))| cosine(exact, rounded))
            .collect())
    }

    /// Rows of `model` at the freeze cut, of all images it was not calibrated on; the time of a batch.
    fn time(&self, model: &Model, interrupt: &Interrupt) -> Result<Ran, TrainerError> {
        let part = model.slice(None, Some(&self.freeze))?;
        let first = |outputs: Vec<(String, Tensor)>| outputs.into_iter().next().map(|(_, tensor)| tensor);
        let rows = self.each(&part, &self.unseen, interrupt)?;
        let rows: Vec<Tensor> = rows.into_iter().filter_map(first).collect();
        let mut session = self.open(&part, interrupt)?;
        let batch = self.unseen.slice_rows(0, self.unseen.rows()?.min(ROWS))?;
        let input = part.input_name()?;
        let once = || session.run_until(&[(input, &batch)], interrupt).map_err(engine);
        Ok(Ran {
            rows: Tensor::concat_rows(&rows)?,
            seconds: timed(once)?.1,
        })
    }

    /// The outputs of `model` for all rows, some at a time.
    fn each(
        &self,
        model: &Model,
        rows: &Tensor,
        interrupt: &Interrupt,
    ) -> Result<Vec<Vec<(String, Tensor)>>, TrainerError> {
        let mut session = self.open(model, interrupt)?;
        let (input, count) = (model.input_name()?, rows.rows()?);
        let starts = (0..count).step_by(ROWS);
        let run = |start: usize| {
            let batch = rows.slice_rows(start, count.min(start + ROWS))?;
            session.run_until(&[(input, &batch)], interrupt).map_err(engine)
        };
        starts.map(run).collect()
    }

    fn open(&self, model: &Model, interrupt: &Interrupt) -> Result<Session, TrainerError> {
        Session::open_until(&model.to_bytes()?, &self.options, interrupt).map_err(engine)
    }
}

fn title(network: &Network, cut: &Cut) -> String {
    network.title(cut).to_owned()
}

fn engine(source: EngineError) -> TrainerError {
    TrainerError::Engine {
        doing: "calibrating int8",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;
    use frostline_graph::build::initializer;

    fn noise(seed: u32, count: usize) -> Vec<f32> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(next).collect()
    }

    fn trial(model: Model) -> Trial {
        let rows = |seed| Tensor::f32([4, 3, 8, 8], noise(seed, 4 * 3 * 64)).unwrap();
        Trial {
            model,
            freeze: "features".to_owned(),
            seen: rows(1),
            unseen: rows(2),
            weights: WeightBits::Eight,
            options: SessionOptions::default(),
        }
    }

    /// The network with one channel between its convolutions that is `factor` times as large, which changes no output.
    fn with_large_channel(factor: f32) -> Model {
        let scaled = |name: &str, is_large: &dyn Fn(usize) -> bool, factor: f32| {
            let weight = network().weight(name).unwrap();
            let values = weight.as_f32().unwrap().iter().enumerate();
            let values = values.map(|(index, value)| if is_large(index) { value * factor } else { *value });
            initializer(
                name,
                &Tensor::f32(weight.shape().clone(), values.collect()).unwrap(),
            )
        };
        let channels = network().weight("w1").unwrap().shape().dims()[0];
        let mut proto = network().into_proto();
        let graph = proto.graph.as_mut().unwrap();
        for weight in &mut graph.initializer {
            match weight.name.as_str() {
                "w1" => *weight = scaled("w1", &|index| index < 27, factor),
                "w2" => *weight = scaled("w2", &|index| index / 9 % channels == 0, 1.0 / factor),
                _ => {}
            }
        }
        Model::from_proto(proto).unwrap()
    }

    #[test]
    fn layers_that_cost_too_much_go_back_to_f32() {
        let plain = trial(network()).run(&Interrupt::new()).unwrap();
        assert_eq!((plain.layers, plain.worst.as_deref()), ((2, 2), None));
        assert!(
            plain.cosine >= EXACT_ENOUGH && plain.cosine < 1.0,
            "{}",
            plain.cosine
        );
        let large = trial(with_large_channel(1e4)).run(&Interrupt::new()).unwrap();
        assert!(large.cosine >= EXACT_ENOUGH, "{}", large.cosine);
        assert!(large.layers.0 < 2 && large.worst.is_some(), "{:?}", large.recipe);
    }
}
