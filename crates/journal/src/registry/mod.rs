//! The item types: class, schema, ephemeral fields, stepwise migrations. One place for all of them.

pub mod schema;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use crate::format::is_item_type;
use schema::Schema;

/// The item type of the journal's own records.
pub const JOURNAL: &str = "journal";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeClass {
    /// Last writer wins; may be served stale, and says so.
    Memory,
    /// Claims and runs: read through to the newest durable state (J3).
    Execution,
    /// One of its kind; never dies.
    Singleton,
}

/// A document one version up.
pub type Migration = fn(Map<String, Value>) -> Result<Map<String, Value>, String>;

#[derive(Debug, Clone)]
pub struct ItemType {
    pub name: String,
    pub class: TypeClass,
    /// The version that this build writes; a document without the field is version 1.
    pub schema_version: u64,
    /// Fields that change without an event: a change of these alone is no record (JN-29).
    pub ephemeral: Vec<String>,
    schema: Schema,
    /// From version `key` to the next.
    migrations: BTreeMap<u64, Migration>,
}

#[derive(Debug, Clone)]
pub struct Registry {
    types: BTreeMap<String, ItemType>,
    /// Types of a team's own whose schema cannot be used, and why.
    broken: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error("{0:?} cannot be the name of an item type: use lower-case letters, digits and _")]
    Name(String),
    #[error("{0:?} is a type of Heddle's own; choose another name")]
    Taken(String),
    #[error("the schema of {name}: {reason}")]
    Schema { name: String, reason: String },
}

/// Why a document is not of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    #[error("there is no item type {0:?}")]
    UnknownType(String),
    #[error("a document is a JSON object")]
    NotAnObject,
    #[error("schema_version {found} is unknown; this build knows {newest}")]
    Version { found: String, newest: u64 },
    #[error("the migration from version {from} failed: {reason}")]
    Migration { from: u64, reason: String },
    #[error("{0}")]
    Invalid(String),
}

macro_rules! builtin {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../schemas/", $name, ".json"))),)*]
    };
}

const BUILTIN: &[(&str, &str)] = builtin!(
    "constraint" "decision" "trap" "handoff" "plan" "sequence" "candidate" "runtime_note"
    "instruction" "claim" "assignment" "agent_run" "loop" "session" "state"
);

impl Registry {
    /// Parsed once a process: a command that shows one entity should not feel it.
    pub fn shared() -> Result<Arc<Self>, RegistryError> {
        static SHARED: OnceLock<Result<Arc<Registry>, RegistryError>> = OnceLock::new();
        SHARED.get_or_init(|| Self::builtin().map(Arc::new)).clone()
    }

    pub fn builtin() -> Result<Self, RegistryError> {
        let mut types = BTreeMap::new();
        for (name, text) in BUILTIN {
            types.insert((*name).to_owned(), ItemType::parse(name, text.as_bytes())?);
        }
        Ok(Self {
            types,
            broken: BTreeMap::new(),
        })
    }

    /// A type of a team's own: `.heddle/schemas/<name>.json`.
    pub fn add(&mut self, name: &str, schema: &[u8]) -> Result<(), RegistryError> {
        if self.types.contains_key(name) || name == JOURNAL {
            return Err(RegistryError::Taken(name.to_owned()));
        }
        self.types
            .insert(name.to_owned(), ItemType::parse(name, schema)?);
        Ok(())
    }

    /// One file that is no schema takes away its own type and no other.
    pub fn mark_broken(&mut self, name: &str, reason: String) {
        self.broken.insert(name.to_owned(), reason);
    }

