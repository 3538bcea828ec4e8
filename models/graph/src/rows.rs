//! Follows the samples of the batch through a network, up to operators that are unknown or compute across
//! samples.

use crate::form::read_names;
use crate::onnx::NodeProto;
use crate::values::{Probes, RowUse, RowUses, RowView, SampleAxis};
use crate::{operators, positions};

impl RowUses {
    /// Derives the row use of the outputs of the next node. `probes` must already contain them.
    pub(crate) fn step(&mut self, node: &NodeProto, probes: &Probes) {
        let same = !operators::is_random(node)
            && read_names(node)
                .into_iter()
                .all(|name| self.get(name) == RowUse::Independent);
        let (row_use, every_output) = if same {
            (RowUse::Independent, true)
        } else {
            self.followed(node, probes)
        };
        if let (RowUse::Independent, Some(name)) = (row_use, node.output_name(0))
            && let Some(bound) = positions::bound(node, probes, self)
        {
            self.limit(name, bound);
        }
        for (slot, name) in node.output.iter().enumerate() {
            let followed = if slot == 0 || every_output {
                row_use
            } else {
                RowUse::Mixed
            };
            if !name.is_empty() {
                self.insert(name, settle(name, followed, probes));
            }
        }
    }

    /// Applies the row rule of the node's operator, and returns whether the result holds for every output. If
    /// no rule exists or it does not apply, samples count as mixed.
    fn followed(&self, node: &NodeProto, probes: &Probes) -> (RowUse, bool) {
        let view = RowView {
            node,
            probes,
            uses: self,
            moves_positions: false,
        };
        let Some(operator) = operators::find(node) else {
            return (RowUse::Mixed, false);
        };
        let samples = (operator.rows)(&view);
        match samples {
            Some(samples) => (RowUse::PerSample(samples), operator.like_outputs),
            None => (positions::follow(view).unwrap_or(RowUse::Mixed), false),
        }
    }
}

/// Checks the result of a rule against the shape of the value.
fn settle(name: &str, row_use: RowUse, probes: &Probes) -> RowUse {
    if probes.is_fixed(name) {
        return RowUse::Independent;
    }
    let samples = match row_use {
        RowUse::PerSample(samples) => samples,
        RowUse::Position(position) => SampleAxis::plain(position.axis),
        RowUse::Index(axis) => SampleAxis::plain(axis),
        RowUse::Independent | RowUse::Mixed => return row_use,
    };
    match probes.dims(name) {
        Some(dims) if samples.lie_in(&dims) => row_use,
        _ => RowUse::Mixed,
    }
}
