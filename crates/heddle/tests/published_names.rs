//! Two homes publish meshes of one name to one broker: both are told under which name theirs is there.
#![cfg(test)]

mod support;

use support::Home;
use support::team_broker::Team;

#[test]
fn whose_name_was_taken_at_the_broker_is_told_the_other_one() {
    let team = Team::on(None);
    let (url, token) = (team.url(), team.broker.data.join("broker_token"));
    let token = token.to_str().unwrap();
    let publish = [
        "mesh",
        "publish",
        "proj",
        "--to",
        &url,
        "--token-file",
        token,
    ];
    let mut running = Vec::new();
    let mut told = Vec::new();
    for person in ["alice", "bob"] {
        let home = Home::new();
        home.config(&format!("[daemon]\nmember = \"{person}\"\n"));
        let daemon = home.up();
        home.cli(&["mesh", "create", "proj"]).ok();
        told.push(home.cli(&publish).ok().stdout);
        running.push((daemon, home));
    }
    assert!(!told[0].contains("calls this one"), "{}", told[0]);
    assert!(told[1].contains("calls this one proj-2"), "{}", told[1]);
    assert!(told[1].contains("heddle mesh join LINK"), "{}", told[1]);
}
