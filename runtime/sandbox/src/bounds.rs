/// A bounded part of a guest, counted over all its modules and components together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub enum GuestPart {
    /// Modules and components inside the component.
    #[strum(serialize = "modules and components")]
    Modules,
    /// Nesting of components, or of component types.
    #[strum(serialize = "levels of nested components")]
    Nesting,
    /// Types, those nested in interface types included.
    #[strum(serialize = "types")]
    Types,
    /// Bytes of all type sections.
    #[strum(serialize = "bytes of types")]
    TypeBytes,
    /// Imports of every module and component.
    #[strum(serialize = "imports")]
    Imports,
    /// Functions: of modules, and those that join modules to components.
    #[strum(serialize = "functions")]
    Functions,
    /// Local variables of functions.
    #[strum(serialize = "local variables")]
    Locals,
    /// Linear memories.
    #[strum(serialize = "memories")]
    Memories,
    /// Tables.
    #[strum(serialize = "tables")]
    Tables,
    /// Global variables.
    #[strum(serialize = "globals")]
    Globals,
    /// Data segments.
    #[strum(serialize = "data segments")]
    DataSegments,
    /// Element segments, which initialize tables.
    #[strum(serialize = "element segments")]
    ElementSegments,
    /// Exports of every module and component.
    #[strum(serialize = "exports")]
    Exports,
    /// Instances of modules and components, and aliases.
    #[strum(serialize = "instances and aliases")]
    Instances,
    /// Bytes of custom sections: names, debugging information.
    #[strum(serialize = "bytes of custom sections (strip debugging information)")]
    CustomBytes,
    /// Initial bytes of memories.
    #[strum(serialize = "bytes of initial memory")]
    MemoryBytes,
    /// Initial entries of tables.
    #[strum(serialize = "initial table entries")]
    TableElements,
}

/// The bound of each [`GuestPart`]. Checked before anything else reads the bytes, so that a refusal costs milliseconds and
/// compilation takes bounded time and memory.
///
/// The stock guest has 180 functions, one memory, one table and 1,600 bytes of types. The defaults leave room for one that
/// brings a language's interpreter along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestBounds {
    /// A guest linked from a dozen modules has three small ones beside each.
    pub modules: u64,
    /// Composing components puts one into another; four deep is unheard of.
    pub nesting: u64,
    /// A large program has a thousand.
    pub types: u64,
    /// Interfaces of the whole of WASI take 20 KB; everything that reads types takes memory in proportion.
    pub type_bytes: u64,
    /// The world has forty functions, which a guest of several modules passes on a few times.
    pub imports: u64,
    /// Compiling takes time in proportion: the stock guest's take 50 ms, so these take 14 s.
    pub functions: u64,
    /// A function takes 50,000 of them in four bytes of Wasm and a thousand times that in the compiler.
    pub locals: u64,
    /// A thousand each is what a large program has.
    pub globals: u64,
    /// A program that was started once and saved has one for every stretch of memory it touched.
    pub data_segments: u64,
    /// Compilers make one for each table.
    pub element_segments: u64,
    /// Debug builds export their functions by the hundred.
    pub exports: u64,
    /// One alias for every function that joins two modules.
    pub instances: u64,
    /// Names of functions are kept for the sake of traps; debugging information belongs elsewhere.
    pub custom_bytes: u64,
}

/// One: the pool of instances has one memory for each call.
pub(crate) const MEMORIES: u32 = 1;

/// Tables of one guest: its module's, those of wit-component's two small ones, and room for components linked from
/// several modules.
pub(crate) const TABLES: u32 = 8;

impl Default for GuestBounds {
    fn default() -> Self {
        Self {
            modules: 64,
            nesting: 8,
            types: 10_000,
            type_bytes: 1 << 20,
            imports: 2_000,
            functions: 50_000,
            locals: 1_000_000,
            globals: 10_000,
            data_segments: 20_000,
            element_segments: 1_000,
            exports: 10_000,
            instances: 5_000,
            custom_bytes: 4 << 20,
        }
    }
}
