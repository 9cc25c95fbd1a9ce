//! How the statements of the daily traffic are planned: a plan is made once for a connection, maybe while the tables are
//! empty, and must still be good when a mesh has a hundred thousand rows.

use deadpool_postgres::Object;

use super::super::{
    SURVEY, accept, deliveries, held, history, look, orphans, queues, retention, story, traffic,
};
use crate::test_support::postgres;

/// What is run beside accepts.
const OTHERS: [&str; 13] = [
    look::KNOWN,
    deliveries::AFTER,
    queues::AVAILABLE,
    queues::LEASE,
    queues::ITEMS,
    queues::KEEP,
    history::AFTER,
    history::LOG_AFTER,
    story::RECIPIENTS,
    retention::NEXT,
    retention::PRUNE,
    traffic::NEXT,
    held::HELD,
];

/// Tables with one row, or a row for each member, of which all may be read, and their indexes; of the log the last row is.
const SMALL: [&str; 4] = [" on mesh", " on member ", " on member_pkey", " on log_row"];

/// How many parameters it has.
fn parameters(sql: &str) -> usize {
    (1..100_u8)
        .take_while(|n| sql.contains(&format!("${n}")))
        .count()
}

/// Why the plan is not good for a large mesh: a whole table, all rows of a mesh, a table made of all of them, or all of
/// them held against each row of the set.
fn fault(plan: &[String]) -> Option<&str> {
    let bad = ["Seq Scan", "hashed SubPlan", "Join Filter", "Materialize"];
    let mut scanned = "";
    for line in plan {
        if bad.iter().any(|bad| line.contains(bad)) {
            return Some(line);
        }
        if line.contains("Scan") {
            scanned = line;
        }
        let is_of_all = line.contains("Cond: (mesh_id = ");
        if is_of_all && !SMALL.iter().any(|small| scanned.contains(small)) {
            return Some(line);
        }
    }
    None
}

/// As the server runs it once it no longer plans it anew for each call.
async fn plan_of(client: &Object, sql: &str) -> Vec<String> {
    let prepare = format!("PREPARE looked_at AS {sql}");
    client.batch_execute(&prepare).await.unwrap();
    let nulls = vec!["NULL"; parameters(sql)].join(", ");
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE looked_at ({nulls})");
    let rows = client.query(&explain, &[]).await.unwrap();
    client.batch_execute("DEALLOCATE looked_at").await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn rows_are_found_by_their_keys_also_by_plans_that_were_made_over_empty_tables() {
    let storage = postgres().await;
    let client = storage.writer().await.unwrap();
    let force = "SET plan_cache_mode = force_generic_plan";
    client.batch_execute(force).await.unwrap();
    for sql in accept::statements().chain(OTHERS) {
        let plan = plan_of(&client, sql).await;
        assert_eq!(fault(&plan), None, "{sql}\n{}", plan.join("\n"));
    }
    // What it was before: every id of the mesh, held against each of the set.
    let before = "SELECT d.seq FROM unnest($2::bytea[]) AS k (id_key)
        LEFT JOIN client_message_dedupe d ON d.mesh_id = $1 AND d.id_key = k.id_key";
    let settings = "SET enable_material = on";
    client.batch_execute(settings).await.unwrap();
    let plan = plan_of(&client, before).await;
    assert!(fault(&plan).is_some(), "{}", plan.join("\n"));
}

/// A restored database has its rows and no statistics until somebody analyzes it.
#[tokio::test]
async fn the_orphan_check_of_a_restored_database_holds_no_table_against_each_row_of_another() {
    let storage = postgres().await;
    let client = storage.writer().await.unwrap();
    let told = SURVEY.replace("SET LOCAL", "SET");
    client.batch_execute(&told).await.unwrap();
    for (problem, _, sql) in orphans::QUERIES {
        // Held against the few holes that a log knows of, and against the one row of the mesh.
        if problem == "gap_in_history" {
            continue;
        }
        let plan = plan_of(&client, sql).await;
        let loops = plan
            .iter()
            .any(|line| line.contains("Nested Loop") || line.contains("SubPlan"));
        let is_hashed = plan.iter().any(|line| line.contains("hashed SubPlan"));
        assert!(!loops || is_hashed, "{problem}\n{}", plan.join("\n"));
    }
}