    pub fn broken(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.broken.iter();
        all.map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    /// Puts a type in, also in place of one: for a build that brings a new version, and its tests.
    pub fn put(&mut self, item_type: ItemType) {
        self.types.insert(item_type.name.clone(), item_type);
    }

    pub fn get(&self, name: &str) -> Option<&ItemType> {
        self.types.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(String::as_str)
    }

    /// Whether a type of this registry has a field of this name, at whatever depth.
    pub(crate) fn names_field(&self, field: &str) -> bool {
        let mut types = self.types.values();
        types.any(|t| t.schema.names(field) || t.ephemeral.iter().any(|name| name == field))
    }

    pub fn class(&self, name: &str) -> TypeClass {
        self.get(name).map_or(TypeClass::Memory, |t| t.class)
    }

    /// Brings a stored document to the version of this build: detect, migrate, validate.
    pub fn load(&self, name: &str, document: Value) -> Result<Value, DocumentFault> {
        let item_type = self
            .get(name)
            .ok_or_else(|| DocumentFault::UnknownType(name.to_owned()))?;
        item_type.load(document)
    }

    /// Whether a document is of an older version of its type, and no step leads from there to the one of now. (A step that fails is
    /// another thing: its document is not of its type.)
    pub fn is_outdated(&self, name: &str, document: &Value) -> bool {
        let (Some(item_type), Some(object)) = (self.get(name), document.as_object()) else {
            return false;
        };
        let has_step = |from| item_type.migrations.contains_key(&from);
        let version = item_type.version_of(object);
        version.is_ok_and(|version| !(version..item_type.schema_version).all(has_step))
    }

    /// The same of a document that stays its owner's; it is copied only where it is of an older version.
    pub fn load_kept<'v>(
        &self,
        name: &str,
        document: &'v Value,
    ) -> Result<Cow<'v, Value>, DocumentFault> {
        let item_type = self
            .get(name)
            .ok_or_else(|| DocumentFault::UnknownType(name.to_owned()))?;
        let object = document.as_object().ok_or(DocumentFault::NotAnObject)?;
        if item_type.version_of(object)? < item_type.schema_version {
            return item_type.load(document.clone()).map(Cow::Owned);
        }
        let valid = item_type.schema.validate(document);
        valid.map_err(DocumentFault::Invalid)?;
        Ok(Cow::Borrowed(document))
    }

    /// Equal but for the fields that change without an event.
    pub fn same_but_ephemeral(&self, name: &str, left: &Value, right: &Value) -> bool {
        if left == right {
            return true;
        }
        self.without_ephemeral(name, left) == self.without_ephemeral(name, right)
    }

    /// A document without the fields that change without an event; itself where it has none of them.
    pub fn without_ephemeral<'v>(&self, name: &str, document: &'v Value) -> Cow<'v, Value> {
        let (Some(object), Some(item_type)) = (document.as_object(), self.get(name)) else {
            return Cow::Borrowed(document);
        };
        let mut ephemeral = item_type.ephemeral.iter();
        if !ephemeral.any(|field| object.contains_key(field)) {
            return Cow::Borrowed(document);
        }
        let mut masked = object.clone();
        for field in &item_type.ephemeral {
            masked.remove(field);
        }
        Cow::Owned(Value::Object(masked))
    }
}

impl ItemType {
    /// A schema file: JSON Schema with `x-class`, `x-schema-version`, `x-ephemeral`.
    pub fn parse(name: &str, schema: &[u8]) -> Result<Self, RegistryError> {
        let fault = |reason: String| RegistryError::Schema {
            name: name.to_owned(),
            reason,
        };
        if !is_item_type(name) {
            return Err(RegistryError::Name(name.to_owned()));
        }
        let value =
            heddle_core::canonical::parse_ijson(schema).map_err(|e| fault(e.to_string()))?;
        let class = match value.get("x-class").map(Value::as_str) {
            None | Some(Some("memory")) => TypeClass::Memory,
            Some(Some("execution")) => TypeClass::Execution,
            Some(Some("singleton")) => TypeClass::Singleton,
            Some(_) => {
                return Err(fault(
                    "x-class is memory, execution or singleton".to_owned(),
                ));
            }
        };
        let schema_version = match value.get("x-schema-version") {
            None => 1,
            Some(version) => version
                .as_u64()
                .filter(|v| *v >= 1)
                .ok_or_else(|| fault("x-schema-version is a number from 1 on".to_owned()))?,
        };
        let ephemeral = match value.get("x-ephemeral") {
            None => Vec::new(),
            Some(list) => serde_json::from_value(list.clone())
                .map_err(|_| fault("x-ephemeral is a list of field names".to_owned()))?,
        };
        Ok(Self {
            name: name.to_owned(),
            class,
            schema_version,
            ephemeral,
            schema: Schema::parse(value).map_err(|e| fault(e.to_string()))?,
            migrations: BTreeMap::new(),
        })
    }

    #[must_use]
    pub fn with_migration(mut self, from: u64, step: Migration) -> Self {
        self.migrations.insert(from, step);
        self
    }

