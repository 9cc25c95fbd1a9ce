//! The OpenAPI 3.1 document, written from the table of routes, and held against the one that is published.

use std::collections::BTreeSet;
use std::fs;

use heddle_core::error_code::ErrorCode;
use heddle_wire::problem::PROBLEM_JSON;
use heddle_wire::schema::Schemas;
use serde_json::{Map, Value, json};

use super::discover::{PUBLISHED, VERSION};
use super::route::{Answer, KEY, Key, Route};
use super::table::routes;

fn document(routes: &[Route]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in routes {
        let operation = operation(route, &mut schemas);
        paths
            .entry(route.path)
            .or_insert_with(|| json!({}))
            .as_object_mut()
            .map(|methods| methods.insert(route.method.to_owned(), operation));
    }
    schemas.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "heddle",
            "version": "0.0.0",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "On the Unix socket of the home, and on loopback with the bearer token of local_token. Request fields and parameters that are not named here are refused.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {"Problem": {
                "description": "A refusal; `code` and `retry` say what kind, `next` what to do",
                "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }},
            "securitySchemes": {"local_token": {"type": "http", "scheme": "bearer"}},
        },
        // The socket needs none: its folder's mode guards it.
        "security": [{}, {"local_token": []}],
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for (status, answer) in &route.shape.answers {
        let content = match answer {
            Answer::Json(describe) => {
                json!({"application/json": {"schema": describe(schemas).unwrap_or(Value::Bool(true))}})
            }
            Answer::Document => json!({"application/json": {"schema": {"type": "object"}}}),
            Answer::Text(media) => json!({*media: {"schema": {"type": "string"}}}),
        };
        let response = json!({"description": route.shape.summary, "content": content});
        responses.insert(status.to_string(), response);
    }
    responses.insert(
        "default".to_owned(),
        json!({"$ref": "#/components/responses/Problem"}),
    );
    let name = route
        .path
        .trim_start_matches("/v1/")
        .replace(['/', '.'], "_");
    let mut operation = json!({
        "operationId": format!("{}_{}", route.method, name.replace(['{', '}'], "")),
        "summary": route.shape.summary,
        "parameters": parameters(route),
        "responses": responses,
    });
    if let Some(describe) = route.shape.body {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": describe(schemas).unwrap_or(Value::Bool(true))}},
        });
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route.path.split(['{', '}']).skip(1).step_by(2);
    let mut parameters: Vec<Value> = in_path
        .map(|name| parameter(name, "path", true, &json!({"type": "string"})))
        .collect();
    let query = route
        .shape
        .query
        .and_then(|describe| describe())
        .unwrap_or_default();
    let is_required = |name: &str| {
        let required = query["required"].as_array();
        required.is_some_and(|names| names.iter().any(|required| required == name))
    };
    for (name, schema) in query["properties"].as_object().into_iter().flatten() {
        parameters.push(parameter(name, "query", is_required(name), schema));
    }
    let text = json!({"type": "string"});
    let headers = route.shape.headers.iter();
    parameters.extend(headers.map(|name| parameter(name, "header", false, &text)));
    parameters
}

fn parameter(name: &str, place: &str, required: bool, schema: &Value) -> Value {
    // A parameter is absent, never null.
    let mut schema = schema.clone();
    if let Some(kind) = schema["type"]
        .as_array()
        .and_then(|kinds| kinds.first())
        .cloned()
    {
        schema["type"] = kind;
    }
    json!({"name": name, "in": place, "required": required, "schema": schema})
}

fn problem() -> Value {
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "required": ["type", "title", "status", "code", "detail", "retry", "next"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string", "enum": codes},
            "detail": {"type": "string"},
            "retry": {"type": "string", "enum": ["never", "same_id", "new_id"]},
            "next": {"type": "string"},
        },
    })
}

/// Every `$ref` anywhere in the document.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|inner| references(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

