/// Limits on a model from an untrusted source. The documentation of the fields explains the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Nodes of the graph. The oldest exports of vision transformers contain 2,000 to 10,000 nodes, mostly
    /// shape arithmetic. The memory used for a model grows with them.
    pub nodes: usize,
    /// Values that nodes produce. Nearly all nodes produce a single value. Up to 5 KB of memory is used per
    /// value for the inferred properties.
    pub values: usize,
    /// Weights. DenseNet-201 contains about 1,000 weights, and the largest classifiers contain some
    /// thousands.
    pub weights: usize,
    /// Inputs or outputs of a node. A concatenation in a DenseNet has 50 inputs.
    pub arguments: usize,
    /// Attributes of a node. Convolutions have six, and all standard operators have fewer than twenty.
    pub attributes: usize,
    /// Numbers in a list attribute. Paddings and axes contain up to a dozen, and constants in old exports
    /// contain hundreds.
    pub attribute_numbers: usize,
    /// Bytes of a name. Names built from module paths have up to 200.
    pub name_bytes: usize,
    /// Bytes of memory used by a decoded model without its weights. A few bytes of a file can become a
    /// hundred. A graph with 2,000 nodes uses 2 MB, or 20 MB with the exporter's notes.
    pub description_bytes: usize,
    /// Bytes per sample for a single value. The first layers of VGG, the widest common network, use 13 MB at
    /// 224x224 pixels and 268 MB at 1024x1024.
    pub value_bytes: u64,
    /// Bytes per sample for all values alive at the same time: the widest value, the value computed from it,
    /// and parallel branches.
    pub alive_bytes: u64,
    /// Bytes per sample for all values together. Engines choose the order of nodes and may keep more values
    /// alive than the file's order requires. DenseNet-121 uses 175 MB in total, and ViT-B/16 uses 485 MB.
    pub total_bytes: u64,
    /// Work on weights alone, in the unit of `sample_work`. An engine performs it when it opens the model; at
    /// the default, this takes some seconds on a single core. Exports that transpose and scale their weights
    /// process 140 million elements twice in VGG, which is two thirds of the default.
    pub constant_work: u64,
    /// Work per sample. The unit is a multiply-add of an f32 convolution or the equivalent time. A core
    /// performs 50 to 120 billion per second. VGG-19, the heaviest common network, needs 36 billion at 224x224
    /// pixels and 20 times that at 1024x1024. At the default, a sample can block a lane for 10 to 24 seconds.
    pub sample_work: u64,
    /// Number of cuts. VGG-19 contains 44. ResNets contain six and two for each residual block, so ResNet-152
    /// contains 106. Cuts use memory as long as the model is stored.
    pub cuts: usize,
    /// Bytes of memory used by all cuts together. 44 cuts use 5 KB.
    pub cut_bytes: usize,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            nodes: 16_384,
            values: 32_768,
            weights: 16_384,
            arguments: 512,
            attributes: 32,
            attribute_numbers: 4096,
            name_bytes: 1024,
            description_bytes: 64 << 20,
            value_bytes: 512 << 20,
            alive_bytes: 1 << 30,
            total_bytes: 8 << 30,
            constant_work: 150_000_000_000,
            sample_work: 1_200_000_000_000,
            cuts: 2048,
            cut_bytes: 256 << 10,
        }
    }
}
