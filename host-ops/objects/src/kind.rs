//! Store types and the advice for errors.

use std::borrow::Cow;

/// Store type, which determines the source of credentials and addresses.
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
    /// Returns true if requests travel over a network, where they can stall.
    pub(crate) fn is_remote(self) -> bool {
        !matches!(self, Self::Folder | Self::Memory)
    }

    /// Returns an etag in the form used in requests. Over HTTP etags are quoted, but Azure's listings omit
    /// the quotes.
    pub(crate) fn etag(self, etag: &str) -> Cow<'_, str> {
        if self.is_remote() && !etag.ends_with('"') {
            Cow::Owned(format!("\"{etag}\""))
        } else {
            Cow::Borrowed(etag)
        }
    }

    /// Returns the advice for a store that refuses access.
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
            Self::Web => "web servers are read without credentials; configure the server to allow this host",
        }
    }

    /// Returns the advice for missing credentials.
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

    /// Returns the advice for unsigned requests to a store that is not public.
    pub(crate) fn unsigned_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "requests are not signed (AWS_SKIP_SIGNATURE=true) and the store is not public; unset it, and set \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this process"
            }
            Self::Google => {
                "requests are not signed (GOOGLE_SKIP_SIGNATURE=true) and the store is not public; unset it, and set \
                 GOOGLE_APPLICATION_CREDENTIALS in the environment of this process"
            }
            Self::Azure => {
                "requests are not signed (AZURE_SKIP_SIGNATURE=true) and the store is not public; unset it, and set \
                 AZURE_STORAGE_ACCOUNT_KEY in the environment of this process"
            }
            Self::Folder | Self::Memory | Self::Web => self.credentials_advice(),
        }
    }

    /// Returns the advice for a bucket that does not exist.
    pub(crate) fn bucket_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "check the bucket's name and, if the store is not Amazon's, AWS_ENDPOINT_URL; buckets are not \
                 created automatically"
            }
            Self::Google => {
                "check the bucket's name and, if it is set, GOOGLE_BASE_URL; buckets are not created automatically"
            }
            Self::Azure => {
                "check the container's name, AZURE_STORAGE_ACCOUNT_NAME and, if it is set, AZURE_STORAGE_ENDPOINT; containers are \
                 not created automatically"
            }
            Self::Folder | Self::Memory | Self::Web => "check the address",
        }
    }

    /// Returns the advice for an untrusted certificate.
    pub(crate) fn trust_advice(self) -> &'static str {
        match self {
            Self::S3 => {
                "its certificate is not trusted: set AWS_CA_BUNDLE, or ca under [store.BUCKET] in the host's configuration, to a \
                 PEM file with the authority that signed it, and check that the certificate matches the name in the address"
            }
            _ => {
                "its certificate is not trusted: add the authority that signed it to the trusted certificates of this system"
            }
        }
    }

    /// Returns the advice for an unreachable store.
    pub(crate) fn address_advice(self) -> &'static str {
        match self {
            Self::S3 => "check that the store is running and AWS_ENDPOINT_URL is correct",
            Self::Google => "check the network and, if it is set, GOOGLE_BASE_URL",
            Self::Azure => {
                "check AZURE_STORAGE_ACCOUNT_NAME, the network and, if it is set, AZURE_STORAGE_ENDPOINT"
            }
            Self::Folder | Self::Memory | Self::Web => "check the address",
        }
    }
}

/// Source of request credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Credentials are present or not required.
    Given,
    /// Requests are unsigned because the settings say so.
    Unsigned,
    /// Credentials from the store's section in the host's configuration.
    Own,
    /// Credentials are missing. The machine's role is used, if it has one.
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
