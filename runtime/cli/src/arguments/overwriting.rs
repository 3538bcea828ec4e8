//! Refuses output files that are also inputs of the command.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, Error};
use frostline_client::LabelTable;
use frostline_sealed::whole_file::is_same;
use std::path::{Path, PathBuf};

/// Arguments with output files, in all commands.
const OUTPUTS: [&str; 3] = ["out", "plot", "predictions"];

/// Checks that no output file of the parsed `command` is one of its inputs, also through a link or in another
/// spelling. Writing the output would destroy the input, and an interrupted run could not be resumed.
pub(super) fn check(mut command: &Command, mut matches: &ArgMatches) -> Result<(), Error> {
    while let Some((name, inner)) = matches.subcommand() {
        let Some(subcommand) = command.find_subcommand(name) else {
            break;
        };
        (command, matches) = (subcommand, inner);
    }
    let (outputs, inputs): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .partition(|argument| OUTPUTS.contains(&argument.get_id().as_str()));
    for output in outputs {
        for file in files(output, matches) {
            if let Some(input) = inputs
                .iter()
                .find(|input| files(input, matches).iter().any(|read| is_same(&file, read)))
            {
                return Err(Error::raw(
                    ErrorKind::ValueValidation,
                    format!(
                        "'{output}' would overwrite the file of '{input}'; choose another output file\n\nFor more information, try '--help'.\n"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Returns the values of an argument as paths. A data root is replaced by its labels table.
fn files(argument: &Arg, matches: &ArgMatches) -> Vec<PathBuf> {
    let id = argument.get_id().as_str();
    let values = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
    values
        .map(|value| match id {
            "data" => Path::new(value).join(LabelTable::KEY),
            _ => PathBuf::from(value),
        })
        .collect()
}
