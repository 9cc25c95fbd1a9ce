//! Logs as a killed process leaves them, with what a disk or somebody does to them.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tempfile::TempDir;

use super::*;

const COMMITS: u32 = 12;
const FRAME: usize = 24 + 4096;

/// A database and what lies beside it, as a process that was killed after so many commits has left them.
struct Killed {
    folder: TempDir,
    log: Vec<u8>,
    file: Vec<u8>,
    index: Vec<u8>,
}

fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    let stay = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(stay, true).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
        .unwrap();
    connection
}

impl Killed {
    /// `moved`: how many of the commits are in the file as well.
    fn after(moved: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.db");
        let connection = connect(&path);
        connection
            .execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
            .unwrap();
        for n in 1..=COMMITS {
            let text = format!("{n} ").repeat(700);
            connection
                .execute("INSERT INTO t VALUES (?1, ?2)", (n, text))
                .unwrap();
            if n == moved {
                let moved = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                    Ok((row.get::<_, u32>(1)?, row.get::<_, u32>(2)?))
                });
                let (log, moved) = moved.unwrap();
                assert_eq!(log, moved);
                // Somebody reads, so that the log goes on behind what was moved.
                connection.execute_batch("BEGIN; SELECT * FROM t").unwrap();
                let reader = connect(&path);
                reader
                    .query_row("SELECT count(*) FROM t", [], |_| Ok(()))
                    .unwrap();
                connection.execute_batch("COMMIT").unwrap();
            }
        }
        let read = |suffix: &str| fs::read(with_suffix(&path, suffix)).unwrap();
        let (log, file, index) = (read(LOG), read(""), read(INDEX));
        drop(connection);
        let killed = Self {
            folder,
            log,
            file,
            index,
        };
        killed.lay(Some(&killed.log));
        killed
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("t.db")
    }

    /// With this log in the place of its own, in the same start of the machine.
    fn lay(&self, log: Option<&[u8]>) {
        let path = self.path();
        for name in fs::read_dir(self.folder.path()).unwrap().flatten() {
            fs::remove_file(name.path()).unwrap();
        }
        fs::write(&path, &self.file).unwrap();
        if let Some(log) = log {
            fs::write(with_suffix(&path, LOG), log).unwrap();
        }
        let index = with_suffix(&path, INDEX);
        fs::write(&index, &self.index).unwrap();
        note_boot(&index);
        // As another process finds it.
        seen().remove(&name_of(&path));
    }

    /// How many rows there are, all of them those that were written first and nothing torn.
    fn rows(&self) -> u32 {
        let connection = connect(&self.path());
        let verdict: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(verdict, "ok");
        let mut rows = connection
            .prepare("SELECT n, text FROM t ORDER BY n")
            .unwrap();
        let rows = rows.query_map([], |row| {
            Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?))
        });
        let mut count = 0;
        for row in rows.unwrap() {
            let (n, text) = row.unwrap();
            count += 1;
            assert_eq!((n, text), (count, format!("{count} ").repeat(700)));
        }
        count
    }

    fn frames(&self) -> usize {
        (self.log.len() - 32) / FRAME
    }
}

#[test]
fn a_log_that_is_whole_is_left_alone_and_so_is_the_file() {
    for moved in [0, 5, COMMITS] {
        let killed = Killed::after(moved);
        assert_eq!(look(&killed.path()), Found::Fit, "{moved}");
        assert_eq!(mend_log(&killed.path()).unwrap(), None);
        assert_eq!(killed.rows(), COMMITS);
    }
}

