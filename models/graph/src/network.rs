use crate::analysis::Analysis;
use crate::cost::work;
use crate::head::{Found, Head};
use crate::onnx::DimensionValue;
use crate::tensors::dtype_of;
use crate::values::SIZES;
use crate::{GraphError, Model, modules, sweep};
use frostline_tensor::{DType, Shape};
use std::collections::HashSet;

/// A tensor at an end of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the graph.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// The shape of one sample's row, without the batch axis.
    pub shape: Shape,
}

impl TensorInfo {
    /// Bytes of one sample's row.
    pub fn bytes_per_sample(&self) -> usize {
        self.shape.bytes(self.dtype.size()).unwrap_or(usize::MAX)
    }
}

/// A place where one tensor carries everything across, and where the network may be split.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The tensor's name.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// The shape of one sample's row, without the batch axis.
    pub shape: Shape,
    /// Bytes of one sample's row.
    pub bytes_per_sample: usize,
    /// The share of the network's multiply-adds that lies before it, 0 to 1.
    pub compute_share: f64,
    /// Whether the classifier head lies behind it: only then it can be a freeze cut.
    pub before_head: bool,
    /// The paths of the source's modules whose output it is, the outermost first: names of the cut as well. None where the
    /// exporter noted none.
    pub modules: Vec<String>,
}

impl Cut {
    /// Bytes that its name and shape take in memory.
    pub(crate) fn kept_bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + size_of_val(self.shape.dims())
    }

    /// Whether it is the output of the module `path`.
    fn is_of(&self, path: &str) -> bool {
        self.modules.iter().any(|module| module == path)
    }

    /// Whether it is the output of something inside the module `path`.
    fn is_within(&self, path: &str) -> bool {
        let inside = |module: &String| {
            let rest = module.strip_prefix(path);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        self.modules.iter().any(inside)
    }
}

/// What a network is and where it can be cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// What it takes.
    pub input: TensorInfo,
    /// What it gives.
    pub output: TensorInfo,
    /// Its cuts in order of execution; the output is the last where rows stay independent up to it.
    pub cuts: Vec<Cut>,
    /// Its classifier head, where one was recognized.
    pub head: Option<Head>,
}

impl Network {
    /// The cut called `name`.
    ///
    /// # Errors
    /// [`GraphError::UnknownCut`], with similar names.
    pub fn cut(&self, name: &str) -> Result<&Cut, GraphError> {
        self.cuts
            .iter()
            .find(|cut| cut.name == name)
            .ok_or_else(|| GraphError::UnknownCut {
                name: name.into(),
                near: self.near(name),
            })
    }

    /// The cut that a person calls `name`: by its tensor, by the path of the module whose output it is, or by that of a module which
    /// holds no other cut.
    ///
    /// # Errors
    /// [`GraphError::UnknownCut`], with similar names; [`GraphError::AmbiguousCut`] where several are called so.
    pub fn named(&self, name: &str) -> Result<&Cut, GraphError> {
        if let Some(cut) = self.cuts.iter().find(|cut| cut.name == name) {
            return Ok(cut);
        }
        let of: Vec<&Cut> = self.cuts.iter().filter(|cut| cut.is_of(name)).collect();
        let within = || self.cuts.iter().filter(|cut| cut.is_within(name)).collect();
        let called: Vec<&Cut> = if of.is_empty() { within() } else { of };
        match called.as_slice() {
            [] => self.cut(name),
            [cut] => Ok(cut),
            several => Err(GraphError::AmbiguousCut {
                name: name.into(),
                candidates: candidates(several),
            }),
        }
    }

    /// What to call `cut`: by the module whose output it is, where no other is called so, else by its tensor.
    pub fn title<'a>(&self, cut: &'a Cut) -> &'a str {
        if cut.is_of(&cut.name) {
            return &cut.name;
        }
        let alone = |module: &&String| self.named(module).is_ok_and(|found| found.name == cut.name);
        cut.modules.first().filter(alone).unwrap_or(&cut.name)
    }

    /// The cut called `name` as a freeze cut.
    ///
    /// # Errors
    /// [`GraphError::UnknownCut`]; [`GraphError::FreezeAfterHead`] when no trainable head lies behind it; [`GraphError::Head`] when the
    /// network has none.
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

    /// The row at the freeze point called `name`: that of a cut before the head, or the network's input, behind which nothing is frozen.
    ///
    /// # Errors
    /// Those of [`Self::freeze_cut`].
    pub fn frozen_row(&self, name: &str) -> Result<&Shape, GraphError> {
        if name == self.input.name {
            return Ok(&self.input.shape);
        }
        Ok(&self.freeze_cut(name)?.shape)
    }

    /// Names like `name`, of each cut the likest.
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

    /// What a person may have meant, for a message.
    fn near(&self, name: &str) -> String {
        const SHORT: usize = 12;
        let quoted = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        };
        let all: Vec<&str> = self.cuts.iter().map(|cut| self.title(cut)).collect();
        let meant = match self.meant(name).as_slice() {
            [] => String::new(),
            similar => format!("did you mean {}? ", quoted(similar)),
        };
        match all.len() {
            0 => "it has no cuts at all".into(),
            1..=SHORT => format!("{meant}its cuts are {}", quoted(&all)),
            many => format!("{meant}`frostline model show` lists all {many}"),
        }
    }
}

