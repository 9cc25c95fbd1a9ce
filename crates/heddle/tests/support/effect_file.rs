//! The file of a stopped home's effects, as a disk or a hand changes it.

use super::Home;

/// Past the triggers, which are the same again afterwards.
pub fn change(home: &Home, sql: &str) {
    let file = home.path().join("effects.db");
    let connection = rusqlite::Connection::open(file).unwrap();
    let triggers = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'";
    let mut all = connection.prepare(triggers).unwrap();
    let made = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    let made: Vec<(String, String)> = made.unwrap().map(Result::unwrap).collect();
    drop(all);
    connection
        .execute_batch("PRAGMA foreign_keys = OFF")
        .unwrap();
    for (name, _) in &made {
        let drop = format!("DROP TRIGGER {name}");
        connection.execute_batch(&drop).unwrap();
    }
    assert!(connection.execute(sql, []).unwrap() > 0, "{sql}");
    for (_, text) in &made {
        connection.execute_batch(text).unwrap();
    }
}
