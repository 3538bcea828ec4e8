//! What a root lies in, and what to look at when it fails.

use std::borrow::Cow;

/// What a root lies in: where its credentials and its address come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    Memory,
    S3,
    Google,
    Azure,
    Web,
}

impl Kind {
    /// Whether requests travel over a network, where they can stall.
    pub(crate) fn is_remote(self) -> bool {
        !matches!(self, Self::Folder | Self::Memory)
    }

    /// An etag as it is asked for. Over HTTP it has quotes, which Azure's listings leave out.
    pub(crate) fn etag(self, etag: &str) -> Cow<'_, str> {
        if self.is_remote() && !etag.ends_with('"') {
            Cow::Owned(format!("\"{etag}\""))
        } else {
            Cow::Borrowed(etag)
        }
    }

    /// What to look at when a store refuses access.
    pub(crate) fn credentials_advice(self) -> &'static str {
        match self {
            Self::Folder | Self::Memory => "check the permissions of the files",
            Self::S3 => {
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION in the environment of this \
                 process, or the profile that AWS_PROFILE names, and what they are allowed to do"
            }
            Self::Google => {
                "check GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT in the environment of this process, and what \
                 that account is allowed to do"
            }
            Self::Azure => {
                "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN) in the environment \
                 of this process, and what they are allowed to do"
            }
            Self::Web => "a web server is read without credentials; let it serve this host",
        }
    }

    /// How to give credentials where there are none.
    pub(crate) fn missing_credentials_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this process, or a profile in \
                 ~/.aws/credentials, or AWS_SKIP_SIGNATURE=true for a public bucket"
            }
            Self::Google => {
                "set GOOGLE_APPLICATION_CREDENTIALS in the environment of this process, or GOOGLE_SKIP_SIGNATURE=true for a \
                 public bucket"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_KEY in the environment of this process, or AZURE_SKIP_SIGNATURE=true for a public \
                 container"
            }
            Self::Folder | Self::Memory | Self::Web => self.credentials_advice(),
        }
    }

    /// How to sign requests where a store does not let everybody in.
    pub(crate) fn unsigned_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "requests are not signed (AWS_SKIP_SIGNATURE=true) and it does not let everybody in; unset it, and set \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this process"
            }
            Self::Google => {
                "requests are not signed (GOOGLE_SKIP_SIGNATURE=true) and it does not let everybody in; unset it, and set \
                 GOOGLE_APPLICATION_CREDENTIALS in the environment of this process"
            }
            Self::Azure => {
                "requests are not signed (AZURE_SKIP_SIGNATURE=true) and it does not let everybody in; unset it, and set \
                 AZURE_STORAGE_ACCOUNT_KEY in the environment of this process"
            }
            Self::Folder | Self::Memory | Self::Web => self.credentials_advice(),
        }
    }

    /// What to look at when there is no such bucket.
    pub(crate) fn bucket_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "check the bucket's name and, where the store is not Amazon's, that AWS_ENDPOINT_URL names it; buckets are never \
                 created here"
            }
            Self::Google => {
                "check the bucket's name and, if it is set, GOOGLE_BASE_URL; buckets are never created here"
            }
            Self::Azure => {
                "check the container's name, AZURE_STORAGE_ACCOUNT_NAME and, if it is set, AZURE_STORAGE_ENDPOINT; containers are \
                 never created here"
            }
            Self::Folder | Self::Memory | Self::Web => "check the address",
        }
    }

    /// What to look at when the store's certificate is not trusted.
    pub(crate) fn trust_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "its certificate is not trusted: name the authority that signed it, in PEM, by AWS_CA_BUNDLE or by ca under \
                 [store.BUCKET] in the host's configuration, and check that the name in the address is the certificate's"
            }
            _ => "its certificate is not trusted: add the authority that signed it to those of this system",
        }
    }

    /// What to look at when nothing answers.
    pub(crate) fn address_advice(self) -> &'static str {
        match self {
            Self::S3 => "check that it runs and that AWS_ENDPOINT_URL names it",
            Self::Google => "check the network and, if it is set, GOOGLE_BASE_URL",
            Self::Azure => {
                "check AZURE_STORAGE_ACCOUNT_NAME, the network and, if it is set, AZURE_STORAGE_ENDPOINT"
            }
            Self::Folder | Self::Memory | Self::Web => "check the address",
        }
    }
}

/// What requests are signed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Some were given, or none are needed.
    Given,
    /// Nothing, as the settings ask for.
    Unsigned,
    /// Of the store's own, by the host's configuration.
    Own,
    /// Nothing was given: the machine's own role, if it has one.
    Missing,
}

impl Credentials {
    pub(crate) fn from_flags(unsigned: bool, given: bool) -> Self {
        match (unsigned, given) {
            (true, _) => Self::Unsigned,
            (false, true) => Self::Given,
            (false, false) => Self::Missing,
        }
    }
}
