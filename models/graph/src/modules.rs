//! Which modules of the network's source a node lies in, where its exporter noted it.

use crate::analysis::Analysis;
use crate::onnx::NodeProto;
use std::collections::HashMap;

/// The note of torch's newer exporter: a Python list of the paths of the modules around a node, from the root, whose path is empty, to
/// the operation itself.
const SCOPES: &str = "pkg.torch.onnx.name_scopes";

/// Modules that are told of one node: networks nest them ten deep.
const MOST: usize = 16;

impl NodeProto {
    /// The paths of the modules the node lies in, the outermost first, the root left out: `layer4`, `layer4.0`, `layer4.0.conv1`. None
    /// where the exporter left no note of them.
    pub fn modules(&self) -> Vec<String> {
        let note = self.metadata_props.iter().find(|entry| entry.key == SCOPES);
        match note {
            Some(note) => scopes(&note.value),
            None => path(&self.name),
        }
    }

    /// Which node it is, for messages: `node 'add_3' of module 'blocks.1'`.
    pub fn place(&self) -> String {
        let node = format!("node '{}'", self.label());
        match self.modules().last() {
            Some(module) => format!("{node} of module '{module}'"),
            None => node,
        }
    }
}

/// `['', 'layer4', 'layer4.0', 'layer4.0.conv1', 'conv2d_15']`: the last is the operation.
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
        .take(MOST)
        .map(str::to_owned)
        .collect()
}

/// `/layer4/layer4.0/conv1/Conv`, as torch's older exporter calls a node: the names of modules, the numbered ones with that of the sequence
/// they are in, and the operation.
fn path(name: &str) -> Vec<String> {
    let Some(parts) = name.strip_prefix('/') else {
        return Vec::new();
    };
    let mut parts: Vec<&str> = parts.split('/').collect();
    parts.pop();
    let mut paths: Vec<String> = Vec::new();
    let mut before = "";
    for part in parts.into_iter().take(MOST) {
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

/// For each of `cuts` the modules whose output it is, the outermost first: it is made inside them, and read only outside.
pub(crate) fn giving(analysis: &Analysis<'_>, cuts: &[&str]) -> Vec<Vec<String>> {
    let mut modules: HashMap<&str, Vec<String>> = HashMap::new();
    for &cut in cuts {
        let producer = analysis.producer(cut);
        modules.extend(producer.map(|(_, producer)| (cut, producer.modules())));
    }
    for reader in analysis.model.nodes() {
        for input in analysis.data_inputs(reader) {
            if let Some(modules) = modules.get_mut(input).filter(|modules| !modules.is_empty()) {
                let inside = reader.modules();
                modules.retain(|module| !inside.contains(module));
            }
        }
    }
    cuts.iter()
        .map(|cut| modules.remove(cut).unwrap_or_default())
        .collect()
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
