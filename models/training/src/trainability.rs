//! From where a network can be trained, found by writing its forward pass and nothing else.

use crate::source::Source;
use crate::training_graph::Writer;
use crate::{BatchNorm, TrainingError};
use frostline_graph::onnx::NodeProto;
use frostline_graph::{Cut, Model, Network};
use std::collections::{HashMap, HashSet};

/// Classes of the head that stands for the one a job will have. How many there are decides nothing.
const CLASSES: usize = 2;

/// Rows of a batch: two, so that no axis of size 1 is taken for it.
const BATCH: usize = 2;

/// From where a network can be trained under a fresh head, of all its cuts at once.
#[derive(Debug)]
pub struct Trainability {
    /// In the order of the nodes.
    obstacles: Vec<Obstacle>,
    /// The place of the node that makes each value, counted from 1; that of the input is 0.
    places: HashMap<String, usize>,
}

/// A node that cannot be trained through.
#[derive(Debug)]
struct Obstacle {
    /// No gradient comes to it from a cut at this place or behind.
    place: usize,
    why: TrainingError,
}

impl Trainability {
    /// Tries the rule of every node of `model`. Nothing is run, and no weight is read.
    ///
    /// # Errors
    /// [`TrainingError::Graph`] where the network has no head that can be replaced, [`TrainingError::Suffix`] where it gives no scores of classes.
    pub fn analyze(model: &Model) -> Result<Self, TrainingError> {
        let headed = model.replace_head(CLASSES, 0)?;
        let source = Source::from_suffix(&headed, BATCH, BatchNorm::default())?;
        let mut writer = Writer::of_shapes(&source);
        let mut flow = Flow::start(&headed);
        let mut obstacles = Vec::new();
        let mut places = HashMap::new();
        for (index, node) in headed.nodes().iter().enumerate() {
            let place = flow.step(index + 1, node);
            if let Err(why) = writer.node(node) {
                obstacles.push(Obstacle { place, why });
                writer.assume(node);
            }
            places.extend(node.output.iter().map(|name| (name.clone(), index + 1)));
        }
        Ok(Self { obstacles, places })
    }

    /// What stands against training all that lies behind the value `cut`, the last of it where it is more than one thing; `None` where nothing
    /// does.
    pub fn against(&self, cut: &str) -> Option<&TrainingError> {
        let place = self.places.get(cut).copied().unwrap_or(0);
        let blocks = |obstacle: &&Obstacle| obstacle.place > place;
        self.obstacles
            .iter()
            .rev()
            .find(blocks)
            .map(|obstacle| &obstacle.why)
    }

    /// The earliest of the network's freeze cuts that can be trained from.
    pub fn earliest<'a>(&self, network: &'a Network) -> Option<&'a Cut> {
        let works = |cut: &&Cut| cut.before_head && self.against(&cut.name).is_none();
        network.cuts.iter().find(works)
    }
}

/// From which place on a gradient flows to each value: a weight that is trained makes all behind it want one, unless it is frozen with
/// what lies before a cut.
struct Flow<'a> {
    /// Weights, and what is made of them alone.
    weights: HashSet<&'a str>,
    /// For each value made of data, the last place before it that reads a weight; 0 where none does.
    since: HashMap<&'a str, usize>,
}

impl<'a> Flow<'a> {
    fn start(model: &'a Model) -> Self {
        let weights = model.parameters();
        Self {
            weights: weights.iter().map(|weight| weight.name.as_str()).collect(),
            since: model.inputs().map(|input| (input.name.as_str(), 0)).collect(),
        }
    }

    /// Takes in the node at `place`, and gives the place before which a cut has a gradient come to it.
    fn step(&mut self, place: usize, node: &'a NodeProto) -> usize {
        let data = node.input.iter().filter_map(|name| self.since.get(name.as_str()));
        let since = data.max().copied();
        let reads_weight = node.input.iter().any(|name| self.weights.contains(name.as_str()));
        let outputs = node.output.iter().map(String::as_str);
        match since {
            Some(since) => {
                let since = if reads_weight { place } else { since };
                self.since.extend(outputs.map(|name| (name, since)));
                since
            }
            None if reads_weight => {
                self.weights.extend(outputs);
                place
            }
            None => 0,
        }
    }
}
