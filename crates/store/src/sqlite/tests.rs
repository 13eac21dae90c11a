//! Tests of the store as a whole: round trips, and every kind of damaged file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::*;
use crate::record::{CellStatus, RunData, RunStatus};
use crate::sqlite::{Store, StoreMode, fixture};

fn path_in(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("plumb.db")
}

#[test]
fn a_run_comes_back_as_it_went_in() {
    let (_directory, mut store) = fixture::store();
    let data = fixture::run_data("ladder-20261121-7f3a");
    store.insert(&data).unwrap();
    assert_eq!(store.load(&data.run.id).unwrap(), data);
}

#[test]
fn a_run_written_piece_by_piece_is_the_same_as_one_written_whole() {
    let (_directory, mut store) = fixture::store();
    let data = fixture::run_data("a");
    let (launches, blocks) = (Vec::new(), Vec::new());
    store.insert(&RunData { launches, blocks, ..data.clone() }).unwrap();
    data.launches.iter().for_each(|launch| store.add_launch("a", launch).unwrap());
    data.blocks.iter().for_each(|block| store.add_block("a", block).unwrap());
    assert_eq!(store.load("a").unwrap(), data);
    assert_eq!(store.check(|_| Vec::new()).unwrap(), Vec::<String>::new());
}

#[test]
fn status_and_notes_change_and_nothing_else_does() {
    let (_directory, mut store) = fixture::store();
    let mut data = fixture::run_data("a");
    store.insert(&data).unwrap();
    let notes = BTreeMap::from([("stopped".to_owned(), "budget \"2 m\"".to_owned())]);
    store.update_run("a", RunStatus::Complete, &notes).unwrap();
    store.set_cell_status("a", 1, &CellStatus::Failed("the peer died".to_owned())).unwrap();
    data.run.status = RunStatus::Complete;
    data.run.notes.extend(notes);
    data.cells[0].status = CellStatus::Failed("the peer died".to_owned());
    assert_eq!(store.load("a").unwrap(), data);
}

#[test]
fn runs_are_listed_newest_first_with_what_they_hold() {
    let (_directory, mut store) = fixture::store();
    store.insert(&fixture::run_data("newer")).unwrap();
    store.insert(&fixture::bare("older", 5)).unwrap();
    let runs = store.runs().unwrap();
    assert_eq!(runs[0].run.id, "newer");
    assert_eq!((runs[0].cells, runs[0].cells_open, runs[0].launches, runs[0].blocks), (4, 2, 2, 5));
    assert_eq!((runs[1].run.id.as_str(), runs[1].blocks), ("older", 0));
}

#[test]
fn a_deleted_run_takes_its_rows_with_it_and_leaves_the_others() {
    let (_directory, mut store) = fixture::store();
    store.insert(&fixture::run_data("a")).unwrap();
    store.insert(&fixture::run_data("b")).unwrap();
    store.delete_run("a").unwrap();
    assert!(matches!(store.load("a"), Err(StoreError::NoRun { .. })));
    assert_eq!(store.load("b").unwrap(), fixture::run_data("b"));
    assert_eq!(store.check(|_| Vec::new()).unwrap(), Vec::<String>::new());
    let blocks = "SELECT count(*) FROM block";
    assert_eq!(store.connection.query_row(blocks, [], |row| row.get::<_, i64>(0)), Ok(5));
}

#[test]
fn a_taken_id_is_refused_and_a_new_one_avoids_it() {
    let (_directory, mut store) = fixture::store();
    let id = store.new_run_id("ladder", 1_795_230_985_123, 0x7f3a).unwrap();
    assert_eq!(id, "ladder-20261121-7f3a");
    store.insert(&fixture::bare(&id, 0)).unwrap();
    let error = store.insert(&fixture::bare(&id, 0)).unwrap_err();
    assert!(matches!(error, StoreError::RunExists { .. }), "{error}");
    let next = store.new_run_id("ladder", 1_795_230_985_123, 0x7f3a).unwrap();
    assert_eq!(next, "ladder-20261121-7f3b");
}

#[test]
fn records_that_contradict_the_store_are_refused_whole() {
    let (_directory, mut store) = fixture::store();
    let mut data = fixture::run_data("a");
    store.insert(&data).unwrap();
    // The last of these blocks names a launch that does not exist.
    let blocks = [fixture::block(1, 1, 1), fixture::block(1, 9, 0)];
    let error = store.add_blocks("a", &blocks).unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    let error = store.add_block("a", &fixture::block(1, 1, 0)).unwrap_err();
    assert!(error.to_string().contains("block of cell 1, launch 1 of run a"), "{error}");
    let error = store.set_cell_status("a", 9, &CellStatus::Open).unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    let error = store.add_block("b", &fixture::block(1, 1, 0)).unwrap_err();
    assert!(matches!(error, StoreError::NoRun { .. }), "{error}");
    assert_eq!(store.load("a").unwrap(), data);

    data.run.id = "b".to_owned();
    data.blocks[0].effort.canary_ns = f64::NAN;
    let error = store.insert(&data).unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    assert!(matches!(store.load("b"), Err(StoreError::NoRun { .. })));
}

