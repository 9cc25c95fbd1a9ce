//! The JSON Schema of a type, read out of its own `Deserialize`: a document that cannot drift.
//!
//! Serde tells a deserialiser what it expects: the fields of a struct, the kind of each value. One
//! that has no input but writes down the questions, and answers each with the plainest value, learns
//! the whole shape. Leaving out one field at a time shows which ones are required.

mod probe;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use probe::{Probe, Survey};

/// Named schemas, for `#/components/schemas`.
pub type Schemas = BTreeMap<String, Value>;

/// Adds the schemas of `T` and of everything in it; returns a reference to it, or the schema itself
/// where it has no name. `None` when a type wants more than the plainest values.
pub fn schema_of<T: DeserializeOwned>(schemas: &mut Schemas) -> Option<Value> {
    let (root, survey) = look::<T>(None)?;
    for (name, properties) in survey.structs {
        let required: Vec<&String> = properties
            .keys()
            .filter(|field| look::<T>(Some((&name, field))).is_none())
            .collect();
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schemas.insert(name, schema);
    }
    Some(root)
}

/// The same, whole and without references to itself: for the parameters of a query.
pub fn inline_schema_of<T: DeserializeOwned>() -> Option<Value> {
    let mut schemas = Schemas::new();
    let root = schema_of::<T>(&mut schemas)?;
    match root["$ref"].as_str() {
        Some(reference) => schemas.remove(reference.rsplit('/').next()?),
        None => Some(root),
    }
}

/// One deserialisation, with a field left out or with all of them.
fn look<T: DeserializeOwned>(without: Option<(&str, &str)>) -> Option<(Value, Survey)> {
    let mut survey = Survey::without(without);
    let mut root = Value::Null;
    T::deserialize(Probe::new(&mut survey, &mut root)).ok()?;
    Some((root, survey))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::ipc::{OutboxRow, SendAnswer, SendBody, StatusView};

    fn schemas<T: DeserializeOwned>() -> Schemas {
        let mut schemas = Schemas::new();
        schema_of::<T>(&mut schemas).unwrap();
        schemas
    }

    #[test]
    fn required_optional_and_nested_fields_are_told_apart() {
        let send = &schemas::<SendBody>()["SendBody"];
        assert_eq!(send["required"], json!(["message", "to"]));
        assert_eq!(send["properties"]["to"], json!({"type": "string"}));
        assert_eq!(
            send["properties"]["priority"],
            json!({"type": ["string", "null"]})
        );
        assert_eq!(
            send["properties"]["mentions"],
            json!({"type": "array", "items": {"type": "string"}})
        );
        let status = schemas::<StatusView>();
        assert_eq!(
            status["StatusView"]["properties"]["meshes"]["items"],
            json!({"$ref": "#/components/schemas/MeshStatus"})
        );
        assert!(
            status["MeshStatus"]["required"]
                .as_array()
                .unwrap()
                .contains(&json!("broker"))
        );
        assert_eq!(
            status["OutboxFigures"]["properties"]["dead"]["type"],
            "integer"
        );
    }

    #[test]
    fn a_type_that_holds_itself_and_an_enum_are_described() {
        let row = &schemas::<OutboxRow>()["OutboxRow"];
        assert_eq!(
            row["properties"]["chain"]["items"],
            json!({"$ref": "#/components/schemas/OutboxRow"})
        );
        let answer = &schemas::<SendAnswer>()["SendAnswer"];
        assert_eq!(
            answer["properties"]["status"],
            json!({"type": ["string", "null"], "enum": ["queued", "inflight", null]})
        );
    }

    #[test]
    fn a_query_stands_alone() {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[derive(Default)]
        #[allow(dead_code)]
        struct Query {
            limit: Option<usize>,
            all: bool,
        }
        let query = inline_schema_of::<Query>().unwrap();
        assert_eq!(query["properties"]["all"]["type"], "boolean");
        assert!(query.get("required").is_none());
    }
}
