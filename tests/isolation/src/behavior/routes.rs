//! Routes that strangers and tenants reach, from the page of routes. `cargo xtask lint` fails if the page
//! differs from the routers.

/// Generated page of all routes.
const PAGE: &str = include_str!("../../../../runtime/docs/reference/routes.md");

/// Section of the tenants' port.
const SECTION: &str = "## Tenants\n";

/// A method on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// Path with parameters in braces.
    pub(crate) path: &'static str,
}

/// Returns all routes of the tenants' port, and a path without a route.
pub(crate) fn all() -> Vec<Route> {
    let section = PAGE.split_once(SECTION).map_or("", |(_, section)| section);
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let requests = rows.filter_map(|row| row.split_once('`')?.0.split_once(' '));
    let routes = requests.map(|(method, path)| Route { method, path });
    routes
        .chain([Route {
            method: "GET",
            path: "/absent/{name}",
        }])
        .collect()
}
