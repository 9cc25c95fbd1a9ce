//! What the catalogue of this database says of our tables: their columns, and who may do more with them than read and
//! append. A right counts however it came: named, by PUBLIC, by a role that somebody is a member of, for one column.

use std::collections::BTreeMap;

use tokio_postgres::Transaction;

use crate::storage::error::StorageError;

type Answer<T> = Result<T, StorageError>;

/// Every table with its columns in their order; `!` marks those that refuse null.
pub(super) const TABLES: &[(&str, &str)] = &[
    ("effect_surface", "domain text!"),
    (
        "effect_envelope",
        "mesh_id bytea!, envelope_id text!, seq bigint!, logical_request_key text!, canonical_operation text!, canonical_target text!, deployed_artifact_hash text!, run_id text!, replay_key bytea!, requested_by text!, requested_at bigint!, expires_at bigint!",
    ),
    (
        "effect_decision",
        "mesh_id bytea!, envelope_id text!, seq bigint!, ruling text!, nonce_hash bytea, purpose text, not_before bigint, expires_at bigint, decided_by text!, decided_at bigint!, digest bytea",
    ),
    (
        "effect_consume",
        "mesh_id bytea!, logical_request_key text!, replay_key bytea!, canonical_operation text!, canonical_target text!, deployed_artifact_hash text!, owner_or_approval_binding text!, run_id text!, authorization_nonce_hash bytea!, attempt_id text!, consumed_at bigint!, horizon_until bigint!",
    ),
    (
        "effect_registration",
        "mesh_id bytea!, logical_request_key text!, registration_id text!, receipt text!, registered_at bigint!, digest bytea",
    ),
    (
        "effect_step",
        "mesh_id bytea!, logical_request_key text!, seq bigint!, round bigint!, step text!, attempt_id text!, nonce_hash bytea, body text!, taken_by text!, taken_at bigint!, digest bytea",
    ),
    (
        "effect_audit",
        "mesh_id bytea!, seq bigint!, logical_request_key text!, attempt_id text!, event text!, code text!, detail text!, noted_by text!, noted_at bigint!",
    ),
    (
        "effect_call",
        "mesh_id bytea!, caller text!, call_id text!, fingerprint bytea!, logical_request_key text!, called_at bigint!",
    ),
    (
        "effect_migration",
        "version bigint!, applied_at timestamp with time zone!",
    ),
    ("effect_chain", "seq bigint!, digest bytea!, seal bytea"),
    (
        "effect_taken",
        "mesh_id bytea!, through bigint!, is_whole boolean!, noted_at bigint!",
    ),
    (
        "effect_tally",
        "mesh_id bytea!, logical_request_key text!, seq bigint!, row_count bigint!",
    ),
    (
        "effect_undigested",
        "mesh_id bytea!, table_name text!, row_id text!, seq bigint!",
    ),
];

const COLUMNS: &str = "
    SELECT c.relname::text,
           string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                      || CASE WHEN a.attnotnull THEN '!' ELSE '' END, ', ' ORDER BY a.attnum)
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY($1) GROUP BY c.relname";

/// What was granted, to whom: of a table, and of a column of it. The owner's own rights are the owner's to change, and
/// what binds the owner where no role of ours does is asked for by `surface`. Our role appends, or who stands in for it.
const GRANTED: &str = "
    WITH ours AS (
        SELECT oid, relname, relowner, relacl FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relname = ANY($1)
    ), granted AS (
        SELECT relname::text AS place, relowner, acl.* FROM ours, aclexplode(relacl) AS acl
        UNION ALL
        SELECT format('%s (%s)', relname, attname), relowner, acl.*
        FROM ours JOIN pg_attribute a ON a.attrelid = ours.oid, aclexplode(a.attacl) AS acl
    )
    SELECT DISTINCT format('%s: %s for %s', place, privilege_type,
                           CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee)::text END)
    FROM granted
    WHERE grantee <> relowner AND privilege_type <> 'SELECT' AND privilege_type <> 'MAINTAIN'
      AND NOT (privilege_type = 'INSERT' AND grantee <> 0
               AND (pg_get_userbyid(grantee) = 'heddle_registrar' OR pg_get_userbyid(grantee) = current_user))
    ORDER BY 1";

/// What the role of our transactions can do by itself, or as somebody that it is a member of.
const HELD: &str = "
    SELECT format('%s: %s for %s, by %s', c.relname, p.name, current_user, r.rolname)
    FROM pg_class c, pg_roles r, unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p (name)
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY($1)
      AND pg_has_role(current_user, r.oid, 'MEMBER') AND NOT (r.rolname = current_user AND r.oid = c.relowner)
      AND has_table_privilege(r.oid, c.oid, p.name)
    ORDER BY 1";

/// Triggers, rules and row security of somebody else's: each could let a row go, or change it on its way.
const STRANGE: &str = "
    WITH ours AS (
        SELECT oid, relname, relrowsecurity FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relname = ANY($1)
    )
    SELECT format('%s: a trigger of somebody else''s', t.tgname) FROM ours JOIN pg_trigger t ON t.tgrelid = ours.oid
    WHERE NOT t.tgisinternal AND t.tgname <> relname || '_hold' AND t.tgname <> relname || '_keep'
    UNION ALL
    SELECT format('%s: a rule of somebody else''s', w.rulename) FROM ours JOIN pg_rewrite w ON w.ev_class = ours.oid
    UNION ALL
    SELECT format('%s: row security', relname) FROM ours WHERE relrowsecurity
    ORDER BY 1";

fn names() -> Vec<&'static str> {
    TABLES.iter().map(|(name, _)| *name).collect()
}

/// Tables whose columns are not those that our steps have made.
pub(super) async fn differing(tx: &Transaction<'_>) -> Answer<Vec<String>> {
    let mut found = BTreeMap::new();
    for row in tx.query(COLUMNS, &[&names()]).await? {
        found.insert(row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?);
    }
    let differs = |(name, columns): &&(&str, &str)| found.get(*name).is_none_or(|is| is != columns);
    let differing = TABLES.iter().filter(differs);
    Ok(differing
        .map(|(name, _)| format!("{name} (its columns)"))
        .collect())
}

/// Whatever lets somebody do more than read, and our role more than append.
pub(super) async fn excess(tx: &Transaction<'_>) -> Answer<Vec<String>> {
    let mut all = Vec::new();
    for sql in [GRANTED, HELD, STRANGE] {
        for row in tx.query(sql, &[&names()]).await? {
            all.push(row.try_get(0)?);
        }
    }
    Ok(all)
}
