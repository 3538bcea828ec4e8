use frostline_graph::Network;
use frostline_wire::Split;
use std::collections::HashMap;

/// Names of the source modules that produce the cuts. Cuts with the same name as the module are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modules(HashMap<String, String>);

impl Modules {
    /// Collects the module names of all cuts.
    pub fn from_network(network: &Network) -> Self {
        let titles = network.cuts.iter().map(|cut| (&cut.name, network.title(cut)));
        let other = titles.filter(|(cut, title)| cut != title);
        Self(
            other
                .map(|(cut, title)| (cut.clone(), title.to_owned()))
                .collect(),
        )
    }

    /// Returns the name of the module that produces the tensor at `split`.
    pub fn at(&self, split: &Split) -> Option<&str> {
        match split {
            Split::Cut(name) => self.0.get(name).map(String::as_str),
            Split::None | Split::Input => None,
        }
    }

    /// Formats `split` with the name of the module.
    pub fn label(&self, split: &Split) -> String {
        match self.at(split) {
            Some(module) => format!("{split} ({module})"),
            None => split.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_graph::{Cut, TensorInfo};
    use frostline_tensor::{DType, Shape};

    #[test]
    fn a_split_is_shown_with_the_module_whose_output_it_is() {
        let end = |name: &str| TensorInfo {
            name: name.into(),
            dtype: DType::F32,
            shape: Shape::new([4]),
        };
        let cut = |name: &str, modules: &[&str]| Cut {
            name: name.into(),
            dtype: DType::F32,
            shape: Shape::new([4]),
            bytes_per_sample: 16,
            compute_share: 0.5,
            tensors: Vec::new(),
            before_head: true,
            modules: modules.iter().map(|module| (*module).to_owned()).collect(),
        };
        let network = Network {
            input: end("x"),
            output: end("y"),
            cuts: vec![cut("add_239", &["layer4.0"]), cut("pooled", &[])],
            head: None,
            obstacle: None,
        };
        let modules = Modules::from_network(&network);
        let shown = |split: &str| modules.label(&Split::from(split));
        assert_eq!(shown("add_239"), "add_239 (layer4.0)");
        assert_eq!(shown("pooled"), "pooled");
        assert_eq!(shown("none"), "none");
    }
}
