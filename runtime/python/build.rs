//! Adds the linker arguments that macOS requires for extension modules. Python symbols are resolved at load
//! time.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
