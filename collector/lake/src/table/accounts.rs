//! The table of accounts: a row for each session and interval, with sums since the session began.
//!
//! The row of a session with the highest sequence number is its latest one. `introduction` and `statistics` are the
//! messages `Hello` (without its secret) and `Statistics` of the wire format, from which Tickwalk prints its summaries.

use std::collections::BTreeMap;
use std::io::Write;

use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedFileReader;
use profile::session::Session;
use profile::session::account::CpuTime;
use profile::text::quantity::total;
use prost::Message as _;
use proto::v1::{Hello, Lost, Statistics};

use super::columns::{Column, Group, Labels, Values, create, pairs_of, text, write_group};

const SCHEMA: &str = "message accounts {
    required int64 time (TIMESTAMP(MICROS, true));
    required int64 started (TIMESTAMP(MICROS, true));
    required binary host (STRING);
    required int64 process;
    required binary command (STRING);
    required binary jvm (STRING);
    required binary mode (STRING);
    required int64 interval_ns;
    required int64 samples;
    required int64 process_ns;
    required int64 kernel_ns;
    required int64 sampled_ns;
    required int64 lost_ns;
    required int64 unfinished_ns;
    required binary ended (STRING);
    required group labels (MAP) {
        repeated group key_value {
            required binary key (STRING);
            required binary value (STRING);
        }
    }
    required binary session (STRING);
    required int64 sequence;
    required binary writer (STRING);
    required int64 biased;
    required int64 unknown_samples;
    required int64 missing_messages;
    required int64 counted_ns;
    required binary introduction;
    required binary statistics;
}";

/// A session as of one interval.
#[derive(Clone, Debug)]
pub struct Account {
    /// Id of the session.
    pub id: u64,
    /// The collector that received it.
    pub writer: u64,
    /// The session, without its threads.
    pub session: Session,
}

impl Account {
    /// Returns the account of a session without its threads, whose accounts are in its sums.
    pub fn of(id: u64, writer: u64, session: &Session) -> Account {
        let mut own = Session::default();
        own.introduce(Hello { secret: Vec::new(), token: String::new(), ..session.hello.clone() });
        own.statistics = session.statistics.clone().map(|statistics| with_threads(statistics, session));
        own.goodbye.clone_from(&session.goodbye);
        (own.first_ns, own.last_ns, own.last_sequence) =
            (session.first_ns, session.last_ns, session.last_sequence);
        (own.samples, own.sampled_ns, own.biased) = (session.samples, session.sampled_ns, session.biased);
        own.unknown_samples = session.unknown_samples;
        own.missing_messages = session.missing_messages;
        own.retired_kernel_ns = session.kernel_ns();
        own.retired_sampled_ns = session.accounted_sampled_ns();
        Account { id, writer, session: own }
    }

    /// Returns the CPU time of the process by what became of it.
    fn cpu_time(&self) -> CpuTime {
        let statistics = self.session.statistics.clone().unwrap_or_default();
        let lost = statistics.lost.iter().map(|lost| (lost.cause.clone(), lost.ns)).collect();
        let session = &self.session;
        CpuTime::new(session.mode(), session.kernel_ns(), counted_ns(session), lost, &statistics)
    }
}

/// Returns the CPU time of the samples that the agent sent, to other writers too.
fn counted_ns(session: &Session) -> u64 {
    // Samples can be newer than the statistics.
    session.accounted_sampled_ns().max(session.sampled_ns)
}

/// Adds to `statistics` what only the accounts of threads report.
fn with_threads(mut statistics: Statistics, session: &Session) -> Statistics {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for lost in session.accounts().flat_map(|account| &account.lost) {
        let sum = sums.entry(&lost.cause).or_default();
        *sum = sum.saturating_add(lost.ns);
    }
    for (cause, ns) in sums {
        match statistics.lost.iter_mut().find(|lost| lost.cause == cause) {
            Some(lost) => lost.ns = lost.ns.max(ns),
            None => statistics.lost.push(Lost { cause: cause.to_owned(), ns, ..Lost::default() }),
        }
    }
    let before_timer_ns = total(session.accounts().map(|account| account.before_timer_ns));
    statistics.before_timer_ns = statistics.before_timer_ns.max(before_timer_ns);
    statistics
}

