//! A task of a shared mesh of which one step is lost while the broker is away: nobody is offered what its row held or had
//! finished, the repair names it, and with the log again all homes are the same.

use heddle_core::ids::OpId;
use heddle_core::names::{AgentName, MeshName};
use heddle_core::task::{Blockers, TaskId, TaskStatus, TaskText, TaskTitle};
use heddle_store::{
    Applied, Blobs, ChangeKey, NewTask, Repaired, StoreError, TaskFilter, TaskRow, TaskStop,
    TaskWhich, TaskWish, repair,
};
use rusqlite::Connection;

use crate::changed_rows::doctor;
use crate::fixture::{NOW, client_id, open, print};
use crate::lost_writes::Log;
use crate::mended::hints;
use crate::sync_home::Home;
use crate::tasks::{at, claim, fresh, lease};

impl Home {
    fn task_key(&self, by: &str, id: &str) -> ChangeKey {
        use heddle_core::clock::Ids as _;
        let mut peer = self.party();
        peer.agent = AgentName::parse(by).unwrap();
        ChangeKey {
            mesh: self.mesh,
            peer,
            id: client_id(id),
            fingerprint: print(1),
            op: OpId(self.ids.uuid_v7()),
            now: NOW,
        }
    }

    async fn add(&self, title: &str) -> TaskId {
        let new = NewTask {
            title: TaskTitle::parse(title).unwrap(),
            description: TaskText::parse("do it").unwrap(),
            blocked_by: Blockers::default(),
        };
        let key = self.task_key("planner", title);
        let made = self.store.create_task::<&str>(key, Ok(new)).await.unwrap();
        fresh(made).note["task"].as_str().unwrap().parse().unwrap()
    }

    async fn try_step(
        &self,
        (by, id): (&str, &str),
        task: TaskId,
        wish: TaskWish,
    ) -> Result<Applied<TaskStop<&'static str>>, StoreError> {
        let key = self.task_key(by, id);
        self.store.step_task(key, task, wish, at(0), Ok(())).await
    }

    async fn find(&self, task: TaskId) -> Option<TaskRow> {
        self.store.task(self.mesh, task).await.unwrap()
    }

    async fn lines(&self) -> Vec<String> {
        let dump = self.store.dump(self.mesh, 0, usize::MAX).await.unwrap();
        dump.lines
    }

    fn raw(&self) -> Connection {
        Connection::open(self.folder.path().join("data.db")).unwrap()
    }

    fn mend(self) -> (Self, Repaired) {
        self.store.stop();
        let folder = self.folder.path();
        assert_ne!(doctor(folder), "");
        let blobs = Blobs::open(&folder.join("blobs")).unwrap();
        let mut hints = hints();
        hints.home = MeshName::parse("team").unwrap();
        let told = repair(&folder.join("data.db"), &blobs, &hints, NOW).unwrap();
        let told = told.unwrap();
        assert_eq!(doctor(folder), "", "{told:?}");
        let store = open(&folder.join("data.db")).unwrap();
        (Self { store, ..self }, told)
    }
}

/// What each task goes through behind its create.
const LIVES: [&[&str]; 7] = [
    &[],
    &["claim"],
    &["claim", "renew"],
    &["claim", "release"],
    &["claim", "release", "other claim"],
    &["claim", "renew", "complete"],
    &["cancel"],
];

/// Two homes and the log that has everything of both.
struct Two {
    ann: Home,
    bob: Home,
    log: Log,
    tasks: Vec<TaskId>,
}

/// `owner` makes the tasks, and `worker` does the rest: 0 is ann, in whose file steps get lost.
async fn lived((owner, worker): (usize, usize)) -> Two {
    let homes = [Home::shared(1).await, Home::shared(2).await];
    let (mut log, mut tasks) = (Log::default(), Vec::new());
    for life in LIVES {
        tasks.push(homes[owner].add(&format!("task of {life:?}")).await);
    }
    sync(&mut log, [&homes[0], &homes[1]]).await;
    for (life, task) in LIVES.iter().zip(&tasks) {
        for step in *life {
            walk(&homes[worker], *task, step).await;
        }
    }
    sync(&mut log, [&homes[0], &homes[1]]).await;
    let [ann, bob] = homes;
    Two {
        ann,
        bob,
        log,
        tasks,
    }
}

async fn walk(home: &Home, task: TaskId, step: &str) {
    let row = home.find(task).await.unwrap();
    let fence = row.task.claim.map(|claim| claim.fence);
    let wish = match step {
        "claim" => claim(),
        "other claim" => TaskWish::Claim { lease: lease(600) },
        "renew" => TaskWish::Renew {
            fence: fence.unwrap(),
        },
        "release" => TaskWish::Release { fence: None },
        "complete" => TaskWish::Complete { fence: None },
        _ => TaskWish::Cancel,
    };
    let by = ["worker", "other"][usize::from(step == "other claim")];
    let id = format!("{step} {task}").replace(' ', "-");
    fresh(home.try_step((by, &id), task, wish).await.unwrap());
}