#[test]
fn ob_01_any_one_wrong_bit_of_a_log_is_put_right_and_no_commit_is_lost() {
    let (mut right, mut kept, mut told) = (0, 0, 0);
    for moved in [0, 5] {
        let killed = Killed::after(moved);
        let frame = FRAME;
        let heads = (0..killed.frames()).flat_map(|n| 32 + n * frame..32 + n * frame + 24);
        let places = (0..32)
            .chain(heads)
            .chain((0..killed.log.len()).step_by(577));
        for (turn, at) in places.enumerate() {
            let mut log = killed.log.clone();
            log[at] ^= 1 << (turn % 8);
            killed.lay(Some(&log));
            if let Some(lost) = lost_log(&killed.path()) {
                // It may be a bit of the number of its page: told, and nothing is read behind it.
                assert!(lost.contains("what was saved last is lost"), "{at} {lost}");
                told += 1;
                continue;
            }
            assert!(log_heals(&killed.path()), "{at}");
            assert!(mend_log(&killed.path()).unwrap().is_some(), "{at}");
            assert_eq!(look(&killed.path()), Found::Fit, "{at}");
            let mended = fs::read(with_suffix(&killed.path(), LOG)).unwrap();
            if mended == killed.log {
                assert_eq!(killed.rows(), COMMITS, "{at}");
                right += 1;
                continue;
            }
            // Nobody can say which bit it was: it is where it was, and the sums go along.
            assert!(at >= 32 && (at - 32) % frame >= 24, "{at}");
            assert_eq!(mended[at], log[at], "{at}");
            let others = (0..mended.len()).filter(|it| mended[*it] != killed.log[*it] && *it != at);
            assert!(
                others
                    .map(|it| (it - 32) % frame)
                    .all(|it| (16..24).contains(&it))
            );
            kept += 1;
        }
    }
    assert!(right > kept + 4 * told && kept > 0, "{right} {kept} {told}");
}

#[test]
fn several_wrong_bits_in_frames_of_their_own_are_all_put_right_without_any_index() {
    let killed = Killed::after(0);
    let mut log = killed.log.clone();
    for n in 0..killed.frames() {
        // The lowest bits of a word, which stand in one place only.
        log[32 + n * FRAME + 24 + 8 * n] ^= 0x10;
    }
    killed.lay(Some(&log));
    fs::remove_file(with_suffix(&killed.path(), INDEX)).unwrap();
    mend_log(&killed.path()).unwrap().unwrap();
    assert_eq!(killed.rows(), COMMITS);
}

/// What hides how much was committed: cut at each frame, gone, or with a frame that is none.
fn damages(killed: &Killed) -> Vec<Option<Vec<u8>>> {
    let mut all = vec![None, Some(Vec::new())];
    for n in 0..killed.frames() {
        let at = 32 + n * FRAME;
        all.push(Some(killed.log[..at].to_vec()));
        all.push(Some(killed.log[..at + 1000].to_vec()));
        let mut zeroed = killed.log.clone();
        zeroed[at..at + 512].fill(0);
        all.push(Some(zeroed));
    }
    all
}

#[test]
fn ob_01_a_log_that_lost_what_the_file_has_is_set_aside_and_nothing_is_lost() {
    let killed = Killed::after(COMMITS);
    for log in damages(&killed) {
        killed.lay(log.as_deref());
        assert!(mend_log(&killed.path()).unwrap().is_some());
        assert_eq!(killed.rows(), COMMITS);
    }
}

#[test]
fn ob_01_a_log_that_lost_commits_is_told_before_it_is_read_and_is_given_up_at_a_whole_state_only() {
    for moved in [0, 5] {
        let killed = Killed::after(moved);
        for log in damages(&killed) {
            killed.lay(log.as_deref());
            let path = killed.path();
            assert!(mend_log(&path).unwrap().is_none());
            let told = lost_log(&path).unwrap();
            assert!(told.contains("what was saved last is lost"), "{told}");
            // However often somebody looks.
            assert!(!log_heals(&path) && lost_log(&path).is_some());
            let given_up = give_up_lost_log(&path).unwrap().unwrap();
            assert!(given_up.lost.contains("was saved last is lost"));
            given_up.undo().unwrap();
            seen().remove(&name_of(&path));
            assert_eq!(lost_log(&path).unwrap(), told);
            let lost = give_up_lost_log(&path).unwrap().unwrap().lost;
            assert_eq!(look(&path), Found::Fit);
            // Before the first commit there is no table either.
            if moved > 0 {
                assert!((moved..COMMITS).contains(&killed.rows()), "{lost}");
            }
        }
    }
}

