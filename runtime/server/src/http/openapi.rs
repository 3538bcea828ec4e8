//! Generates an OpenAPI description for each port of a host.

use super::route_content::Content;
use super::routes::{Access, ROUTES, Route};
use frostline_wire::ErrorBody;
use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Ports with the clients of their routes. Tenants and admins use the same paths at different ports, and a
/// description can contain a path only once.
const PORTS: [(&str, &[Access]); 3] = [
    ("tenants", &[Access::Tenant, Access::Anyone]),
    ("admins", &[Access::Admin]),
    ("metrics", &[Access::Operator]),
];

/// Returns the OpenAPI descriptions of all routes by the name of the port.
///
/// # Errors
/// Returns the name of a type that has different schemas in requests and answers.
pub fn openapi() -> Result<Value, String> {
    let documents = PORTS.map(|(port, accesses)| Ok((port.to_owned(), document(port, accesses)?)));
    Ok(Value::Object(
        documents.into_iter().collect::<Result<_, String>>()?,
    ))
}

fn document(port: &str, accesses: &[Access]) -> Result<Value, String> {
    let mut schemas = Schemas {
        requests: generator(Contract::Deserialize),
        answers: generator(Contract::Serialize),
    };
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES.iter().filter(|route| accesses.contains(&route.access)) {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            let method = route.method.as_str().to_ascii_lowercase();
            methods.insert(method, schemas.operation(route));
        }
    }
    Ok(json!({
        "openapi": "3.1.0",
        "info": {"title": format!("Frostline for {port}"), "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "schemas": schemas.definitions()?,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }))
}

/// Schemas of the types in a description. Types with defaults have optional fields only in requests.
struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.contract = contract;
        settings
            .transforms
            .push(Box::new(RecursiveTransform(list_values)));
    });
    settings.into_generator()
}

/// Writes an enumeration as a list of values. Generators of clients do not support alternatives of constants.
fn list_values(schema: &mut Schema) {
    let alternatives = schema.get("oneOf").and_then(Value::as_array);
    let values: Option<Vec<Value>> = alternatives.and_then(|all| {
        all.iter()
            .map(|alternative| alternative.get("const").cloned())
            .collect()
    });
    if let Some(values) = values {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), "string".into());
        schema.insert("enum".to_owned(), values.into());
    }
}

impl Schemas {
    fn operation(&mut self, route: &Route) -> Value {
        let mut success = json!({"description": "Success"});
        insert(&mut success, "content", content(&mut self.answers, route.answer));
        let refusal = self.answers.subschema_for::<ErrorBody>();
        let mut operation = json!({
            "operationId": operation_id(route),
            "parameters": self.parameters(route),
            "responses": {
                "2XX": success,
                "default": {"description": "Refusal", "content": {"application/json": {"schema": refusal}}},
            },
            "security": match route.access {
                Access::Tenant => json!([{"token": []}]),
                // The admin socket requires no token.
                Access::Admin => json!([{"token": []}, {}]),
                Access::Anyone | Access::Operator => json!([]),
            },
        });
        let body = content(&mut self.requests, route.body);
        let body = body.map(|content| json!({"required": true, "content": content}));
        insert(&mut operation, "requestBody", body);
        operation
    }

    /// Returns the parameters in the path and in the query.
    fn parameters(&mut self, route: &Route) -> Vec<Value> {
        let names = route
            .path
            .split('{')
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('}')?.0));
        let path = names
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
        let mut parameters: Vec<Value> = path.collect();
        let query = route.query.map(|schema| schema(&mut self.requests));
        let query = query.as_ref();
        let required = query.and_then(|schema| schema.get("required")?.as_array());
        let properties = query.and_then(|schema| schema.get("properties")?.as_object());
        for (name, schema) in properties.into_iter().flatten() {
            let is_required = required.is_some_and(|names| names.iter().any(|required| required == name));
            parameters.push(json!({"name": name, "in": "query", "required": is_required, "schema": schema}));
        }
        parameters
    }

    fn definitions(mut self) -> Result<Map<String, Value>, String> {
        let mut all = self.answers.take_definitions(true);
        for (name, schema) in self.requests.take_definitions(true) {
            match all.get(&name) {
                Some(other) if *other != schema => {
                    return Err(format!(
                        "the type {name} differs between requests and answers; use two types"
                    ));
                }
                _ => all.insert(name, schema),
            };
        }
        Ok(all)
    }
}

/// Inserts a value into a JSON object, if it is set.
fn insert(object: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (object.as_object_mut(), value) {
        object.insert(key.to_owned(), value);
    }
}

/// Describes the content of a request or answer. Returns `None` if it has no body.
fn content(schemas: &mut SchemaGenerator, content: Content) -> Option<Value> {
    let media_type = content.media_type()?;
    let schema = match content {
        Content::Json(json) => (json.schema)(schemas).to_value(),
        Content::Text => json!({"type": "string"}),
        Content::Upload | Content::Arrow | Content::Bytes | Content::Empty => {
            json!({"type": "string", "format": "binary"})
        }
    };
    Some(json!({media_type: {"schema": schema}}))
}

/// Returns a unique name, such as `get_guests_name_log`.
fn operation_id(route: &Route) -> String {
    let segments = route
        .path
        .split('/')
        .filter(|segment| !segment.is_empty() && *segment != "v1");
    let words = segments.map(|segment| segment.trim_matches(['{', '}']));
    let method = route.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str())
        .chain(words)
        .collect::<Vec<_>>()
        .join("_")
}
