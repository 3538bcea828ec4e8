//! Follows the samples of the batch through a network, up to operators that are unknown or compute across
//! samples.

use crate::form::read_names;
use crate::onnx::NodeProto;
use crate::operators;
use crate::values::{Probes, RowUse, RowUses, RowView};

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
        };
        let Some(operator) = operators::find(node) else {
            return (RowUse::Mixed, false);
        };
        let samples = (operator.rows)(&view);
        (
            samples.map_or(RowUse::Mixed, RowUse::PerSample),
            operator.like_outputs,
        )
    }
}

/// Checks the result of a rule against the shape of the value.
fn settle(name: &str, row_use: RowUse, probes: &Probes) -> RowUse {
    match row_use {
        _ if probes.is_fixed(name) => RowUse::Independent,
        RowUse::PerSample(samples) if !probes.dims(name).is_some_and(|dims| samples.lie_in(&dims)) => {
            RowUse::Mixed
        }
        other => other,
    }
}