/// Writes accounts to `out`.
///
/// # Errors
/// If writing fails.
pub fn write_accounts(accounts: &[Account], out: impl Write + Send) -> Result<(), ParquetError> {
    let mut file = create(out, SCHEMA)?;
    write_group(&mut file, &columns(accounts))?;
    file.close()?;
    Ok(())
}

/// Returns the columns of the schema.
fn columns(accounts: &[Account]) -> Vec<Column> {
    let times: Vec<CpuTime> = accounts.iter().map(Account::cpu_time).collect();
    let cpu = |of: fn(&CpuTime) -> u64| {
        Values::Long(times.iter().map(|time| of(time).cast_signed()).collect()).into()
    };
    let long = |of: fn(&Session) -> u64| {
        Values::Long(accounts.iter().map(|account| of(&account.session).cast_signed()).collect()).into()
    };
    let bytes = |of: &dyn Fn(&Account) -> Vec<u8>| {
        Values::Text(accounts.iter().map(|account| ByteArray::from(of(account))).collect()).into()
    };
    let text = |of: fn(&Session) -> &str| bytes(&|account| of(&account.session).as_bytes().to_vec());
    let mut labels = Labels::default();
    for account in accounts {
        labels.push(&pairs_of(account.session.hello.labels.iter().map(String::as_str)));
    }
    let [keys, values] = labels.columns();
    vec![
        long(|session| session.last_ns / 1000),
        long(|session| session.first_ns / 1000),
        text(|session| &session.hello.host),
        long(|session| session.hello.pid.into()),
        text(|session| &session.hello.command),
        text(|session| &session.hello.jvm_version),
        text(|session| session.mode().name()),
        long(|session| session.hello.interval_ns),
        long(|session| session.samples),
        cpu(CpuTime::process),
        cpu(|time| time.kernel),
        long(|session| session.sampled_ns),
        cpu(CpuTime::lost_ns),
        cpu(|time| time.unfinished),
        text(ended),
        keys,
        values,
        bytes(&|account| format!("{:016x}", account.id).into_bytes()),
        long(|session| session.last_sequence),
        bytes(&|account| format!("{:016x}", account.writer).into_bytes()),
        long(|session| session.biased),
        long(|session| session.unknown_samples),
        long(|session| session.missing_messages),
        long(counted_ns),
        bytes(&|account| account.session.hello.encode_to_vec()),
        bytes(&|account| {
            account.session.statistics.as_ref().map(Statistics::encode_to_vec).unwrap_or_default()
        }),
    ]
}

/// Returns why a session ended; empty if it did not, as far as is known.
fn ended(session: &Session) -> &str {
    match session.goodbye.as_deref() {
        None => "",
        Some("") => "ended",
        Some(reason) => reason,
    }
}

/// Reads the accounts of a file.
///
/// # Errors
/// If the file is damaged.
pub fn read_accounts<R: ChunkReader + 'static>(
    file: &SerializedFileReader<R>,
) -> Result<Vec<Account>, ParquetError> {
    let mut accounts = Vec::new();
    for group in Group::all(file) {
        read_group(&group?, &mut accounts)?;
    }
    Ok(accounts)
}

