use crate::analysis::Analysis;
use crate::cost::work;
use crate::head::{FoundHead, Head};
use crate::onnx::DimensionValue;
use crate::tensor_info::{TensorInfo, info};
use crate::tensors::dtype_of;
use crate::values::PROBE_BATCHES;
use crate::{Cut, GraphError, InputSize, Model, joint_tensors, modules, operators, sweep};
use frostline_tensor::Shape;
use std::collections::HashSet;

/// Description of a network with the cuts and the classifier head.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// The only input.
    pub input: TensorInfo,
    /// The only output.
    pub output: TensorInfo,
    /// Cuts in order of execution. The output is the last cut if samples stay independent up to it.
    pub cuts: Vec<Cut>,
    /// The classifier head, if one was recognized.
    pub head: Option<Head>,
    /// The first operator that prevents later cuts, with the reason and a possible fix.
    pub obstacle: Option<String>,
}

impl Network {
    /// Returns the cut at the tensor `name`.
    ///
    /// # Errors
    /// Returns [`GraphError::UnknownCut`] with suggestions if the network does not have this cut.
    pub fn cut(&self, name: &str) -> Result<&Cut, GraphError> {
        self.cuts
            .iter()
            .find(|cut| cut.name == name)
            .ok_or_else(|| GraphError::UnknownCut {
                name: name.into(),
                near: self.near(name),
            })
    }

    /// Resolves a name given by a user. The name can be a tensor, the path of a module that outputs the
    /// tensor, or the path of a module that contains a single cut.
    ///
    /// # Errors
    /// Returns [`GraphError::UnknownCut`] with suggestions if no cut matches, and
    /// [`GraphError::AmbiguousCut`] if several cuts match.
    pub fn named(&self, name: &str) -> Result<&Cut, GraphError> {
        if let Some(cut) = self.cuts.iter().find(|cut| cut.name == name) {
            return Ok(cut);
        }
        let mut called: Vec<&Cut> = self.cuts.iter().filter(|cut| cut.is_of(name)).collect();
        if called.is_empty() {
            called = self.cuts.iter().filter(|cut| cut.is_within(name)).collect();
        }
        match called.as_slice() {
            [] => self.cut(name),
            [cut] => Ok(cut),
            several => Err(GraphError::AmbiguousCut {
                name: name.into(),
                candidates: candidates(several),
            }),
        }
    }

    /// Returns the display name of `cut`. This is the outermost module that outputs the tensor if the name is
    /// unambiguous, or the name of the tensor otherwise.
    pub fn title<'a>(&self, cut: &'a Cut) -> &'a str {
        if cut.is_of(&cut.name) {
            return &cut.name;
        }
        cut.modules
            .first()
            .filter(|module| self.named(module).is_ok_and(|found| found.name == cut.name))
            .unwrap_or(&cut.name)
    }

    /// Returns the cut at the tensor `name`, which must be usable as a freeze cut.
    ///
    /// # Errors
    /// Returns [`GraphError::UnknownCut`] if the network does not have this cut,
    /// [`GraphError::FreezeAfterHead`] if the classifier head does not come after it, and
    /// [`GraphError::Head`] if no classifier head was recognized.
    pub fn freeze_cut(&self, name: &str) -> Result<&Cut, GraphError> {
        let cut = self.cut(name)?;
        if cut.before_head {
            return Ok(cut);
        }
        let head = self.head.as_ref().ok_or_else(|| GraphError::Head {
            why: crate::head::EXPECTED.into(),
        })?;
        let last = self.cuts.iter().rev().find(|cut| cut.before_head);
        let last = last.map_or_else(|| "none".into(), |cut| format!("`{}`", self.title(cut)));
        Err(GraphError::FreezeAfterHead {
            cut: name.into(),
            head: head.node.clone(),
            last,
        })
    }

    /// Returns the shape per sample at the freeze cut `name`. The network's input is accepted as well and
    /// means that no layer is frozen.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::freeze_cut`].
    pub fn frozen_row(&self, name: &str) -> Result<&Shape, GraphError> {
        if name == self.input.name {
            return Ok(&self.input.shape);
        }
        Ok(&self.freeze_cut(name)?.shape)
    }

    /// Returns names similar to `name`, only the most similar one for each cut.
    fn meant(&self, name: &str) -> Vec<&str> {
        let names = self
            .cuts
            .iter()
            .flat_map(|cut| cut.modules.iter().chain([&cut.name]));
        let mut meant = crate::similar(name, names.map(String::as_str));
        let mut cuts = HashSet::new();
        meant.retain(|name| self.named(name).is_ok_and(|cut| cuts.insert(&cut.name)));
        meant
    }

    /// Returns a hint for an error message: similar names, and all cuts if there are few.
    fn near(&self, name: &str) -> String {
        const SHORT: usize = 12;
        let all: Vec<&str> = self.cuts.iter().map(|cut| self.title(cut)).collect();
        let meant = match self.meant(name).as_slice() {
            [] => String::new(),
            similar => format!("did you mean {}? ", quoted(similar)),
        };
        match all.len() {
            0 => match &self.obstacle {
                Some(why) => format!("it does not have any cuts, because {why}"),
                None => "it does not have any cuts".into(),
            },
            1..=SHORT => match &self.obstacle {
                Some(why) => format!("{meant}available cuts: {}; {why}", quoted(&all)),
                None => format!("{meant}available cuts: {}", quoted(&all)),
            },
            many => format!("{meant}the network has {many} cuts"),
        }
    }
}

