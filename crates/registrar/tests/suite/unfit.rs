//! Stores that are not fit, and are refused at the start: what is gone from them, what was changed, and what somebody may do
//! with them beyond reading and appending.

use heddle_registrar::RegistrarError;
use heddle_registrar::storage::postgres::Postgres;
use heddle_registrar::storage::sqlite::Sqlite;

use crate::world::{Raw, World, fresh_schema, postgres_url, raw_client, with_policy};

/// The routing table of RS3B-05 §2, in place of the consume table.
const ROUTING: &str = "CREATE TABLE effect_consume (
    idempotency_key TEXT NOT NULL, attempt_no INTEGER NOT NULL DEFAULT 1, route_kind TEXT NOT NULL,
    status TEXT NOT NULL, UNIQUE (idempotency_key, attempt_no))";

#[track_caller]
fn not_fit<S>(opened: Result<World<S>, RegistrarError>, (spoiled, named): (&str, &str)) {
    match opened {
        Err(error @ RegistrarError::NotFit(_)) => {
            let said = error.to_string();
            assert!(said.starts_with("REPLAY_SURFACE_NOT_FIT"), "{said}");
            assert!(said.contains(named), "{spoiled}: {said}");
        }
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("opened in spite of {spoiled}"),
    }
}

#[tokio::test]
async fn rp_10_rg_17_sqlite_an_unfit_surface_is_refused_at_start() {
    for spoil in [
        vec!["DROP TABLE effect_consume", ROUTING],
        vec!["DROP TRIGGER effect_consume_once"],
        vec!["DROP TRIGGER effect_migration_hold"],
        vec!["DROP TRIGGER effect_audit_once"],
        vec!["DROP INDEX effect_audit_key"],
        vec!["DROP TRIGGER effect_consume_hold"],
        vec!["DROP TRIGGER effect_registration_keep"],
        vec!["DROP TRIGGER effect_consume_keep"],
        vec![
            "DROP TRIGGER effect_surface_hold",
            "UPDATE effect_surface SET domain = 'iu_route'",
        ],
        vec![
            "CREATE TRIGGER swallow BEFORE INSERT ON effect_audit BEGIN SELECT RAISE(IGNORE); END",
        ],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("effects.db");
        Sqlite::open(file.clone()).unwrap().stop();
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection
            .pragma_update(None, "foreign_keys", false)
            .unwrap();
        let spoiled = spoil.join("; ");
        for sql in spoil {
            connection.execute(sql, []).unwrap();
        }
        drop(connection);
        let storage = Sqlite::open(file).unwrap();
        not_fit(with_policy(storage, Raw::None, 4, "").await, (&spoiled, ""));
    }
}

#[tokio::test]
async fn rg_17_sqlite_a_damaged_column_of_any_table_is_refused_at_start() {
    for (table, column, letter) in [
        ("effect_step", "taken_by", 'b'),
        ("effect_envelope", "requested_by", 'b'),
        ("effect_decision", "decided_by", 'b'),
        ("effect_waiting", "waits_since", 'b'),
        ("effect_given", "noted_at", 'b'),
        ("effect_registration", "registration_id", 'g'),
        ("effect_audit", "noted_by", 'f'),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("effects.db");
        Sqlite::open(file.clone()).unwrap().stop();
        let connection = rusqlite::Connection::open(&file).unwrap();
        // One letter of the schema, as a disk changes it.
        let other = format!("{}x", &column[..column.len() - 1]);
        connection
            .execute_batch(&format!(
                "PRAGMA writable_schema = ON;
                 UPDATE sqlite_schema SET sql = replace(sql, '{column}', '{other}') WHERE name = '{table}';"
            ))
            .unwrap();
        drop(connection);
        let lacks = heddle_registrar::storage::sqlite::lacks(&file).unwrap();
        assert_eq!(
            lacks,
            [format!("{table} (its columns)")],
            "the doctor's look"
        );
        let storage = Sqlite::open(file).unwrap();
        let named = format!("{table} (its columns)");
        let opened = with_policy(storage, Raw::None, 4, "").await;
        let Err(RegistrarError::NotFit(criteria)) = &opened else {
            panic!("opened in spite of {table}.{other}");
        };
        let failed = criteria.iter().find(|it| it.missing.contains(&named));
        assert_eq!(failed.map(|it| it.letter), Some(letter), "{criteria:?}");
        not_fit(opened, (&other, &named));
    }
}

#[test]
fn rg_17_sqlite_a_file_whose_index_has_forgotten_a_row_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("effects.db");
    Sqlite::open(file.clone()).unwrap().stop();
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection
        .execute(
            "INSERT INTO effect_audit (mesh_id, logical_request_key, attempt_id, event, code, detail,
                 noted_by, noted_at) VALUES (zeroblob(16), 'deploy-1', 'a', 'e', 'c', 'd', 'me', 1)",
            [],
        )
        .unwrap();
    let number = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let page = number("SELECT rootpage FROM sqlite_schema WHERE name = 'effect_audit_key'");
    let end = usize::try_from(page * number("PRAGMA page_size")).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&file).unwrap();
    // Inside of the key of its one row.
    bytes[end - 4] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    match Sqlite::open(file) {
        Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
        Ok(_) => panic!("opened a file that is not whole"),
    }
}

