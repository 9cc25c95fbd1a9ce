//! A home that shares a mesh with another, as the suites of two homes drive it: its daemon can be killed and started.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Daemon, Home, wait_until_within};

/// Until two replicas agree, on a busy machine.
pub const AGREE: Duration = Duration::from_secs(120);

/// A home, its daemon, and what it calls the mesh.
pub struct Side {
    pub home: Home,
    pub daemon: Option<Daemon>,
    pub mesh: String,
}

impl Side {
    pub fn new(person: &str) -> Self {
        let home = Home::new();
        home.config(&format!("[daemon]\nmember = \"{person}\"\n"));
        Self {
            daemon: Some(home.up()),
            home,
            mesh: "home".to_owned(),
        }
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    pub fn up(&mut self) {
        self.daemon = Some(self.home.up());
    }

    pub fn post(&self, route: &str, body: Value) -> Value {
        let mut body = body;
        body["mesh"] = json!(self.mesh);
        self.daemon().http.post(route, &body).expect(200)
    }

    pub fn get(&self, route: &str) -> Value {
        let joint = if route.contains('?') { '&' } else { '?' };
        let target = format!("{route}{joint}mesh={}", self.mesh);
        self.daemon().http.get(&target).expect(200)
    }

    /// Asked by somebody for whom no warning waits.
    pub fn dump(&self) -> String {
        let args = ["--mesh", &self.mesh, "advanced", "dump"];
        self.home.cli_as("onlooker", &args).ok().stdout
    }

    pub fn sync(&self) -> Value {
        self.get("/v1/mesh/clock")["sync"].clone()
    }

    pub fn invite(&self) -> String {
        let answer = self.home.cli(&["mesh", "invite", "--json"]).ok().json();
        answer["link"].as_str().unwrap().to_owned()
    }

    pub fn join(&mut self, link: &str) {
        self.join_with(&["mesh", "join", link, "--json"]);
    }

    pub fn join_with(&mut self, args: &[&str]) {
        let joined = self.home.cli(args).ok().json();
        self.mesh = joined["mesh"].as_str().unwrap().to_owned();
    }
}

/// Nothing waits on either side, nothing was set aside, and both print the same bytes.
pub fn converge(a: &Side, b: &Side) -> String {
    let mut dump = String::new();
    wait_until_within(AGREE, "the replicas to agree", || {
        let quiet = [a, b].iter().all(|side| {
            let sync = side.sync();
            sync["out_waiting"] == 0 && sync["in_waiting"] == 0
        });
        dump = a.dump();
        quiet && !dump.is_empty() && dump == b.dump()
    });
    for side in [a, b] {
        assert_eq!(side.sync()["in_quarantined"], 0);
        assert_eq!(side.sync()["in_parked"], 0);
    }
    dump
}