    pub fn load(&self, document: Value) -> Result<Value, DocumentFault> {
        let Value::Object(mut object) = document else {
            return Err(DocumentFault::NotAnObject);
        };
        let mut version = self.version_of(&object)?;
        while version < self.schema_version {
            let fault = |reason| DocumentFault::Migration {
                from: version,
                reason,
            };
            let step = self.migrations.get(&version);
            let step = step.ok_or_else(|| fault("there is no such step".to_owned()))?;
            object = step(object).map_err(fault)?;
            version += 1;
            object.insert("schema_version".to_owned(), version.into());
        }
        let document = Value::Object(object);
        self.schema
            .validate(&document)
            .map_err(DocumentFault::Invalid)?;
        Ok(document)
    }

    fn version_of(&self, object: &Map<String, Value>) -> Result<u64, DocumentFault> {
        let Some(written) = object.get("schema_version") else {
            return Ok(1);
        };
        let known = |v: &u64| (1..=self.schema_version).contains(v);
        written
            .as_u64()
            .filter(known)
            .ok_or_else(|| DocumentFault::Version {
                found: written.to_string(),
                newest: self.schema_version,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_types_of_the_design_are_there_with_their_class() {
        let registry = Registry::builtin().unwrap();
        assert_eq!(registry.names().count(), 15);
        assert_eq!(registry.class("plan"), TypeClass::Memory);
        for execution in ["claim", "assignment", "agent_run", "loop"] {
            assert_eq!(registry.class(execution), TypeClass::Execution);
        }
        for singleton in ["session", "state"] {
            assert_eq!(registry.class(singleton), TypeClass::Singleton);
        }
        assert!(registry.get(JOURNAL).is_none());
        let claim = registry.get("claim").unwrap();
        assert!(claim.ephemeral.iter().any(|field| field == "expires_at"));
    }

    #[test]
    fn a_team_adds_a_type_but_never_in_place_of_ours() {
        let mut registry = Registry::builtin().unwrap();
        let schema = br#"{"type":"object","required":["pager"],"x-class":"execution","x-ephemeral":["seen_at"]}"#;
        registry.add("incident", schema).unwrap();
        assert_eq!(registry.class("incident"), TypeClass::Execution);
        assert!(registry.load("incident", json!({})).is_err());
        assert!(registry.load("incident", json!({"pager": "x"})).is_ok());
        assert_eq!(
            registry.add("plan", schema),
            Err(RegistryError::Taken("plan".into()))
        );
        assert!(registry.add("journal", schema).is_err());
        assert!(registry.add("Bad", schema).is_err());
        assert!(registry.add("odd", br#"{"x-class":"other"}"#).is_err());
        assert!(registry.add("odd", b"not json").is_err());
        // Read at the top alone: elsewhere it would say something that nobody hears.
        let nested = br#"{"type":"object","properties":{"seen_at":{"x-ephemeral":true}}}"#;
        let told = registry.add("odd", nested).unwrap_err().to_string();
        assert!(told.contains("$.seen_at") && told.contains("top"), "{told}");
    }

    #[test]
    fn jn_34_old_versions_climb_step_by_step_and_unknown_ones_are_refused() {
        let text = br#"{"type":"object","required":["c"],"x-schema-version":3}"#;
        let item_type = ItemType::parse("thing", text)
            .unwrap()
            .with_migration(1, |mut o| {
                let a = o.remove("a").ok_or("no a")?;
                o.insert("b".into(), a);
                Ok(o)
            })
            .with_migration(2, |mut o| {
                let b = o.remove("b").ok_or("no b")?;
                o.insert("c".into(), b);
                Ok(o)
            });
        let expected = json!({"c": 1, "schema_version": 3});
        for old in [
            json!({"a": 1}),
            json!({"a": 1, "schema_version": 1}),
            json!({"b": 1, "schema_version": 2}),
            expected.clone(),
        ] {
            assert_eq!(item_type.load(old).unwrap(), expected);
        }
        for bad in [
            json!({"c": 1, "schema_version": 4}),
            json!({"c": 1, "schema_version": 0}),
            json!({"c": 1, "schema_version": "3"}),
            json!({"x": 1}),
            json!([]),
        ] {
            assert!(item_type.load(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn jn_29_only_declared_fields_are_masked() {
        let registry = Registry::builtin().unwrap();
        let a = json!({"status": "claimed", "expires_at": "1"});
        let b = json!({"status": "claimed", "expires_at": "2"});
        let c = json!({"status": "released", "expires_at": "2"});
        assert!(registry.same_but_ephemeral("claim", &a, &b));
        assert!(!registry.same_but_ephemeral("claim", &b, &c));
        assert!(!registry.same_but_ephemeral("plan", &a, &b));
    }
}
