//! redb, as the store used it in version 1 of its schema.

use std::ops::Range;
use std::path::Path;

use redb::{Database, ReadableDatabase as _, TableDefinition, WriteTransaction};

use crate::engine::{CACHE_BYTES, Engine};
use crate::load::{Key, Table, Transaction};

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

type One = u64;
type Two = (u64, u64);
type Three = (u64, u64, u64);
type Four = (u8, u64, u64, u64);

fn definition<K: redb::Key + 'static>(table: Table) -> TableDefinition<'static, K, &'static [u8]> {
    TableDefinition::new(table.name())
}

fn four(key: Key) -> Four {
    (key[0] as u8, key[1], key[2], key[3])
}

/// An open file.
pub struct Redb(Database);

/// Opens or makes the file at `path`.
pub fn open(path: &Path) -> Box<dyn Engine> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create(path).expect("a database");
    let transaction = database.begin_write().expect("a transaction");
    for table in Table::ALL {
        match table.arity() {
            1 => drop(transaction.open_table(definition::<One>(table)).expect("a table")),
            2 => drop(transaction.open_table(definition::<Two>(table)).expect("a table")),
            3 => drop(transaction.open_table(definition::<Three>(table)).expect("a table")),
            _ => drop(transaction.open_table(definition::<Four>(table)).expect("a table")),
        }
    }
    transaction.commit().expect("a commit");
    Box::new(Redb(database))
}

fn put(transaction: &WriteTransaction, table: Table, rows: &[(Table, Key, Vec<u8>)]) {
    let mut rows = rows.iter().filter(|row| row.0 == table).peekable();
    if rows.peek().is_none() {
        return;
    }
    macro_rules! insert {
        ($key:ty, $of:expr) => {{
            let mut table = transaction.open_table(definition::<$key>(table)).expect("a table");
            for (_, key, value) in rows {
                table.insert($of(*key), value.as_slice()).expect("a row");
            }
        }};
    }
    match table.arity() {
        1 => insert!(One, |key: Key| key[0]),
        2 => insert!(Two, |key: Key| (key[0], key[1])),
        3 => insert!(Three, |key: Key| (key[0], key[1], key[2])),
        _ => insert!(Four, four),
    }
}

impl Engine for Redb {
    fn write(&mut self, transaction: &Transaction) {
        let writing = self.0.begin_write().expect("a transaction");
        for table in Table::ALL {
            put(&writing, table, &transaction.rows);
        }
        if transaction.empties_journal {
            let mut journal = writing.open_table(definition::<One>(Table::Journal)).expect("a table");
            journal.retain(|_, _| false).expect("removal");
        }
        if !transaction.meta.is_empty() {
            let mut meta = writing.open_table(META).expect("a table");
            for (name, value) in &transaction.meta {
                meta.insert(name.as_str(), value).expect("a row");
            }
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
        let reading = self.0.begin_read().expect("a transaction");
        let bound = |last: u64| {
            let mut key = [0; 4];
            key[..prefix.len()].copy_from_slice(prefix);
            key[prefix.len()] = last;
            key
        };
        let (from, to) = (bound(range.start), bound(range.end));
        let is_wanted = |id: u64| session.is_none_or(|session| session == id);
        macro_rules! visit {
            ($key:ty, $of:expr, $session:expr) => {{
                let table = reading.open_table(definition::<$key>(table)).expect("a table");
                for entry in table.range($of(from)..$of(to)).expect("rows") {
                    let (key, value) = entry.expect("a row");
                    if is_wanted($session(key.value())) {
                        visit(value.value());
                    }
                }
            }};
        }
        match table.arity() {
            1 => visit!(One, |key: Key| key[0], |key: One| key),
            2 => visit!(Two, |key: Key| (key[0], key[1]), |key: Two| key.0),
            3 => visit!(Three, |key: Key| (key[0], key[1], key[2]), |key: Three| key.1),
            _ => visit!(Four, four, |key: Four| key.2),
        }
    }

    fn lower(&mut self) {
        let writing = self.0.begin_write().expect("a transaction");
        {
            let mut raw = writing.open_table(definition::<Three>(Table::Raw)).expect("a table");
            raw.retain(|_, _| false).expect("removal");
        }
        writing.commit().expect("a commit");
        self.0.compact().expect("compaction");
    }
}
