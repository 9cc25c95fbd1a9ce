//! The canonical dump: every replicated row of a mesh as one line of RFC 8785 JSON, in order.
//!
//! Two replicas that took the same ops print the same bytes (LF-09). What is a home's own (when a row
//! came here, its place in the file, the clock) is left out.

use heddle_core::canonical::canonicalize;
use heddle_core::ids::MeshId;
use rusqlite::Connection;
use serde_json::Value;

use crate::data::{files, memory, state, task, vectors};
use crate::error::StoreError;
use crate::store::Store;
use crate::unreadable::{LeftOut, all_strays};

/// Where a noun puts its lines.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Value) -> Result<(), StoreError>;

/// Each noun dumps its rows in the order of their keys.
type Noun = fn(&Connection, MeshId, Option<&LeftOut>, Sink<'_>) -> Result<(), StoreError>;

const NOUNS: [Noun; 5] = [
    memory::dump,
    state::dump,
    task::dump,
    files::dump,
    vectors::dump::dump,
];

/// Some lines of a dump, and whether there are more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpPage {
    pub lines: Vec<String>,
    pub more: bool,
}

impl Store {
    /// The lines behind the first `skip`, as many as fit, and at least one if there is one.
    pub async fn dump(
        &self,
        mesh: MeshId,
        skip: u64,
        bytes_max: usize,
    ) -> Result<DumpPage, StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| {
            let (mut page, mut bytes, mut number) = (DumpPage::default(), 0, 0_u64);
            let mut sink = |line: Value| {
                number += 1;
                if number <= skip || page.more {
                    return Ok(());
                }
                let line = text(&line)?;
                bytes += line.len();
                if bytes > bytes_max && !page.lines.is_empty() {
                    page.more = true;
                    return Ok(());
                }
                page.lines.push(line);
                Ok(())
            };
            for noun in NOUNS {
                noun(connection, mesh, left_out.as_ref(), &mut sink)?;
            }
            // Once, with the last lines: a row that stands under no mesh any more may have been one of this mesh.
            if let Some(left_out) = left_out.filter(|_| !page.more) {
                for stray in all_strays(connection)? {
                    stray.note(&left_out);
                }
            }
            Ok(page)
        })
        .await
    }
}

fn text(line: &Value) -> Result<String, StoreError> {
    let bad = |why: String| StoreError::Corrupt(format!("a row cannot be dumped: {why}"));
    let bytes = canonicalize(line).map_err(|error| bad(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| bad(error.to_string()))
}