async fn sync(log: &mut Log, homes: [&Home; 2]) {
    for home in homes {
        log.push(home).await;
    }
    for home in homes {
        log.pull(home, usize::MAX).await;
        let aside = home.store.set_aside_ops(home.mesh, 9).await.unwrap();
        assert_eq!(aside, []);
    }
}

fn steps(home: &Home) -> Vec<(Vec<u8>, Vec<u8>)> {
    let sql = "SELECT task_id, op_id FROM task_op ORDER BY task_id, op_id";
    let raw = home.raw();
    let mut statement = raw.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// A bit of its body, or the whole row.
const LOSSES: [&str; 2] = [
    "UPDATE task_op SET body = CAST(substr(body, 1, 30) || x'7f' || substr(body, 32) AS BLOB)
        WHERE op_id = ?1",
    "DELETE FROM task_op WHERE op_id = ?1",
];

/// Every task loses the step of this number. `pruned`: the outbox has given the bytes of what was delivered back.
async fn lose(hands: (usize, usize), (number, loss): (usize, &str), pruned: bool) {
    let what = format!("{hands:?}, {loss}, pruned: {pruned}, step {number}");
    let two = lived(hands).await;
    let (ann, bob, mut log) = (two.ann, two.bob, two.log);
    let (truth, all) = (ann.lines().await, steps(&ann));
    assert_eq!(bob.lines().await, truth, "{what}");
    let mut before = Vec::new();
    for task in &two.tasks {
        before.push(ann.find(*task).await.unwrap());
    }
    ann.store.stop();
    let raw = ann.raw();
    let mut lost = Vec::new();
    for (task, before) in two.tasks.iter().zip(&before) {
        let mut of_it = all.iter().filter(|(of, _)| *of == task.to_bytes());
        if let Some((_, op)) = of_it.nth(number) {
            let is_renewal =
                "SELECT CAST(body AS TEXT) LIKE '%task.renew%' FROM task_op WHERE op_id = ?1";
            let is_renewal: bool = raw.query_row(is_renewal, [op], |row| row.get(0)).unwrap();
            // One that another step has overtaken says nothing more.
            if !is_renewal || before.task.status == TaskStatus::Claimed {
                lost.push(*task);
            }
            assert_eq!(raw.execute(loss, [op]).unwrap(), 1, "{what}");
        }
    }
    if pruned {
        let prune = "UPDATE outbox SET payload = x'' WHERE status = 'done'";
        raw.execute(prune, []).unwrap();
    }
    drop(raw);
    let (ann, told) = ann.mend();
    for ((life, task), before) in LIVES.iter().zip(&two.tasks).zip(&before) {
        let what = format!("{what} of {life:?}: {told:?}");
        let title = before.task.title.as_str();
        let restated = told.tasks.restated_titles.iter().any(|one| one == title);
        let left = told.unreadable.contains(&format!("task {title:?}"));
        assert!(!(restated && left), "{what}");
        assert!(!lost.contains(task) || restated || left, "{what}");
        match ann.find(*task).await {
            None => assert!(left, "{what}"),
            Some(row) => assert_eq!(row.task, before.task, "{what}"),
        }
        if before.task.status != TaskStatus::Open {
            assert_not_offered(&ann, *task, &what).await;
        }
    }
    sync(&mut log, [&ann, &bob]).await;
    assert_eq!(ann.lines().await, truth, "{what}");
    assert_eq!(bob.lines().await, truth, "{what}");
    assert_eq!(steps(&ann), all, "{what}");
    assert_eq!(steps(&bob), all, "{what}");
    ann.store.stop();
    assert_eq!(doctor(ann.folder.path()), "", "{what}");
}

async fn assert_not_offered(home: &Home, task: TaskId, what: &str) {
    let filter = TaskFilter {
        mesh: home.mesh,
        which: TaskWhich::Ready,
        after: None,
        limit: 10,
        bytes_max: usize::MAX,
    };
    let (ready, _) = home.store.list_tasks(filter).await.unwrap();
    assert!(ready.iter().all(|row| row.id != task), "{what}");
    let taken = home.try_step(("thief", "t"), task, claim()).await.unwrap();
    assert!(
        matches!(taken, Applied::Refused(_) | Applied::Absent),
        "{what}: {taken:?}"
    );
}

#[tokio::test]
async fn lf_39_no_lost_step_makes_a_task_of_a_shared_mesh_freer_than_its_row() {
    for hands in [(0, 0), (0, 1), (1, 0)] {
        for (number, loss) in (0..4).flat_map(|number| LOSSES.map(|loss| (number, loss))) {
            lose(hands, (number, loss), false).await;
        }
    }
}

#[tokio::test]
async fn lf_39_nor_where_the_outbox_has_no_bytes_of_it_any_more() {
    for hands in [(0, 0), (1, 0), (1, 1)] {
        for (number, loss) in (0..4).flat_map(|number| LOSSES.map(|loss| (number, loss))) {
            lose(hands, (number, loss), true).await;
        }
    }
}
