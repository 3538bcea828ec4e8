//! Checks the nesting of component and instance types without recursion. Must run before the recursive
//! parser.

use crate::bounds::GuestPart;
use crate::error::SandboxError;
use crate::tally::Tally;
use wasmparser::{
    BinaryReader, ComponentAlias, ComponentExternName, ComponentImport, ComponentType, ComponentTypeRef,
    CoreType,
};

const COMPONENT: u8 = 0x41;
const INSTANCE: u8 = 0x42;

/// Checks the nesting of the types in a section at `depth`, and counts nested types.
pub(crate) fn check(
    mut section: BinaryReader<'_>,
    depth: usize,
    tally: &mut Tally<'_>,
) -> Result<(), SandboxError> {
    for _ in 0..section.read_var_u32()? {
        check_type(&mut section, depth, tally)?;
    }
    Ok(())
}

fn check_type(
    reader: &mut BinaryReader<'_>,
    depth: usize,
    tally: &mut Tally<'_>,
) -> Result<(), SandboxError> {
    // Number of remaining declarations of each open type.
    let mut open = Vec::new();
    enter_type(reader, &mut open)?;
    while let Some(remaining) = open.last_mut() {
        if *remaining == 0 {
            open.pop();
            continue;
        }
        *remaining -= 1;
        tally.add(GuestPart::Types, 1_u32)?;
        declaration(reader, &mut open)?;
        tally.check_depth(depth + open.len())?;
    }
    Ok(())
}

/// Reads a type. If the type contains declarations, reads only the number of declarations and pushes it to
/// `open`.
fn enter_type(reader: &mut BinaryReader<'_>, open: &mut Vec<u32>) -> Result<(), SandboxError> {
    match reader.clone().read_u8()? {
        COMPONENT | INSTANCE => {
            reader.read_u8()?;
            open.push(reader.read_var_u32()?);
        }
        _ => {
            reader.read::<ComponentType<'_>>()?;
        }
    }
    Ok(())
}

fn declaration(reader: &mut BinaryReader<'_>, open: &mut Vec<u32>) -> Result<(), SandboxError> {
    match reader.read_u8()? {
        0x00 => {
            reader.read::<CoreType<'_>>()?;
        }
        0x01 => enter_type(reader, open)?,
        0x02 => {
            reader.read::<ComponentAlias<'_>>()?;
        }
        0x03 => {
            reader.read::<ComponentImport<'_>>()?;
        }
        _ => {
            reader.read::<ComponentExternName<'_>>()?;
            reader.read::<ComponentTypeRef>()?;
        }
    }
    Ok(())
}
