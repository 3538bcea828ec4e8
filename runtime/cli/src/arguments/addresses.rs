//! Checks of the command line before it is parsed, because clap repeats invalid values.

use clap::Command;
use clap::error::ErrorKind;
use frostline_tensor::without_secrets;

/// Refuses addresses with a user, a password or a query. No store or host accepts them, and they would appear in
/// messages, logs and settings of runs.
pub(crate) fn refuse_secrets<'a>(
    command: &mut Command,
    arguments: impl Iterator<Item = &'a str>,
) -> Result<(), clap::Error> {
    for argument in arguments {
        let value = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with('-') => value,
            _ => argument,
        };
        let shown = without_secrets(value);
        if shown != value {
            let message = format!(
                "credentials or a query are not allowed in the address '{shown}'; a store's keys belong in the environment, \
                 and a host's token in a file (--token-file)"
            );
            return Err(command.error(ErrorKind::ValueValidation, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_secrets_are_refused_without_repeating_them() {
        for argument in [
            "https://me:geheim@web.example/x",
            "--data=s3://id:geheim@photos/x",
            "--host=https://geheim@store:8443",
            "https://bucket.example/x?X-Amz-Signature=geheim",
        ] {
            let refused = refuse_secrets(&mut Command::new("frostline"), [argument].into_iter()).unwrap_err();
            let text = refused.render().to_string();
            assert!(
                text.contains("example") || text.contains("photos") || text.contains("store"),
                "{text}"
            );
            assert!(!text.contains("geheim"), "{text}");
        }
        let fine = [
            "s3://photos/a@b",
            "./a@b?c",
            "--lr=head=0.1",
            "abfss://c@a.dfs.core.windows.net/x",
        ];
        refuse_secrets(&mut Command::new("frostline"), fine.into_iter()).unwrap();
    }
}
