//! Records as parameters: a set of rows is one list of them, each with its cells in the order of its type in the schema.

use std::borrow::Cow;
use std::error::Error;

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};
use ulid::Ulid;

/// One column of a record.
#[derive(Debug)]
pub(super) enum Cell<'a> {
    Id(Ulid),
    Bytes(&'a [u8]),
    Text(Cow<'a, str>),
    Big(i64),
    Small(i16),
    Null,
}

impl<'a> Cell<'a> {
    pub(super) fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    pub(super) fn maybe_big(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Big)
    }

    /// As the server reads it: how many bytes, and they.
    fn put(&self, out: &mut BytesMut) -> Result<(), Box<dyn Error + Sync + Send>> {
        match self {
            Self::Id(id) => put_bytes(&id.to_bytes(), out),
            Self::Bytes(bytes) => put_bytes(bytes, out),
            Self::Text(text) => put_bytes(text.as_bytes(), out),
            Self::Big(number) => put_bytes(&number.to_be_bytes(), out),
            Self::Small(number) => put_bytes(&number.to_be_bytes(), out),
            Self::Null => {
                out.put_i32(-1);
                Ok(())
            }
        }
    }
}

fn put_bytes(bytes: &[u8], out: &mut BytesMut) -> Result<(), Box<dyn Error + Sync + Send>> {
    out.put_i32(i32::try_from(bytes.len())?);
    out.put_slice(bytes);
    Ok(())
}

/// A value of a composite type of the schema. The server checks each cell against the type that is named here.
#[derive(Debug)]
pub(super) struct Record<'a, const CELLS: usize>(pub(super) [Cell<'a>; CELLS]);

impl<const CELLS: usize> ToSql for Record<'_, CELLS> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Kind::Composite(fields) = ty.kind() else {
            return Err(format!("{ty} is no record").into());
        };
        if fields.len() != CELLS {
            return Err(format!("{ty} has {} columns, not {CELLS}", fields.len()).into());
        }
        out.put_i32(i32::try_from(CELLS)?);
        for (cell, field) in self.0.iter().zip(fields) {
            out.put_u32(field.type_().oid());
            cell.put(out)?;
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Composite(_))
    }

    to_sql_checked!();
}
