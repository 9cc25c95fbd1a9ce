//! A deserialiser without input: it writes down what is asked for and answers with plain values.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde_json::{Map, Value, json};

/// What is written down on the way.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) structs: BTreeMap<String, Map<String, Value>>,
    /// Structs that are being looked at; one of them again is a type that holds itself.
    open: Vec<&'static str>,
    /// Inside such a type everything ends as soon as it may.
    is_brief: bool,
    without: Option<(String, String)>,
}

impl Survey {
    pub(super) fn without(field: Option<(&str, &str)>) -> Self {
        Self {
            without: field.map(|(name, field)| (name.to_owned(), field.to_owned())),
            ..Self::default()
        }
    }
}

/// A type that the plainest values do not satisfy.
#[derive(Debug)]
pub(super) struct NotPlain(String);

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotPlain {}

impl serde::de::Error for NotPlain {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Looks at one value; its schema goes to `out`.
pub(super) struct Probe<'a> {
    survey: &'a mut Survey,
    out: &'a mut Value,
}

impl<'a> Probe<'a> {
    pub(super) fn new(survey: &'a mut Survey, out: &'a mut Value) -> Self {
        Self { survey, out }
    }
}

macro_rules! plain {
    ($($method:ident => $kind:literal, $visit:ident($($value:expr)?);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
            *self.out = json!({"type": $kind});
            visitor.$visit($($value)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = NotPlain;

    plain! {
        deserialize_bool => "boolean", visit_bool(false);
        deserialize_i8 => "integer", visit_i8(1);
        deserialize_i16 => "integer", visit_i16(1);
        deserialize_i32 => "integer", visit_i32(1);
        deserialize_i64 => "integer", visit_i64(1);
        deserialize_u8 => "integer", visit_u8(1);
        deserialize_u16 => "integer", visit_u16(1);
        deserialize_u32 => "integer", visit_u32(1);
        deserialize_u64 => "integer", visit_u64(1);
        deserialize_f32 => "number", visit_f32(1.0);
        deserialize_f64 => "number", visit_f64(1.0);
        deserialize_char => "string", visit_char('x');
        deserialize_str => "string", visit_str("x");
        deserialize_string => "string", visit_str("x");
        deserialize_bytes => "string", visit_bytes(b"x");
        deserialize_byte_buf => "string", visit_bytes(b"x");
        deserialize_identifier => "string", visit_str("x");
        deserialize_unit => "null", visit_unit();
    }

    /// Anything may stand here.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        *self.out = json!({});
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        if self.survey.is_brief {
            return visitor.visit_none();
        }
        let inner = Probe::new(self.survey, self.out);
        let value = visitor.visit_some(inner)?;
        *self.out = nullable(self.out.take());
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        let mut items = Value::Null;
        let value = visitor.visit_seq(Elements {
            left: usize::from(!self.survey.is_brief),
            survey: self.survey,
            items: &mut items,
        })?;
        *self.out = json!({"type": "array", "items": items});
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        *self.out = json!({"type": "object"});
        visitor.visit_map(Questions {
            name: "",
            fields: [].iter(),
            current: "",
            survey: self.survey,
            properties: &mut Map::new(),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NotPlain> {
        *self.out = json!({"$ref": format!("#/components/schemas/{name}")});
        let was_brief = self.survey.is_brief;
        self.survey.is_brief |= self.survey.open.contains(&name);
        self.survey.open.push(name);
        let mut properties = Map::new();
        let value = visitor.visit_map(Questions {
            name,
            fields: fields.iter(),
            current: "",
            survey: self.survey,
            properties: &mut properties,
        });
        self.survey.open.pop();
        if !self.survey.is_brief {
            self.survey.structs.insert(name.to_owned(), properties);
        }
        self.survey.is_brief = was_brief;
        value
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NotPlain> {
        *self.out = json!({"type": "string", "enum": variants});
        match variants.first() {
            Some(first) => visitor.visit_enum(Variant(first)),
            None => Err(NotPlain::custom("an enum without a variant")),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, NotPlain> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, NotPlain> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, NotPlain> {
        let mut items = Value::Null;
        let value = visitor.visit_seq(Elements {
            left: length,
            survey: self.survey,
            items: &mut items,
        })?;
        *self.out = json!({"type": "array", "minItems": length, "maxItems": length});
        Ok(value)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, NotPlain> {
        self.deserialize_tuple(length, visitor)
    }
}

/// The same schema with null beside it.
fn nullable(mut schema: Value) -> Value {
    if schema.get("$ref").is_some() {
        return json!({"anyOf": [schema, {"type": "null"}]});
    }
    if let Some(kind) = schema["type"].as_str().map(str::to_owned) {
        schema["type"] = json!([kind, "null"]);
    }
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        values.push(Value::Null);
    }
    schema
}

struct Questions<'a> {
    name: &'static str,
    fields: std::slice::Iter<'static, &'static str>,
    current: &'static str,
    survey: &'a mut Survey,
    properties: &'a mut Map<String, Value>,
}

impl<'de> MapAccess<'de> for Questions<'_> {
    type Error = NotPlain;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, NotPlain> {
        for field in self.fields.by_ref() {
            let without = self.survey.without.as_ref();
            if without.is_some_and(|(name, left_out)| name == self.name && left_out == field) {
                continue;
            }
            self.current = field;
            let key: StrDeserializer<'_, NotPlain> = (*field).into_deserializer();
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, NotPlain> {
        let mut schema = Value::Null;
        let value = seed.deserialize(Probe::new(self.survey, &mut schema))?;
        self.properties.insert(self.current.to_owned(), schema);
        Ok(value)
    }
}

struct Elements<'a> {
    left: usize,
    survey: &'a mut Survey,
    items: &'a mut Value,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = NotPlain;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, NotPlain> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let probe = Probe::new(self.survey, self.items);
        seed.deserialize(probe).map(Some)
    }
}

/// The first variant of an enum, which carries nothing.
struct Variant(&'static str);

impl<'de> EnumAccess<'de> for Variant {
    type Error = NotPlain;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), NotPlain> {
        let name: StrDeserializer<'_, NotPlain> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = NotPlain;

    fn unit_variant(self) -> Result<(), NotPlain> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, NotPlain> {
        Err(NotPlain::custom("a variant with a value"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, NotPlain> {
        Err(NotPlain::custom("a variant with values"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NotPlain> {
        Err(NotPlain::custom("a variant with fields"))
    }
}