#[test]
fn what_a_power_cut_tears_is_no_alarm_where_the_index_is_of_another_start_of_the_machine() {
    let killed = Killed::after(0);
    for log in damages(&killed) {
        killed.lay(log.as_deref());
        let index = with_suffix(&killed.path(), INDEX);
        fs::remove_file(&index).unwrap();
        // A copy has no note.
        fs::write(&index, &killed.index).unwrap();
        assert_eq!(look(&killed.path()), Found::Fit);
    }
}

#[test]
fn one_copy_in_the_index_is_enough_and_without_either_it_says_nothing() {
    let killed = Killed::after(0);
    for at in 0..96 {
        killed.lay(None);
        let index = with_suffix(&killed.path(), INDEX);
        let mut bytes = killed.index.clone();
        bytes[at] ^= 0x40;
        fs::write(&index, &bytes).unwrap();
        assert!(matches!(look(&killed.path()), Found::Cut(_)), "{at}");
        bytes[(at + 48) % 96] ^= 0x40;
        fs::write(&index, bytes).unwrap();
        assert_eq!(look(&killed.path()), Found::Fit, "{at}");
    }
}

#[test]
fn an_index_of_before_the_log_began_anew_is_no_alarm_and_a_log_of_before_is_one() {
    let killed = Killed::after(0);
    let connection = connect(&killed.path());
    let restart = "PRAGMA wal_checkpoint(RESTART)";
    connection.query_row(restart, [], |_| Ok(())).unwrap();
    connection.execute_batch("CREATE TABLE more (n)").unwrap();
    let read = |suffix: &str| fs::read(with_suffix(&killed.path(), suffix)).unwrap();
    let (log, file, index) = (read(LOG), read(""), read(INDEX));
    drop(connection);
    let newer = Killed {
        folder: tempfile::tempdir().unwrap(),
        log,
        file,
        index,
    };
    newer.lay(Some(&newer.log));
    assert_eq!(look(&newer.path()), Found::Fit);
    // Only the index is an older one.
    fs::write(with_suffix(&newer.path(), INDEX), &killed.index).unwrap();
    assert_eq!(look(&newer.path()), Found::Fit);
    // Only the log is.
    newer.lay(Some(&killed.log));
    assert!(matches!(look(&newer.path()), Found::Cut(_)));
}

#[test]
fn a_page_of_a_log_that_more_has_been_done_to_takes_no_commit_behind_it_and_is_damaged_as_a_page_of_the_file()
 {
    let killed = Killed::after(5);
    let (mut whole, mut damaged) = (0, 0);
    for n in 0..killed.frames() {
        let mut log = killed.log.clone();
        let at = 32 + n * FRAME + 24 + 2048;
        log[at..at + 512].fill(0xa5);
        killed.lay(Some(&log));
        assert!(mend_log(&killed.path()).unwrap().is_some(), "{n}");
        assert_eq!(look(&killed.path()), Found::Fit, "{n}");
        let connection = connect(&killed.path());
        let count = "SELECT count(*) FROM t NOT INDEXED WHERE text = printf('%d ', n) || substr(text, length(printf('%d ', n)) + 1)";
        let rows = connection.query_row(count, [], |row| row.get::<_, u32>(0));
        let problem: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap_or_else(|error| error.to_string());
        drop(connection);
        if rows == Ok(COMMITS) && problem == "ok" {
            whole += 1;
        } else {
            damaged += 1;
        }
        // Without what is known from elsewhere it may as well be the end, torn by a power cut.
        killed.lay(Some(&log));
        fs::remove_file(with_suffix(&killed.path(), INDEX)).unwrap();
        assert_eq!(look(&killed.path()), Found::Fit, "{n}");
    }
    // A page that was written again later on is what it was.
    assert!(whole > 0, "{whole} {damaged}");
}
