//! Inspects the bytes of a guest before compilation. Counts parts and checks imports. Reads each section a
//! single time without following references. Stops at the first exceeded bound.

use crate::bounds::GuestPart;
use crate::config::SandboxConfig;
use crate::error::SandboxError;
use crate::tally::Tally;
use crate::type_nesting;
use crate::world::Names;
use wasmparser::{BinaryReader, ComponentTypeRef, Encoding, Imports, Parser, Payload, SectionLimited};

/// Bytes per page of linear memory.
const PAGE: u64 = 1 << 16;

/// Name prefix of custom sections in which wit-bindgen stores the interface of a core module. The sections
/// contain components, which are read when the module is converted to a component.
const INTERFACE_SECTION: &str = "component-type";

/// Inspects a component or core module.
///
/// # Errors
/// Returns [`SandboxError::TooComplex`] if a part exceeds a bound, [`SandboxError::OtherWorld`] if an import
/// is unavailable or an export of a component is missing, and [`SandboxError::NotAGuest`] if the bytes are
/// not WebAssembly.
pub(crate) fn inspect(bytes: &[u8], config: &SandboxConfig) -> Result<(), SandboxError> {
    let mut inspection = Inspection {
        tally: Tally::new(config),
        names: Names::default(),
    };
    let outermost = inspection.inspect_binary(bytes, 0)?;
    // Exports of a module are checked after conversion to a component.
    inspection.names.check(outermost == Encoding::Component)
}

struct Inspection<'a> {
    tally: Tally<'a>,
    names: Names,
}

impl Inspection<'_> {
    /// Inspects the module or component in `bytes` at nesting depth `outside`. Returns the kind of binary.
    fn inspect_binary(&mut self, bytes: &[u8], outside: usize) -> Result<Encoding, SandboxError> {
        let mut inside = Vec::new();
        let mut outermost = Encoding::Module;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload?;
            match &payload {
                Payload::Version { encoding, .. } => {
                    if inside.is_empty() {
                        outermost = *encoding;
                    }
                    inside.push(*encoding);
                    self.tally.add(GuestPart::Modules, 1_u32)?;
                    self.tally.check_depth(outside + inside.len())?;
                }
                Payload::End(_) => {
                    inside.pop();
                }
                Payload::CustomSection(section) => {
                    self.tally.add(GuestPart::CustomBytes, section.data().len())?;
                    // Accept an interface only in the outermost module. Otherwise sections could be nested
                    // without limit.
                    let interface = section.name().starts_with(INTERFACE_SECTION);
                    if outside == 0 && inside == [Encoding::Module] && interface {
                        let names = std::mem::take(&mut self.names);
                        self.inspect_binary(section.data(), 1)?;
                        self.names = names;
                    }
                }
                _ => {
                    if let Some((part, count)) = section_count(&payload) {
                        self.tally.add(part, count)?;
                    }
                    self.module_section(&payload, outside + inside.len() == 1)?;
                    self.component_section(&payload, bytes, outside + inside.len())?;
                }
            }
        }
        Ok(outermost)
    }

    /// Inspects a section of a module. Counts items without a count in the section header and records
    /// imports.
    fn module_section(&mut self, payload: &Payload<'_>, outermost: bool) -> Result<(), SandboxError> {
        match payload {
            Payload::TypeSection(types) => self.types(types)?,
            Payload::ImportSection(imports) => {
                for import in imports.clone() {
                    self.import(&import?, outermost)?;
                }
            }
            Payload::CodeSectionEntry(body) => {
                let mut locals = body.get_locals_reader()?;
                for _ in 0..locals.get_count() {
                    let (count, _) = locals.read()?;
                    self.tally.add(GuestPart::Locals, count)?;
                }
            }
            Payload::TableSection(tables) => {
                for table in tables.clone() {
                    self.tally.add(GuestPart::TableElements, table?.ty.initial)?;
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories.clone() {
                    let bytes = memory?.initial.saturating_mul(PAGE);
                    self.tally.add(GuestPart::MemoryBytes, bytes)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, import: &Imports<'_>, outermost: bool) -> Result<(), SandboxError> {
        let (module, count) = match import {
            Imports::Single(_, import) => {
                if outermost {
                    self.names.import_of_module(import.module, import.name);
                }
                return Ok(());
            }
            Imports::Compact1 { module, items } => (module, items.count()),
            Imports::Compact2 { module, names, .. } => (module, names.count()),
        };
        self.tally.add(GuestPart::Imports, count)?;
        if outermost {
            self.names.import_of_module(module, "");
        }
        Ok(())
    }

    /// Inspects a section of a component. Counts items without a count in the section header and records
    /// imports and exports.
    fn component_section(
        &mut self,
        payload: &Payload<'_>,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), SandboxError> {
        match payload {
            Payload::CoreTypeSection(types) => self.types(types)?,
            Payload::ComponentTypeSection(types) => {
                self.types(types)?;
                let section = bytes.get(types.range()).unwrap_or_default();
                let reader = BinaryReader::new(section, types.range().start);
                type_nesting::check(reader, depth, &mut self.tally)?;
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports.clone() {
                    let import = import?;
                    // Type imports refer to types of available interfaces. Linking checks them.
                    if depth == 1 && !matches!(import.ty, ComponentTypeRef::Type(_)) {
                        self.names.import(import.name.name);
                    }
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports.clone() {
                    let export = export?;
                    if depth == 1 {
                        self.names.export(export.name.name);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn types<T>(&mut self, types: &SectionLimited<'_, T>) -> Result<(), SandboxError> {
        self.tally.add(GuestPart::TypeBytes, types.range().len())?;
        self.tally.add(GuestPart::Types, types.count())
    }
}

/// Returns the kind of part in a section and the number of items.
fn section_count(payload: &Payload<'_>) -> Option<(GuestPart, u32)> {
    Some(match payload {
        Payload::ImportSection(imports) => (GuestPart::Imports, imports.count()),
        Payload::FunctionSection(functions) => (GuestPart::Functions, functions.count()),
        Payload::TableSection(tables) => (GuestPart::Tables, tables.count()),
        Payload::MemorySection(memories) => (GuestPart::Memories, memories.count()),
        Payload::GlobalSection(globals) => (GuestPart::Globals, globals.count()),
        Payload::TagSection(tags) => (GuestPart::Types, tags.count()),
        Payload::ExportSection(exports) => (GuestPart::Exports, exports.count()),
        Payload::ElementSection(segments) => (GuestPart::ElementSegments, segments.count()),
        Payload::DataSection(segments) => (GuestPart::DataSegments, segments.count()),
        Payload::InstanceSection(instances) => (GuestPart::Instances, instances.count()),
        Payload::ComponentInstanceSection(instances) => (GuestPart::Instances, instances.count()),
        Payload::ComponentAliasSection(aliases) => (GuestPart::Instances, aliases.count()),
        Payload::ComponentCanonicalSection(functions) => (GuestPart::Functions, functions.count()),
        Payload::ComponentImportSection(imports) => (GuestPart::Imports, imports.count()),
        Payload::ComponentExportSection(exports) => (GuestPart::Exports, exports.count()),
        _ => return None,
    })
}
