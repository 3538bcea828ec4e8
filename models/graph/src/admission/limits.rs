/// What a stranger's model may be. Each default says why not half and why not double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Nodes of the graph. The oldest exports of vision transformers have 2,000 to 10,000, most of them arithmetic on shapes; everything
    /// kept of a model grows with them.
    pub nodes: usize,
    /// Values that nodes produce. Nearly all nodes produce one; what is inferred of each takes up to 5 KB.
    pub values: usize,
    /// Weights. DenseNet-201 has about 1,000, the largest classifiers some thousand.
    pub weights: usize,
    /// Inputs, or outputs, of one node. A concatenation in a DenseNet joins 50.
    pub arguments: usize,
    /// Attributes of one node. Convolutions have six, no standard operator twenty.
    pub attributes: usize,
    /// Numbers of one attribute that is a list. Paddings and axes have up to a dozen, constants in old exports some hundred.
    pub attribute_numbers: usize,
    /// Bytes of one name. Names built of module paths reach 200.
    pub name_bytes: usize,
    /// Bytes that everything but the weights takes in memory once it is read. A few bytes of a file can become a hundred; a graph of
    /// 2,000 nodes takes 2 MB, with the exporter's notes 20.
    pub description_bytes: usize,
    /// Bytes of one value of the network, for one sample. The widest of the usual networks, VGG's first layers, take 13 MB at 224x224 pixels
    /// and 268 MB at 1024x1024.
    pub value_bytes: u64,
    /// Bytes of all values alive at once, for one sample: a widest value, its successor, and what runs beside them.
    pub alive_bytes: u64,
    /// Bytes of all values of the network together, for one sample. Engines choose their own order and may keep more alive than the file's order
    /// needs; DenseNet-121 makes 175 MB in all, ViT-B/16 485 MB.
    pub all_bytes: u64,
    /// Multiply-adds on weights alone, which an engine does when it opens the model: some seconds on one core. Exports that turn or scale
    /// their weights first touch each once or twice, 140 million in VGG.
    pub constant_work: u64,
    /// What one row takes in multiply-adds, or what takes as long: a core does some 120 thousand million a second. VGG-19, the heaviest of the usual
    /// networks, takes 36 thousand million at 224x224 pixels and 20 times that at 1024x1024; ten seconds a row keep everybody else waiting.
    pub row_work: u64,
    /// Places to cut at: the deepest of the usual networks has 44, ResNet-1001 some 500. Each is kept in memory for as long as the model is.
    pub cuts: usize,
    /// Bytes of what is kept of all cuts together: 44 of them take 5 KB.
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
            all_bytes: 8 << 30,
            constant_work: 10_000_000_000,
            row_work: 1_200_000_000_000,
            cuts: 2048,
            cut_bytes: 256 << 10,
        }
    }
}
