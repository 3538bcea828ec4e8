/// Parts of a guest that have bounds. All modules and components of the guest count. The check happens before
/// anything else reads the bytes. This makes a refusal cheap (milliseconds) and bounds the time and memory needed for
/// compilation.
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

/// Maximum number of linear memories of a guest. The instance pool has a memory for each call.
pub(crate) const MAX_MEMORIES: u32 = 1;

/// Maximum number of tables of a guest. A guest built from a single module needs three, including two in
/// modules added by wit-component. The rest is for guests linked from multiple modules.
pub(crate) const MAX_TABLES: u32 = 8;
