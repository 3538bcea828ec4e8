//! Generates uploads that no compiler would create.

use wasm_encoder::{
    CodeSection, ComponentBuilder, ComponentExportKind, ConstExpr, CustomSection, DataSection, DataSegment,
    DataSegmentMode, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, ImportSection, MemorySection, MemoryType, Module, ModuleArg, RefType, TableSection,
    TableType, TypeSection, ValType,
};

/// Creates a module with the type `() -> ()`.
fn module() -> Module {
    let mut types = TypeSection::new();
    types.ty().function([], []);
    let mut module = Module::new();
    module.section(&types);
    module
}

/// Returns `count` empty functions with local variables `locals`.
fn functions(count: usize, locals: &[(u32, ValType)]) -> (FunctionSection, CodeSection) {
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    let mut body = Function::new(locals.iter().copied());
    body.instructions().end();
    for _ in 0..count {
        functions.function(0);
        code.function(&body);
    }
    (functions, code)
}

pub(crate) fn million_functions() -> Vec<u8> {
    let (functions, code) = functions(1_000_000, &[]);
    let mut module = module();
    module.section(&functions).section(&code);
    let mut component = ComponentBuilder::default();
    component.core_module(None, &module);
    component.finish()
}

pub(crate) fn endless_locals() -> Vec<u8> {
    let (functions, code) = functions(20_000, &[(50_000, ValType::I64)]);
    let mut module = module();
    module.section(&functions).section(&code);
    module.finish()
}

pub(crate) fn many_tables() -> Vec<u8> {
    let mut tables = TableSection::new();
    for _ in 0..1_000 {
        tables.table(table(1));
    }
    let mut module = module();
    module.section(&tables);
    module.finish()
}

pub(crate) fn huge_table() -> Vec<u8> {
    let mut tables = TableSection::new();
    tables.table(table(10_000_000));
    let mut module = module();
    module.section(&tables);
    module.finish()
}

fn table(minimum: u64) -> TableType {
    TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum,
        maximum: None,
        shared: false,
    }
}

pub(crate) fn many_memories() -> Vec<u8> {
    memories(1_000, 1)
}

pub(crate) fn huge_memory() -> Vec<u8> {
    memories(1, 65_536)
}

fn memories(count: usize, pages: u64) -> Vec<u8> {
    let mut memories = MemorySection::new();
    for _ in 0..count {
        memories.memory(MemoryType {
            minimum: pages,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
    }
    let mut module = module();
    module.section(&memories);
    module.finish()
}

pub(crate) fn many_globals() -> Vec<u8> {
    let mut globals = GlobalSection::new();
    let kind = GlobalType {
        val_type: ValType::I32,
        mutable: true,
        shared: false,
    };
    for _ in 0..1_000_000 {
        globals.global(kind, &ConstExpr::i32_const(0));
    }
    let mut module = module();
    module.section(&globals);
    module.finish()
}

pub(crate) fn many_segments() -> Vec<u8> {
    let mut data = DataSection::new();
    for _ in 0..100_000 {
        data.segment(DataSegment {
            mode: DataSegmentMode::Passive,
            data: [7_u8],
        });
    }
    let mut module = module();
    module.section(&data);
    module.finish()
}

pub(crate) fn many_exports() -> Vec<u8> {
    let (functions, code) = functions(1, &[]);
    let mut exports = ExportSection::new();
    for index in 0..100_000 {
        exports.export(&index.to_string(), ExportKind::Func, 0);
    }
    let mut module = module();
    module.section(&functions).section(&exports).section(&code);
    module.finish()
}

pub(crate) fn many_imports() -> Vec<u8> {
    let mut imports = ImportSection::new();
    for index in 0..100_000 {
        imports.import("env", &index.to_string(), EntityType::Function(0));
    }
    let mut module = module();
    module.section(&imports);
    module.finish()
}

pub(crate) fn wants_files() -> Vec<u8> {
    let mut imports = ImportSection::new();
    imports.import("wasi_snapshot_preview1", "path_open", EntityType::Function(0));
    let mut module = module();
    module.section(&imports);
    module.finish()
}

pub(crate) fn many_instances() -> Vec<u8> {
    let mut component = ComponentBuilder::default();
    let module = component.core_module(None, &module());
    for _ in 0..10_000 {
        component.core_instantiate(None, module, std::iter::empty::<(&str, ModuleArg)>());
    }
    component.finish()
}

pub(crate) fn nested_components() -> Vec<u8> {
    let mut bytes = ComponentBuilder::default().finish();
    for _ in 0..1_000 {
        let mut outer = ComponentBuilder::default();
        outer.component_raw(None, &bytes);
        bytes = outer.finish();
    }
    bytes
}

/// Returns a guest that passes all checks but needs much compile time: a function with 2.8 million
/// instructions, each dependent on the previous one. It exports a module under the expected names, so that
/// the exports look complete.
pub fn slow_to_compile() -> Vec<u8> {
    const STEPS: i64 = 700_000;
    let mut body = Function::new([(1, ValType::I64)]);
    for step in 0..STEPS {
        body.instructions()
            .local_get(0)
            .i64_const(step % 60)
            .i64_mul()
            .local_set(0);
    }
    body.instructions().end();
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    functions.function(0);
    code.function(&body);
    let mut slow = module();
    slow.section(&functions).section(&code);
    let mut component = ComponentBuilder::default();
    let index = component.core_module(None, &slow);
    component.export(
        "frostline:pushdown/prefix@0.2.0",
        ComponentExportKind::Module,
        index,
        None,
    );
    component.finish()
}

/// Nests instance types. The bytes are written directly because the encoder is recursive. The section (7)
/// contains a type, which is an instance type (0x42) with a declaration, which is again a type (1).
pub(crate) fn nested_types() -> Vec<u8> {
    const DEPTH: usize = 100_000;
    let mut section = vec![1];
    for _ in 0..DEPTH {
        section.extend([0x42, 1, 1]);
    }
    section.extend([0x42, 0]);
    let mut component = b"\0asm\x0d\0\x01\0\x07".to_vec();
    let mut length = section.len();
    while length >= 0x80 {
        component.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    component.push(length as u8);
    component.extend(section);
    component
}

pub(crate) fn nested_interface() -> Vec<u8> {
    custom("component-type:frozen-prefix", nested_types())
}

pub(crate) fn much_debugging() -> Vec<u8> {
    custom(".debug_info", vec![0; 8 << 20])
}

fn custom(name: &str, data: Vec<u8>) -> Vec<u8> {
    let mut module = module();
    module.section(&CustomSection {
        name: name.into(),
        data: data.into(),
    });
    module.finish()
}
