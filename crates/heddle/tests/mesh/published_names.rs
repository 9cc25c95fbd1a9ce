//! Two homes publish meshes of one name to one broker: both are told under which name theirs is there.

use crate::support;

use support::team_broker::Team;
use support::{Home, wait_until};

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
    // And can ask for it later.
    for ((_, home), (name, said)) in running.iter().zip([("proj", false), ("proj-2", true)]) {
        let info = ["--mesh", "proj", "mesh", "info"];
        wait_until("the new broker", || {
            let view = home.cli(&[&info[..], &["--json"]].concat()).ok().json();
            view["stale"] == false
        });
        let words = home.cli(&info).ok().stdout;
        assert_eq!(words.contains("  there   called proj-2"), said, "{words}");
        let view = home.cli(&[&info[..], &["--json"]].concat()).ok().json();
        assert_eq!(view["name_at_broker"], name, "{view}");
        assert_eq!(view["mesh"], "proj", "{view}");
    }
    // Whoever knows the mesh by another name is told what it is called there.
    let (owner, guest) = (&running[1].1, Home::new());
    guest.config("[daemon]\nmember = \"carol\"\n");
    let _up = guest.up();
    let link = owner.cli(&["--mesh", "proj", "mesh", "invite", "--json"]);
    let link = link.ok().json()["link"].as_str().unwrap().to_owned();
    let join = ["mesh", "join", "-", "--as", "theirs"];
    guest.cli_told(&join, &link).ok();
    let words = guest.cli(&["--mesh", "theirs", "mesh", "info"]).ok();
    assert!(words.stdout.contains("called proj-2"), "{words:?}");
    // Out of reach, nobody makes it up.
    drop(team);
    wait_until("the broker to be gone", || {
        let view = owner.cli(&["--mesh", "proj", "mesh", "info", "--json"]);
        let view = view.ok().json();
        view["stale"] == true && view.get("name_at_broker").is_none()
    });
}