#[test]
fn a_reader_sees_whole_blocks_while_a_run_measures() {
    let (directory, mut writer) = fixture::store();
    let data = fixture::run_data("a");
    writer.insert(&data).unwrap();
    let reader = Store::open(&path_in(&directory), StoreMode::Read).unwrap();
    writer.add_block("a", &fixture::block(1, 1, 7)).unwrap();
    assert_eq!(reader.load("a").unwrap().blocks.len(), data.blocks.len() + 1);
}

#[test]
fn two_writers_wait_for_each_other() {
    let (directory, mut first) = fixture::store();
    let mut second = Store::open(&path_in(&directory), StoreMode::Write).unwrap();
    first.insert(&fixture::bare("a", 0)).unwrap();
    second.insert(&fixture::bare("b", 1)).unwrap();
    assert_eq!(first.runs().unwrap().len(), 2);
}

/// Enough that each of the two races there once was is lost every time the test runs.
const STORES_MADE: usize = 100;

#[test]
fn a_store_made_by_many_at_once_is_made_once() {
    // A reader must see the whole new store or none of it: a window of
    // microseconds, hence many stores.
    for _ in 0..STORES_MADE {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(&directory);
        let together = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for id in 0..8 {
                let (path, together) = (&path, &together);
                scope.spawn(move || {
                    together.wait();
                    let mut store = Store::open(path, StoreMode::Write).unwrap();
                    store.insert(&fixture::bare(&id.to_string(), id)).unwrap();
                });
            }
        });
        assert_eq!(Store::open(&path, StoreMode::Read).unwrap().runs().unwrap().len(), 8);
    }
}

#[test]
fn a_writer_that_never_lets_go_is_reported_as_busy() {
    let (directory, first) = fixture::store();
    let mut second = Store::open(&path_in(&directory), StoreMode::Write).unwrap();
    second.connection.busy_timeout(Duration::ZERO).unwrap();
    first.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = second.insert(&fixture::bare("b", 1)).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
}

/// What opening a place for reading and for writing says; nothing where it becomes a store.
type RefusedPlace = (&'static str, fn(&Path), [&'static str; 2]);

const REFUSED_PLACES: [RefusedPlace; 9] = [
    ("missing/plumb.db", |_| {}, ["Missing", ""]),
    ("empty", |path| std::fs::write(path, "").unwrap(), ["Empty", ""]),
    ("short", |path| std::fs::write(path, "{}").unwrap(), ["NotSqlite"; 2]),
    ("text", |path| std::fs::write(path, "SQLite format 3, not\n").unwrap(), ["NotSqlite"; 2]),
    (
        "songs",
        |path| Connection::open(path).unwrap().execute_batch("CREATE TABLE song (name)").unwrap(),
        ["Foreign"; 2],
    ),
    (
        "newer",
        |path| {
            let store = Store::open(path, StoreMode::Write).unwrap();
            store.connection.pragma_update(None, "user_version", VERSION + 2).unwrap();
        },
        ["Newer"; 2],
    ),
    (
        "negative",
        |path| {
            let store = Store::open(path, StoreMode::Write).unwrap();
            store.connection.pragma_update(None, "user_version", -1).unwrap();
        },
        ["Corrupt"; 2],
    ),
    ("directory", |path| std::fs::create_dir(path).unwrap(), ["Unreadable"; 2]),
    (
        "file/below",
        |path| std::fs::write(path.parent().unwrap(), "").unwrap(),
        ["Unreadable", "Unwritable"],
    ),
];

#[test]
fn a_place_that_holds_no_store_is_refused_by_its_kind_and_left_alone() {
    for (name, make, expected) in REFUSED_PLACES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        make(&path);
        let state = || (std::fs::read(&path).ok(), path.parent().unwrap().exists());
        let before = state();
        for (mode, expected) in [StoreMode::Read, StoreMode::Write].into_iter().zip(expected) {
            match Store::open(&path, mode) {
                Ok(store) => assert_eq!((expected, store.runs().unwrap()), ("", vec![]), "{name}"),
                Err(error) => {
                    let kind = format!("{error:?}");
                    let kind = kind.split(' ').next().unwrap();
                    assert_eq!((kind, state()), (expected, before.clone()), "{name}: {error}");
                }
            }
        }
    }
}

