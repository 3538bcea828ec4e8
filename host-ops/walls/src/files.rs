//! Landlock: restricts access to files, and prevents TCP as well as signals and abstract Unix sockets to
//! processes outside of the sandbox.

use crate::{Files, WallError};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest tested Landlock ABI. An older kernel enforces the supported part. Without Landlock, seccomp
/// still prevents sockets and signals.
const TRIED: ABI = ABI::V7;

/// Returns false if the kernel does not enforce the rules.
pub(crate) fn confine(files: Files<'_>) -> Result<bool, WallError> {
    let (folder, access) = match files {
        Files::None => (None, BitFlags::EMPTY),
        Files::Read(folder) => (Some(folder), AccessFs::ReadFile.into()),
        Files::Write(folder) => (Some(folder), in_own_folder()),
    };
    let folder = folder.map(PathFd::new).transpose();
    let folder = folder.map_err(|error| WallError::new("Landlock", error))?;
    let rules = folder.map(|folder| PathBeneath::new(folder, access));
    let status = restrict(rules).map_err(|error| WallError::new("Landlock", error))?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

fn in_own_folder() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate
}

fn restrict(rule: Option<PathBeneath<PathFd>>) -> Result<RestrictionStatus, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(TRIED))?
        .handle_access(AccessNet::from_all(TRIED))?
        .scope(Scope::from_all(TRIED))?
        .create()?;
    let rules = rule.into_iter().map(Ok::<_, RulesetError>);
    ruleset.add_rules(rules)?.restrict_self()
}
