//! The door from outside: its port, its token, and every route that it says it has.

use super::{Daemon, Home, text_of};

pub fn port(daemon: &Daemon) -> u16 {
    daemon.ready["http"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

pub fn bearer(home: &Home) -> String {
    format!("Bearer {}", text_of(&home.path().join("local_token")))
}

/// Every route that the daemon says it has: the document is written from the router's own table.
pub fn routes(daemon: &Daemon) -> Vec<(String, String)> {
    let document = daemon.http.get("/v1/openapi.json").expect(200);
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.push((method.to_uppercase(), path.replace("{id}", "x")));
        }
    }
    assert!(routes.len() > 20, "{routes:?}");
    routes
}
