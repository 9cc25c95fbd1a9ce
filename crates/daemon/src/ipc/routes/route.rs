//! A line of the table: where a route is, who answers it, and its shape, from which the published document is written.

use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{self, MethodRouter};
use heddle_wire::schema::{Schemas, inline_schema_of, schema_of};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ipc::Ipc;

/// Looks at a type and adds what it finds to the named schemas.
type Describe = fn(&mut Schemas) -> Option<Value>;

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "read where the document is written, in a test")
)]
pub(super) enum Answer {
    Json(Describe),
    /// A JSON document whose shape is told elsewhere.
    Document,
    Text(&'static str),
}

/// What a route takes and gives.
///
/// Only a test reads it, which holds `docs/openapi.json` against it: looking at every type costs a sixth of this
/// crate's code, and the answer is the same every time.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) summary: &'static str,
    pub(super) query: Option<fn() -> Option<Value>>,
    pub(super) body: Option<Describe>,
    /// The statuses of success and what they carry.
    pub(super) answers: Vec<(u16, Answer)>,
    /// Request headers that this route reads.
    pub(super) headers: &'static [&'static str],
}

/// Who obeys an `Idempotency-Key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// The handler: its own transaction consumes the key.
    Own,
    /// The gate before the handler ([`super::keyed`]).
    Gate,
    /// Nobody: it changes nothing that could be done twice.
    None,
}

pub(super) const KEY: &[&str] = &["Idempotency-Key"];

pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) key: Key,
    /// Whether it reads parameters; the others refuse them.
    pub(super) has_query: bool,
    pub(super) handler: MethodRouter<Arc<Ipc>>,
    #[cfg(test)]
    pub(super) shape: Shape,
}

pub(super) fn get<H: Handler<T, Arc<Ipc>>, T: 'static>(
    path: &'static str,
    handler: H,
    summary: &'static str,
) -> Route {
    Route::new("get", path, summary, routing::get(handler))
}

pub(super) fn post<H: Handler<T, Arc<Ipc>>, T: 'static>(
    path: &'static str,
    handler: H,
    summary: &'static str,
) -> Route {
    let mut route = Route::new("post", path, summary, routing::post(handler));
    // Whoever adds one that changes something has said enough by that.
    route.key = Key::Gate;
    route.with(KEY)
}

impl Route {
    fn new(
        method: &'static str,
        path: &'static str,
        summary: &'static str,
        handler: MethodRouter<Arc<Ipc>>,
    ) -> Self {
        let route = Self {
            method,
            path,
            key: Key::None,
            has_query: false,
            handler,
            #[cfg(test)]
            shape: Shape::default(),
        };
        route.shaped(|shape| shape.summary = summary)
    }

    /// What is never called is never compiled.
    #[cfg(not(test))]
    fn shaped(self, _: impl FnOnce(&mut Shape)) -> Self {
        self
    }

    #[cfg(test)]
    fn shaped(mut self, tell: impl FnOnce(&mut Shape)) -> Self {
        tell(&mut self.shape);
        self
    }

    /// A get of the same path that belongs to another route: an id may be spelled like a verb.
    pub(super) fn or_get<H: Handler<T, Arc<Ipc>>, T: 'static>(mut self, handler: H) -> Self {
        self.handler = self.handler.get(handler);
        self
    }

    pub(super) fn asks<T: DeserializeOwned>(mut self) -> Self {
        self.has_query = true;
        self.shaped(|shape| shape.query = Some(inline_schema_of::<T>))
    }

    pub(super) fn takes<T: DeserializeOwned>(self) -> Self {
        self.shaped(|shape| shape.body = Some(schema_of::<T>))
    }

    pub(super) fn gives<T: DeserializeOwned>(self, status: u16) -> Self {
        self.shaped(|shape| shape.answers.push((status, Answer::Json(schema_of::<T>))))
    }

    pub(super) fn document(self) -> Self {
        self.shaped(|shape| shape.answers.push((200, Answer::Document)))
    }

    pub(super) fn text(self, media: &'static str) -> Self {
        self.shaped(|shape| shape.answers.push((200, Answer::Text(media))))
    }

    /// Its handler consumes the key, in the transaction that makes the change.
    pub(super) fn keyed(mut self) -> Self {
        self.key = Key::Own;
        self
    }

    /// It posts and changes nothing that could be done twice.
    pub(super) fn reads(mut self) -> Self {
        self.key = Key::None;
        self.with(&[])
    }

    pub(super) fn with(self, headers: &'static [&'static str]) -> Self {
        self.shaped(|shape| shape.headers = headers)
    }
}