/// A few cuts, each by the most telling of its names, and by its tensor where they share that.
fn candidates(cuts: &[&Cut]) -> String {
    /// As many as a person reads.
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
    /// The network's ends, cuts and head.
    ///
    /// # Errors
    /// [`GraphError::Shape`] when a node does not fit its inputs at every batch size, [`GraphError::InputShape`] when the input or
    /// output is of a type or shape that cannot be followed.
    pub fn network(&self) -> Result<Network, GraphError> {
        let analysis = Analysis::run(self)?;
        let mut network = self.network_of(&analysis)?;
        modules::name(&analysis, &mut network.cuts);
        Ok(network)
    }

    /// [`Model::network`] from an analysis of this model, without the modules of its cuts.
    pub(crate) fn network_of(&self, analysis: &Analysis<'_>) -> Result<Network, GraphError> {
        let (input, output) = (self.input_name()?, self.output_name()?);
        let head = crate::head::find(analysis, output);
        let first = head.as_ref().and_then(Found::first);
        let shares = self.shares(analysis, output);
        let crossings = sweep::crossings(analysis, input, output);
        let fused = sweep::inside_quantization(self, input);
        let cuts = crossings.into_iter().filter_map(|(index, name)| {
            let info = info(analysis, name).filter(|_| !fused.contains(name))?;
            Some(Cut {
                bytes_per_sample: info.bytes_per_sample(),
                name: info.name,
                dtype: info.dtype,
                shape: info.shape,
                compute_share: shares.get(index).copied().unwrap_or(1.0),
                before_head: first.is_some_and(|layer| index < layer.index),
                modules: Vec::new(),
            })
        });
        let cuts = cuts.collect();
        let end = |name: &str| info(analysis, name).or_else(|| self.declared(name));
        Ok(Network {
            input: end(input).ok_or_else(|| GraphError::InputShape {
                input: input.into(),
                why: "cannot infer it".into(),
            })?,
            output: end(output).ok_or_else(|| GraphError::OutputShape {
                output: output.into(),
            })?,
            cuts,
            head: first.map(|layer| layer.head.clone()),
        })
    }

    /// Multiply-adds of one row; of operators without any, such as pools, the elements they touch. Zero where shapes are unknown.
    ///
    /// # Errors
    /// [`GraphError::Shape`] when a node does not fit its inputs.
    pub fn multiply_adds(&self) -> Result<f64, GraphError> {
        let Analysis { probes, .. } = Analysis::run(self)?;
        let all: f64 = self.nodes().iter().map(|node| work(node, &probes)).sum();
        Ok(all / SIZES.0 as f64)
    }

    /// The share of the work up to `output` that is done when each node has run.
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
        let share = |done| if total > 0.0 { done / total } else { 1.0 };
        done.into_iter().map(share).collect()
    }

    /// An end of the network as the file declares it, for outputs behind operators whose shapes are unknown.
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

    /// The name of the only input.
    ///
    /// # Errors
    /// [`GraphError::Inputs`] where there is none.
    pub fn input_name(&self) -> Result<&str, GraphError> {
        let none = || GraphError::Inputs {
            count: 0,
            names: String::new(),
        };
        self.inputs()
            .next()
            .map(|input| input.name.as_str())
            .ok_or_else(none)
    }

    /// The name of the only output.
    pub(crate) fn output_name(&self) -> Result<&str, GraphError> {
        let none = || GraphError::Outputs {
            count: 0,
            names: String::new(),
        };
        self.outputs()
            .first()
            .map(|output| output.name.as_str())
            .ok_or_else(none)
    }
}

/// A value that can be cut at.
pub(crate) fn info(analysis: &Analysis<'_>, name: &str) -> Option<TensorInfo> {
    let shape = Shape::from(analysis.row_of(name)?);
    let dtype = dtype_of(analysis.probes.data_type(name))?;
    shape.bytes(dtype.size()).ok()?;
    Some(TensorInfo {
        name: name.into(),
        dtype,
        shape,
    })
}
