//! Every route answers as the OpenAPI files describe it.

use crate::client::{Client, body};
use crate::fixtures::{network, stock_guest};
use crate::metrics::operator;
use crate::support::TestHost;
use bytes::Bytes;
use frostline_server::{Access, Content, ROUTES, Route};
use frostline_wire::{TRACEPARENT, UploadRef};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Id of the job that is shown and cancelled.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Returns the committed file that describes the routes for `access`.
fn file(access: Access) -> Value {
    let text = match access {
        Access::Tenant | Access::Anyone => include_str!("../../../docs/reference/openapi-tenants.json"),
        Access::Admin => include_str!("../../../docs/reference/openapi-admins.json"),
        Access::Operator => include_str!("../../../docs/reference/openapi-metrics.json"),
    };
    serde_json::from_str(text).unwrap()
}

/// Name of the host.
const HOST: &str = "first";

/// A host with the tenants `default` and `acme`, which have a guest, a model and a job.
struct Scene {
    test: TestHost,
    guest: UploadRef,
    model: UploadRef,
    /// Id of a token of `acme`.
    token: String,
}

impl Scene {
    async fn new() -> Self {
        let test = TestHost::with(|settings| {
            settings.metrics_listen = Some("127.0.0.1:0".to_owned());
            settings.name = Some(HOST.to_owned());
        });
        let test = test.await;
        test.photos(2);
        let (token, id) = test.add_tenant("acme").await;
        test.client_of(&token).upload().await;
        let (guest, model) = test.upload().await;
        let scene = Self {
            test,
            guest,
            model,
            token: id,
        };
        let headers = [(TRACEPARENT, format!("00-{TRACE}-00f067aa0ba902b7-01"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let request = serde_json::to_vec(&scene.json("/v1/extractions")).unwrap();
        let answer = scene
            .test
            .client
            .send_with(Method::POST, "/v1/extractions", &headers, request);
        body(answer.await).await;
        scene
    }

    /// Returns the path of a route with values for the parameters, and with the required query.
    fn target(&self, route: &Route) -> String {
        let name = match route.access {
            Access::Admin if route.path.starts_with("/v1/hosts/") => HOST,
            Access::Admin => "acme",
            _ if route.path.contains("/guests/") => "prefix",
            _ => "tiny",
        };
        let model = if route.path.starts_with("/v1/models/") {
            "common"
        } else {
            "tiny"
        };
        let id = if route.path.contains("/tokens/") {
            &self.token
        } else {
            TRACE
        };
        let query = match route.path {
            "/v1/objects" => format!("?root={}", self.test.root()),
            "/v1/probe" => "?bytes=100".to_owned(),
            _ => String::new(),
        };
        let path = route.path.replace("{name}", name).replace("{guest}", "prefix");
        path.replace("{model}", model).replace("{id}", id) + &query
    }

    fn body(&self, route: &Route) -> Vec<u8> {
        match route.body {
            Content::Json(_) => serde_json::to_vec(&self.json(route.path)).unwrap(),
            Content::Upload if route.path.contains("/guests/") => stock_guest(),
            Content::Upload => network().to_bytes().unwrap(),
            _ => Vec::new(),
        }
    }

    fn json(&self, path: &str) -> Value {
        let guest = &self.guest;
        let model = &self.model;
        let samples = json!([{"position": 0, "key": "0.png"}, {"position": 1, "key": "absent.png"}]);
        let root = self.test.root();
        match path {
            "/v1/descriptions" => json!({"guest": guest, "model": model}),
            "/v1/extractions" => {
                json!({"root": root, "split": "flat", "guest": guest, "model": model, "samples": samples})
            }
            "/v1/profiles" => {
                let samples = json!([{"position": 0, "key": "0.png"}]);
                json!({"root": root, "guest": guest, "model": model, "cuts": ["flat"], "samples": samples})
            }
            "/v1/tenants" => json!({"name": "new", "data": [root]}),
            "/v1/tenants/{name}" | "/v1/tenants/{name}/guests/{guest}" => json!({"disabled": false}),
            "/v1/tenants/{name}/tokens" => json!({}),
            "/v1/tenants/{name}/quota" => json!({"running": 3, "queued": null}),
            other => panic!("add a request for {other} to this test"),
        }
    }

    /// Sends the request of a route. Returns the status, the media type if it is known, and the body.
    async fn ask(&self, route: &Route) -> (StatusCode, Option<String>, Bytes) {
        let target = self.target(route);
        let sent = self.body(route);
        let stranger;
        let client: &Client = match route.access {
            Access::Tenant | Access::Anyone => &self.test.client,
            Access::Operator => {
                stranger = operator(&self.test);
                &stranger
            }
            Access::Admin => {
                let (status, body) = self
                    .test
                    .ask_admin_with(route.method.clone(), &target, sent)
                    .await;
                return (status, None, body);
            }
        };
        let answer = client.send(route.method.clone(), &target, sent).await;
        let media_type = answer.headers().get("content-type");
        let media_type = media_type.map(|value| value.to_str().unwrap().to_owned());
        (answer.status(), media_type, body(answer).await)
    }
}

/// Requests that remove something come after all others, inner ones first, and the host is drained at the end.
fn order(route: &Route) -> (bool, bool, Reverse<usize>) {
    let removes = route.method == Method::DELETE;
    let depth = if removes { route.path.len() } else { 0 };
    (route.path.ends_with("/drain"), removes, Reverse(depth))
}

/// Checks a value against a schema. Fields of objects must be described.
fn conforms(file: &Value, schema: &Value, value: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        return conforms(file, file.pointer(&reference[1..]).unwrap(), value);
    }
    let any_of = ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|key| schema[key].as_array());
    let fits_any = |schemas: &Vec<Value>| schemas.iter().any(|schema| conforms(file, schema, value));
    let has_type = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    let types = match &schema["type"] {
        Value::Array(names) => names.iter().any(has_type),
        Value::Null => true,
        name => has_type(name),
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let mut required = required.filter(|_| value.is_object());
    let is_described = |(name, field): (&String, &Value)| match schema["properties"].get(name) {
        Some(schema) => conforms(file, schema, field),
        None => {
            schema["additionalProperties"].is_object()
                && conforms(file, &schema["additionalProperties"], field)
        }
    };
    any_of.into_iter().all(fits_any)
        && types
        && (schema["const"].is_null() || schema["const"] == *value)
        && schema["enum"]
            .as_array()
            .is_none_or(|values| values.contains(value))
        && required.all(|name| value.get(name.as_str().unwrap()).is_some())
        && value
            .as_array()
            .into_iter()
            .flatten()
            .all(|item| schema["items"].is_null() || conforms(file, &schema["items"], item))
        && (any_of_is_set(schema) || value.as_object().into_iter().flatten().all(is_described))
}

fn any_of_is_set(schema: &Value) -> bool {
    schema["anyOf"].is_array() || schema["oneOf"].is_array()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_as_described() {
    let scene = Scene::new().await;
    let mut routes: Vec<&Route> = ROUTES.iter().collect();
    routes.sort_by_key(|route| order(route));
    let mut covered = BTreeSet::new();
    for route in routes {
        let request = format!("{:?} {} {}", route.access, route.method, route.path);
        let file = file(route.access);
        let operation = &file["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
        assert!(operation.is_object(), "{request} is not described");
        let (status, media_type, body) = scene.ask(route).await;
        let said = String::from_utf8_lossy(&body);
        if route.path == "/v1/profiles/{model}" && status == StatusCode::NOT_FOUND {
            // A measurement that was disturbed is not stored.
            let refusal = &operation["responses"]["default"]["content"]["application/json"]["schema"];
            assert!(
                conforms(&file, refusal, &serde_json::from_slice(&body).unwrap()),
                "{said}"
            );
            covered.insert(request);
            continue;
        }
        assert!(status.is_success(), "{request}: {status} {said}");
        let content = &operation["responses"]["2XX"]["content"];
        match route.answer {
            Content::Empty => assert!(body.is_empty() && content.is_null(), "{request}: {said}"),
            Content::Json(json) => {
                let value: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(json.rewrite(&body).unwrap(), value, "{request}");
                let schema = &content["application/json"]["schema"];
                assert!(
                    conforms(&file, schema, &value),
                    "{request}: {said} is not {schema}"
                );
            }
            other => {
                let described = other.media_type().unwrap();
                assert!(content[described].is_object(), "{request}");
                assert!(media_type.unwrap().starts_with(described), "{request}");
            }
        }
        covered.insert(request);
    }
    println!(
        "OpenAPI: {} routes covered of {} served",
        covered.len(),
        ROUTES.len()
    );
    assert_eq!(covered.len(), ROUTES.len());
}

#[test]
fn the_check_of_answers_finds_differences() {
    let file = file(Access::Admin);
    let schema = json!({"$ref": "#/components/schemas/TokenInfo"});
    let token = json!({"id": "1f", "created_at": 1, "expires_at": null});
    assert!(conforms(&file, &schema, &token));
    for wrong in [
        json!({"id": "1f", "created_at": 1}),
        json!({"id": "1f", "created_at": "1", "expires_at": null}),
        json!({"id": "1f", "created_at": 1, "expires_at": null, "secret": "x"}),
    ] {
        assert!(!conforms(&file, &schema, &wrong), "{wrong}");
    }
}