#[test]
fn no_connection_trusts_the_schema_of_a_file() {
    let (directory, _) = fixture::store();
    for mode in [StoreMode::Read, StoreMode::Write] {
        let store = Store::open(&path_in(&directory), mode).unwrap();
        let trusted = "PRAGMA trusted_schema";
        let trusted = store.connection.query_row(trusted, [], |row| row.get::<_, i64>(0));
        assert_eq!(trusted, Ok(0), "{mode:?}");
    }
}

#[test]
fn a_directory_where_no_file_can_be_made_is_unwritable() {
    // procfs refuses new files even from root.
    let error = Store::open(Path::new("/proc/plumb.db"), StoreMode::Write).unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
}

#[test]
fn a_write_protected_file_is_unwritable() {
    let (directory, store) = fixture::store();
    drop(store);
    // As SQLite opens a write-protected file; root may write to such files.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = Connection::open_with_flags(path_in(&directory), flags).unwrap();
    let error = Store::initialize(connection, &path_in(&directory)).unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");

    let mut reader = Store::open(&path_in(&directory), StoreMode::Read).unwrap();
    let error = reader.insert(&fixture::bare("a", 0)).unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
}

#[test]
fn a_store_is_readable_where_no_log_can_be_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a store?#100%.db");
    let mut store = Store::open(&path, StoreMode::Write).unwrap();
    store.insert(&fixture::run_data("a")).unwrap();
    drop(store);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(immutable_uri(&path), flags).unwrap();
    let reader = Store { connection, path };
    assert_eq!(reader.load("a").unwrap(), fixture::run_data("a"));
}

