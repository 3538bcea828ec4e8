//! Comparison of names with different Unicode normalization. macOS stores decomposed file names (NFD), and most
//! other programs compose letters (NFC).

use unicode_normalization::UnicodeNormalization;

/// Returns true if both names are the same text, whatever their normalization is.
pub fn is_same_name(left: &str, right: &str) -> bool {
    left == right || left.nfc().eq(right.nfc())
}

pub(super) fn composed(name: &str) -> String {
    name.nfc().collect()
}

/// Returns the composed and the decomposed spelling of `name`. Returns nothing for ASCII names, which have only
/// one spelling.
pub(super) fn spellings(name: &str) -> impl Iterator<Item = String> {
    let spellings = [composed, |name: &str| name.nfd().collect()];
    let spellings = spellings.into_iter().filter(|_| !name.is_ascii());
    spellings.map(|spelling| spelling(name))
}