async fn spoiled(spoil: &[String]) -> Result<World<Postgres>, RegistrarError> {
    let (url, schema) = (postgres_url(), fresh_schema());
    drop(Postgres::connect(&url, &schema).await.unwrap());
    let client = raw_client(&url, &schema).await;
    for sql in spoil {
        client.batch_execute(sql).await.unwrap();
    }
    let storage = Postgres::connect(&url, &schema).await.unwrap();
    with_policy(storage, Raw::None, 5, "").await
}

#[tokio::test]
async fn rp_10_rg_17_postgres_an_unfit_surface_is_refused_at_start() {
    let grant = "GRANT SELECT, INSERT ON effect_consume TO heddle_registrar";
    for spoil in [
        vec!["DROP TABLE effect_consume CASCADE", ROUTING, grant],
        vec!["ALTER TABLE effect_consume DROP CONSTRAINT effect_consume_mesh_id_replay_key_key"],
        vec!["ALTER TABLE effect_consume DROP CONSTRAINT effect_consume_registered"],
        vec!["DROP TRIGGER effect_consume_hold ON effect_consume"],
        vec![
            "DROP TRIGGER effect_registration_keep ON effect_registration",
            "DROP TRIGGER effect_consume_keep ON effect_consume",
            "DROP TRIGGER effect_step_keep ON effect_step",
        ],
        vec!["GRANT UPDATE ON effect_consume TO heddle_registrar"],
        vec!["DROP TRIGGER effect_audit_hold ON effect_audit"],
        vec!["ALTER TABLE effect_step DISABLE TRIGGER effect_step_hold"],
        vec!["DROP INDEX effect_envelope_key"],
        vec!["DROP TRIGGER effect_migration_hold ON effect_migration"],
        vec!["ALTER TABLE effect_decision DROP CONSTRAINT effect_decision_mesh_id_nonce_hash_key"],
    ] {
        let spoil: Vec<String> = spoil.into_iter().map(str::to_owned).collect();
        not_fit(spoiled(&spoil).await, (&spoil.join("; "), ""));
    }
}

const SWALLOW: &str =
    "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$";

#[tokio::test]
async fn rg_16_rg_17_postgres_a_right_that_came_by_whichever_way_is_found() {
    let hers = fresh_schema();
    let root = raw_client(&postgres_url(), "public").await;
    let role = format!("CREATE ROLE {hers} NOLOGIN");
    root.batch_execute(&role).await.unwrap();
    let owned = format!("ALTER TABLE effect_audit OWNER TO {hers}");
    let member = format!("GRANT {hers} TO heddle_registrar");
    for (spoil, named) in [
        (
            vec!["GRANT TRIGGER ON effect_audit TO heddle_registrar"],
            "effect_audit: TRIGGER for heddle_registrar",
        ),
        (
            vec!["GRANT REFERENCES ON effect_consume TO PUBLIC"],
            "effect_consume: REFERENCES for PUBLIC",
        ),
        (
            vec!["GRANT TRUNCATE ON effect_call TO PUBLIC"],
            "effect_call: TRUNCATE for PUBLIC",
        ),
        (
            vec!["GRANT INSERT ON effect_step TO PUBLIC"],
            "effect_step: INSERT for PUBLIC",
        ),
        (
            vec!["GRANT UPDATE (body) ON effect_step TO heddle_registrar"],
            "effect_step (body): UPDATE for heddle_registrar",
        ),
        (
            vec![&owned, &member],
            &format!("effect_audit: TRIGGER for heddle_registrar, by {hers}"),
        ),
        (
            vec!["CREATE RULE swallow AS ON INSERT TO effect_audit DO INSTEAD NOTHING"],
            "swallow: a rule",
        ),
        (
            vec![
                SWALLOW,
                "CREATE TRIGGER swallow BEFORE INSERT ON effect_audit FOR EACH ROW EXECUTE FUNCTION swallow()",
            ],
            "swallow: a trigger",
        ),
        (
            vec!["ALTER TABLE effect_call ENABLE ROW LEVEL SECURITY"],
            "effect_call: row security",
        ),
        (
            vec!["ALTER TABLE effect_step RENAME COLUMN taken_by TO taken_bx"],
            "effect_step (its columns)",
        ),
    ] {
        let spoil: Vec<String> = spoil.into_iter().map(str::to_owned).collect();
        not_fit(spoiled(&spoil).await, (&spoil.join("; "), named));
    }
    // Whoever only reads is nobody's danger.
    let reads = format!("GRANT SELECT ON effect_consume, effect_audit TO {hers}, PUBLIC");
    assert!(spoiled(&[reads]).await.is_ok());
    let nobody = format!("REVOKE {hers} FROM heddle_registrar");
    root.batch_execute(&nobody).await.unwrap();
}
