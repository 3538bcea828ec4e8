//! `frostline reference`, which prints input for `cargo xtask reference`.

use crate::arguments::{Arguments, ReferencePart};
use crate::output::{print_json, stdout};
use anyhow::Result;
use clap::{Arg, Command, CommandFactory, Id};
use frostline_server::{HostSettings, ROUTES, openapi, sample_metrics};
use std::fmt::{self, Write as _};
use std::io::Write as _;

/// Prints all commands as Markdown, all metrics as OpenMetrics, or the default host settings, all routes or the
/// OpenAPI descriptions as JSON.
pub(crate) fn print(part: ReferencePart) -> Result<()> {
    let text = match part {
        ReferencePart::Commands => commands()?,
        ReferencePart::Settings => return Ok(print_json(&HostSettings::default())?),
        ReferencePart::Metrics => sample_metrics()?,
        ReferencePart::Routes => return Ok(print_json(&ROUTES)?),
        ReferencePart::Openapi => return Ok(print_json(&openapi().map_err(anyhow::Error::msg)?)?),
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

fn commands() -> Result<String, fmt::Error> {
    let mut root = Arguments::command().bin_name("frostline");
    root.build();
    let mut page = String::new();
    describe(&mut root, &[], &mut page)?;
    Ok(page)
}

/// Describes a command and all subcommands. `inherited` contains global flags, which are described with the
/// parent command.
fn describe(command: &mut Command, inherited: &[Id], page: &mut String) -> fmt::Result {
    let usage = command.render_usage().to_string();
    let name = command.get_bin_name().unwrap_or_default();
    let level = "#".repeat(name.split(' ').count().clamp(2, 3));
    let about = command.get_long_about().or(command.get_about());
    let about = prose(&about.map(ToString::to_string).unwrap_or_default());
    writeln!(page, "{level} {name}\n\n{about}\n")?;
    writeln!(page, "```text\n{}\n```\n", usage.trim_start_matches("Usage: "))?;
    let arguments = command.get_arguments().filter(|arg| {
        let id = arg.get_id();
        !arg.is_hide_set() && !inherited.contains(id) && !["help", "version"].contains(&id.as_str())
    });
    let arguments: Vec<&Arg> = arguments.collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for arg in &arguments {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            writeln!(page, "{heading}:\n")?;
        }
        let below = arguments.iter().filter(|arg| arg.get_help_heading() == heading);
        for arg in below {
            writeln!(page, "- {}", item(arg))?;
        }
        writeln!(page)?;
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        writeln!(page, "```text\n{}\n```\n", text.to_string().trim())?;
    }
    let global = command.get_arguments().filter(|arg| arg.is_global_set());
    let inherited: Vec<Id> = inherited.iter().chain(global.map(Arg::get_id)).cloned().collect();
    for subcommand in command.get_subcommands_mut() {
        if !subcommand.is_hide_set() && subcommand.get_name() != "help" {
            describe(subcommand, &inherited, page)?;
        }
    }
    Ok(())
}

/// Describes an argument, including the default, possible values and environment variable.
fn item(arg: &Arg) -> String {
    let short = arg.get_short().filter(|_| arg.get_long().is_some());
    let short = short.map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    let aliases: String = aliases.iter().map(|alias| format!(", `--{alias}`")).collect();
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    // Defaults determined at run time are part of the help text.
    let written = help
        .strip_suffix(']')
        .and_then(|help| help.rsplit_once(" [default: "));
    let (help, written) = written.map_or((help.as_str(), None), |(help, default)| (help, Some(default)));
    let mut facts = Vec::new();
    if arg.is_required_set() && !arg.is_positional() {
        facts.push("required".to_owned());
    }
    if arg.get_action().takes_values() {
        let values = arg.get_possible_values();
        let names = values.iter().filter(|value| !value.is_hide_set());
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        let is_switch = names == ["true", "false"];
        if !names.is_empty() && !is_switch && !arg.is_hide_possible_values_set() {
            facts.push(format!("one of {}", code(&names)));
        }
        let defaults = arg.get_default_values().iter();
        let defaults: Vec<String> = defaults
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        if !defaults.is_empty() && !arg.is_hide_default_value_set() {
            facts.push(format!("default {}", code(&defaults)));
        }
    }
    facts.extend(written.map(|default| match default.contains(' ') {
        true => format!("default: {default}"),
        false => format!("default `{default}`"),
    }));
    if let Some(variable) = arg.get_env() {
        facts.push(format!("environment variable `{}`", variable.to_string_lossy()));
    }
    let facts = if facts.is_empty() {
        String::new()
    } else {
        format!(" ({})", facts.join("; "))
    };
    format!("{short}`{arg}`{aliases}: {}{facts}", prose(help))
}

fn code(values: &[String]) -> String {
    format!("`{}`", values.join("`, `"))
}

/// Escapes help text for Markdown.
fn prose(text: &str) -> String {
    let mut escaped = String::new();
    let mut code = false;
    for character in text.chars() {
        code ^= character == '`';
        if !code && matches!(character, '<' | '*') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
