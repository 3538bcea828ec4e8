//! AWS profiles in `~/.aws/credentials` and `~/.aws/config`.
//!
//! Only keys written in the files are supported. A profile with keys from elsewhere (single sign-on, a role,
//! another program) is refused. The error contains the command to export the keys. The file format is
//! documented at <https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>.

use super::settings::Variables;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

/// Maximum file size in bytes. Profiles use some 200 bytes each.
const LARGEST_FILE: u64 = 1 << 20;

/// Settings for keys from other sources.
const ELSEWHERE: [&str; 4] = ["sso_session", "sso_start_url", "role_arn", "credential_process"];

/// Settings of a profile.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) keys: Option<Keys>,
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
}

#[derive(PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ProfileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is larger than {LARGEST_FILE} bytes; check that it is a file of AWS profiles", path.display())]
    Large { path: PathBuf },
    #[error(
        "AWS_PROFILE names '{name}', but neither ~/.aws/credentials nor ~/.aws/config has such a profile"
    )]
    Missing { name: String },
    #[error(
        "{} has no keys under [{name}]; add aws_access_key_id and aws_secret_access_key in the format of ~/.aws/credentials",
        path.display()
    )]
    NoKeys { path: PathBuf, name: String },
    #[error(
        "the profile '{name}' gets its keys from elsewhere ({setting}); run 'aws configure export-credentials --profile {name} \
         --format env' and set the variables that it prints"
    )]
    Elsewhere { name: String, setting: &'static str },
}

/// Reads the profile named by `AWS_PROFILE`, or `default`. A missing file or default profile is not an error.
/// A profile without keys in the files is an error only if they are `needed`.
pub(super) fn read(variables: &Variables, needed: bool) -> Result<Profile, ProfileError> {
    let named = variables.get("AWS_PROFILE").filter(|name| !name.is_empty());
    let name = named.map_or("default", String::as_str);
    let credentials = settings(
        file(variables, "AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        &[name.to_owned()],
    )?;
    let config = settings(
        file(variables, "AWS_CONFIG_FILE", "config"),
        &[format!("profile {name}"), name.to_owned()],
    )?;
    if named.is_some() && credentials.is_none() && config.is_none() {
        return Err(ProfileError::Missing {
            name: name.to_owned(),
        });
    }
    // Credentials override the config file.
    let mut all = config.unwrap_or_default();
    all.extend(credentials.unwrap_or_default());
    let keys = keys(&mut all);
    let elsewhere = ELSEWHERE.into_iter().find(|setting| all.contains_key(*setting));
    match elsewhere {
        Some(setting) if needed && keys.is_none() => Err(ProfileError::Elsewhere {
            name: name.to_owned(),
            setting,
        }),
        _ => Ok(Profile {
            keys,
            region: all.remove("region"),
            endpoint: all.remove("endpoint_url"),
        }),
    }
}

/// Returns the keys for a profile in a file.
pub(super) fn keys_in(path: &std::path::Path, name: &str) -> Result<Keys, ProfileError> {
    let found = settings(Some(path.to_owned()), &[name.to_owned()])?;
    found
        .and_then(|mut found| keys(&mut found))
        .ok_or_else(|| ProfileError::NoKeys {
            path: path.to_owned(),
            name: name.to_owned(),
        })
}

fn keys(settings: &mut BTreeMap<String, String>) -> Option<Keys> {
    Some(Keys {
        id: settings.remove("aws_access_key_id")?,
        secret: settings.remove("aws_secret_access_key")?,
        token: settings.remove("aws_session_token"),
    })
}

fn file(variables: &Variables, variable: &str, name: &str) -> Option<PathBuf> {
    let given = variables.get(variable).map(PathBuf::from);
    given.or_else(|| Some(PathBuf::from(variables.get("HOME")?).join(".aws").join(name)))
}

/// Returns the settings in the first of `sections` if the file contains any.
fn settings(
    path: Option<PathBuf>,
    sections: &[String],
) -> Result<Option<BTreeMap<String, String>>, ProfileError> {
    let Some(path) = path else { return Ok(None) };
    let mut text = String::new();
    let file = std::fs::File::open(&path);
    match file.and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ProfileError::Read { path, source }),
        Ok(_) if text.len() as u64 > LARGEST_FILE => return Err(ProfileError::Large { path }),
        Ok(_) => {}
    }
    Ok(sections.iter().find_map(|section| parse(&text, section)))
}

/// Returns the settings of a section. Indented lines are nested settings of single services and are ignored.
fn parse(text: &str, section: &str) -> Option<BTreeMap<String, String>> {
    let mut found = None;
    let mut inside = false;
    for line in text.lines() {
        if let Some(header) = line.strip_prefix('[') {
            let name = header.split(']').next().unwrap_or_default();
            inside = name.split_whitespace().eq(section.split_whitespace());
            if inside {
                found.get_or_insert_with(BTreeMap::new);
            }
        } else if line.starts_with([' ', '\t', '#', ';']) {
        } else if let (true, Some((name, value)), Some(found)) = (inside, line.split_once('='), &mut found) {
            found.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(files: &[(&str, &str)], profile: Option<&str>) -> (tempfile::TempDir, Variables) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".aws")).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(".aws").join(name), text).unwrap();
        }
        let mut variables = Variables::new();
        variables.insert("HOME".into(), folder.path().to_str().unwrap().into());
        if let Some(profile) = profile {
            variables.insert("AWS_PROFILE".into(), profile.into());
        }
        (folder, variables)
    }

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id=one\naws_secret_access_key = a=b \n\n[ lab ]\r\n\
        aws_access_key_id = two\r\nAWS_SECRET_ACCESS_KEY = zwei\naws_session_token = t\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  endpoint_url = https://nested\n[profile lab]\n\
        endpoint_url = https://lab.example\n[profile office]\nsso_session = work\n";

    #[test]
    fn a_profile_joins_both_files() {
        let (_home, variables) = home(&[("credentials", CREDENTIALS), ("config", CONFIG)], None);
        let profile = read(&variables, true).unwrap();
        let keys = profile.keys.unwrap();
        assert_eq!(
            (keys.id.as_str(), keys.secret.as_str(), keys.token),
            ("one", "a=b", None)
        );
        assert_eq!(
            (profile.region.as_deref(), profile.endpoint),
            (Some("eu-west-1"), None)
        );

        let (_home, variables) = home(&[("credentials", CREDENTIALS), ("config", CONFIG)], Some("lab"));
        let profile = read(&variables, true).unwrap();
        let keys = profile.keys.unwrap();
        assert_eq!(
            (keys.id.as_str(), keys.secret.as_str(), keys.token.as_deref()),
            ("two", "zwei", Some("t"))
        );
        assert_eq!(profile.endpoint.as_deref(), Some("https://lab.example"));
    }

    #[test]
    fn missing_profiles_are_errors_only_if_named() {
        let (_home, variables) = home(&[], None);
        assert_eq!(read(&variables, true).unwrap(), Profile::default());
        assert_eq!(read(&Variables::new(), true).unwrap(), Profile::default());
        let (_home, variables) = home(&[("config", CONFIG)], Some("nobody"));
        assert!(matches!(
            read(&variables, false),
            Err(ProfileError::Missing { .. })
        ));
    }

    #[test]
    fn keys_from_elsewhere_are_told_where_they_are_needed() {
        let (_home, variables) = home(&[("config", CONFIG)], Some("office"));
        let error = read(&variables, true).unwrap_err().to_string();
        assert!(
            error.contains("sso_session") && error.contains("export-credentials"),
            "{error}"
        );
        assert_eq!(read(&variables, false).unwrap().keys, None);
    }
}
