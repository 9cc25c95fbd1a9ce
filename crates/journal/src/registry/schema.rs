//! A light validator: the part of JSON Schema that item types use, and nothing beyond it.

use std::fmt;

use serde_json::{Map, Value};

/// A schema that was checked when it was read; an unknown keyword is refused there, not ignored here.
#[derive(Debug, Clone)]
pub struct Schema(Value);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("{at}: keyword {keyword:?} is not supported")]
    Keyword { at: String, keyword: String },
    #[error(
        "{at}: {keyword} stands at the top of the schema; x-ephemeral is there a list of field names"
    )]
    Nested { at: String, keyword: String },
    #[error("{at}: {keyword} has a value that it cannot have")]
    Value { at: String, keyword: String },
}

const KEYWORDS: &[&str] = &[
    "type",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "enum",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "title",
    "description",
    "$schema",
    "$id",
];
const REGISTRY_KEYS: &[&str] = &["x-class", "x-schema-version", "x-ephemeral"];
const TYPES: &[&str] = &[
    "object", "array", "string", "number", "integer", "boolean", "null",
];
const DEPTH_MAX: usize = 16;

impl Schema {
    /// `x-…` keys belong to the registry and are left alone.
    pub fn parse(schema: Value) -> Result<Self, SchemaError> {
        check_schema("$", &schema, 0)?;
        Ok(Self(schema))
    }

    /// Whether it describes a field of this name anywhere.
    pub(crate) fn names(&self, field: &str) -> bool {
        fn has(schema: &Value, field: &str) -> bool {
            match schema {
                Value::Object(all) => all.iter().any(|(keyword, inside)| {
                    let is_here = keyword == "properties" && inside.get(field).is_some();
                    is_here || has(inside, field)
                }),
                Value::Array(all) => all.iter().any(|inside| has(inside, field)),
                _ => false,
            }
        }
        has(&self.0, field)
    }

    /// The first thing that is wrong with a document, as a sentence.
    pub fn validate(&self, document: &Value) -> Result<(), String> {
        validate(&At::Root, &self.0, document)
    }
}

fn bad(at: &str, keyword: &str) -> SchemaError {
    SchemaError::Value {
        at: at.to_owned(),
        keyword: keyword.to_owned(),
    }
}

fn check_schema(at: &str, schema: &Value, depth: usize) -> Result<(), SchemaError> {
    let object = schema.as_object().ok_or_else(|| bad(at, "a schema"))?;
    if depth > DEPTH_MAX {
        return Err(bad(at, "nesting"));
    }
    for (keyword, value) in object {
        if keyword.starts_with("x-") {
            // The registry reads its own at the top alone: one that stands elsewhere would be passed over in silence.
            if depth > 0 && REGISTRY_KEYS.contains(&keyword.as_str()) {
                return Err(SchemaError::Nested {
                    at: at.to_owned(),
                    keyword: keyword.clone(),
                });
            }
            continue;
        }
        if !KEYWORDS.contains(&keyword.as_str()) {
            return Err(SchemaError::Keyword {
                at: at.to_owned(),
                keyword: keyword.clone(),
            });
        }
        let fits = match keyword.as_str() {
            "type" => types(value).is_some_and(|all| all.iter().all(|t| TYPES.contains(t))),
            "required" => strings(value).is_some(),
            "enum" => value.is_array(),
            "additionalProperties" => value.is_boolean(),
            "minLength" | "maxLength" => value.is_u64(),
            "minimum" | "maximum" => value.is_number(),
            "items" => {
                check_schema(&format!("{at}.items"), value, depth + 1)?;
                true
            }
            "properties" => {
                for (name, inner) in value.as_object().ok_or_else(|| bad(at, keyword))? {
                    check_schema(&format!("{at}.{name}"), inner, depth + 1)?;
                }
                true
            }
            _ => value.is_string(),
        };
        if !fits {
            return Err(bad(at, keyword));
        }
    }
    Ok(())
}

