//! A mesh moves to a team's broker, and what was decided about its effects moves with it: a key that was used at home is
//! used for everybody, however the move was cut short.

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use support::effect_file::change;
use support::effect_pair::{home_of, request, run};
use support::pasted::{commands, pasted};
use support::team_broker::{Team, link_of};
use support::{Daemon, Home, Ran, wait_until};

const POLICY: &str = "[[rule]]\noperation = \"deploy\"\napproval = \"auto\"\n";

struct Move {
    team: Team,
    alice: Home,
    side: PathBuf,
}

impl Move {
    /// Alice's home, with what she has done; nothing of it is at the team's broker.
    fn new(team: Team) -> (Self, Daemon) {
        let alice = home_of("alice");
        for folder in [alice.path(), team.broker.data.clone()] {
            std::fs::write(folder.join("effects.toml"), POLICY).unwrap();
        }
        let up = alice.up();
        let side = alice.path().with_file_name("side");
        let made = Self { team, alice, side };
        let ran = made.alice.cli(&run("k", &[], &made.script())).ok().json();
        assert_eq!(
            (&ran["duplicate"], &ran["status"]),
            (&json!(false), &json!("closed"))
        );
        (made, up)
    }

    fn script(&self) -> String {
        format!("echo x >> {}; echo done", self.side.display())
    }

    fn publish(&self) -> Ran {
        let (url, token) = (self.team.url(), self.team.broker.data.join("broker_token"));
        let words = ["mesh", "publish", "home", "--to", &url, "--token-file"];
        self.alice
            .cli(&[&words[..], &[token.to_str().unwrap()]].concat())
    }

    /// By the operator, who needs nobody of the mesh for it.
    fn guest(&self, name: &str) -> (Home, Daemon) {
        let invited = self.team.cli("home", &["invite"]).ok().json();
        let bob = home_of(name);
        let up = bob.up();
        let joined = bob.cli(&["mesh", "join", link_of(&invited), "--as", "team", "--json"]);
        assert_eq!(joined.ok().json()["connected"], true);
        (bob, up)
    }

    fn lines(&self) -> usize {
        text(&self.side).lines().count()
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn in_team<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["--mesh", "team"], words].concat()
}

#[test]
fn rg_01_a_key_that_ran_at_home_is_used_where_its_mesh_has_moved() {
    for team in Team::both() {
        let (moved, _up) = Move::new(team);
        let alice = &moved.alice;
        alice.cli(&request("asked")).ok();
        // One that is under way while the mesh moves.
        let gate = alice.path().with_file_name("gate");
        let long = format!(
            "echo y >> {0}.long; while [ ! -e {1} ]; do sleep 0.1; done; echo ended",
            moved.side.display(),
            gate.display()
        );
        let running = std::thread::scope(|scope| {
            let run_long = scope.spawn(|| alice.cli(&run("long", &[], &long)));
            wait_until("the long one to run", || {
                !text(&moved.side.with_extension("long")).is_empty()
            });
            moved.publish().ok();
            let (bob, _bob_up) = moved.guest("bob");
            wait_until("what was decided to be there", || {
                let again = bob.cli(&in_team(&run("k", &[], &moved.script())));
                assert!(
                    again.code == 0 || again.stderr.contains("@alice"),
                    "{again:?}"
                );
                assert_eq!(moved.lines(), 1, "{again:?}");
                again.code == 0
            });
            let again = bob
                .cli(&in_team(&run("k", &[], &moved.script())))
                .ok()
                .json();
            assert_eq!(
                (&again["duplicate"], &again["stdout"]),
                (&json!(true), &json!("done\n")),
                "{again}"
            );
            // What runs there is somebody's, and not to be run here.
            let busy = bob.cli(&in_team(&run("long", &["--wait", "1s"], &long)));
            assert_eq!(
                (busy.code, &busy.json()["status"]),
                (3, &json!("running")),
                "{busy:?}"
            );
            std::fs::write(&gate, "").unwrap();
            let ran = run_long.join().unwrap();
            // Its end is told to who decides now; the same call again prints it.
            wait_until("the end to be known", || {
                bob.cli(&in_team(&["effect", "status", "long", "--json"]))
                    .json()["exit_code"]
                    == 0
            });
            let told = bob.cli(&in_team(&run("long", &[], &long))).ok().json();
            assert_eq!(told["stdout"], "ended\n");
            // And what was only asked for is asked for there.
            let asked = bob.cli(&in_team(&["effect", "status", "asked", "--json"]));
            assert!(asked.stdout.contains("@alice/alice"), "{asked:?}");
            let story = bob.cli(&in_team(&["explain", "effect:k", "--json"])).ok();
            assert!(story.stdout.contains("@alice/alice"), "{story:?}");
            ran
        });
        assert!(running.code == 0 || running.code == 5, "{running:?}");
        assert_eq!(text(&moved.side.with_extension("long")), "y\n");
        // Alice is answered by the same authority.
        let own = alice.cli(&run("k", &[], &moved.script())).ok().json();
        assert_eq!(own["duplicate"], true);
        assert_eq!(moved.lines(), 1);
    }
}

