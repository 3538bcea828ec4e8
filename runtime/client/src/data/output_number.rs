//! Class names that are the numbers of outputs.

/// Largest class name that is the number of an output. ImageNet-21k has 21,841 classes. Larger numbers are
/// names, such as those of a taxonomy, because there is an output for each number from 0.
const LARGEST_NUMBER: usize = 65_535;

/// Converts a class name to the number of an output. Returns `None` if it is a name.
pub(super) fn output_number(name: &str) -> Option<usize> {
    let number: usize = name.parse().ok()?;
    // A name such as "007" or "+7" is another name than "7".
    (number <= LARGEST_NUMBER && number.to_string() == name).then_some(number)
}