fn types(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(one) => Some(vec![one.as_str()]),
        other => strings(other),
    }
}

fn strings(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}

/// Where in a document; spelled out only when something is wrong there.
enum At<'a> {
    Root,
    Field(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("$"),
            Self::Field(outer, name) => write!(f, "{outer}.{name}"),
            Self::Item(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

fn validate(at: &At<'_>, schema: &Value, value: &Value) -> Result<(), String> {
    let is_fitting = match schema.get("type") {
        Some(Value::String(one)) => is_type(value, one),
        Some(Value::Array(all)) => all
            .iter()
            .any(|n| n.as_str().is_some_and(|n| is_type(value, n))),
        _ => true,
    };
    if !is_fitting {
        let names = schema.get("type").and_then(types).unwrap_or_default();
        return Err(format!("{at} must be {}", names.join(" or ")));
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        return Err(format!("{at} is none of its possible values"));
    }
    match value {
        Value::Object(object) => validate_object(at, schema, object),
        Value::Array(items) => match schema.get("items") {
            Some(inner) => items
                .iter()
                .enumerate()
                .try_for_each(|(i, item)| validate(&At::Item(at, i), inner, item)),
            None => Ok(()),
        },
        Value::String(text) => {
            let length = || text.chars().count() as u64;
            let bound = |keyword| schema.get(keyword).and_then(Value::as_u64);
            if bound("minLength").is_some_and(|least| length() < least) {
                return Err(format!("{at} is too short"));
            }
            if bound("maxLength").is_some_and(|most| length() > most) {
                return Err(format!("{at} is too long"));
            }
            Ok(())
        }
        Value::Number(number) => {
            let bound = |keyword| schema.get(keyword).and_then(Value::as_f64);
            let number = number.as_f64().unwrap_or(f64::NAN);
            if bound("minimum").is_some_and(|least| number < least)
                || bound("maximum").is_some_and(|most| number > most)
            {
                return Err(format!("{at} is out of its range"));
            }
            Ok(())
        }
        Value::Null | Value::Bool(_) => Ok(()),
    }
}

fn validate_object(at: &At<'_>, schema: &Value, object: &Map<String, Value>) -> Result<(), String> {
    let required = schema.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            return Err(format!("{at} lacks {name:?}"));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    for (name, value) in object {
        match properties.and_then(|known| known.get(name)) {
            Some(inner) => validate(&At::Field(at, name), inner, value)?,
            None if is_closed => return Err(format!("{at} has no field {name:?}")),
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_keyword_refuses_what_it_should() {
        let schema = Schema::parse(json!({
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {
                "a": {"type": ["string", "null"], "minLength": 2, "maxLength": 3},
                "b": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 2}},
                "c": {"enum": ["x", 1]}
            }
        }))
        .unwrap();
        for good in [json!({"a": "xy"}), json!({"a": null, "b": [1, 2], "c": 1})] {
            assert_eq!(schema.validate(&good), Ok(()), "{good}");
        }
        for bad in [
            json!([]),
            json!({}),
            json!({"a": "x"}),
            json!({"a": "xxxx"}),
            json!({"a": 1}),
            json!({"a": "xy", "b": [1.5]}),
            json!({"a": "xy", "b": [0]}),
            json!({"a": "xy", "b": [3]}),
            json!({"a": "xy", "c": "y"}),
            json!({"a": "xy", "d": 1}),
        ] {
            assert!(schema.validate(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_keyword_that_would_be_ignored_is_refused() {
        for bad in [
            json!({"pattern": "^a"}),
            json!({"properties": {"x": {"oneOf": []}}}),
            json!({"type": "text"}),
            json!({"items": []}),
            json!({"required": [1]}),
            json!(true),
        ] {
            assert!(Schema::parse(bad.clone()).is_err(), "{bad}");
        }
        assert!(Schema::parse(json!({"x-class": "memory"})).is_ok());
    }
}
