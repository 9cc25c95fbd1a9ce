//! Failures before the commit: nothing stays but the audit, and the next try is free (RP-06, RG-11, RG-20).

use heddle_registrar::code::Code;
use heddle_registrar::command::Kind;
use heddle_registrar::storage::Storage;

use crate::world::{Raw, World, effect, key, prior};

/// From now on the second row of a registration cannot be written.
async fn break_registrations(raw: &Raw) {
    match raw {
        Raw::Sqlite { .. } => {
            let sql = "CREATE TRIGGER broken BEFORE INSERT ON effect_registration
                BEGIN SELECT RAISE(ABORT, 'the disk says no'); END";
            raw.run(sql).await.unwrap();
        }
        _ => {
            raw.run(
                "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'the disk says no'; END $$",
            )
            .await
            .unwrap();
            raw.run(
                "CREATE TRIGGER broken BEFORE INSERT ON effect_registration
                 FOR EACH ROW EXECUTE FUNCTION broken()",
            )
            .await
            .unwrap();
        }
    }
}

async fn mend(raw: &Raw) {
    let sql = match raw {
        Raw::Sqlite { .. } => "DROP TRIGGER broken",
        _ => "DROP TRIGGER broken ON effect_registration",
    };
    raw.run(sql).await.unwrap();
}

async fn rp_06_rg_11_rg_20_s1_a_failure_before_the_commit_leaves_neither_row_but_an_audit<
    S: Storage,
>(
    w: World<S>,
) {
    let nonce = w.nonce(&effect("k")).await;
    break_registrations(&w.raw).await;
    let failed = w.try_register(&effect("k"), Some(&nonce), Some("a1")).await;
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("the disk says no"), "{error}");
    assert_eq!(w.raw.count("effect_consume").await, 0);
    assert_eq!(w.raw.count("effect_registration").await, 0);
    let log = w.registrar.log(Some(&key("k")), 10).await.unwrap();
    let events: Vec<&str> = log.iter().map(|line| line.row.event.as_str()).collect();
    assert_eq!(events, ["failed register", "attempt register"]);
    assert!(log[0].row.detail.contains("the disk says no"));
    assert_eq!(log[0].row.attempt_id, "a1");
    // Recovery: the status says "not committed", and then the same nonce and key are good (RG-12, C14).
    assert_eq!(w.facts("k").await.consumed, None);
    mend(&w.raw).await;
    assert_eq!(
        w.register(&effect("k"), Some(&nonce)).await.kind,
        Kind::Fresh
    );
    prior(
        &w.register(&effect("k"), Some(&nonce)).await,
        Code::ReplayDuplicate,
    );
    assert_eq!(w.raw.count("effect_consume").await, 1);
}

on_both_databases!(
    rp_06_rg_11_rg_20_s1_a_failure_before_the_commit_leaves_neither_row_but_an_audit,
);
