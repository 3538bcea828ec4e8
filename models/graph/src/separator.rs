//! The tensors that separate the input of a network from later ones: a minimum vertex cut, found with the augmenting
//! paths of Edmonds and Karp (1972) in a graph with two vertices per tensor.

use crate::GraphError;
use crate::analysis::Analysis;
use crate::tensor_info::joinable;
use std::collections::{HashMap, HashSet, VecDeque};

/// Capacity added to the bytes of a tensor, so that the number of tensors is minimized before the bytes.
const TENSOR: u64 = 1 << 40;

/// Capacity of tensors that cannot be cut, and of connections.
pub(crate) const UNBOUNDED: u64 = u64::MAX / 4;

/// Directed edge of the flow graph. The edge with the next (odd) number leads back.
#[derive(Clone)]
struct Edge {
    to: usize,
    capacity: u64,
}

/// Graph of the tensors between the input and the output, without those of a given cut.
#[derive(Clone)]
pub(crate) struct Separator<'a> {
    names: Vec<&'a str>,
    numbers: HashMap<&'a str, usize>,
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

/// Returns the bytes per sample that a joint cut needs for a tensor, which it converts to `f32`, or `None` if it cannot contain the tensor.
pub(crate) fn bytes(analysis: &Analysis<'_>, name: &str) -> Option<u64> {
    let row = joinable(analysis, name)?;
    Some(row.shape.bytes(4).unwrap_or(usize::MAX) as u64)
}

impl<'a> Separator<'a> {
    /// Returns the graph between the input and the output without the tensors `cut`.
    pub(crate) fn without(analysis: &Analysis<'a>, cut: &[&str], choice: Choice) -> Result<Self, GraphError> {
        let mut computed: HashSet<&str> = cut.iter().copied().collect();
        for node in analysis.model.nodes() {
            if analysis.data_inputs(node).any(|name| computed.contains(name)) {
                computed.extend(node.output.iter().map(String::as_str));
            }
        }
        let output = analysis.model.output_name()?;
        let path = analysis.data_path(output, None);
        Self::new(analysis, &path, |name| {
            let is_candidate = choice == Choice::Any || !computed.contains(name);
            let capacity = bytes(analysis, name).filter(|_| is_candidate);
            (!cut.contains(&name)).then(|| capacity.map_or(UNBOUNDED, |bytes| TENSOR.saturating_add(bytes)))
        })
    }

    /// Returns the graph of the tensors that the nodes of `path` produce. Tensors without a capacity are left out.
    pub(crate) fn new(
        analysis: &Analysis<'a>,
        path: &HashSet<usize>,
        capacity: impl Fn(&str) -> Option<u64>,
    ) -> Result<Self, GraphError> {
        let mut graph = Self {
            names: Vec::new(),
            numbers: HashMap::new(),
            edges: Vec::new(),
            from: Vec::new(),
            input: 0,
            output: 0,
        };
        graph.input = graph.tensor(analysis.model.input_name()?, UNBOUNDED);
        graph.output = graph.tensor(analysis.model.output_name()?, UNBOUNDED);
        for (index, node) in analysis.model.nodes().iter().enumerate() {
            for made in node.output.iter().filter(|_| path.contains(&index)) {
                let Some(capacity) = capacity(made) else {
                    continue;
                };
                let to = graph.tensor(made, capacity);
                for read in analysis.data_inputs(node) {
                    if let Some(from) = graph.numbers.get(read) {
                        graph.connect(2 * from + 1, 2 * to, UNBOUNDED);
                    }
                }
            }
        }
        Ok(graph)
    }

    /// Marks the tensor as computed. The next separators do not contain tensors that it is computed from.
    pub(crate) fn compute(&mut self, name: &str) {
        if let Some(number) = self.numbers.get(name) {
            self.connect(2 * self.input + 1, 2 * number, UNBOUNDED);
        }
    }

    /// Ends the graph at this tensor, which is separated from the input like the output.
    pub(crate) fn end_at(&mut self, name: &str) {
        if let Some(number) = self.numbers.get(name) {
            self.connect(2 * number + 1, 2 * self.output, UNBOUNDED);
        }
    }

    /// Returns the number of a tensor, which is added with this capacity if it is new.
    fn tensor(&mut self, name: &'a str, capacity: u64) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.numbers.insert(name, number);
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

    /// Returns the tensors with the smallest capacity that separate the output from the input, in the order of execution.
    /// Of several such sets, it is the one that is computed first. Returns `None` if the capacity exceeds that of `most`
    /// tensors.
    pub(crate) fn fewest(&mut self, most: usize) -> Option<Vec<&'a str>> {
        let mut flow: u64 = 0;
        loop {
            let reached = self.search();
            if reached.get(2 * self.output).copied().flatten().is_none() {
                let names = self.names.iter().enumerate();
                let cut = names.filter(|(number, _)| {
                    self.is_reached(&reached, 2 * number) && !self.is_reached(&reached, 2 * number + 1)
                });
                return Some(cut.map(|(_, name)| *name).collect());
            }
            flow = flow.saturating_add(self.augment(&reached));
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