#[test]
fn a_full_disk_is_reported_and_what_was_stored_stays() {
    let (_directory, mut store) = fixture::store();
    store.insert(&fixture::run_data("a")).unwrap();
    let pages: i64 = store.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    store.connection.pragma_update(None, "max_page_count", pages + 2).unwrap();
    let mut stored = 0;
    let error = loop {
        match store.add_block("a", &fixture::block(1, 1, 100 + stored)) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the store never filled up");
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert_eq!(store.load("a").unwrap().blocks.len(), 5 + stored as usize);
    assert_eq!(store.check(|_| Vec::new()).unwrap(), Vec::<String>::new());
}

#[test]
fn damage_is_found_and_never_read_as_numbers() {
    let (directory, mut store) = fixture::store();
    store.insert(&fixture::run_data("a")).unwrap();
    drop(store);
    let path = path_in(&directory);
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = bytes.len();
    // Every page but the first, which holds the schema.
    bytes[4096..].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let error = Store::open(&path, StoreMode::Read).unwrap().load("a").unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");

    std::fs::write(&path, &bytes[..whole / 2]).unwrap();
    let sound = Store::open(&path, StoreMode::Read).and_then(|store| store.check(|_| Vec::new()));
    assert!(!matches!(&sound, Ok(problems) if problems.is_empty()), "{sound:?}");
}

#[test]
fn rows_that_make_no_sense_are_damage() {
    for (break_it, told) in [
        ("UPDATE block SET samples = x'09' WHERE key = 1", "an encoding"),
        ("UPDATE block SET effort = '{' WHERE key = 1", "EOF"),
        ("UPDATE block SET n = -1 WHERE key = 1", "out of range"),
        ("UPDATE cell SET state = 'lost' WHERE id = 1", "'lost'"),
        ("UPDATE run SET status = 'asleep'", "asleep"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM launch WHERE id = 1", "not there"),
    ] {
        let (_directory, mut store) = fixture::store();
        store.insert(&fixture::run_data("a")).unwrap();
        store.connection.execute_batch(break_it).unwrap();
        let problems = store.check(|_| Vec::new()).unwrap();
        assert!(problems.iter().any(|problem| problem.contains(told)), "{told}: {problems:?}");
    }
}

#[test]
fn a_run_that_cannot_be_read_is_told_once_and_one_that_can_is_examined_once() {
    let (_directory, mut store) = fixture::store();
    store.insert(&fixture::run_data("a")).unwrap();
    store.insert(&fixture::run_data("b")).unwrap();
    let spoil = "UPDATE run SET status = 'asleep' WHERE id = 'a'";
    store.connection.execute_batch(spoil).unwrap();
    let mut examined = Vec::new();
    let problems = store.check(|data| {
        examined.push(data.run.id.clone());
        vec!["cell 1: odd".to_owned()]
    });
    let problems = problems.unwrap();
    assert_eq!(examined, ["b"]);
    assert_eq!(problems.iter().filter(|problem| problem.contains("run a")).count(), 1);
    assert_eq!(problems.last().map(String::as_str), Some("run b, cell 1: odd"));
}

#[test]
fn a_document_stays_with_its_run_and_goes_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(&directory.path().join("plumb.db"), StoreMode::Write).unwrap();
    let data = fixture::run_data("net-20261121-0001");
    store.insert(&data).unwrap();
    let id = &data.run.id;
    assert_eq!(store.attachment(id, "plumb.net/1").unwrap(), None);
    store.put_attachment(id, "plumb.net/1", "{\"a\":1}").unwrap();
    store.put_attachment(id, "plumb.net/1", "{\"a\":2}").unwrap();
    assert_eq!(store.attachment(id, "plumb.net/1").unwrap().unwrap(), "{\"a\":2}");
    let absent = store.put_attachment("nobody", "plumb.net/1", "{}").unwrap_err();
    assert!(matches!(absent, StoreError::NoRun { .. }), "{absent}");
    store.delete_run(id).unwrap();
    assert_eq!(store.attachment(id, "plumb.net/1").unwrap(), None);
    store.insert(&data).unwrap();
    assert_eq!(store.attachment(id, "plumb.net/1").unwrap(), None);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn a_store_grows_step_by_step_and_keeps_its_rows() {
    let mut connection = Connection::open_in_memory().unwrap();
    let mut steps = STEPS.to_vec();
    migrate_by(&mut connection, &steps).unwrap();
    connection
        .execute_batch("INSERT INTO run VALUES (1,'a','t',0,'complete','',0,'','{}','{}')")
        .unwrap();
    steps.push("ALTER TABLE run ADD COLUMN place TEXT NOT NULL DEFAULT 'here'");
    migrate_by(&mut connection, &steps).unwrap();
    assert_eq!(identify(&connection).unwrap(), DatabaseIdentity::Store(VERSION + 1));
    let place: String =
        connection.query_row("SELECT place FROM run", [], |row| row.get(0)).unwrap();
    assert_eq!(place, "here");
}

#[test]
fn a_step_that_fails_leaves_the_version_before_it() {
    let mut connection = Connection::open_in_memory().unwrap();
    let steps = [STEPS[0], "CREATE TABLE extra (a); CREATE TABLE run (b)"];
    migrate_by(&mut connection, &steps).unwrap_err();
    assert_eq!(identify(&connection).unwrap(), DatabaseIdentity::Store(1));
    let extra = "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'";
    assert_eq!(connection.query_row(extra, [], |row| row.get::<_, i64>(0)), Ok(0));
}

/// The golden file was written by version 1's first release; `PLUMB_WRITE_GOLDEN=1` writes the
/// present version's, which is done once, when the version is made.
#[test]
fn stores_of_every_version_still_read_as_they_were_written() {
    if std::env::var_os("PLUMB_WRITE_GOLDEN").is_some() {
        write_golden();
    }
    for version in 1..=VERSION {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plumb.db");
        std::fs::copy(fixture(&format!("store-v{version}.db")), &path).unwrap();
        let json = std::fs::read(fixture(&format!("store-v{version}.json"))).unwrap();
        let expected: RunData = serde_json::from_slice(&json).unwrap();
        let store = Store::open(&path, StoreMode::Read).unwrap();
        assert_eq!(store.load(&expected.run.id).unwrap(), expected);
        assert_eq!(store.check(|_| Vec::new()).unwrap(), Vec::<String>::new());
    }
}

fn write_golden() {
    let path = fixture(&format!("store-v{VERSION}.db"));
    std::fs::remove_file(&path).ok();
    let data = fixture::run_data("golden-20261121-0001");
    let mut store = Store::open(&path, StoreMode::Write).unwrap();
    store.insert(&data).unwrap();
    drop(store);
    let json = serde_json::to_vec(&data).unwrap();
    std::fs::write(path.with_extension("json"), json).unwrap();
}

fn found(explicit: Option<&str>, set: &[(&str, &str)]) -> Result<PathBuf, StoreLocationError> {
    default_path(explicit.map(PathBuf::from), |name| {
        set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    })
}

#[test]
fn the_most_specific_place_wins() {
    let all = [("PLUMB_STORE", "/s.db"), ("XDG_DATA_HOME", "/xdg"), ("HOME", "/home/u")];
    assert_eq!(found(Some("/e.db"), &all), Ok("/e.db".into()));
    assert_eq!(found(None, &all), Ok("/s.db".into()));
    assert_eq!(found(None, &all[1..]), Ok("/xdg/plumb/plumb.db".into()));
    assert_eq!(found(None, &all[2..]), Ok("/home/u/.local/share/plumb/plumb.db".into()));
    assert_eq!(found(None, &[]), Err(StoreLocationError));
}

#[test]
fn empty_variables_and_a_relative_data_home_are_ignored() {
    let set = [("PLUMB_STORE", ""), ("XDG_DATA_HOME", "data"), ("HOME", "/h")];
    assert_eq!(found(None, &set), Ok("/h/.local/share/plumb/plumb.db".into()));
}
