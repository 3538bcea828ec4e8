//! Source modules of nodes, if the exporter recorded them.

use crate::Cut;
use crate::analysis::Analysis;
use crate::onnx::NodeProto;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

/// Metadata key of torch's newer exporter. The value is a Python list. It contains the paths of the modules
/// around a node, from the root with an empty path to the operation itself.
const SCOPES: &str = "pkg.torch.onnx.name_scopes";

/// Maximum number of modules per node. Modules of real networks are nested up to ten levels deep.
const MAX_MODULES: usize = 16;

/// Maximum size of a note, in bytes. Longer notes are ignored. Sixteen paths of 200 bytes fit with room to
/// spare.
const NOTE_BYTES: usize = 16 << 10;

impl NodeProto {
    /// Returns the paths of the modules that contain the node, outermost first and without the root, such as
    /// `layer4`, `layer4.0`, `layer4.0.conv1`. Empty if the exporter recorded none.
    pub fn modules(&self) -> Vec<String> {
        let note = self.metadata_props.iter().find(|entry| entry.key == SCOPES);
        match note {
            Some(note) if note.value.len() <= NOTE_BYTES => scopes(&note.value),
            Some(_) => Vec::new(),
            None => path(&self.name),
        }
    }

    /// Returns a description of the node for messages, such as `node 'add_3' of module 'blocks.1'`.
    pub fn place(&self) -> String {
        let node = format!("node '{}'", self.label());
        match self.modules().last() {
            Some(module) => format!("{node} of module '{module}'"),
            None => node,
        }
    }
}

/// Parses a note such as `['', 'layer4', 'layer4.0', 'layer4.0.conv1', 'conv2d_15']`. The last entry is the
/// operation.
fn scopes(note: &str) -> Vec<String> {
    let list = note.trim_start_matches('[').trim_end_matches(']');
    let mut paths: Vec<&str> = list
        .split(", ")
        .map(|path| path.trim_matches(['\'', '"']))
        .collect();
    paths.pop();
    paths
        .into_iter()
        .filter(|path| !path.is_empty())
        .take(MAX_MODULES)
        .map(str::to_owned)
        .collect()
}

/// Parses a node name of torch's older exporter, such as `/layer4/layer4.0/conv1/Conv`. It consists of
/// modules and the operation. Numbered modules have the name of the sequence as a prefix.
fn path(name: &str) -> Vec<String> {
    let Some(parts) = name.strip_prefix('/') else {
        return Vec::new();
    };
    let mut parts: Vec<&str> = parts.split('/').collect();
    parts.pop();
    let mut paths: Vec<String> = Vec::new();
    let mut before = "";
    for part in parts.into_iter().take(MAX_MODULES) {
        let whole = match paths.last() {
            None => part.to_owned(),
            Some(outer) => match part.strip_prefix(before).filter(|rest| rest.starts_with('.')) {
                Some(rest) => format!("{outer}{rest}"),
                None => format!("{outer}.{part}"),
            },
        };
        paths.push(whole);
        before = part;
    }
    paths
}

/// Sets the modules that output the tensors of the cuts, outermost first. A value is the output of a module
/// if it is produced inside and read only outside.
pub(crate) fn name(analysis: &Analysis<'_>, cuts: &mut [Cut]) {
    let names: HashSet<&str> = cuts.iter().map(|cut| cut.name.as_str()).collect();
    let mut modules: HashMap<&str, Vec<String>> = names
        .into_iter()
        .filter_map(|name| {
            let (_, producer) = analysis.links.producer(name)?;
            Some((name, producer.modules()))
        })
        .collect();
    for reader in analysis.model.nodes() {
        // Parse a note once per node, not once per input: a node can have 512 inputs and a note of 16 KiB.
        let inside = OnceCell::new();
        for input in analysis.data_inputs(reader) {
            if let Some(modules) = modules.get_mut(input).filter(|modules| !modules.is_empty()) {
                let inside = inside.get_or_init(|| reader.modules());
                modules.retain(|module| !inside.contains(module));
            }
        }
    }
    let mut named: Vec<Vec<String>> = cuts
        .iter()
        .map(|cut| modules.remove(cut.name.as_str()).unwrap_or_default())
        .collect();
    for (cut, modules) in cuts.iter_mut().zip(&mut named) {
        cut.modules = std::mem::take(modules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::node;
    use crate::onnx::StringStringEntry;

    #[test]
    fn the_newer_exporters_note_is_read() {
        let mut noted = node("Relu", &["x"], &["relu_16"]);
        noted.metadata_props.push(StringStringEntry {
            key: SCOPES.into(),
            value: "['', 'layer4', 'layer4.1', 'layer4.1.relu', 'relu_16']".into(),
        });
        assert_eq!(noted.modules(), ["layer4", "layer4.1", "layer4.1.relu"]);
    }

    #[test]
    fn a_note_that_is_too_long_is_not_read() {
        let mut noted = node("Relu", &["x"], &["relu_16"]);
        noted.metadata_props.push(StringStringEntry {
            key: SCOPES.into(),
            value: format!("['', 'layer4', '{}', 'relu_16']", "a".repeat(NOTE_BYTES)),
        });
        assert!(noted.modules().is_empty());
    }

    #[test]
    fn the_older_exporters_names_are_paths() {
        let modules = |name: &str| {
            let mut named = node("Relu", &["x"], &["y"]);
            named.name = name.into();
            named.modules()
        };
        assert_eq!(
            modules("/layer4/layer4.0/conv1/Conv"),
            ["layer4", "layer4.0", "layer4.0.conv1"]
        );
        assert_eq!(
            modules("/blocks/blocks.1/blocks.1.0/bn/Add"),
            ["blocks", "blocks.1", "blocks.1.0", "blocks.1.0.bn"]
        );
        assert_eq!(
            modules("/encoder/layers/encoder_layer_0/Add_1"),
            ["encoder", "encoder.layers", "encoder.layers.encoder_layer_0"]
        );
        assert!(modules("/Flatten").is_empty());
        assert!(modules("node_conv2d_1").is_empty());
        assert!(modules("").is_empty());
    }
}