pub(crate) fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Explains why the network cannot be cut after the first unknown operator on the path of the data.
pub(crate) fn obstacle(analysis: &Analysis<'_>) -> Option<String> {
    let mut nodes = analysis
        .model
        .nodes()
        .iter()
        .filter(|node| node.output.iter().any(|name| analysis.kinds.is_data(name)));
    let node = nodes.find(|node| operators::find(node).is_none_or(|operator| operator.versions.is_none()))?;
    if node.is_random() {
        let operator = &node.op_type;
        let place = node.place();
        return Some(format!(
            "operator {operator} ({place}) draws random numbers; export the network after `model.eval()`"
        ));
    }
    let quantizes = ["Integer", "QLinear", "Quantize", "QGemm"];
    let (why, fix) = match quantizes.iter().any(|word| node.op_type.contains(word)) {
        true => ("computes in integers", "use the network before its quantization"),
        false => ("is not supported", "export the network without it"),
    };
    Some(format!(
        "operator {} ({}) {why}; {fix}",
        node.op_type,
        node.place()
    ))
}

/// Lists the names of the first cuts. The name is the innermost module, or the tensor if multiple cuts share
/// the module.
fn candidates(cuts: &[&Cut]) -> String {
    /// Number of cuts listed by name.
    const FEW: usize = 6;
    let shown = cuts.iter().take(FEW).map(|cut| {
        let innermost = cut.modules.last().unwrap_or(&cut.name);
        let shared = cuts
            .iter()
            .filter(|other| other.modules.last() == Some(innermost))
            .count()
            > 1;
        format!("`{}`", if shared { &cut.name } else { innermost })
    });
    let shown: Vec<String> = shown.collect();
    match cuts.len().saturating_sub(FEW) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl Model {
    /// Returns the network's input, output, cuts and classifier head.
    ///
    /// # Errors
    /// Returns [`GraphError::Shape`] if the inputs of a node do not fit its operator,
    /// [`GraphError::InputShape`] or [`GraphError::OutputShape`] if the shape or the element type of the
    /// input or output cannot be determined, and [`GraphError::Inputs`] or [`GraphError::Outputs`] if the
    /// model has none.
    pub fn network(&self) -> Result<Network, GraphError> {
        let analysis = Analysis::run(self)?;
        let mut network = self.network_of(&analysis)?;
        modules::name(&analysis, &mut network.cuts);
        Ok(network)
    }

    /// Returns the same as [`Model::network`] from an existing analysis, without the modules of the cuts.
    pub(crate) fn network_of(&self, analysis: &Analysis<'_>) -> Result<Network, GraphError> {
        let input = self.input_name()?;
        let output = self.output_name()?;
        let head = crate::head::find(analysis, output);
        let first = head.as_ref().and_then(FoundHead::first);
        let shares = self.shares(analysis, output);
        let crossings = sweep::crossings(analysis, input, output);
        let fused = sweep::inside_quantization(self, input);
        let restoring = self.joint_split().map(|split| split.nodes).unwrap_or_default();
        let crossings = crossings
            .into_iter()
            .filter(|(index, _)| !restoring.contains(index));
        let cuts = crossings.filter_map(|(index, name)| {
            let info = info(analysis, name).filter(|_| !fused.contains(name))?;
            Some(Cut {
                compute_share: shares.get(index).copied().unwrap_or(1.0),
                before_head: first.is_some_and(|layer| index < layer.index),
                tensors: joint_tensors::tensors(analysis, &info).unwrap_or_default(),
                ..info.into()
            })
        });
        let cuts = cuts.collect();
        let [input_info, output_info] =
            [input, output].map(|name| info(analysis, name).or_else(|| self.declared(name)));
        Ok(Network {
            input: input_info.ok_or_else(|| GraphError::InputShape {
                input: input.into(),
                why: "failed to infer the shape".into(),
                size: InputSize::Unfit,
            })?,
            output: output_info.ok_or_else(|| GraphError::OutputShape {
                output: output.into(),
            })?,
            cuts,
            obstacle: obstacle(analysis),
            head: first.map(|layer| layer.head.clone()),
        })
    }

    /// Returns the multiply-adds per sample. Operators without multiply-adds, such as pools, count the
    /// elements that they read or write, and nodes with unknown shapes count zero.
    ///
    /// # Errors
    /// Returns [`GraphError::Shape`] if the inputs of a node do not fit its operator.
    pub fn multiply_adds(&self) -> Result<f64, GraphError> {
        let Analysis { probes, .. } = Analysis::run(self)?;
        let all: f64 = self.nodes().iter().map(|node| work(node, &probes)).sum();
        Ok(all / PROBE_BATCHES.0 as f64)
    }

    /// Returns the fraction of the work up to `output` that is done after each node.
    fn shares(&self, analysis: &Analysis<'_>, output: &str) -> Vec<f64> {
        let path = analysis.data_path(output, None);
        let mut total = 0.0;
        let mut done = Vec::with_capacity(self.nodes().len());
        for (index, node) in self.nodes().iter().enumerate() {
            if path.contains(&index) {
                total += work(node, &analysis.probes);
            }
            done.push(total);
        }
        done.into_iter()
            .map(|done| if total > 0.0 { done / total } else { 1.0 })
            .collect()
    }

    /// Returns an output as declared by the file. It is the fallback for outputs whose shape cannot be
    /// inferred.
    fn declared(&self, name: &str) -> Option<TensorInfo> {
        let value = self.graph().output.iter().find(|output| output.name == name)?;
        let tensor = value.tensor()?;
        let row = tensor.shape.as_ref()?.dim.get(1..)?.iter();
        let row = row.map(|dim| match dim.value {
            Some(DimensionValue::DimValue(size)) => usize::try_from(size).ok(),
            _ => None,
        });
        let shape = Shape::from(row.collect::<Option<Vec<usize>>>()?);
        Some(TensorInfo {
            name: name.into(),
            dtype: dtype_of(tensor.elem_type)?,
            shape,
        })
    }

    /// Returns the name of the only input.
    ///
    /// # Errors
    /// Returns [`GraphError::Inputs`] if the model has no input.
    pub fn input_name(&self) -> Result<&str, GraphError> {
        self.inputs()
            .next()
            .map(|input| input.name.as_str())
            .ok_or_else(|| GraphError::Inputs {
                count: 0,
                names: String::new(),
            })
    }

    pub(crate) fn output_name(&self) -> Result<&str, GraphError> {
        self.outputs()
            .first()
            .map(|output| output.name.as_str())
            .ok_or_else(|| GraphError::Outputs { names: Vec::new() })
    }
}