/// The owner's home dies at whatever moment of the move; somebody else asks at once.
#[test]
fn rg_01_a_move_that_is_killed_half_way_frees_no_key() {
    for (round, team) in Team::both().into_iter().enumerate() {
        let (moved, mut up) = Move::new(team);
        let mut has_moved = false;
        for nth in 0..6 {
            let killed = std::thread::scope(|scope| {
                let publishing = scope.spawn(|| moved.publish());
                std::thread::sleep(Duration::from_millis(20 + 90 * nth + 40 * round as u64));
                up.kill();
                publishing.join().unwrap()
            });
            has_moved |= killed.code == 0;
            // At the broker nobody runs it, from the moment on when the mesh is known there. Before that the operator's
            // invitation would make another mesh of that name, which has nothing to do with hers.
            let members = moved.team.cli("home", &["members"]);
            assert!(matches!(members.code, 0 | 4), "{members:?}");
            if members.stdout.contains("alice") {
                let (bob, _bob_up) = moved.guest(&format!("bob{nth}"));
                let tried = bob.cli(&in_team(&run("k", &[], &moved.script())));
                let is_answered = tried.code == 0 && tried.json()["duplicate"] == true;
                assert!(is_answered || tried.code != 0, "{tried:?}");
                assert_eq!(moved.lines(), 1, "{tried:?}");
            }
            up = moved.alice.up();
            let again = moved.alice.cli(&run("k", &[], &moved.script()));
            assert_eq!(moved.lines(), 1, "{again:?}");
        }
        // Told as often as needed, it is there in the end.
        if !has_moved {
            moved.publish().ok();
        }
        let (bob, _bob_up) = moved.guest("bob");
        wait_until("what was decided", || {
            bob.cli(&in_team(&run("k", &[], &moved.script()))).code == 0
        });
        assert_eq!(moved.lines(), 1);
        up.stop();
    }
}

