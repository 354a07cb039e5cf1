//! SQLite with a write-ahead log that is forced to the disk by each commit, which is as durable as a commit of redb.
//!
//! Rows are found by a primary key of the same numbers. Two layouts: rows in a tree of their own beside an index, which
//! SQLite's documentation advises for long rows and the store has, with long pages; and rows in the tree of the key
//! (`WITHOUT ROWID`). Numbers are stored as the signed ones of the same bits; ranges are of times and levels only, which
//! are small.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use rusqlite::{Connection, params_from_iter};

use crate::engine::{CACHE_BYTES, Engine};
use crate::load::{Table, Transaction};

/// An open file.
pub struct Sqlite(Connection);

/// Opens or makes the file at `path`, with rows beside an index.
pub fn open(path: &Path) -> Box<dyn Engine> {
    opened(path, 4096, "")
}

/// As [`open`], with pages four times as long.
pub fn open_long_pages(path: &Path) -> Box<dyn Engine> {
    opened(path, 16_384, "")
}

/// As [`open`], with rows in the tree of their key.
pub fn open_clustered(path: &Path) -> Box<dyn Engine> {
    opened(path, 4096, " WITHOUT ROWID")
}

fn columns(table: Table) -> &'static [&'static str] {
    match table {
        Table::Journal | Table::Dictionary => &["number"],
        Table::Sessions => &["session"],
        Table::Threads | Table::Numbers | Table::Definitions => &["session", "fold"],
        Table::Raw => &["start", "session", "fold"],
        Table::Stacks | Table::ThreadStacks | Table::Times => &["level", "start", "session", "fold"],
    }
}

fn opened(path: &Path, page_bytes: usize, layout: &str) -> Box<dyn Engine> {
    let connection = Connection::open(path).expect("a database");
    let mut script = format!(
        "PRAGMA page_size = {page_bytes}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         PRAGMA cache_size = -{};",
        CACHE_BYTES >> 10
    );
    for table in Table::ALL {
        let columns = columns(table);
        let defined = columns.join(" INTEGER NOT NULL, ");
        // A single number is the row's own in the layout with row numbers: no index is needed then.
        let _ = write!(
            script,
            "CREATE TABLE IF NOT EXISTS {}({defined} INTEGER NOT NULL, block BLOB NOT NULL, \
             PRIMARY KEY({})){layout};",
            table.name(),
            columns.join(", "),
        );
    }
    let _ = write!(
        script,
        "CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    );
    connection.execute_batch(&script).expect("tables");
    connection.set_prepared_statement_cache_capacity(64);
    Box::new(Sqlite(connection))
}

impl Engine for Sqlite {
    fn write(&mut self, transaction: &Transaction) {
        let writing = self.0.transaction().expect("a transaction");
        for (table, key, value) in &transaction.rows {
            let marks = ["?"; 5][..=table.arity()].join(", ");
            let text = format!("INSERT OR REPLACE INTO {} VALUES({marks})", table.name());
            let mut statement = writing.prepare_cached(&text).expect("a statement");
            for (index, number) in key[..table.arity()].iter().enumerate() {
                statement.raw_bind_parameter(index + 1, number.cast_signed()).expect("a number");
            }
            statement.raw_bind_parameter(table.arity() + 1, value.as_slice()).expect("a block");
            statement.raw_execute().expect("a row");
        }
        if transaction.empties_journal {
            writing
                .prepare_cached("DELETE FROM journal")
                .and_then(|mut text| text.execute([]))
                .expect("removal");
        }
        for (name, value) in &transaction.meta {
            let mut statement =
                writing.prepare_cached("INSERT OR REPLACE INTO meta VALUES(?, ?)").expect("a statement");
            statement.execute((name, value.cast_signed())).expect("a row");
        }
        writing.commit().expect("a commit");
    }

    fn read(
        &self,
        table: Table,
        prefix: &[u64],
        range: Range<u64>,
        session: Option<u64>,
        visit: &mut dyn FnMut(&[u8]),
    ) {
        let columns = columns(table);
        let mut text = format!("SELECT block FROM {} WHERE ", table.name());
        for column in &columns[..prefix.len()] {
            let _ = write!(text, "{column} = ? AND ");
        }
        let last = columns[prefix.len()];
        let _ = write!(text, "{last} >= ? AND {last} < ?");
        if session.is_some() {
            text += " AND session = ?";
        }
        let _ = write!(text, " ORDER BY {}", columns.join(", "));
        let mut statement = self.0.prepare_cached(&text).expect("a statement");
        let end = i64::try_from(range.end).unwrap_or(i64::MAX);
        let numbers = prefix.iter().copied().chain([range.start]).map(u64::cast_signed);
        let numbers = numbers.chain([end]).chain(session.map(u64::cast_signed));
        let mut rows = statement.query(params_from_iter(numbers)).expect("rows");
        while let Some(row) = rows.next().expect("a row") {
            visit(row.get_ref(0).and_then(|block| Ok(block.as_blob()?)).expect("a block"));
        }
    }

    fn lower(&mut self) {
        self.0
            .execute_batch("DELETE FROM raw; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
            .expect("removal and compaction");
    }
}
