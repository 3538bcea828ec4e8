//! Finds the cuts from which a network can be trained. Only the forward pass is written for this.

use crate::source::SourceGraph;
use crate::training_graph::GraphWriter;
use crate::{BatchNorm, TrainingError};
use frostline_graph::onnx::NodeProto;
use frostline_graph::{Cut, Model, Network};
use std::collections::{HashMap, HashSet};

/// Number of classes of the temporary head. The number does not affect the result.
const CLASSES: usize = 2;

/// Number of batch rows, larger than 1 to distinguish the batch axis from axes of size 1.
const BATCH: usize = 2;

/// Trainability of all cuts of a network with a new head.
#[derive(Debug)]
pub struct Trainability {
    /// Untrainable nodes in the order of the graph.
    obstacles: Vec<Obstacle>,
    /// Node indices of values, counted from 1. Inputs have the index 0.
    places: HashMap<String, usize>,
}

/// Node that does not support training.
#[derive(Debug)]
struct Obstacle {
    /// Only cuts before this node index need a gradient through the node.
    place: usize,
    why: TrainingError,
}

impl Trainability {
    /// Tries the rules of all nodes in `model`. This neither executes the network nor reads weights.
    ///
    /// # Errors
    /// Returns [`TrainingError::Graph`] if the network has no replaceable head or the shapes are invalid, and
    /// [`TrainingError::Suffix`] if it does not compute scores of classes.
    pub fn analyze(model: &Model) -> Result<Self, TrainingError> {
        let owned = model.with_own_weights(model.input_name()?)?;
        let headed = owned.replace_head(CLASSES, 0)?;
        let source = SourceGraph::from_suffix(&headed, BATCH, BatchNorm::default())?;
        let mut writer = GraphWriter::of_shapes(&source);
        let mut flow = Flow::start(&headed);
        let mut obstacles: Vec<Obstacle> = Vec::new();
        // Obstacles in the computation of a weight, by value.
        let mut behind: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut places = HashMap::new();
        for (index, node) in headed.nodes().iter().enumerate() {
            let place = flow.step(index + 1, node);
            let read = node.input.iter().filter_map(|name| behind.get(name.as_str()));
            let mut found: Vec<usize> = read.flatten().copied().collect();
            if let Err(why) = writer.node(node) {
                found.push(obstacles.len());
                obstacles.push(Obstacle { place, why });
                writer.assume(node);
            }
            // A weight is needed by all cuts before the node that reads it, wherever it is computed.
            match node.output.iter().all(|name| flow.is_weight(name)) {
                true => behind.extend(node.output.iter().map(|name| (name.as_str(), found.clone()))),
                false => {
                    for found in found {
                        if let Some(obstacle) = obstacles.get_mut(found) {
                            obstacle.place = obstacle.place.max(place);
                        }
                    }
                }
            }
            places.extend(node.output.iter().map(|name| (name.clone(), index + 1)));
        }
        Ok(Self { obstacles, places })
    }

    /// Returns the reason why the layers after the value `cut` cannot be trained, or `None` if training is
    /// possible. If there are multiple obstacles, this is the last one in the order of the graph.
    pub fn obstacle(&self, cut: &str) -> Option<&TrainingError> {
        let place = self.places.get(cut).copied().unwrap_or(0);
        self.obstacles
            .iter()
            .rev()
            .find(|obstacle| obstacle.place > place)
            .map(|obstacle| &obstacle.why)
    }

    /// Returns the earliest freeze cut of the network from which training is possible, or `None` if no cut
    /// before the head allows it.
    pub fn earliest<'a>(&self, network: &'a Network) -> Option<&'a Cut> {
        network
            .cuts
            .iter()
            .find(|cut| cut.before_head && self.obstacle(&cut.name).is_none())
    }
}

/// Tracks the values that need a gradient, depending on the cut: all values computed from a weight need a
/// gradient, except if the weight is before the cut.
struct Flow<'a> {
    /// Weights, and values computed only from weights.
    weights: HashSet<&'a str>,
    /// Values computed from data, with the index of the last preceding node that reads a weight. The index is
    /// 0 if no node does.
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

    /// Returns true for weights and values computed only from weights.
    fn is_weight(&self, name: &str) -> bool {
        self.weights.contains(name)
    }

    /// Adds the node with the index `place`. Returns the node index before which a cut needs a gradient
    /// through this node.
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
                // The node that reads the weight moves the obstacle to its own place.
                0
            }
            None => 0,
        }
    }
}