/// Adds the accounts of a row group.
///
/// # Errors
/// If the file is damaged.
pub fn read_group(group: &Group<'_>, accounts: &mut Vec<Account>) -> Result<(), ParquetError> {
    let first = accounts.len();
    let damaged = |column: &str| ParquetError::General(format!("column {column} is damaged"));
    for introduction in group.texts("introduction")? {
        let hello = Hello::decode(introduction.data()).map_err(|_| damaged("introduction"))?;
        let mut session = Session::default();
        session.introduce(hello);
        accounts.push(Account { id: session.hello.session_id, writer: 0, session });
    }
    let own = &mut accounts[first..];
    let mut long = |name: &str, set: fn(&mut Session, u64)| {
        let values = group.longs(name)?;
        own.iter_mut()
            .zip(values)
            .for_each(|(account, value)| set(&mut account.session, value.cast_unsigned()));
        Ok::<_, ParquetError>(())
    };
    long("time", |session, us| session.last_ns = us.saturating_mul(1000))?;
    long("started", |session, us| session.first_ns = us.saturating_mul(1000))?;
    long("samples", |session, value| session.samples = value)?;
    long("kernel_ns", |session, value| session.retired_kernel_ns = value)?;
    long("sampled_ns", |session, value| session.sampled_ns = value)?;
    long("counted_ns", |session, value| session.retired_sampled_ns = value)?;
    long("sequence", |session, value| session.last_sequence = value)?;
    long("biased", |session, value| session.biased = value)?;
    long("unknown_samples", |session, value| session.unknown_samples = value)?;
    long("missing_messages", |session, value| session.missing_messages = value)?;
    for (account, ended) in own.iter_mut().zip(group.texts("ended")?) {
        account.session.goodbye = Some(text(&ended)).filter(|reason| !reason.is_empty());
    }
    for (account, writer) in own.iter_mut().zip(group.texts("writer")?) {
        account.writer = u64::from_str_radix(&text(&writer), 16).map_err(|_| damaged("writer"))?;
    }
    for (account, bytes) in own.iter_mut().zip(group.texts("statistics")?) {
        if !bytes.data().is_empty() {
            let statistics = Statistics::decode(bytes.data()).map_err(|_| damaged("statistics"))?;
            account.session.statistics = Some(statistics);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto::v1::ThreadAccount;

    use super::*;

    #[test]
    fn time_that_another_writer_received_is_not_unfinished() {
        let mut session = Session::default();
        session.add_statistics(Statistics { kernel_ns: 300, sampled_ns: 280, ..Statistics::default() });
        session.sampled_ns = 10;
        let cpu = Account::of(9, 1, &session).cpu_time();
        assert_eq!((cpu.kernel, cpu.sampled, cpu.unfinished), (300, 280, 20));
    }

    #[test]
    fn accounts_round_trip_without_secrets_and_threads() {
        let mut session = Session::default();
        session.introduce(Hello {
            session_id: 9,
            service: "shop".into(),
            secret: vec![1, 2],
            labels: vec!["version=2".into(), "odd".into()],
            wall_clock_ns: 1_795_926_896_000_001_000,
            ..Hello::default()
        });
        session.add_account(ThreadAccount {
            thread: 1,
            kernel_ns: 500,
            sampled_ns: 400,
            before_timer_ns: 30,
            lost: vec![Lost { cause: "pool".into(), ns: 60, ..Lost::default() }],
            ..ThreadAccount::default()
        });
        session.add_statistics(Statistics { time_ns: 5, process_cpu_ns: 1000, ..Statistics::default() });
        (session.samples, session.sampled_ns, session.last_sequence) = (4, 400, 17);
        session.goodbye = Some("the JVM ends".into());
        let mut out = Vec::new();
        write_accounts(&[Account::of(9, 0xabc, &session)], &mut out).expect("a file");
        let file = SerializedFileReader::new(Bytes::from(out)).expect("own file");
        let [Account { id, writer, session: read }] = &read_accounts(&file).expect("own file")[..] else {
            panic!("one account")
        };
        assert_eq!((*id, *writer, read.service(), read.hello.secret.len()), (9, 0xabc, "shop", 0));
        assert_eq!((read.samples, read.sampled_ns, read.last_sequence), (4, 400, 17));
        assert_eq!((read.kernel_ns(), read.accounted_sampled_ns(), read.accounts().len()), (500, 400, 0));
        assert_eq!((read.first_ns, &read.goodbye), (session.first_ns, &session.goodbye));
        let cpu = Account { id: 9, writer: 1, session: read.clone() }.cpu_time();
        assert_eq!((cpu.lost_ns(), cpu.before_timer, cpu.unfinished, cpu.process()), (60, 30, 40, 1000));
    }
}
