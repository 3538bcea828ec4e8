//! Command lines that a hint suggests.

use super::NextStep;
use crate::arguments::Arguments;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};
use serde_json::Value;

/// Command line that failed.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// The name of the program and the arguments.
    words: Vec<String>,
    /// Definition of the command and the flags. If a flag is repeated, the last value is used.
    root: Command,
    /// Parsed arguments, or `None` if the command line is invalid.
    matches: Option<ArgMatches>,
}

/// Flags to add and to remove as they are typed.
struct FlagChanges {
    words: Vec<String>,
    added: Vec<String>,
    removed: Vec<String>,
}

impl CommandLine {
    /// Returns the command line of this process. It is empty, so that no hint fits, if it is not UTF-8.
    pub(crate) fn of_process() -> Self {
        let words = std::env::args_os().map(|word| word.into_string().ok());
        let words: Option<Vec<String>> = words.collect();
        Self::new(words.unwrap_or_default())
    }

    fn new(words: Vec<String>) -> Self {
        let mut root = Arguments::command().args_override_self(true);
        // Subcommands get the flags that apply to all of them.
        root.build();
        let matches = parse(&root, &words);
        Self { words, root, matches }
    }

    #[cfg(test)]
    pub(crate) fn split(line: &str) -> Self {
        Self::new(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns true if the command has this flag.
    #[cfg(test)]
    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        let leaf = self.leaf();
        leaf.is_some_and(|(command, _)| {
            let mut flags = command.get_arguments();
            flags.any(|argument| argument.get_long() == flag.strip_prefix("--"))
        })
    }

    /// Returns the value of a flag or argument, if it is on the command line.
    pub(crate) fn typed(&self, name: &str) -> Option<String> {
        let (_, matches) = self.leaf()?;
        is_typed(matches, name).then_some(())?;
        let value = matches.try_get_raw(name).ok()??.next()?;
        value.to_str().map(str::to_owned)
    }

    /// Returns the text of `step`. Returns `None` if the command does not have a flag in it, if a flag to
    /// remove is not on the command line, or if the suggested command line does not parse.
    pub(crate) fn text(&self, step: &NextStep) -> Option<String> {
        match step {
            NextStep::Again { .. } => {
                let changes = self.changed(step)?;
                parse(&self.root, &changes.words)?;
                let with = changes.added.join(" ");
                let without = changes.removed.join(" ");
                Some(match (with.is_empty(), without.is_empty()) {
                    (false, true) => format!("try again with {with}"),
                    (true, false) => format!("try again without {without}"),
                    (false, false) => format!("try again with {with} and without {without}"),
                    (true, true) => return None,
                })
            }
            NextStep::Run { run } => {
                let words = ["frostline".to_owned()].into_iter().chain(run.iter().cloned());
                let words: Vec<String> = words.collect();
                parse(&self.root, &words)?;
                let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                Some(format!("run {}", quoted.join(" ")))
            }
        }
    }

    /// Returns the subcommand with its arguments.
    fn leaf(&self) -> Option<(&Command, &ArgMatches)> {
        Some(leaf(&self.root, self.matches.as_ref()?))
    }

    fn changed(&self, step: &NextStep) -> Option<FlagChanges> {
        let NextStep::Again { set, unset } = step else {
            return None;
        };
        let (command, matches) = self.leaf()?;
        let mut changes = FlagChanges {
            words: self.words.clone(),
            added: Vec::new(),
            removed: Vec::new(),
        };
        for name in unset {
            let argument = flag(command, name)?;
            if !is_typed(matches, name) {
                return None;
            }
            changes.words = without(&changes.words, argument);
            changes.removed.push(format!("--{}", argument.get_long()?));
        }
        for (name, value) in set {
            let argument = flag(command, name)?;
            let long = format!("--{}", argument.get_long()?);
            let value = match value {
                Value::Bool(_) => None,
                Value::String(text) => Some(text.clone()),
                _ => Some(argument.get_value_names()?.first()?.to_string()),
            };
            let value: Vec<String> = value.into_iter().collect();
            changes.words.push(long.clone());
            changes.words.extend(value.iter().cloned());
            let typed = value.iter().map(|value| quoted(value));
            changes.added.extend([long].into_iter().chain(typed));
        }
        Some(changes)
    }
}

/// Parses a command line with the name of the program.
fn parse(root: &Command, words: &[String]) -> Option<ArgMatches> {
    root.clone().try_get_matches_from(words).ok()
}

/// Returns the subcommand of a command line.
fn leaf<'a>(command: &'a Command, matches: &'a ArgMatches) -> (&'a Command, &'a ArgMatches) {
    let inner = matches
        .subcommand()
        .and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches)));
    match inner {
        Some((command, matches)) => leaf(command, matches),
        None => (command, matches),
    }
}

fn flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| argument.get_id() == name)
}

fn is_typed(matches: &ArgMatches, name: &str) -> bool {
    // `value_source` panics in debug builds if the command does not have this argument.
    let known = matches.try_contains_id(name).is_ok();
    known && matches.value_source(name) == Some(ValueSource::CommandLine)
}

/// Removes a flag and its value.
fn without(words: &[String], argument: &Arg) -> Vec<String> {
    let names = argument.get_long_and_visible_aliases().unwrap_or_default();
    let hidden = argument.get_all_aliases().unwrap_or_default();
    let names = names.into_iter().chain(hidden).map(|name| format!("--{name}"));
    let names: Vec<String> = names.collect();
    let has_value = argument.get_action().takes_values() && !argument.is_require_equals_set();
    let mut left = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if !names.iter().any(|known| known == name) {
            left.push(word.clone());
        } else if has_value && name == word {
            words.next_if(|value| !value.starts_with("--"));
        }
    }
    left
}

/// Quotes a word for a shell, if required.
pub(crate) fn quoted(word: &str) -> String {
    if !word.is_empty()
        && word
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter))
    {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