#[test]
fn every_route_is_described_whole_and_every_reference_leads_somewhere() {
    let routes = routes();
    let document = document(&routes);
    for route in &routes {
        let operation = &document["paths"][route.path][route.method];
        assert_eq!(operation["summary"], route.shape.summary, "{}", route.path);
        assert!(
            !route.shape.answers.is_empty(),
            "{} gives nothing",
            route.path
        );
        // `true` stands where a type could not be looked at.
        assert!(
            !operation.to_string().contains("\"schema\":true"),
            "{operation}"
        );
        let is_asked = route.shape.query.is_some() || route.path.contains('{');
        let has_any = operation["parameters"]
            .as_array()
            .is_some_and(|p| !p.is_empty());
        assert!(has_any || !is_asked, "{}", route.path);
    }
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 15, "{found:?}");
    for reference in found {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let ids: BTreeSet<String> = routes
        .iter()
        .map(|r| document["paths"][r.path][r.method]["operationId"].to_string())
        .collect();
    assert_eq!(ids.len(), routes.len(), "two routes share a name");
}

/// Whose handler consumes the key by itself. A route gets here together with a test that asks it twice under one.
const KEYED_BY_THEMSELVES: [&str; 28] = [
    "/v1/send",
    "/v1/topic/post",
    "/v1/queue/push",
    "/v1/outbox/{id}/requeue",
    "/v1/memory/remember",
    "/v1/memory/forget",
    "/v1/state/set",
    "/v1/state/delete",
    "/v1/task/create",
    "/v1/task/claim",
    "/v1/task/release",
    "/v1/task/complete",
    "/v1/task/cancel",
    "/v1/file/share",
    "/v1/file/delete",
    "/v1/vector/store",
    "/v1/vector/delete",
    "/v1/effect/request",
    "/v1/effect/approve",
    "/v1/effect/deny",
    "/v1/effect/register",
    "/v1/effect/start",
    "/v1/effect/finish",
    "/v1/effect/resolve",
    "/v1/effect/verify",
    "/v1/effect/compensate",
    "/v1/effect/compensated",
    "/v1/mesh/invite",
];

/// CONTRACT: every call that changes something takes an `Idempotency-Key`.
#[test]
fn every_call_that_changes_something_has_a_gate_for_its_key() {
    let mut own: BTreeSet<&str> = KEYED_BY_THEMSELVES.into();
    for route in routes() {
        let changes = route.method != "get";
        let is_read = ["/v1/vector/search", "/v1/shutdown"].contains(&route.path);
        let wanted = match (changes, is_read) {
            (true, false) if own.remove(route.path) => Key::Own,
            (true, false) => Key::Gate,
            _ => Key::None,
        };
        assert_eq!(route.key, wanted, "{}", route.path);
        let says = route.shape.headers == KEY;
        assert_eq!(says, wanted != Key::None, "{}", route.path);
    }
    assert_eq!(own, BTreeSet::new(), "no such routes");
}

#[test]
fn the_protocol_page_names_every_route() {
    let page = include_str!("../../../../../docs/PROTOCOL.md");
    for route in routes() {
        let last = route.path.rsplit('/').next().unwrap_or_default();
        let is_named = page.contains(route.path) || page.contains(&format!("`{last}`"));
        assert!(
            is_named || last.contains('}'),
            "docs/PROTOCOL.md lacks {}",
            route.path
        );
    }
}

/// A path a line and a schema a line: short, and a change of one is a change of one line.
fn in_lines(document: &Value) -> String {
    const DEPTH_OF_LINES: usize = 2;
    let mut text = String::new();
    write_lines(document, DEPTH_OF_LINES, &mut text);
    text.push('\n');
    text
}

fn write_lines(value: &Value, depth: usize, text: &mut String) {
    let Some(map) = value.as_object().filter(|_| depth > 0) else {
        text.push_str(&value.to_string());
        return;
    };
    // Whatever holds many things gives each of them a line.
    let mut separator = "{\n";
    for (name, inner) in map {
        text.push_str(separator);
        text.push_str(&format!("{}: ", Value::from(name.as_str())));
        let is_list = name == "schemas" || name == "components";
        write_lines(inner, depth - usize::from(!is_list), text);
        separator = ",\n";
    }
    text.push_str("\n}");
}

#[test]
fn the_published_document_is_what_the_routes_say() {
    let written = in_lines(&document(&routes()));
    assert_eq!(
        serde_json::from_str::<Value>(&written).unwrap(),
        document(&routes())
    );
    assert_eq!(written.matches(VERSION).count(), 1);
    if written != PUBLISHED {
        let new = std::env::temp_dir().join("heddle-openapi.json");
        fs::write(&new, written).unwrap();
        panic!(
            "docs/openapi.json is not what the table of routes says; look at the difference and take the new one: \
             cp {} docs/openapi.json",
            new.display()
        );
    }
}
