/// Parts of a guest that have bounds. All modules and components of the guest count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
pub enum GuestPart {
    /// Modules and components inside the component, including itself.
    #[strum(serialize = "modules and components")]
    Modules,
    /// Nesting depth of components or component types.
    #[strum(serialize = "levels of nested components")]
    Nesting,
    /// Types, including those nested in interface types.
    #[strum(serialize = "types")]
    Types,
    /// Bytes of all type sections.
    #[strum(serialize = "bytes of types")]
    TypeBytes,
    /// Imports of all modules and components.
    #[strum(serialize = "imports")]
    Imports,
    /// Functions of modules, including adapters between modules and components.
    #[strum(serialize = "functions")]
    Functions,
    /// Local variables of functions.
    #[strum(serialize = "local variables")]
    Locals,
    /// Linear memories.
    #[strum(serialize = "memories")]
    Memories,
    /// Tables of references, such as functions for indirect calls.
    #[strum(serialize = "tables")]
    Tables,
    /// Global variables.
    #[strum(serialize = "globals")]
    Globals,
    /// Data segments, which initialize memories.
    #[strum(serialize = "data segments")]
    DataSegments,
    /// Element segments, which initialize tables.
    #[strum(serialize = "element segments")]
    ElementSegments,
    /// Exports of all modules and components.
    #[strum(serialize = "exports")]
    Exports,
    /// Instances (of modules and components) and aliases.
    #[strum(serialize = "instances and aliases")]
    Instances,
    /// Bytes of custom sections, such as names and debugging information.
    #[strum(serialize = "bytes of custom sections (strip debugging information)")]
    CustomBytes,
    /// Initial bytes of memories.
    #[strum(serialize = "bytes of initial memory")]
    MemoryBytes,
    /// Initial entries of tables.
    #[strum(serialize = "initial table entries")]
    TableElements,
}

/// Bounds of the parts of a guest. The check happens before anything else reads the bytes. This makes a
/// refusal cheap (milliseconds) and bounds the time and memory needed for compilation.
///
/// The stock guest has 180 functions, a memory, a table and 1,600 bytes of types. The defaults allow a guest
/// that contains the interpreter of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestBounds {
    /// Maximum number of modules and components. A guest linked from twelve modules has up to three small
    /// ones for each.
    pub modules: u64,
    /// Maximum nesting depth. Composition nests components; four levels are already unusual.
    pub nesting: u64,
    /// Maximum number of types. Large programs have a thousand.
    pub types: u64,
    /// Maximum bytes of types. The interfaces of WASI have 20 KB. The memory needed to read types is
    /// proportional to this number.
    pub type_bytes: u64,
    /// Maximum number of imports. The world has forty functions, and guests with multiple modules may import
    /// some functions several times.
    pub imports: u64,
    /// Maximum number of functions. Compile time is proportional to this number. The stock guest with 180
    /// functions needs 50 ms, the default 14 s.
    pub functions: u64,
    /// Maximum number of local variables of all functions. Four bytes of Wasm can declare 50,000 variables,
    /// the maximum of a function, but the compiler needs memory for each of them.
    pub locals: u64,
    /// Maximum number of global variables. Large programs have a thousand.
    pub globals: u64,
    /// Maximum number of data segments. Snapshots of initialized programs contain a segment for each memory
    /// range written during initialization.
    pub data_segments: u64,
    /// Maximum number of element segments. Compilers emit one for each table.
    pub element_segments: u64,
    /// Maximum number of exports. Debug builds export hundreds of functions.
    pub exports: u64,
    /// Maximum number of instances and aliases. Passing a function between modules needs an alias.
    pub instances: u64,
    /// Maximum bytes of custom sections. Function names are useful in the messages of traps, but hosts do not
    /// need debugging information.
    pub custom_bytes: u64,
}

/// Maximum number of linear memories of a guest. The instance pool has a memory for each call.
pub(crate) const MAX_MEMORIES: u32 = 1;

/// Maximum number of tables of a guest. A guest built from a single module needs three, including two in
/// modules added by wit-component. The rest is for guests linked from multiple modules.
pub(crate) const MAX_TABLES: u32 = 8;

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
