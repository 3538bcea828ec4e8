//! The fewest tensors that separate the input of a network from the output: a minimum vertex cut, found with the
//! augmenting paths of Edmonds and Karp (1972) in a graph with two vertices per tensor.

use crate::GraphError;
use crate::analysis::Analysis;
use crate::network::joinable;
use std::collections::{HashMap, HashSet, VecDeque};

/// Capacity added to the bytes of a tensor, so that the number of tensors is minimized before the bytes.
const TENSOR: u64 = 1 << 40;

/// Capacity of tensors that cannot be cut, and of connections.
const UNBOUNDED: u64 = u64::MAX / 4;

/// Directed edge of the flow graph. The edge with the next (odd) number leads back.
struct Edge {
    to: usize,
    capacity: u64,
}

/// Graph of the tensors between the input and the output, without those of a given cut.
pub(crate) struct Separator<'a> {
    names: Vec<&'a str>,
    edges: Vec<Edge>,
    /// Numbers of the edges from each vertex. The tensor `n` enters at the vertex `2 n` and leaves at `2 n + 1`.
    from: Vec<Vec<usize>>,
    input: usize,
    output: usize,
}

/// Candidates for a separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Tensors that are not computed from the given cut. A later tensor would make the given one redundant.
    Apart,
    /// All tensors.
    Any,
}

impl<'a> Separator<'a> {
    pub(crate) fn new(analysis: &Analysis<'a>, without: &[&str], choice: Choice) -> Result<Self, GraphError> {
        let [input, output] = [analysis.model.input_name()?, analysis.model.output_name()?];
        let mut graph = Self {
            names: Vec::new(),
            edges: Vec::new(),
            from: Vec::new(),
            input: 0,
            output: 0,
        };
        let mut numbers = HashMap::new();
        graph.input = graph.tensor(&mut numbers, input, UNBOUNDED);
        graph.output = graph.tensor(&mut numbers, output, UNBOUNDED);
        let path = analysis.data_path(output, None);
        let mut computed: HashSet<&str> = without.iter().copied().collect();
        for (index, node) in analysis.model.nodes().iter().enumerate() {
            let outputs = node.output.iter().map(String::as_str);
            let is_computed = analysis.data_inputs(node).any(|name| computed.contains(name));
            if is_computed {
                computed.extend(node.output.iter().map(String::as_str));
            }
            for made in outputs.filter(|name| path.contains(&index) && !without.contains(name)) {
                let row = joinable(analysis, made).filter(|_| choice == Choice::Any || !is_computed);
                // Joint cuts convert all tensors to `f32`.
                let capacity = row.map_or(UNBOUNDED, |row| {
                    let bytes = row.shape.bytes(4).unwrap_or(usize::MAX);
                    TENSOR.saturating_add(bytes as u64)
                });
                let to = graph.tensor(&mut numbers, made, capacity);
                for read in analysis.data_inputs(node) {
                    if let Some(from) = numbers.get(read) {
                        graph.connect(2 * from + 1, 2 * to, UNBOUNDED);
                    }
                }
            }
        }
        Ok(graph)
    }

    /// Returns the number of a tensor, which is added with this capacity if it is new.
    fn tensor(&mut self, numbers: &mut HashMap<&'a str, usize>, name: &'a str, capacity: u64) -> usize {
        if let Some(number) = numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        numbers.insert(name, number);
        self.names.push(name);
        self.from.extend([Vec::new(), Vec::new()]);
        self.connect(2 * number, 2 * number + 1, capacity);
        number
    }

    fn connect(&mut self, from: usize, to: usize, capacity: u64) {
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            let number = self.edges.len();
            self.edges.push(Edge { to, capacity });
            if let Some(edges) = self.from.get_mut(from) {
                edges.push(number);
            }
        }
    }

    /// Returns the fewest tensors that separate the output from the input, in the order of execution, and of several such
    /// sets the one with the fewest bytes per sample. Returns `None` if more than `most` are needed.
    pub(crate) fn fewest(mut self, most: usize) -> Option<Vec<String>> {
        let mut flow = 0;
        loop {
            let reached = self.search();
            if reached.get(2 * self.output).copied().flatten().is_none() {
                let names = self.names.iter().enumerate();
                let cut = names.filter(|(number, _)| {
                    self.is_reached(&reached, 2 * number) && !self.is_reached(&reached, 2 * number + 1)
                });
                return Some(cut.map(|(_, name)| (*name).to_owned()).collect());
            }
            flow += self.augment(&reached);
            if flow / TENSOR > most as u64 {
                return None;
            }
        }
    }

    /// Returns true for the input and for the vertices with a last edge in `reached`.
    fn is_reached(&self, reached: &[Option<usize>], vertex: usize) -> bool {
        vertex == 2 * self.input || reached.get(vertex).is_some_and(Option::is_some)
    }

    /// Returns the last edge of a shortest path from the input to each vertex.
    fn search(&self) -> Vec<Option<usize>> {
        let mut last = vec![None; self.from.len()];
        let mut open = VecDeque::from([2 * self.input]);
        while let Some(vertex) = open.pop_front() {
            for number in self.from.get(vertex).into_iter().flatten() {
                let Some(edge) = self.edges.get(*number).filter(|edge| edge.capacity > 0) else {
                    continue;
                };
                if let Some(slot @ None) = last.get_mut(edge.to)
                    && edge.to != 2 * self.input
                {
                    *slot = Some(*number);
                    open.push_back(edge.to);
                }
            }
        }
        last
    }

    /// Sends as much as possible along the path to the output, and returns the amount.
    fn augment(&mut self, last: &[Option<usize>]) -> u64 {
        let mut path = Vec::new();
        let mut vertex = 2 * self.output;
        while let Some(number) = last.get(vertex).copied().flatten() {
            path.push(number);
            vertex = self.edges.get(number ^ 1).map_or(2 * self.input, |back| back.to);
        }
        let capacities = path.iter().filter_map(|number| self.edges.get(*number));
        let amount = capacities.map(|edge| edge.capacity).min().unwrap_or(0);
        for number in path {
            for (number, is_forward) in [(number, true), (number ^ 1, false)] {
                if let Some(edge) = self.edges.get_mut(number) {
                    edge.capacity = match is_forward {
                        true => edge.capacity.saturating_sub(amount),
                        false => edge.capacity.saturating_add(amount),
                    };
                }
            }
        }
        amount
    }
}
