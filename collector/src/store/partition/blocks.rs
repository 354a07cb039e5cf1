//! Encodes and decodes blocks of samples, sums and threads.

use std::ops::Range;

use prost::Message as _;
use proto::v1::{Dictionary as Definitions, Thread};
use rusqlite::Connection;

use super::super::column::{self, BlockReader, BlockWriter};
use super::super::error::StoreError;
use super::super::memory::{OpenMinute, Sums};
use super::super::rollup::Level;
use super::tables::{STACKS, THREAD_STACKS, TIMES, session_key};
use profile::source::Sum;

/// A session in a bucket of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket {
    pub(super) level: Level,
    pub(super) start_s: u64,
    pub(super) session: u64,
}

/// Writes the sums of a bucket as those of `fold`.
pub(super) fn put_sums(
    connection: &Connection,
    bucket: Bucket,
    fold: u64,
    sums: &Sums,
) -> Result<(), StoreError> {
    let Bucket { level, start_s, session } = bucket;
    let key = [level as i64, start_s.cast_signed(), session_key(session), fold.cast_signed()];
    let mut block = BlockWriter::default();
    block.number(sums.stacks.len() as u64);
    block.ascending(sums.stacks.iter().map(|row| row.0.into()));
    block.column(sums.stacks.iter().map(|row| row.1.cpu_ns));
    block.column(sums.stacks.iter().map(|row| row.1.samples));
    STACKS.put(connection, &key, &block.finish()?)?;
    let mut block = BlockWriter::default();
    block.number(sums.thread_stacks.len() as u64);
    block.ascending(sums.thread_stacks.iter().map(|row| row.0.into()));
    block.ascending(sums.thread_stacks.iter().map(|row| row.1.into()));
    block.column(sums.thread_stacks.iter().map(|row| row.2.cpu_ns));
    block.column(sums.thread_stacks.iter().map(|row| row.2.samples));
    THREAD_STACKS.put(connection, &key, &block.finish()?)?;
    let mut block = BlockWriter::default();
    block.number(sums.times.len() as u64);
    block.ascending(sums.times.iter().map(|row| row.0.into()));
    block.ascending(sums.times.iter().map(|row| row.1.into()));
    block.column(sums.times.iter().map(|row| row.2));
    TIMES.put(connection, &key, &block.finish()?)
}

pub(super) fn threads_block(threads: &[Thread]) -> Result<Vec<u8>, StoreError> {
    let definitions = Definitions { threads: threads.to_vec(), ..Definitions::default() };
    Ok(column::compress(&definitions.encode_to_vec())?)
}

pub(super) fn raw_block(minute: &OpenMinute) -> Result<Vec<u8>, StoreError> {
    let mut block = BlockWriter::default();
    block.number(minute.len() as u64);
    block.ascending(minute.offset_us.iter().map(|&us| us.into()));
    block.column(minute.thread.iter().map(|&thread| thread.into()));
    block.column(minute.stack.iter().map(|&stack| stack.into()));
    block.column(minute.cpu_ns.iter().copied());
    block.column(minute.count.iter().map(|&count| count.into()));
    Ok(block.finish()?)
}

pub(in super::super) fn read_raw(block: &[u8]) -> Result<OpenMinute, StoreError> {
    let mut block = BlockReader::new(block)?;
    let rows = block.rows()?;
    Ok(OpenMinute {
        offset_us: block.ascending(rows)?.into_iter().map(|us| us as u32).collect(),
        thread: block.narrow(rows)?,
        stack: block.narrow(rows)?,
        cpu_ns: block.column(rows)?,
        count: block.narrow(rows)?,
        origin: Vec::new(),
    })
}

pub(in super::super) fn read_stacks(block: &[u8], mut visit: impl FnMut(u32, Sum)) -> Result<(), StoreError> {
    let mut block = BlockReader::new(block)?;
    let rows = block.rows()?;
    let stacks = block.ascending(rows)?;
    let cpu_ns = block.column(rows)?;
    for (stack, cpu_ns) in stacks.into_iter().zip(cpu_ns) {
        let samples = block.number()?;
        visit(stack as u32, Sum { cpu_ns, samples });
    }
    Ok(())
}

/// Visits the rows of the threads that `is_selected` accepts. Rows of one thread are adjacent, so it is called once
/// for each thread, and rows of other threads are skipped without decoding: a query of one thread among hundreds
/// decodes few rows.
pub(in super::super) fn read_thread_stacks(
    block: &[u8],
    is_selected: impl Fn(u32) -> bool,
    mut visit: impl FnMut(u32, u32, Sum),
) -> Result<(), StoreError> {
    let mut block = BlockReader::new(block)?;
    let rows = block.rows()?;
    let mut runs: Vec<(u32, Range<usize>)> = Vec::new();
    for (row, thread) in block.ascending(rows)?.into_iter().enumerate() {
        match runs.last_mut() {
            Some((last, run)) if *last == thread as u32 => run.end = row + 1,
            _ => runs.push((thread as u32, row..row + 1)),
        }
    }
    runs.retain(|&(thread, _)| is_selected(thread));
    if runs.is_empty() {
        return Ok(());
    }
    let stacks = block.ascending(rows)?;
    let mut selected = Vec::with_capacity(runs.iter().map(|(_, run)| run.len()).sum());
    let mut row = 0;
    for (_, run) in &runs {
        block.skip(run.start - row)?;
        for _ in run.clone() {
            selected.push(block.number()?);
        }
        row = run.end;
    }
    block.skip(rows - row)?;
    let mut cpu_ns = selected.into_iter();
    let mut row = 0;
    for (thread, run) in runs {
        block.skip(run.start - row)?;
        row = run.end;
        for (stack, cpu_ns) in stacks[run].iter().zip(&mut cpu_ns) {
            visit(thread, *stack as u32, Sum { cpu_ns, samples: block.number()? });
        }
    }
    Ok(())
}

pub(in super::super) fn read_times(block: &[u8]) -> Result<Vec<(u32, u32, u64)>, StoreError> {
    let mut block = BlockReader::new(block)?;
    let rows = block.rows()?;
    let (threads, seconds) = (block.ascending(rows)?, block.ascending(rows)?);
    (0..rows).map(|row| Ok((threads[row] as u32, seconds[row] as u32, block.number()?))).collect()
}