/// What a disk has done to one key keeps no mesh at home: that key is refused where it has moved, by its name, and every
/// other one is there.
#[test]
fn rg_01_a_damaged_key_moves_as_damaged_and_all_others_move() {
    for team in Team::both() {
        let (moved, up) = Move::new(team);
        for key in ["asked", "gone"] {
            moved.alice.cli(&run(key, &[], &moved.script())).ok();
        }
        assert_eq!(moved.lines(), 3);
        up.stop();
        let asked = "UPDATE effect_envelope SET canonical_target = 'other' WHERE logical_request_key = 'asked'";
        change(&moved.alice, asked);
        for table in [
            "effect_step",
            "effect_registration",
            "effect_consume",
            "effect_envelope",
        ] {
            let sql = format!("DELETE FROM {table} WHERE logical_request_key = 'gone'");
            change(&moved.alice, &sql);
        }
        let _up = moved.alice.up();
        let published = moved.publish().ok();
        for key in ["asked: ", "gone: "] {
            assert!(published.stdout.contains(key), "{published:?}");
        }
        assert!(published.stdout.contains("as damaged"), "{published:?}");
        let (bob, _bob_up) = moved.guest("bob");
        wait_until("what was decided to be there", || {
            bob.cli(&in_team(&run("k", &[], &moved.script()))).code == 0
        });
        // Whoever decides tells of it from now on; the home that it came from is well.
        wait_until("the home to be well", || {
            moved.alice.cli(&["status", "--json"]).json()["degraded"] == json!([])
        });
        let doctor = moved.alice.cli(&["doctor"]).stdout;
        assert!(doctor.contains("are as they were written"), "{doctor}");
        for key in ["asked", "gone"] {
            let script = moved.script();
            let own = run(key, &[], &script);
            for (home, words) in [(&bob, in_team(&own)), (&moved.alice, own)] {
                let told = home.cli(&words);
                assert_eq!(told.code, 1, "{told:?}");
                let said = format!("{key}: it was damaged in the store of the home");
                assert!(told.stderr.contains(&said), "{told:?}");
                assert!(told.stderr.contains("take a new key"), "{told:?}");
                // What it names helps: the doctor of either home has nothing to say of it.
                let next = commands(&told.stderr);
                let why = pasted(home, &next[0]).ok();
                assert!(why.stdout.contains("came damaged"), "{next:?}: {why:?}");
                assert_eq!(told.json()["changed"], true, "{told:?}");
            }
        }
        assert_eq!(moved.lines(), 3);
        let list = bob.cli(&in_team(&["effect", "list"])).ok().stdout;
        assert!(list.contains("gone") && list.contains("changed"), "{list}");
        let log = bob.cli(&in_team(&["effect", "log", "gone"])).ok().stdout;
        assert!(log.contains("came damaged"), "{log}");
        let surface = bob.cli(&in_team(&["effect", "surface-check"]));
        assert_eq!(surface.code, 1, "{surface:?}");
        // Whoever comes with a new key goes on.
        bob.cli(&in_team(&run("new", &[], "true"))).ok();
    }
}

/// Registered at the broker, and the home is gone before it has handed anything over: nothing is decided meanwhile.
#[test]
fn a_mesh_whose_home_has_not_handed_over_decides_nothing_until_somebody_says_so() {
    let (moved, up) = Move::new(Team::on(None));
    moved.publish().ok();
    // As if it had been killed before the first part: neither side knows of the hand-over.
    up.kill();
    let Move { team, alice, side } = moved;
    let Team { house, broker, .. } = team;
    let (data, listen) = (broker.data.clone(), broker.listen());
    assert_eq!(broker.terminate(), 0);
    for name in [
        "effects.db",
        "effects.db-wal",
        "effects.db-shm",
        "effects.mark",
    ] {
        let _ = std::fs::remove_file(data.join(name));
    }
    std::fs::remove_dir_all(data.join("effects")).unwrap();
    let start = || support::broker_process::BrokerProcess::start(&house, &data, &listen, &[]);
    let team = Team {
        database: None,
        broker: start(),
        house: Home::new(),
    };
    let moved = Move { team, alice, side };
    let (bob, _bob_up) = moved.guest("bob");
    let script = moved.script();
    let tried = bob.cli(&in_team(&run("k", &[], &script)));
    assert_ne!(tried.code, 0, "{tried:?}");
    assert!(tried.stderr.contains("home of @alice"), "{tried:?}");
    assert!(tried.stderr.contains("effects-begin-anew"), "{tried:?}");
    let status = bob.cli(&in_team(&["effect", "status", "k"]));
    assert!(!status.stderr.contains("nobody asked"), "{status:?}");
    assert_eq!(moved.lines(), 1);
    // A person's word: the home is lost for good.
    let Move { team, alice, side } = moved;
    assert_eq!(team.broker.terminate(), 0);
    std::fs::write(data.join("effects-begin-anew"), "").unwrap();
    let broker = start();
    let moved = Move {
        team: Team { broker, ..team },
        alice,
        side,
    };
    wait_until("bob to be back", || {
        bob.cli(&in_team(&run("other", &[], "true"))).code == 0
    });
    assert_eq!(moved.lines(), 1);
}
