//! Writes the OpenAPI files from the server's description of the routes and the doc comments of handlers.

use super::routes::{Comments, read};
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

/// Clients of the routes in each file, as in the field `access` of routes.
const PORTS: [(&str, &[&str]); 3] = [
    ("tenants", &["tenant", "anyone"]),
    ("admins", &["admin"]),
    ("metrics", &["operator"]),
];

/// Returns the names and texts of the files. `descriptions` is the output of `frostline reference openapi`.
///
/// # Errors
/// Returns an error if a description and the table of routes do not contain the same routes.
pub(super) fn files(descriptions: &str, routes: &str) -> Result<Vec<(String, String)>> {
    let mut descriptions: Map<String, Value> =
        serde_json::from_str(descriptions).context("OpenAPI descriptions must be JSON")?;
    let routes = read(routes)?;
    let mut comments = Comments::default();
    let mut covered = 0;
    for route in &routes {
        let field = |name: &str| route.get(name).map_or("", String::as_str);
        let port = PORTS
            .iter()
            .find(|(_, accesses)| accesses.contains(&field("access")));
        let (port, _) = port.with_context(|| format!("no OpenAPI file has {} routes", field("access")))?;
        let path = field("path").replace('/', "~1");
        let pointer = format!("/paths/{path}/{}", field("method").to_lowercase());
        let description = descriptions.get_mut(*port);
        let operation =
            description.and_then(|description| description.pointer_mut(&pointer)?.as_object_mut());
        let operation =
            operation.with_context(|| format!("the OpenAPI description of {port} has no {pointer}"))?;
        operation.insert("summary".to_owned(), comments.of(field("handler"))?.into());
        covered += 1;
    }
    let operations: usize = descriptions.values().map(operations).sum();
    ensure!(
        operations == covered,
        "the OpenAPI descriptions have {operations} operations, but hosts have {covered} routes"
    );
    println!("OpenAPI: {covered} routes covered of {} served", routes.len());
    let file = |(port, description): (String, Value)| {
        Ok((format!("openapi-{port}.json"), format!("{description:#}\n")))
    };
    descriptions.into_iter().map(file).collect()
}

fn operations(description: &Value) -> usize {
    let paths = description.get("paths").and_then(Value::as_object);
    let paths = paths
        .into_iter()
        .flat_map(Map::values)
        .filter_map(Value::as_object);
    paths.map(Map::len).sum()
}
